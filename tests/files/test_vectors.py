"""Word vectors are the numbers and words that stand in their files, found by one pass over the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from embcli.errors import InputError, Notes
from embcli.files import open_tensors, vectors
from embcli.files.tensors import Tensors
from embcli.layer import Layer
from tests.files.made import assert_equal, assert_rows, matrix, refusal

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


def line(word: str, values: np.ndarray) -> str:
    return f"{word} {' '.join(map(repr, map(float, values)))}"


def text_file(
    path: Path, words: list[str], values: np.ndarray, header: bool = False, end: str = "\n"
) -> Path:
    first = f"{len(words)} {values.shape[1]}{end}" if header else ""
    body = "".join(f"{line(word, row)}{end}" for word, row in zip(words, values, strict=True))
    path.write_bytes((first + body).encode())
    return path


def binary_file(path: Path, words: list[str], values: np.ndarray, end: bytes = b"\n") -> Path:
    rows = (
        word.encode() + b" " + row.astype("<f4").tobytes() + end
        for word, row in zip(words, values, strict=True)
    )
    path.write_bytes(f"{len(words)} {values.shape[1]}\n".encode() + b"".join(rows))
    return path


def opened(path: Path) -> tuple[Tensors, Layer, list[str]]:
    tensors = open_tensors(path)
    own = tensors.own_words()
    return (
        tensors,
        tensors.layer(path.stem),
        [own.token_bytes(row).decode() for row in range(own.vocabulary_size)],
    )


@pytest.mark.parametrize("end", ["\n", " \n", "\r\n", "\t\n", "  \n"], ids=repr)
@pytest.mark.parametrize("header", [False, True])
def test_rows_and_words_of_text_are_those_of_the_file(
    tmp_path: Path, header: bool, end: str
) -> None:
    values = matrix(len(WORDS), 5)
    tensors, layer, words = opened(text_file(tmp_path / "m.txt", WORDS, values, header, end))
    assert words == WORDS
    assert (tensors["m"].shape, tensors["m"].dtype) == ((len(WORDS), 5), "decimal")
    assert_rows(layer, values)


@pytest.mark.parametrize("word", ["a\x01b", "\x7f", "\x1b[2J", "x y\x02 z"])
def test_a_control_character_in_an_early_word_is_part_of_a_text(tmp_path: Path, word: str) -> None:
    """In the first line, in a later one, and where the sample that tells text from binary numbers cuts the word."""
    word += 60 * "y"
    words, values = [f"w{number}" for number in range(300)], matrix(300, 4)
    body = "".join(f"{line(each, row)}\n" for each, row in zip(words, values, strict=True))
    at_the_end = body[:4096].count("\n")
    for place in (0, 7, at_the_end):
        _, layer, found = opened(
            text_file(tmp_path / "m.txt", [*words[:place], word, *words[place + 1 :]], values, True)
        )
        assert (found[place], len(found)) == (word, 300)
        assert_rows(layer, values)


@settings(max_examples=20, deadline=None)
@given(st.integers(1, 3), st.integers(1, 3), st.data())
def test_no_small_binary_form_passes_for_text(
    tmp_path_factory: pytest.TempPathFactory, count: int, dim: int, data: st.DataObject
) -> None:
    """Also with newlines and blanks among its bytes, as long as one of them is none of a text's."""
    letters = st.sampled_from(b"\n \t1\x01\x80")
    rows = np.array(
        data.draw(st.lists(letters, min_size=4 * count * dim, max_size=4 * count * dim)), np.uint8
    )
    rows.reshape(count, -1)[:, -1] = data.draw(st.sampled_from([1, 0x80]))
    values = rows.view("<f4").reshape(count, dim)
    _, layer, found = opened(
        binary_file(tmp_path_factory.getbasetemp() / "small.bin", ["a", "b", "c"][:count], values)
    )
    assert found == ["a", "b", "c"][:count]
    assert_rows(layer, values)


@pytest.mark.parametrize("end", [b"", b"\n", b"\n" * 6])
def test_rows_and_words_of_the_binary_form_are_those_of_the_file(
    tmp_path: Path, end: bytes
) -> None:
    words = [word for word in WORDS if " " not in word]
    values = matrix(len(words), 5)
    path = binary_file(tmp_path / "m.bin", words, values, end)
    os.truncate(
        path, path.stat().st_size - len(end[1:])
    )  # several newlines stand between rows alone
    tensors, layer, found = opened(path)
    assert found == words
    assert (tensors["m"].shape, tensors["m"].dtype) == ((len(words), 5), "float32")
    assert_rows(layer, values)


def test_numbers_may_be_written_in_other_ways_and_between_tabs(tmp_path: Path) -> None:
    (tmp_path / "m.txt").write_bytes(b"a\t1e-3\t-.5\t+7\nb nan inf  -Infinity\nc 1. 1e99 0\n\n\n")
    _, layer, words = opened(tmp_path / "m.txt")
    assert words == ["a", "b", "c"]
    wanted = [[1e-3, -0.5, 7], [np.nan, np.inf, -np.inf], [1, np.inf, 0]]
    assert_rows(layer, np.array(wanted, np.float32))


def test_the_first_of_equal_words_is_found(tmp_path: Path) -> None:
    own = open_tensors(text_file(tmp_path / "m.txt", WORDS, matrix(len(WORDS), 3))).own_words()
    assert own.encode("the nan -0.5 the").tolist() == [0, 2, 10, 0]


@given(
    st.lists(
        st.tuples(st.text("abc \t.é", min_size=1, max_size=4), st.booleans()),
        min_size=1,
        max_size=30,
    )
)
def test_words_with_spaces_keep_them(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[tuple[str, bool]]
) -> None:
    words = [word.strip() or "x" for word, _ in drawn]
    path = tmp_path_factory.getbasetemp() / "spaces.txt"
    values = matrix(len(words) + 1, 3)
    text_file(path, ["first", *words], values, end=" \n" if drawn[0][1] else "\n")
    _, layer, found = opened(path)
    assert found == ["first", *words]
    assert_rows(layer, values)


@pytest.mark.parametrize("form", [text_file, binary_file])
def test_small_windows_give_the_same_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: Callable[..., Path]
) -> None:
    words = [f"w{number}" for number in range(500)]
    monkeypatch.setattr(vectors, "LONGEST_LINE", 64)
    _, layer, found = opened(form(tmp_path / "m.txt", words, matrix(500, 2)))
    assert found == words
    assert_rows(layer, matrix(500, 2))


def test_a_note_is_made_where_going_through_a_file_takes_seconds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vectors, "LARGE", 10)
    notes = Notes()
    open_tensors(text_file(tmp_path / "large.txt", ["a", "b"], matrix(2, 3)), notes)
    assert list(notes) == ["large.txt is read whole to find its words; this takes a while"]


# --- refusals -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"a 1 2 3\nb 1 2\n", "line 2 has 2 numbers after its word, not 3"),
        (b"a 1 2 3\nb 1 2 3 4\n", "line 2 has 4 numbers"),
        (b"2 3\na 1 2 3\nb 1 2\n", "line 3 has 2 numbers"),
        (b"2 3\na 1 2\nb 1 2\n", "line 2 has 2 numbers"),
        (b"a 1 2 3\n\nb 1 2 3\n", "line 2 has 0 numbers"),
        (b"a 1 2 3\n 1 2 3\n", "line 2 has 2 numbers"),
        (b"a 1 2 3\nb 1 x 3\n", "line 2 has 'x' in place of a number"),
        (b"2 3\na 1 2 3\nb 1 x 3\n", "line 3 has 'x' in place of a number"),
        (b"a 1 2 3\nb 1 \x1b[2J 3\n", r"line 2 has '\x1b[2J' in place"),
        (b"a 1 2 3\nb 1 2  3\nc 1  2\n", "line 3 has 2 numbers"),
        (b"3 3\na 1 2 3\nb 1 2 3\n", "promises 3 rows, and it has 2"),
        (b"1 3\na 1 2 3\nb 1 2 3\n", "promises 1 rows, and it has 2"),
        (b"0 3\n", "no line"),
        (b"5 3\n\n\n", "no line"),
        (b"a 1 2 3\n" + b"b" * 5_000_000, "line 2 has more than 4,194,304 bytes"),
        (b"2 3\nab \0\0\0\0\1\1\1\1\2\2\2\2\nb \0\0\0", "promises 2 rows of 3 numbers"),
        (b"2 3\nabcdefghijklmnop \0\0\0\0\1\1\1\1\2\2\2\2\nb \0\0\0", "ends within row 1 of 2"),
        (b"2 3\nab " + bytes(12) + b"x" * 13, "ends within row 1 of 2"),
        (b"1 2\na \0\0\0\0\1\1\1\1\nxxxx", "5 bytes follow"),
        (
            b"99999999999999999 3\na \0\0\0\0\1\1\1\1\2\2\2\2",
            "promises 99,999,999,999,999,999 rows",
        ),
        (b"1 99999999999999999\na \0\0\0\0\1\1\1\1\2\2\2\2", "promises 1 rows"),
        (b"1 0\na \0\0\0\0", "promises 1 rows of 0 numbers"),
    ],
)
def test_files_that_are_ragged_or_lie_are_refused(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "m.txt").write_bytes(text)

    with pytest.raises(InputError) as caught:
        open_tensors(tmp_path / "m.txt").array("m")
    assert reason in str(caught.value)
    assert "m.txt" in str(caught.value)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello\n\xff", "begins with b'hello"),
        (b"hello\n", "it is a text, not a model"),
        ("hällo ".encode() * 20_000 + b"\xc3", "it is a text, not a model"),
        (b"PAR1\x15\x04", "it is a table in parquet, which embcli writes only"),
        (b"version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 5\n", "git lfs pull"),
        (b"<!DOCTYPE html>\n<html>", "it is a text, not a model"),
        (b"text\x1b[2J", "begins with"),
        (bytes(1000), "begins with"),
    ],
)
def test_files_of_no_known_format_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "m.bin").write_bytes(data)
    assert reason in refusal(tmp_path / "m.bin")


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for name, reason in (
        ("pipe", "not a regular file"),
        (".", "not a regular file"),
        ("none", "No such file"),
        ("a\0b", "null"),
    ):
        with pytest.raises(InputError, match=reason):
            open_tensors(tmp_path / name)


@pytest.mark.parametrize("form", [text_file, binary_file])
def test_a_file_that_is_cut_while_it_is_read_is_a_sentence(
    tmp_path: Path, form: Callable[..., Path]
) -> None:
    values = matrix(200, 64)
    path = form(tmp_path / "m.bin", [f"w{row}" for row in range(200)], values)
    layer = opened(path)[1]
    os.truncate(path, path.stat().st_size // 2)
    assert_equal(layer.rows(np.array([0, 9])), values[[0, 9]])
    with pytest.raises(InputError, match="cut off while it was read"):
        layer.rows(np.array([3, 199]))
