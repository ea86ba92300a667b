"""Word vectors: text with one word and its numbers per line (GloVe, word2vec, fastText), and word2vec's binary form."""

from __future__ import annotations

import io
import re
from array import array
from typing import NamedTuple

import numpy as np

from embcli.binary import Binary, BinaryStream
from embcli.encodings.encoding import OwnWords
from embcli.errors import Notes
from embcli.files.numbers import STORED_DTYPES
from embcli.files.tensors import StoredLayer, Tensor, Tensors
from embcli.layer import Layer
from embcli.text import is_text

LONGEST_LINE = 1 << 22  # bytes
_BUFFER = 1 << 20  # bytes
_SAMPLE = 1 << 12  # bytes that tell text from binary numbers
LARGE = 1 << 29  # bytes of a file that takes seconds to read
_SIZES = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")
_WORD = re.compile(
    rb"(?mi)^.*?[^ \t](?=[ \t]+[-+.0-9einfa \t]+\r?$)"
)  # before numbers, to the end of the line


class Index(NamedTuple):
    """The word of each row, and where its numbers are."""

    dim: int
    words: list[bytes]
    starts: np.ndarray  # (V,) int64, offsets in the file
    stops: np.ndarray  # (V,) int64


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return word vectors as one matrix, whose rows stand for the file's own words."""
    if binary.size >= LARGE:
        notes.add(f"{binary.path.name} is read whole to find its words; this takes a while")
    start = 0
    sizes = None
    if match := _SIZES.match(binary.read(0, 64)):
        start = match.end()
        sizes = int(match[1]), int(match[2])
    if sizes is None or _looks_like_text(binary.read(start, _SAMPLE)):
        dtype = "decimal"
        index = _of_text(binary, start, sizes)
    else:
        dtype = "float32"
        index = _of_binary(binary, start, sizes)

    def read_binary(ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), index.dim), "<f4")
        binary.gather(rows, index.starts[ids].tolist(), [4 * index.dim] * len(ids))
        return rows

    def read_text(ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), index.dim), np.float32)
        with np.errstate(over="ignore"):
            for place, row in enumerate(ids.tolist()):
                line = f"line {row + (1 if sizes is None else 2):,}"
                start = int(index.starts[row])
                fields = binary.read(start, int(index.stops[row]) - start).split()
                if len(fields) != index.dim:
                    raise binary.file_error(
                        f"{line} has {len(fields):,} numbers, and others have {index.dim:,}"
                    )
                try:
                    rows[place] = [float(field) for field in fields]
                except ValueError as error:
                    reason = (
                        str(error)
                        .removeprefix("could not convert string to float: ")
                        .removeprefix("b")
                    )
                    raise binary.file_error(f"{line} has {reason} in place of a number") from None
        return rows

    def matrix(tensor: Tensor) -> Layer:
        numbers = STORED_DTYPES["float32"]._replace(name=dtype)
        return StoredLayer(tensor.shape, numbers, read_text if dtype == "decimal" else read_binary)

    name = binary.path.stem
    shape = len(index.words), index.dim
    tensor = Tensor(name, shape, dtype, binary.size - start, binary, start, matrix=matrix)
    own = OwnWords(binary.path, index.words)
    return Tensors(binary, "word vectors", {name: tensor}, own_words=lambda: own)


def _looks_like_text(sample: bytes) -> bool:
    """Return whether bytes are lines of text; binary numbers nearly always have a byte that text never has."""
    sample, words = _WORD.subn(b"", sample)
    if words:
        sample = sample[: sample.rfind(b"\n") + 1]  # the last line may be cut within its word
    return is_text(sample)


def _of_text(binary: Binary, start: int, sizes: tuple[int, int] | None) -> Index:
    """Index lines of a word and its numbers from offset `start` on.

    Without `sizes`, V and D of a first line, D is that of the first word.
    """
    dim = sizes[1] if sizes else 0
    first = 2 if sizes else 1
    place = start
    words: list[bytes] = []
    starts = array("q")
    stops = array("q")
    is_behind = False  # all rows: lines without anything may follow
    file = io.BufferedReader(BinaryStream(binary), _BUFFER)
    file.seek(start)
    while line := file.readline(LONGEST_LINE):
        number = f"line {first + len(words):,}"
        begin = place
        place += len(line)
        if not line.endswith(b"\n") and place < binary.size:
            raise binary.file_error(
                f"{number} has more than {LONGEST_LINE:,} bytes; it is not a word vector"
            )
        if line.isspace():
            is_behind = True
            continue
        if is_behind:
            raise binary.file_error(f"{number} has 0 numbers after its word, not {dim:,}")
        dim = dim or len(line.split()) - 1
        length = line.find(b" ")
        if length < 1 or line.count(b" ") - line.endswith(b" \n") != dim:
            length = _length_of_word(binary, line, number, dim)
        words.append(line[:length])
        starts.append(begin + length + 1)
        stops.append(place)
    if not dim or not words:
        raise binary.file_error("it has no line of a word and its numbers")
    if sizes is not None and len(words) != sizes[0]:
        raise binary.file_error(
            f"its first line promises {sizes[0]:,} rows, and it has {len(words):,}"
        )
    return Index(dim, words, np.frombuffer(starts, np.int64), np.frombuffer(stops, np.int64))


def _length_of_word(binary: Binary, line: bytes, number: str, dim: int) -> int:
    """Return the length of the word in a line that has tabs, more spaces than D, or a word with spaces."""
    fields = line.split()
    numbers = len(fields) - 1
    if numbers > dim:
        try:
            float(fields[-dim - 1])
        except ValueError:
            return len(line.rsplit(None, dim)[0])  # the word has spaces
    if numbers != dim:
        raise binary.file_error(
            f"{number} has {max(numbers, 0):,} numbers after its word, not {dim:,}"
        )
    return line.index(fields[0]) + len(fields[0])


def _of_binary(binary: Binary, start: int, sizes: tuple[int, int]) -> Index:
    """Index V rows of a word, a space and D float32 numbers; a newline may follow each row."""
    count, dim = sizes
    if dim < 1 or not 0 < count <= (binary.size - start) // (4 * dim + 1):
        raise binary.file_error(
            f"its first line promises {count:,} rows of {dim:,} numbers; {binary.size - start:,} bytes follow"
        )
    words: list[bytes] = []
    starts = np.empty(count, np.int64)
    window = b""
    base = start  # of the window
    place = start
    for row in range(count):
        space = window.find(b" ", place - base)
        if space < 0:
            window = binary.read(place, LONGEST_LINE)
            base = place
            space = window.find(b" ")
        words.append(window[place - base : space].lstrip(b"\n"))
        starts[row] = base + space + 1
        place = base + space + 1 + 4 * dim
        if space < 0 or place > binary.size:
            raise binary.file_error(f"it ends within row {row:,} of {count:,}")
    if binary.read(place, 2) not in (b"", b"\n"):
        raise binary.file_error(
            f"{binary.size - place:,} bytes follow the {count:,} rows that its first line promises"
        )
    return Index(dim, words, starts, starts + 4 * dim)
