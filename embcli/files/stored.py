"""Matrices whose numbers a file stores as they are: rows are read in place and widened to float32."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from embcli.binary import Binary
from embcli.files.numbers import NumberFormat
from embcli.layer import Layer
from embcli.selection import distinct

_BLOCK = 1 << 18  # values that are widened at a time: they fit in the processor's cache


class StoredLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read.

    `read` returns rows by ascending IDs, (n,) int64, as they are stored, (n, width).
    """

    def __init__(
        self, shape: tuple[int, int], numbers: NumberFormat, read: Callable[[np.ndarray], np.ndarray], dtype: str = ""
    ) -> None:
        self.shape, self.dtype = shape, dtype or numbers.name
        self._numbers, self._read = numbers, read

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in the order of the file."""
        return self._in_order(ids, self._widened)

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, width), in the machine's byte order."""
        stored = self._in_order(ids, self._read)
        return np.ascontiguousarray(stored, stored.dtype.newbyteorder("="))

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D)."""
        return self._numbers.widened(stored, self.shape[1])[0]

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each."""
        rows, dim = self.shape
        step = max(_BLOCK // dim, 1)
        for start in range(0, rows, step):
            yield self._widened(np.arange(start, min(start + step, rows)))

    def _widened(self, ids: np.ndarray) -> np.ndarray:
        rows, rounded = self._numbers.widened(self._read(ids), self.shape[1])
        self.rounded_values += rounded
        return rows

    def _in_order(self, ids: np.ndarray, read: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
        """Return rows in the order of any IDs, (n,); `read` takes these IDs ascending, each once."""
        wanted, places = distinct(ids.astype(np.int64))  # offsets can exceed 32 bits
        rows = read(wanted)
        return rows if np.array_equal(wanted, ids) else rows[places]


def file_layer(file: Binary, start: int, shape: tuple[int, int], numbers: NumberFormat) -> StoredLayer:
    """Return a matrix in a file, row after row; neighbouring rows are one read."""

    def read(ids: np.ndarray) -> np.ndarray:
        stored = np.empty((len(ids), numbers.width(shape[1])), numbers.stored)
        width = stored.shape[1] * stored.itemsize
        first, last = runs(ids)
        file.gather(stored, (start + ids[first] * width).tolist(), ((last - first) * width).tolist())
        return stored

    return StoredLayer(shape, numbers, read)


def array_layer(array: np.ndarray, numbers: NumberFormat) -> StoredLayer:
    """Return a matrix of numbers in an array, which may be mapped."""
    rows, dim = array.shape
    return StoredLayer((rows, dim), numbers, lambda ids: np.asarray(array[ids]))


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
