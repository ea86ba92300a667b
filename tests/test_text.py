"""Reading: an argument, a file or standard input, as text or IDs, whole or line by line."""

from __future__ import annotations

import io
import json
import re
import shlex
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

from embcli.cli.groups import Given
from embcli.cli.input import read_ids
from embcli.errors import InputError
from embcli.text import Sequences, decoded, parse_ids
from embcli.tokens import Reading
from tests.cases import cases

IDS = st.lists(st.integers(0, 10**18 - 1), max_size=20)


def read(text=None, file=None, ids=None, lines=False) -> Sequences:
    given = Given({"text": text, "file": file, "ids": ids})
    return given.read("embcli tokenize hi", lines)


def pipe(patch: pytest.MonkeyPatch, data: bytes) -> None:
    """Pipe data into standard input."""
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def texts(result: Sequences) -> list[str]:
    assert result.ids is None
    return [*(result.texts or ())]


def ids(result: Sequences) -> list[list[int]]:
    assert result.texts is None
    arrays = result.ids or ()
    assert all(array.dtype == np.int64 for array in arrays)
    return [array.tolist() for array in arrays]


# --- text -----------------------------------------------------------------------------------------


@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
@example(text="\r\n a\r\x00\ufeff🤖 \n")
def test_every_way_in_gives_the_text_whole(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "whole.txt"
    path.write_bytes(text.encode())

    assert texts(read(file=path)) == [text]
    if text != "-":
        assert texts(read(text)) == [text]
    for arguments in ({}, {"text": "-"}, {"file": Path("-")}):
        with pytest.MonkeyPatch.context() as patch:
            pipe(patch, text.encode())
            assert texts(read(**arguments)) == [text]


@cases
def test_a_line_is_a_text(text, lines):
    assert texts(read(text, lines=True)) == lines


@given(st.binary(max_size=20))
@example(b"ab\xe2\x80")
@example(b"\xed\xa0\x80")
def test_bytes_that_are_no_utf8_are_refused_with_their_offset(data):
    try:
        expected = data.decode()
    except UnicodeDecodeError as error:
        place = f"standard input .* 0x{data[error.start]:02x} at offset {error.start} "
        with pytest.raises(InputError, match=place):
            decoded(data, "standard input")
    else:
        assert decoded(data, "standard input") == expected


@pytest.mark.parametrize("name", ["", "nul\x00byte"])
def test_a_file_that_cannot_be_read_is_named(name, tmp_path):
    path = tmp_path / name

    with pytest.raises(InputError, match=re.escape(f"read {str(path)!r}")):
        read(file=path)


# --- IDs ------------------------------------------------------------------------------------------


@given(IDS, st.sampled_from([",", " ", "\n", ", ", "\t"]))
@example([10**18 - 1, 0], ",")
def test_ids_are_read_exactly(numbers, between):
    written = between.join(map(str, numbers))

    assert parse_ids(written).tolist() == numbers
    assert parse_ids(json.dumps(numbers)).tolist() == numbers


@cases
def test_ids_have_many_forms(written, expected):
    assert parse_ids(written).tolist() == expected


@given(st.lists(IDS, max_size=5))
def test_a_line_of_ids_is_a_sequence(lines):
    written = ""
    written_as_json = ""
    joined = []
    for line in lines:
        written += " ".join(map(str, line)) + "\n"
        written_as_json += json.dumps(line) + "\r\n"
        joined += line

    assert ids(read(ids=written, lines=True)) == lines
    assert ids(read(ids=written_as_json, lines=True)) == lines
    assert ids(read(ids=written)) == [joined]


@cases
def test_what_is_no_id_is_refused_with_its_place(word):
    with pytest.raises(InputError, match=f"^{re.escape(repr(word))} at position 1 is not"):
        parse_ids(f"2,{word},5")


@pytest.mark.parametrize(
    ("written", "beginning"),
    [
        ("[1, 2", r"'\[1' at position 0 is not"),
        ("7,-3", "'-3' at position 1 is not"),
        ("7 8 1000000000000000000", "'1000000000000000000' at position 2 is not"),
        ("9" * 5000, f"'{'9' * 200}...' at position 0 is not"),
    ],
)
def test_what_is_no_list_of_ids_is_refused_with_its_place(written, beginning):
    with pytest.raises(InputError, match=f"^{beginning}"):
        parse_ids(written)


@pytest.mark.parametrize("argument", [None, "-"])
def test_ids_are_read_from_the_pipe(argument, monkeypatch):
    pipe(monkeypatch, b"5\n1\n")
    assert read_ids(argument).tolist() == [5, 1]

    pipe(monkeypatch, b"[5, 1]\r\n")
    assert ids(read(ids="-")) == [[5, 1]]


# --- tokens ---------------------------------------------------------------------------------------


@cases
def test_what_changes_all_texts_stands_in_one_place(in_process, monkeypatch, line):
    expected = in_process.ok(*shlex.split(line.lower())).out
    assert in_process(*shlex.split(line)).out != expected

    ids = Reading.ids
    monkeypatch.setattr(Reading, "ids", lambda self, text: ids(self, text.lower()))

    assert in_process.ok(*shlex.split(line)).out == expected
