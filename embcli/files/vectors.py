"""Word vectors as text: a word and its numbers per line, as GloVe, word2vec and fastText write it.

The whole file is read once for its words and for the places of its numbers; the numbers are read
when rows are needed.
"""

from __future__ import annotations

import io
import re
from array import array
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Iterable
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from embcli.binary import Binary, BinaryStream
from embcli.encodings.encoding import OwnWords
from embcli.errors import InputError, Notes
from embcli.files.tensors import Tensor, Tensors, computed_layer
from embcli.wording import counted

LONGEST_LINE = 1 << 22  # bytes
LARGE = 1 << 29  # bytes of a file that takes seconds to read


class Start(NamedTuple):
    """Where the words begin, and what a first line before them says about their rows."""

    offset: int
    line_number: int
    dim: int  # D
    rows: int | None = None  # V; None without such a line


class _Index(NamedTuple):
    """The word of each row, and where its numbers are."""

    dim: int
    words: list[bytes]
    starts: np.ndarray  # (V,) int64, offsets in the file
    stops: np.ndarray  # (V,) int64


def read(binary: Binary, notes: Notes, start: Start | None) -> Tensors | None:
    """Return word vectors as one matrix, whose rows stand for the file's words.

    The result is None if no first line says where they start, and most lines have no number.
    """
    if start is None:
        has_mark = binary.read(0, 3) == BOM_UTF8
        start = Start(3 if has_mark else 0, 1, _usual_count(first_lines(binary)))
        if not start.dim:
            return None
    if binary.size >= LARGE:
        notes.add(f"{binary.path.name} is read whole to find its words; this takes a while")
    index = _index_of(binary, start)
    read_rows = partial(_read_rows, binary, index, start.line_number)
    layer = partial(computed_layer, computed_rows=read_rows)
    name = binary.path.stem
    shape = (len(index.words), index.dim)
    size = binary.size - start.offset
    tensor = Tensor(name, shape, "decimal", size, binary, start.offset, matrix=layer)
    words = OwnWords(binary.path, index.words)
    tensors = {name: tensor}
    return Tensors(binary, "word vectors", tensors, own_words=lambda: words, is_array=False)


def sized_start(binary: Binary) -> Start | None:
    """Return the start of words after a line of V and D; None without one that can be right.

    It need not be right in a file with the suffix .vec.
    """
    sizes = re.match(
        rb"(?:\xef\xbb\xbf)?[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n", binary.read(0, 64)
    )
    if sizes is None:
        return None
    start = Start(sizes.end(), 2, int(sizes[2]), int(sizes[1]))
    if binary.path.suffix != ".vec":
        _, *below = first_lines(binary)
        # Two columns of numbers can begin like V and a D of 1.
        if start.dim < 2 or _usual_count(below) != start.dim:
            return None
    return start


def first_lines(binary: Binary) -> list[bytes]:
    """Return the first lines that are not empty, up to the length of the longest line."""
    most = 1000
    beginning = binary.read(0, LONGEST_LINE).removeprefix(BOM_UTF8)
    lines = beginning.split(b"\n", most)[:most]
    return [line for line in lines if line.strip()]


def _usual_count(lines: Iterable[bytes]) -> int:
    """Return how many numbers most lines have after a word."""
    counts = Counter(map(_count_numbers, lines))
    return max(counts, key=counts.__getitem__, default=0)


def _count_numbers(line: bytes) -> int:
    """Return how many numbers a line ends with, after a word."""
    stripped = line.rstrip()
    _, _, numbers = stripped.partition(b"\t" if b"\t" in stripped else b" ")
    return len([*takewhile(is_number, reversed(numbers.split()))])


def is_number(field: str | bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _index_of(binary: Binary, start: Start) -> _Index:
    """Index lines of a word and its numbers."""
    dim = start.dim
    words: list[bytes] = []
    starts = array("q")
    stops = array("q")
    line_end = start.offset
    has_ended = False  # only empty lines may follow
    file = io.BufferedReader(BinaryStream(binary), 1 << 20)
    file.seek(start.offset)
    while line := file.readline(LONGEST_LINE):
        line_number = start.line_number + len(words)
        line_start = line_end
        line_end += len(line)
        if not line.endswith(b"\n") and line_end < binary.size:
            raise binary.file_error(
                f"line {line_number:,} has more than {LONGEST_LINE:,} bytes; "
                "it is not a word vector"
            )
        if line.isspace():
            has_ended = True
            continue
        if has_ended:
            raise _count_error(binary, line_number, 0, dim)

        # In most lines, all separators are single, and the word has none.
        separator = b"\t" if b"\t" in line else b" "
        length = line.find(separator)
        separators = line.count(separator)
        if line.endswith(b" \n"):
            separators -= 1
        if length < 1 or separators != dim:
            length = _length_of_word(line, dim)
        if not length:
            numbers = len(line.split()) - 1
            raise _count_error(binary, line_number, numbers, dim)
        words.append(line[:length])
        starts.append(line_start + length + 1)
        stops.append(line_end)

    if not dim or not words:
        raise binary.file_error("it has no line of a word and its numbers")
    if start.rows not in (None, len(words)):
        raise binary.file_error(
            f"its first line promises {counted(start.rows, 'row')}, and it has {len(words):,}"
        )
    return _Index(dim, words, np.frombuffer(starts, np.int64), np.frombuffer(stops, np.int64))


def _length_of_word(line: bytes, dim: int) -> int:
    """Return the length of what stands before D numbers and a blank; 0 if nothing does."""
    word, *numbers = line.rsplit(None, dim)
    if len(numbers) == dim:
        return len(word)
    if len(numbers) == dim - 1:
        blanks = len(line) - len(line.lstrip())
        return max(blanks - 1, 0)
    return 0


def _count_error(binary: Binary, line_number: int, numbers: int, dim: int) -> InputError:
    return binary.file_error(
        f"line {line_number:,} has {counted(numbers, 'number')} after its word, not {dim:,}"
    )


def _read_rows(
    binary: Binary, index: _Index, first_line_number: int, ids: np.ndarray
) -> np.ndarray:
    rows = np.empty((len(ids), index.dim), np.float32)
    with np.errstate(over="ignore"):
        for place, row in enumerate(ids.tolist()):
            line = f"line {first_line_number + row:,}"
            start = int(index.starts[row])
            length = int(index.stops[row]) - start
            fields = binary.read(start, length).split()
            if len(fields) != index.dim:
                raise binary.file_error(
                    f"{line} has {counted(len(fields), 'number')}, and others have {index.dim:,}"
                )
            try:
                rows[place] = [float(field) for field in fields]
            except ValueError as error:
                raise binary.file_error(
                    f"{line} has a field that is not a number ({error})"
                ) from None
    return rows
