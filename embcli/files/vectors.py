"""Word vectors: text with one word and its numbers per line (GloVe, word2vec, fastText), and word2vec's binary form.

An index says where the rows begin; one pass over the file makes it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from embcli.binary import Binary
from embcli.encodings.own import OwnWords, Vocabulary
from embcli.errors import Notes
from embcli.files.numbers import NUMBER_FORMATS
from embcli.files.stored import StoredLayer
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Layer
from embcli.text import is_text

_WINDOW = 1 << 22  # bytes that are read at a time; no line is longer
_SAMPLE = 1 << 12  # bytes that tell text from binary numbers
_LARGE = 1 << 29  # bytes of a file that takes seconds to read
_NEWLINE, _SPACE = b"\n "
_SIZES = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")
FIRST_LINE = re.compile(rb"(?i)[^\0\n]*\S[ \t]+[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)[ \t]*\r?(?:\n|\Z)")
_WORD = re.compile(rb"(?mi)^.*?[^ \t](?=[ \t]+[-+.0-9einfa \t]+\r?$)")  # before numbers, to the end of the line


@dataclass(frozen=True)
class Index:
    """Where each row begins, and its word; a separator and the numbers follow the word."""

    dim: int
    starts: np.ndarray  # (V,) int64, offsets in the file
    lengths: np.ndarray  # (V,) uint32, bytes of the words
    words: bytes  # all words, concatenated
    end: int  # of the last row, an offset in the file


class VectorsFile(Tensors):
    """Word vectors as one matrix, whose rows stand for the file's own words.

    Raises InputError for lines with different numbers of numbers, and for a first line with wrong sizes.
    """

    format = "word vectors"

    def __init__(self, binary: Binary, notes: Notes) -> None:
        match = _SIZES.match(binary.read(0, 64))
        start, sizes = (match.end(), (int(match[1]), int(match[2]))) if match else (0, None)
        if binary.size >= _LARGE:
            notes.add(f"{binary.path.name} is read whole to find its words; this takes a while")
        self._is_binary = sizes is not None and not _looks_like_text(binary.read(start, _SAMPLE))
        if sizes is not None and self._is_binary:
            self._index = _of_binary(binary, start, sizes)
        else:
            self._index = _of_text(binary, start, sizes)
        self._first_line = 1 if sizes is None else 2
        shape, first = (len(self._index.starts), self._index.dim), int(self._index.starts[0])
        dtype = "float32" if self._is_binary else "decimal"
        tensor = Tensor(binary.path.stem, shape, dtype, binary.size - first, binary.path, first)
        super().__init__(binary, {tensor.name: tensor})

    def matrix(self, tensor: Tensor) -> Layer:
        """Return the matrix as a layer of rows."""
        rows, dim = tensor.shape
        return StoredLayer((rows, dim), NUMBER_FORMATS["float32"], self._read, tensor.dtype)

    def own_words(self) -> OwnWords:
        """Return the encoding that the file's words make."""
        lengths, words = self._index.lengths, self._index.words
        ends = np.cumsum(lengths, dtype=np.int64)
        return OwnWords(self.path, lambda: Vocabulary(words, ends - lengths, ends))

    def _read(self, ids: np.ndarray) -> np.ndarray:
        index, rows = self._index, np.empty((len(ids), self._index.dim), np.float32)
        starts, stops = index.starts + index.lengths + 1, np.append(index.starts[1:], index.end)  # of the numbers
        base, window = 0, b""
        with np.errstate(over="ignore"):
            for place, row in enumerate(ids.tolist()):
                start, stop = int(starts[row]), int(stops[row])
                if stop > base + len(window):
                    last = ids[min(place + 255, len(ids) - 1)]  # further rows, if they are near
                    near = int(stops[last]) if stops[last] - start < _WINDOW else stop
                    base, window = start, self._binary.read(start, near - start)
                rows[place] = self._values(row, window[start - base : stop - base])
        return rows

    def _values(self, row: int, data: bytes) -> np.ndarray | list[float]:
        """Return the numbers of a row: of a line of text, or binary numbers with newlines after them."""
        dim = self._index.dim
        if self._is_binary:
            return np.frombuffer(data, "<f4", count=dim)
        line = f"line {row + self._first_line:,}"
        try:
            values = [float(number) for number in data.split()]
        except ValueError as error:
            reason = str(error).removeprefix("could not convert string to float: ").removeprefix("b")
            raise self._binary.refused(f"{line} has {reason} in place of a number") from None
        if len(values) != dim:
            raise self._binary.refused(f"{line} has {len(values):,} numbers, and others have {dim:,}")
        return values


def _looks_like_text(sample: bytes) -> bool:
    """Return whether bytes are lines of text; binary numbers nearly always have a byte that text never has.

    Words before decimal numbers may have any byte.
    """
    sample, words = _WORD.subn(b"", sample)
    if words:
        sample = sample[: sample.rfind(b"\n") + 1]  # the last line may be cut within its word
    return is_text(sample)


def _of_text(binary: Binary, start: int, sizes: tuple[int, int] | None) -> Index:
    """Index lines of a word and its numbers from offset `start` on.

    Without `sizes`, V and D of a first line, D is that of the first word. Raises InputError for a line with another
    number of numbers, and for another number of lines.
    """
    line, dim = (1, None) if sizes is None else (2, sizes[1])
    tail = binary.read(max(binary.size - _WINDOW, start), _WINDOW)
    end = binary.size - len(tail) + len(tail.rstrip())
    starts, lengths, words = [], [], []
    place = start
    while place < end:
        data = binary.read(place, min(_WINDOW, end - place))
        if place + len(data) == end:
            data += b"\n"
        data = data[: data.rfind(b"\n") + 1]
        if not data:
            raise binary.refused(f"line {line:,} has more than {_WINDOW:,} bytes; it is not a word vector")
        if dim is None:
            dim = len(data[: data.index(b"\n")].split()) - 1
        begins, widths = _lines(binary, data, line, dim)
        starts.append(begins + place)
        lengths.append(widths)
        words += [data[first : first + size] for first, size in zip(begins.tolist(), widths.tolist(), strict=True)]
        place, line = place + len(data), line + len(begins)
    if not dim or not starts:
        raise binary.refused("it has no line of a word and its numbers")
    if sizes is not None and sum(map(len, starts)) != sizes[0]:
        raise binary.refused(f"its first line promises {sizes[0]:,} rows, and it has {sum(map(len, starts)):,}")
    return Index(dim, np.concatenate(starts), np.concatenate(lengths).astype(np.uint32), b"".join(words), end)


def _lines(binary: Binary, data: bytes, line: int, dim: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where each line begins and how long its word is, both (lines,) int64."""
    letters = np.frombuffer(data, np.uint8)
    ends = np.flatnonzero(letters == _NEWLINE)
    starts = np.concatenate([[0], ends[:-1] + 1])
    spaces = np.append(np.flatnonzero(letters == _SPACE), len(data))
    first = np.searchsorted(spaces, starts)
    count = np.searchsorted(spaces, ends) - first - (letters[ends - 1] == _SPACE)
    lengths: np.ndarray = spaces[first] - starts
    for place in np.flatnonzero((count != dim) | (lengths == 0)).tolist():
        lengths[place] = _length_of_word(binary, data[starts[place] : ends[place]], line + place, dim)
    return starts, lengths


def _length_of_word(binary: Binary, text: bytes, line: int, dim: int) -> int:
    """Return the length of the word in a line that has tabs, more spaces than D, or a word with spaces."""
    fields = text.split()
    numbers = len(fields) - 1
    if numbers > dim and not _is_number(fields[-dim - 1]):
        return len(text.rsplit(None, dim)[0])  # the word has spaces
    if numbers != dim:
        raise binary.refused(f"line {line:,} has {max(numbers, 0):,} numbers after its word, not {dim:,}")
    return text.index(fields[0]) + len(fields[0])


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _of_binary(binary: Binary, start: int, sizes: tuple[int, int]) -> Index:
    """Index V rows of a word, a space and D float32 numbers; a newline may follow each row.

    Raises InputError if the file is shorter or longer than that.
    """
    count, dim = sizes
    if dim < 1 or not 0 < count <= (binary.size - start) // (4 * dim + 1):
        raise binary.refused(
            f"its first line promises {count:,} rows of {dim:,} numbers; {binary.size - start:,} bytes follow"
        )
    starts, lengths, words = np.empty(count, np.int64), np.empty(count, np.uint32), []
    window, base, place = b"", start, start
    for row in range(count):
        space = window.find(b" ", place - base) if place - base < len(window) else -1
        if space < 0:
            window, base = binary.read(place, _WINDOW), place
            space = window.find(b" ")
        word = window[place - base : space].lstrip(b"\n")
        next_place = base + space + 1 + 4 * dim
        if space < 0 or next_place > binary.size:
            raise binary.refused(f"it ends within row {row:,} of {count:,}")
        starts[row], lengths[row] = base + space - len(word), len(word)
        words.append(word)
        place = next_place
    if binary.read(place, 2) not in (b"", b"\n"):
        raise binary.refused(f"{binary.size - place:,} bytes follow the {count:,} rows that its first line promises")
    return Index(dim, starts, lengths, b"".join(words), place)
