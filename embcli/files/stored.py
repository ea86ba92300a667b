"""Matrices whose numbers a file stores as they are: rows are read in place and widened to float32.

Nothing is mapped: a file that is cut while it is read gives an error rather than a signal, a limit on the address space
does not matter, and nobody who writes to the file has to wait.
"""

from __future__ import annotations

import sys
from abc import abstractmethod
from collections.abc import Callable, Iterator
from itertools import pairwise

import numpy as np

from embcli.binary import Bytes
from embcli.files.numbers import BFLOAT16, FLOAT16, FLOAT32, NumberFormat
from embcli.layer import Layer
from embcli.selection import distinct

_BLOCK = 1 << 18  # values that are widened at a time: they fit in the processor's cache
_COLUMNS = 1 << 24  # values of a block that takes reads for each column
_GAP = 1 << 12  # bytes between two ranges that are faster to read than to skip
_READ = 1 << 22  # bytes of rows as stored that are read at a time: they fit in a cache


class WidenedLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read; a subclass implements `_read`."""

    def __init__(self, shape: tuple[int, int], numbers: NumberFormat, block: int | None = None) -> None:
        """Take how the numbers are stored, and how many of them are widened at a time."""
        self.shape, self.dtype = shape, numbers.name
        self._numbers, self._block = numbers, block or _BLOCK

    @abstractmethod
    def _read(self, ids: np.ndarray) -> np.ndarray:
        """Return rows by ascending IDs, (n,) int64, as they are stored, (n, width)."""

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in the order of the file."""
        return in_order(ids, self._widened)

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, width), in the machine's byte order."""
        stored = in_order(ids, self._read)
        return np.ascontiguousarray(stored, stored.dtype.newbyteorder("="))

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D)."""
        return self._numbers.widened(stored, self.shape[1])[0]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each; a block is valid until the next one."""
        rows, dim = self.shape
        step = max(self._block // dim, 1)
        for start in range(0, rows, step):
            yield self._widened(np.arange(start, min(start + step, rows)))

    def _widened(self, ids: np.ndarray) -> np.ndarray:
        """Return rows by ascending IDs as float32, and count the values that were rounded."""
        rows, rounded = self._numbers.widened(self._read(ids), self.shape[1])
        self.rounded_values += rounded
        return rows


class StoredLayer(WidenedLayer):
    """A matrix in a file, row after row, or with rows and columns any number of items apart."""

    def __init__(
        self,
        file: Bytes,
        start: int,
        shape: tuple[int, int],
        numbers: NumberFormat,
        strides: tuple[int, int],
    ) -> None:
        """Take how many items apart the rows are, and the columns."""
        (rows, dim), (row_stride, column_stride) = shape, strides
        self._by_rows = (row_stride == dim or rows == 1) and (column_stride == 1 or dim == 1)
        self._by_columns = not self._by_rows and (row_stride < column_stride or dim == 1)
        super().__init__(shape, numbers, _COLUMNS if self._by_columns else _BLOCK)
        self._file, self._start, self._strides = file, start, strides

    def segments(self, count: int, rows: int) -> list[tuple[int, Iterator[np.ndarray]]]:
        """Split rows [0, rows) into up to `count` segments, each read in windows; see Layer."""
        as_stored = self._numbers in (BFLOAT16, FLOAT16) or self._numbers.stored == FLOAT32.stored
        if not self._by_rows or not as_stored or sys.byteorder != "little":
            return [(0, self.blocks())]
        count = max(min(count, rows), 1) if self._file.is_shared else 1
        edges = [rows * place // count for place in range(count + 1)]
        return [(first, self._windows(first, last)) for first, last in pairwise(edges)]

    def _windows(self, first: int, last: int) -> Iterator[np.ndarray]:
        """Yield a range of rows as they are stored, (n, D), read into one buffer."""
        width = self.shape[1] * self._numbers.stored.itemsize
        step = max(_READ // width, 1)
        buffer = np.empty((min(step, last - first), self.shape[1]), self._numbers.stored)
        for start in range(first, last, step):
            window = buffer[: last - start]
            self._file.gather(window, (self._start + start * width,), (window.nbytes,))
            yield window

    def _read(self, ids: np.ndarray) -> np.ndarray:
        if not self._by_rows:
            rows, columns = ids * self._strides[0], np.arange(self.shape[1]) * self._strides[1]
            return self._strided(columns, rows).T if self._by_columns else self._strided(rows, columns)
        stored = np.empty((len(ids), self._numbers.width(self.shape[1])), self._numbers.stored)
        width = stored.shape[1] * stored.itemsize
        first, last = runs(ids)
        self._file.gather(stored, (self._start + ids[first] * width).tolist(), ((last - first) * width).tolist())
        return stored

    def _strided(self, outer: np.ndarray, inner: np.ndarray) -> np.ndarray:
        """Return the items at the sums of two places, (m,) and ascending (n,) int64 -> (m, n).

        For each outer place the ranges around the inner ones are read, with small gaps between them.
        """
        size = self._numbers.stored.itemsize
        first, last = runs(inner, max(_GAP // size, 1))
        lengths = inner[last - 1] + 1 - inner[first]
        ends = np.cumsum(lengths)
        span = np.empty(int(ends[-1]) if len(ends) else 0, self._numbers.stored)
        places = inner + np.repeat(ends - lengths - inner[first], last - first)
        starts, sizes = self._start + inner[first] * size, (lengths * size).tolist()
        stored = np.empty((len(outer), len(inner)), self._numbers.stored)
        for number, place in enumerate(outer.tolist()):
            self._file.gather(span, (starts + place * size).tolist(), sizes)
            stored[number] = span[places]
        return stored


def in_order(ids: np.ndarray, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """Return rows in the order of any IDs, (n,); `read` takes these IDs ascending, each once."""
    wanted, places = distinct(ids.astype(np.int64))  # offsets can exceed 32 bits
    rows = read(wanted)
    return rows if np.array_equal(wanted, ids) else rows[places]


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of runs of ascending IDs that are at most `gap` apart, both (runs,) int64.

    >>> first, last = runs(np.array([3, 4, 5, 9, 11]), gap=2)
    >>> first.tolist(), last.tolist()
    ([0, 3], [3, 5])
    """
    begins = np.ones(len(ids), bool)
    begins[1:] = np.diff(ids) > gap
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], len(ids))[: len(first)]
