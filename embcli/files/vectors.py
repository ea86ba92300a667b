"""Word vectors: text with one word and its numbers per line (GloVe, word2vec, fastText), and word2vec's binary form.

An index says where the rows begin; one pass over the file makes it, and the store keeps it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

import numpy as np

from embcli.binary import Binary, shortened
from embcli.encodings.own import OwnWords
from embcli.files import index
from embcli.files.index import Index
from embcli.files.numbers import FLOAT32
from embcli.files.stored import WidenedLayer, runs
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Layer
from embcli.notes import Notes
from embcli.text import is_text

_WINDOW = 1 << 22  # bytes that are read at a time; no line is longer
_SAMPLE = 1 << 12  # bytes that tell text from binary numbers
_SIZES = re.compile(rb"[ \t]*([0-9]{1,18})[ \t]+([0-9]{1,18})[ \t]*\r?\n")
FIRST_LINE = re.compile(rb"(?i)[^\0\n]*\S[ \t]+[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)[ \t]*\r?(?:\n|\Z)")
_WORD = re.compile(rb"(?mi)^.*?[^ \t](?=[ \t]+[-+.0-9einfa \t]+\r?$)")  # before numbers, to the end of the line


class VectorsFile(Tensors):
    """Word vectors as one matrix, whose rows stand for the file's own words.

    Raises InputError for lines with different numbers of numbers, and for a first line with wrong sizes.
    """

    format = "word vectors"

    def __init__(self, binary: Binary, notes: Notes) -> None:
        match = _SIZES.match(binary.read(0, 64))
        start, sizes = (match.end(), (int(match[1]), int(match[2]))) if match else (0, None)
        if sizes is None or _looks_like_text(binary.read(start, _SAMPLE)):
            dtype, scan = "decimal", partial(index.of_text, binary, start, sizes)
        else:
            dtype, scan = "float32", partial(index.of_binary, binary, start, sizes)
        self._index = index.stored_index(binary, scan, sizes, notes)
        self._first_line = 1 if sizes is None else 2
        shape, first = (len(self._index.starts), self._index.dim), int(self._index.starts[0])
        tensor = Tensor(binary.path.stem, shape, dtype, binary.size - first, binary.path, first)
        super().__init__(binary, {tensor.name: tensor})

    def matrix(self, tensor: Tensor) -> Layer:
        """Return the matrix as a layer of rows."""
        return VectorsLayer(self._binary, self._index, tensor.dtype, self._first_line)

    def own_words(self) -> OwnWords:
        """Return the encoding that the file's words make."""
        return OwnWords(self.path, self._index.vocabulary)


class VectorsLayer(WidenedLayer):
    """Word vectors in a file, read and parsed row by row."""

    def __init__(self, binary: Binary, index: Index, dtype: str, first_line: int) -> None:
        super().__init__((len(index.starts), index.dim), FLOAT32)
        self.dtype = dtype
        self._binary, self._index, self._first_line = binary, index, first_line
        self._ends = np.cumsum(index.lengths, dtype=np.int64)  # of the words

    def _read(self, ids: np.ndarray) -> np.ndarray:
        rows = np.empty((len(ids), self.shape[1]), np.float32)
        at_once = max(_WINDOW // max(self._binary.size // self.shape[0], 1), 1)
        with np.errstate(over="ignore"):
            for start in range(0, len(ids), at_once):
                part = ids[start : start + at_once]
                for first, last in zip(*(each.tolist() for each in runs(part)), strict=True):
                    read = self._lines(int(part[first]), int(part[last - 1]) + 1)
                    for place, (row, data) in enumerate(read, start + first):
                        rows[place] = self._values(row, data)
        return rows

    def _values(self, row: int, data: bytes) -> np.ndarray | list[float]:
        """Return the numbers after the word of a row: of a line of text, or binary numbers with newlines after them."""
        if self.dtype == "float32":
            return np.frombuffer(data, "<f4", count=self._index.dim)
        line = f"line {row + self._first_line:,}"
        try:
            values = [float(number) for number in data.split()]
        except ValueError as error:
            reason = str(error).removeprefix("could not convert string to float: ").removeprefix("b")
            raise self._binary.refused(f"{line} has {reason} in place of a number") from None
        if len(values) != self._index.dim:
            raise self._binary.refused(f"{line} has {len(values):,} numbers, and others have {self._index.dim:,}")
        return values

    def _lines(self, first: int, last: int) -> Iterator[tuple[int, bytes]]:
        """Yield the ID of each row from `first` to before `last`, and the bytes after its word.

        Raises InputError unless the row is of the word that the index has for it.
        """
        edges = [*self._index.starts[first : last + 1].tolist(), self._index.end][: last - first + 1]
        base = max(edges[0] - 1, 0)  # with the end of the line before
        data = self._binary.read(base, edges[-1] - base)
        ends, lengths = self._ends[first:last].tolist(), self._index.lengths[first:last].tolist()
        for row, (start, stop), end, length in zip(range(first, last), pairwise(edges), ends, lengths, strict=True):
            word, place, after = self._index.words[end - length : end], start - base, start - base + length
            is_first = data[max(place - 1, 0) : place] in (b"", b"\n") or self._follows(row, start)
            if not is_first or data[place:after] != word or not data[after : after + 1].isspace():
                reason = f"row {row:,} is not of the word {shortened(word.decode(errors='replace'))} of its kept index"
                raise self._binary.refused(reason, "embcli cache clear removes an index that is damaged")
            yield row, data[after + 1 : stop - base]

    def _follows(self, row: int, start: int) -> bool:
        """Return whether binary numbers end where a row begins: a newline need not follow them."""
        end = self._index.starts[row - 1] + self._index.lengths[row - 1] + 1 + 4 * self.shape[1]
        return self.dtype == "float32" and row > 0 and int(end) == start


def _looks_like_text(sample: bytes) -> bool:
    """Return whether bytes are lines of text; binary numbers nearly always have a byte that text never has.

    Words before decimal numbers may have any byte.
    """
    sample, words = _WORD.subn(b"", sample)
    if words:
        sample = sample[: sample.rfind(b"\n") + 1]  # the last line may be cut within its word
    return is_text(sample)
