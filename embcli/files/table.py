"""Numbers and words as text; the first of these rules that fits decides how a file is read.

1. The suffix .vec, or a first line of two whole numbers, V and D above 1, that agrees with the
   lines below: words, and D numbers each.
2. A first line 0,1,2,..., also with tabs, above a line with a ".": the header of pandas; 3 is for
   the other lines.
3. Every line has only numbers, between blanks, tabs or commas: what numpy.loadtxt makes of them.
   Lines of # before and after them are comments.
4. The first two lines have equally many fields, two or more, between commas: csv. With tabs, the
   first one must be a header, and there are no quotes. A header has no number in the columns that
   are numbers below, though its last names may be whole numbers (those of pandas and embcli). The
   matrix is the columns with such names; without them, all columns of numbers, side by side,
   except a first one without a name (row names of pandas and R).
5. Words and numbers, without quotes: D is the count of numbers that most of the first 1,000 lines
   have. A line with fewer is refused; in one with more, the word has blanks. Tabs delimit.

A byte order mark is dropped.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import dropwhile, islice

import numpy as np

from embcli.binary import Binary, BinaryStream
from embcli.errors import Notes
from embcli.files import vectors
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import StoredLayer, Tensor, Tensors
from embcli.files.vectors import is_number
from embcli.names import Shape


def read(binary: Binary, notes: Notes) -> Tensors | None:
    """Return the matrix of a text, perhaps with a word for each row; None if no rule fits."""
    start = vectors.sized_start(binary)
    if start is None and binary.path.suffix != ".vec":
        try:
            tensors = _read_numbers(binary, notes) or _read_csv(binary, notes)
        except (ValueError, csv.Error) as error:
            reason, *_ = str(error).partition("; use")  # then numpy advises on its own parameters
            raise binary.file_error(
                f"it is not a table of numbers ({reason})",
                'In csv, numbers have a point, and commas between them: sep=",", decimal="."',
            ) from None
        if tensors is not None:
            return tensors
    return vectors.read(binary, notes, start)


def _tensors(binary: Binary, rows: np.ndarray, array_shape: Shape = ()) -> Tensors:
    dtype = StoredDtype("decimal", rows.dtype)
    tensor = Tensor(
        binary.path.stem,
        rows.shape,
        dtype.name,
        binary.size,
        binary,
        start=0,
        matrix=lambda tensor: StoredLayer(tensor.shape, dtype, rows.__getitem__),
        array_shape=array_shape,
    )
    return Tensors(binary, "numbers as text", {tensor.name: tensor}, is_array=True)


def _first_lines(binary: Binary) -> list[str]:
    lines = [line.decode("utf-8", "replace") for line in vectors.first_lines(binary)]
    return [line.rstrip("\r") for line in lines]


def _lines(binary: Binary) -> Iterator[str]:
    stream = io.BufferedReader(BinaryStream(binary))
    # A byte that is not UTF-8 can be in a column that is not read.
    return io.TextIOWrapper(stream, "utf-8-sig", "replace")


def _names_columns(binary: Binary, names: list[str], below: str, notes: Notes) -> bool:
    """Return whether names are 0, 1, 2, ... above a "."; a note says how such a line is read."""
    if len(names) < 2 or names != list(map(str, range(len(names)))):
        return False
    is_header = "." in below
    kind = "names of columns" if is_header else "numbers"
    listed = ",".join(names)[:60]
    notes.add(f"the first line of {binary.path.name}, {listed}, is read as {kind}")
    return is_header


# --- only numbers -------------------------------------------------------------------------------


def _read_numbers(binary: Binary, notes: Notes) -> Tensors | None:
    """Return the numbers of lines that have nothing else; None for other lines.

    A single column is a vector, which is one row.
    """
    rows = dropwhile(_is_comment, _first_lines(binary))
    first = next(rows, "no line")
    below = next(rows, first)
    begins_with_tab = first.startswith("\t") and not below.startswith("\t")  # row names below
    if begins_with_tab or not _has_only_numbers(first):
        return None
    delimiter = "," if "," in first else None
    lines = dropwhile(_is_comment, _lines(binary))
    if _names_columns(binary, first.split(delimiter or "\t"), below, notes):
        next(lines)
    try:
        numbers = np.loadtxt(lines, delimiter=delimiter, ndmin=2)
    except ValueError:
        if all(map(_has_only_numbers, _lines(binary))):
            raise
        return None
    if numbers.shape[1] == 1:
        return _tensors(binary, numbers.T, numbers.shape[:1])
    return _tensors(binary, numbers)


def _is_comment(line: str) -> bool:
    return line.startswith("#") or line.isspace()


def _has_only_numbers(line: str) -> bool:
    """Return whether all fields of a line are numbers; a comment does not count as a word."""
    data = line.encode()  # Its blanks are those of ASCII.
    return _is_comment(line) or all(map(is_number, data.split(b"," if b"," in data else None)))


# --- csv ----------------------------------------------------------------------------------------


def _read_csv(binary: Binary, notes: Notes) -> Tensors | None:
    lines = _first_lines(binary)
    are_commas = "," in "".join(lines[:1])
    split = csv.reader
    if not are_commas:
        split = partial(csv.reader, delimiter="\t", quoting=csv.QUOTE_NONE)
    records = filter(None, split(lines))
    try:
        first, second = islice(records, 2)
    except (ValueError, csv.Error):  # fewer lines, or a quote that begins a word
        return None
    width = len(first)
    if width < 2 or len(second) != width:
        return None

    alike = [first, second]
    alike += [record for record in islice(records, 98) if len(record) == width]
    columns = _columns_of_numbers(alike)
    chosen = _named_columns(first, columns)
    has_header = chosen is not None
    if chosen is None:
        chosen = columns
        names = [first[column] for column in columns]
        has_header = _names_columns(binary, names, "".join(second), notes)
    if not are_commas and not has_header:
        return None
    if len(columns) < 2 or np.any(np.diff(chosen) > 1):
        chosen = list(range(width))  # numpy names the field that is not a number

    rows = filter(None, split(_lines(binary)))
    if has_header:
        next(rows)
    fields = _chosen(rows, width, chosen)
    return _tensors(binary, np.loadtxt(fields, delimiter="\t", comments=None, ndmin=2))


def _columns_of_numbers(records: list[list[str]]) -> list[int]:
    are_numbers = np.array([list(map(is_number, record)) for record in records])  # (lines, width)
    return np.flatnonzero(are_numbers.mean(axis=0) >= 0.5).tolist()


def _named_columns(header: list[str], columns: list[int]) -> list[int] | None:
    """Return the columns of numbers that a header chooses; None if the line is not a header."""
    named = [column for column in columns if not is_number(header[column])]
    numbered = [column for column in columns if header[column].isdecimal()]
    if not named or named + numbered != columns:
        return None
    return numbered or [column for column in named if column or header[0]]


def _chosen(records: Iterable[list[str]], width: int, columns: list[int]) -> Iterator[str]:
    """Yield the fields of these columns, with tabs between them."""
    for record in records:
        if len(record) != width:
            raise ValueError(f"the number of columns changed from {width:,} to {len(record):,}")
        fields = [record[column] for column in columns]
        if not any(fields):  # numpy would pass over the line
            raise ValueError("a line has no numbers")
        yield "\t".join(fields)
