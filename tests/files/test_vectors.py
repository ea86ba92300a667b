"""Word vectors are the numbers and words of their files, found by one pass over the file."""

from __future__ import annotations

import bz2
import gzip
import lzma
import os
import struct
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st

from embcli.errors import InputError, Notes
from embcli.files import open_tensors, vectors
from embcli.layer import Layer
from tests.cases import cases
from tests.files.made import assert_equal, assert_rows, layer, matrix, refused, tensors_of

WORDS = [
    "the",
    "</s>",
    "nan",
    "1",
    "Café",
    "\u00a0",
    "a\u0085b",
    "the",
    ". . .",
    "at name@example.com",
    "-0.5",
]


def text_file(
    path: str, words: list[str], values: np.ndarray, header: bool = False, end: str = "\n"
) -> str:
    """Write each word and its numbers on a line, behind a line of both counts or not."""
    lines = []
    if header:
        lines.append(f"{len(words)} {values.shape[1]}")
    for word, row in zip(words, values.tolist(), strict=True):
        lines.append(" ".join([word, *map(repr, row)]))
    text = "".join(line + end for line in lines)
    Path(path).write_bytes(text.encode())
    return path


def layer_of(path: str) -> Layer:
    return layer(path, Path(path).stem)


def assert_words(path: str, words: list[str], values: np.ndarray) -> None:
    """Compare the words and the rows of a file with others."""
    assert words_of(path) == words
    assert_rows(layer_of(path), values)


def words_of(path: str) -> list[str]:
    """Return the word of each row."""
    own = tensors_of(path).own_words()
    words = map(own.token_bytes, range(own.vocabulary_size))
    return [word.decode() for word in words]


# --- rows and words -------------------------------------------------------------------------------


@cases
@pytest.mark.parametrize("header", [False, True])
def test_rows_and_words_of_text_are_those_of_the_file(header, end):
    values = matrix(len(WORDS), 5)
    path = text_file("m.txt", WORDS, values, header, end)
    assert words_of(path) == WORDS
    assert tensors_of(path)["m"].dtype == "decimal"
    assert_rows(layer_of(path), values)


@cases
def test_a_control_character_in_an_early_word_is_part_of_a_text(word):
    """In the first line, and in a later one."""
    values = matrix(300, 4)
    plain = [f"w{number}" for number in range(300)]
    for place in (0, 7):
        words = plain.copy()
        words[place] = word
        path = text_file("m.txt", words, values, header=True)
        assert_words(path, words, values)


def test_numbers_may_be_written_in_other_ways_and_between_tabs():
    Path("m.txt").write_bytes(b"a\t1e-3\t-.5\t+7\nb nan inf  -Infinity\nc 1. 1e99 0\n\n\n")
    assert words_of("m.txt") == ["a", "b", "c"]
    expected = [[1e-3, -0.5, 7], [np.nan, np.inf, -np.inf], [1, np.inf, 0]]
    assert_rows(layer_of("m.txt"), np.array(expected, np.float32))


@cases
def test_words_end_where_their_numbers_begin(name, text, words):
    Path(name).write_text(text, "utf-8")
    assert_words(name, words, np.float32([[0.1, 0.2], [1, 2], [3, 4]]))


def test_most_of_the_first_lines_decide_how_many_numbers_a_word_has():
    """A line beyond them, and a few among them, change nothing."""
    words = [f"route {number}" for number in range(400)]
    words += [f"w{number}" for number in range(601)]
    words += [f"route {number}" for number in range(700)]
    values = matrix(len(words), 2)
    path = text_file("m.txt", words, values)
    assert_words(path, words, values)


def test_a_quote_and_a_comma_are_words():
    """Between them would be a longer field than csv allows."""
    words = [",", '"', *map(str, range(1000))]
    values = matrix(len(words), 40)
    path = text_file("m.txt", words, values)
    assert_words(path, words, values)


def test_sizes_that_do_not_agree_are_a_line_like_others():
    assert "line 1 has 1 number " in refused("m.txt", b"2 3\na 1 2\nb 1 2\n")
    assert "promises 5 rows" in refused("m.txt", b"5 2\na 1 2\nb 1 2\n")


def test_the_first_of_equal_words_is_found():
    path = text_file("m.txt", WORDS, matrix(len(WORDS), 3))
    own = tensors_of(path).own_words()
    assert own.encode("the nan -0.5 the").tolist() == [0, 2, 10, 0]


DRAWN_WORDS = st.lists(st.text("abc \t.é", min_size=1, max_size=4), min_size=1, max_size=30)


@given(DRAWN_WORDS, st.sampled_from(["\n", " \n"]))
def test_words_with_spaces_keep_them(drawn, end):
    words = ["first", *(word.strip() or "x" for word in drawn)]
    values = matrix(len(words), 3)
    path = text_file("spaces.txt", words, values, end=end)
    assert_words(path, words, values)


def test_small_windows_give_the_same_rows(monkeypatch):
    words = [f"w{number}" for number in range(500)]
    monkeypatch.setattr(vectors, "LONGEST_LINE", 64)
    path = text_file("m.txt", words, matrix(500, 2))
    assert_words(path, words, matrix(500, 2))


def test_a_note_is_made_where_going_through_a_file_takes_seconds(
    monkeypatch,
):
    monkeypatch.setattr(vectors, "LARGE", 10)
    notes = Notes()
    text_file("large.txt", ["a", "b"], matrix(2, 3))
    open_tensors(Path("large.txt"), notes)
    (note,) = notes
    assert "large.txt is read whole" in str(note)


# --- refusals -------------------------------------------------------------------------------------


@cases
def test_files_that_are_ragged_or_lie_are_refused(text, reason):
    assert reason in refused("m.vec", text.encode("latin-1"))


def test_a_line_that_does_not_end_is_refused():
    text = b"a 1 2 3\n" + b"b" * 5_000_000
    assert "line 2 has more than 4,194,304 bytes" in refused("m.vec", text)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello\n\xff", "begins with b'hello"),
        (b"hello\n", "it is a text, not a model"),
        ("hällo ".encode() * 20_000 + b"\xc3", "it is a text, not a model"),
        (gzip.compress(b"a 1 2\n", mtime=0), "gunzip"),
        (bz2.compress(b"a 1 2\n"), "bunzip2"),
        (lzma.compress(b"a 1 2\n"), "unxz"),
        (struct.pack("<2i", 793_712_314, 12), "a model of fastText"),
        (b"1 2\na " + struct.pack("<2f", 1, 0.1) + b"\n", "binary vectors of word2vec; gensim"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "it is a web page"),
        (b"text\x1b[2J", "begins with"),
        (bytes(1000), "begins with"),
    ],
)
def test_files_of_no_known_format_are_refused(data, reason):
    assert reason in refused("m.bin", data)


@cases
def test_what_is_no_file_is_refused(name, reason):
    os.mkfifo("pipe")
    with pytest.raises(InputError, match=reason):
        tensors_of(name)


def test_a_file_that_is_cut_while_it_is_read_is_a_sentence():
    values = matrix(200, 64)
    path = text_file("m.txt", [f"w{row}" for row in range(200)], values)
    found = layer_of(path)
    size = Path(path).stat().st_size
    os.truncate(path, size // 2)
    assert_equal(found.rows(np.array([0, 9])), values[[0, 9]])
    with pytest.raises(InputError, match="cut off while it was read"):
        found.rows(np.array([3, 199]))
