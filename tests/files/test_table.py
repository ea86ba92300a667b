"""Numbers as text are what numpy wrote, and word vectors stay word vectors."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

import embcli
from embcli.errors import Notes
from embcli.files import open_tensors
from tests.cases import cases
from tests.files.made import assert_rows, matrix, refused


def assert_table(name: str, values: np.ndarray) -> None:
    """Compare the rows of a table with a matrix."""
    tensors = open_tensors(Path(name))
    assert tensors.format == "numbers as text"
    assert_rows(tensors.layer(Path(name).stem), values)


@cases
def test_what_savetxt_writes_are_the_rows(options):
    values = matrix(50, 4)
    if options.get("delimiter") == ",":
        values[0, 0] = np.nan  # with spaces, it is a word
    values[3] = [np.nan, np.inf, -np.inf, 0]
    written = np.c_[np.arange(50), values[:, 1:]] if "header" in options else values
    np.savetxt("own.txt", written, **options)

    tensors = open_tensors(Path("own.txt"))

    expected = values[:, 1:] if "header" in options else values
    assert tensors.format == "numbers as text"
    atol = 1e-8 if "fmt" in options else 0
    found = tensors.layer("own").whole()
    assert np.allclose(found, expected, rtol=0, atol=atol, equal_nan=True)


@pytest.mark.parametrize("name", ["own.csv", "own.tsv"])
def test_own_csv_and_tsv_have_the_rows_of_the_result(name):
    found = embcli.seeded(vocab=70_000, dim=5).lookup('a,"b" #\n\t\\')
    found.save(name)
    assert_rows(open_tensors(Path(name)).layer("own"), found.input)


@cases
def test_a_header_is_no_row(before, names):
    values = matrix(5, 3)
    lines = []
    for row, numbers in enumerate(values.tolist()):
        fields = [row, *numbers] if names else numbers
        lines.append(",".join(map(str, fields)))
    Path("own.csv").write_text(before + "\n".join(lines), "utf-8", newline="")

    assert_table("own.csv", values)


@pytest.mark.parametrize(
    "header",
    [
        "",
        ",0,1,2\n",  # pandas' to_csv(), whose index is the words
        "word,x,y,z\n",
        '"","x","y","z"\n',  # R's write.csv
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_words_in_csv_are_no_part_of_the_matrix(header, end):
    words = ["#", "the", "7", "a,b", 'say "a"', "two\nlines", "#1"]
    values = matrix(len(words), 3)
    with open("own.csv", "w", encoding="utf-8", newline="") as file:
        file.write(header.replace("\n", end))
        writer = csv.writer(file, lineterminator=end)
        for word, row in zip(words, values.tolist(), strict=True):
            writer.writerow([word, *row])
    assert_table("own.csv", values)


@cases
def test_tabs_below_a_header_separate_columns(header, first):
    values = matrix(3, 2)
    lines = [header]
    for word, row in zip(first, values.tolist(), strict=True):
        lines.append("\t".join([word, *map(str, row)]) + "\n")
    Path("own.txt").write_text("".join(lines), "utf-8")
    assert_table("own.txt", values)


def test_words_after_numbers_and_empty_lines_are_no_part_of_the_matrix():
    Path("own.csv").write_text("x,y,kind\n\n1,2,a\n\n3,4,b\n\n")
    assert_table("own.csv", np.float32([[1, 2], [3, 4]]))


@pytest.mark.parametrize("delimiter", [" ", "\t", ","])
def test_comments_stand_before_and_after_numbers(delimiter):
    values = matrix(5, 3)
    np.savetxt("own.txt", values, delimiter=delimiter, header="a,b,c", footer="the end,\nof it")
    assert_table("own.txt", values)


@pytest.mark.parametrize("delimiter", [",", "\t"])
def test_column_numbers_above_whole_numbers_are_a_row(delimiter):
    for last, rows in (("0.5", 1), ("5", 2)):
        text = f"0,1,2\n3,4,{last}\n"
        Path("own.csv").write_text(text.replace(",", delimiter), "utf-8")
        assert open_tensors(Path("own.csv"))["own"].shape == (rows, 3)


def test_a_vector_is_one_row():
    vector = matrix(1, 6)
    np.savetxt("column.txt", vector[0])
    np.savetxt("line.csv", vector, delimiter=",")
    for path in map(Path, ("column.txt", "line.csv")):
        tensors = open_tensors(path)
        assert_rows(tensors.layer(path.stem), vector)
        assert tensors[path.stem].array_shape == ((6,) if path.stem == "column" else ())


@cases
def test_words_that_look_like_numbers_stay_words(text):
    Path("own.vec").write_text(text, "utf-8")
    tensors = open_tensors(Path("own.vec"))
    assert tensors.format == "word vectors"
    assert_rows(tensors.layer("own"), np.float32([[1, 2], [3, 4]]))


@pytest.mark.parametrize("separator", [" ", "\t"])
def test_whole_numbers_stay_numbers(separator):
    rows = np.array([[0, 1, 2], [3, 40, 5], [3, 7, 8]])
    for name, table in {"ids": rows, "column": rows[:, :1], "row": rows[:1]}.items():
        file = f"{name}.txt"
        np.savetxt(file, table, fmt="%d", delimiter=separator)
        expected = table.T if name == "column" else table
        assert_table(file, expected.astype(np.float32))


@cases
def test_a_text_with_a_word_in_any_line_is_words(text, words):
    Path("own.txt").write_text(text, "utf-8")
    own = open_tensors(Path("own.txt")).own_words()
    assert own is not None
    assert [own.token_bytes(row).decode() for row in range(own.vocabulary_size)] == words


def test_a_byte_order_mark_is_no_part_of_a_number():
    Path("own.txt").write_text("\ufeff0.5 1\n2 3\n", "utf-8")
    assert_table("own.txt", np.float32([[0.5, 1], [2, 3]]))


def test_a_first_row_like_two_sizes_is_a_row():
    Path("own.txt").write_text("5 1\n2 3\n4 5\n")
    assert_table("own.txt", np.float32([[5, 1], [2, 3], [4, 5]]))


def test_a_first_line_that_numbers_columns_is_noted():
    for text, words in (("0,1\n0.5,2\n", "names of columns"), ("0,1\n2,3\n", "numbers")):
        Path("own.csv").write_text(text)
        notes = Notes()
        open_tensors(Path("own.csv"), notes)
        assert [str(note) for note in notes] == [
            f"the first line of own.csv, 0,1, is read as {words}"
        ]


@cases
def test_damaged_tables_are_refused(text, reason):
    assert reason in refused("own.csv", text.encode())
