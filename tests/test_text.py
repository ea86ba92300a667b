"""Reading: an argument, a file or standard input, as text or IDs, whole or line by line, and what is wrong with it."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embcli.cli.input import read, read_ids
from embcli.errors import InputError
from embcli.text import Sequences, decoded, parse_ids

IDS = st.lists(st.integers(0, 2**63 - 1), max_size=20)


def pipe(patch: pytest.MonkeyPatch, data: bytes) -> None:
    patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="ascii"))


def texts(result: Sequences) -> list[str]:
    assert result.ids is None
    return [*(result.texts or ())]


def ids(result: Sequences) -> list[list[int]]:
    assert result.texts is None
    assert all(each.dtype == np.int64 for each in result.ids or ())
    return [each.tolist() for each in result.ids or ()]


@given(text=st.text(st.characters(codec="utf-8"), max_size=40))
@example(text="\r\n a\r\x00\ufeff🤖 \n")
def test_every_way_in_gives_the_text_whole(
    text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "whole.txt"
    path.write_bytes(text.encode())
    if text != "-":
        assert texts(read(text)) == [text]
    assert texts(read(file=path)) == [text]
    for arguments in ({}, {"text": "-"}, {"file": Path("-")}):
        with pytest.MonkeyPatch.context() as patch:
            pipe(patch, text.encode())
            assert texts(read(**arguments)) == [text]


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("", []),
        ("\n", [""]),
        ("a", ["a"]),
        ("a\n", ["a"]),
        (" a\t\n\n b ", [" a\t", "", " b "]),
        ("a\r\n\r\nb\r\n", ["a", "", "b"]),
        ("a\n\r", ["a"]),
        ("a\rb\x0bc\x0cd\x85e\u2028f\n", ["a\rb\x0bc\x0cd\x85e\u2028f"]),  # as wc -l counts lines
    ],
)
def test_lines(text: str, lines: list[str], tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(text.encode())
    assert texts(read(text, lines=True)) == lines
    assert texts(read(file=tmp_path / "lines", lines=True)) == lines


@given(IDS, st.sampled_from([",", " ", "\n", ", ", "\t"]))
@example([2**63 - 1, 10**18, 999999999999999999, 0], ",")
def test_ids_are_read_exactly(numbers: list[int], between: str) -> None:
    written = between.join(map(str, numbers))
    assert parse_ids(written).tolist() == numbers
    assert parse_ids(json.dumps(numbers)).tolist() == numbers


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        *(
            (form, [2, 3, 5, 1])
            for form in ("2,3,5,1", "2, 3,5 1", "2\n3\r\n5\t1\n", " [2,3,\n5,1]\n", "2:4,5,1,")
        ),
        *((separators, []) for separators in ("", ",", " , ", "[ ]", "[,]", "\n")),
    ],
)
def test_forms_of_ids(written: str, wanted: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    assert ids(read(ids=written)) == [wanted]
    pipe(monkeypatch, written.encode())
    assert ids(read(ids="-")) == [wanted]


@given(st.lists(IDS, max_size=5))
def test_a_line_of_ids_is_a_sequence(lines: list[list[int]]) -> None:
    written = "".join(" ".join(map(str, line)) + "\n" for line in lines)
    assert ids(read(ids=written, lines=True)) == lines
    assert ids(read(ids="".join(f"{json.dumps(line)}\r\n" for line in lines), lines=True)) == lines
    assert ids(read(ids=written)) == [[number for line in lines for number in line]]


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("2,x,5", "'x' at position 1 is not a token ID: IDs are whole numbers from 0"),
        ("2 3.5", "'3.5' at position 1 is not a token ID: IDs are whole numbers from 0"),
        ("1e3", "'1e3' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("1_000", "'1_000' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("+1", "'+1' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("1 ٣", "'٣' at position 1 is not a token ID: IDs are whole numbers from 0"),
        ("1 \x002", "'\\x002' at position 1 is not a token ID: IDs are whole numbers from 0"),
        ("0x10", "'0x10' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("[1, 2", "'[1' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("[[1], [2]]", "'[1]' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("true", "'true' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("--5", "'--5' at position 0 is not a token ID: IDs are whole numbers from 0"),
        ("7,-3", "ID -3 at position 1 is negative: IDs are whole numbers from 0"),
        (
            "7 8 9223372036854775808",
            "ID 9223372036854775808 at position 2 is beyond any vocabulary",
        ),
        ("9" * 5000, f"ID {'9' * 60} at position 0 is beyond any vocabulary"),
        (
            "-" + "9" * 5000,
            f"ID -{'9' * 59} at position 0 is negative: IDs are whole numbers from 0",
        ),
    ],
)
def test_what_is_no_id_is_refused_with_its_place(written: str, message: str) -> None:
    with pytest.raises(InputError) as error:
        parse_ids(written)
    assert str(error.value) == message


@given(st.binary(max_size=20))
@example(b"ab\xe2\x80")
@example(b"\xed\xa0\x80")
def test_bytes_that_are_no_utf8_are_refused_with_their_offset(data: bytes) -> None:
    try:
        expected = data.decode()
    except UnicodeDecodeError as error:
        with pytest.raises(
            InputError, match=f"byte 0x{data[error.start]:02x} at offset {error.start} "
        ) as refused:
            decoded(data, "standard input")
        assert str(refused.value).startswith("standard input is not UTF-8: ")
    else:
        assert decoded(data, "standard input") == expected


@pytest.mark.parametrize("name", ["missing", "", "nul\x00byte"])
def test_a_file_that_cannot_be_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"^cannot read '") as error:
        read(file=tmp_path / name)
    assert repr(str(tmp_path / name)) in str(error.value)


def test_ids_alone_are_read_from_the_argument_or_the_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    assert read_ids("2 3,5").tolist() == [2, 3, 5]
    assert read_ids("").tolist() == []
    for argument in (None, "-"):
        pipe(monkeypatch, b"5\n1\n")
        assert read_ids(argument).tolist() == [5, 1]


@pytest.mark.parametrize(
    ("data", "given", "told"),
    [
        ("a\r\nb\r\n", {}, "the text keeps 2 carriage returns"),
        ("a\r\nb\r", {}, "the text keeps 2 carriage returns"),
        ("a\r\nb\rc", {"lines": True}, "the text keeps 1 carriage return"),
        ("a\r\nb\r\n", {"lines": True}, ""),  # which lose them anyway
        ("a\nb\n", {}, ""),
    ],
)
def test_a_note_tells_of_line_ends_that_python_would_change(
    data: str,
    given: dict,
    told: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pipe(monkeypatch, data.encode())
    read(**given)
    wanted = f"embcli: {told}; Python's open() reads them as LF\n" if told else ""
    assert capsys.readouterr().err == wanted
    read(data.removesuffix("\n"), **given)  # not of a file
    assert capsys.readouterr().err == ""
