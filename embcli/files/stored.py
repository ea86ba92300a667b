"""Matrices whose numbers a file stores as they are: rows are read in place and widened to float32.

Rows that follow one another are read, not mapped: a file that is cut while it is read gives an error rather than a
signal, and a limit on the address space does not matter.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import numpy as np

from embcli.binary import Binary
from embcli.files.numbers import NumberFormat
from embcli.layer import Layer
from embcli.selection import distinct

_BLOCK = 1 << 18  # values that are widened at a time: they fit in the processor's cache


class WidenedLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read; a subclass implements `_read`."""

    def __init__(self, shape: tuple[int, int], numbers: NumberFormat) -> None:
        self.shape, self.dtype = shape, numbers.name
        self._numbers = numbers

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
        step = max(_BLOCK // dim, 1)
        for start in range(0, rows, step):
            yield self._widened(np.arange(start, min(start + step, rows)))

    def _widened(self, ids: np.ndarray) -> np.ndarray:
        """Return rows by ascending IDs as float32, and count the values that were rounded."""
        rows, rounded = self._numbers.widened(self._read(ids), self.shape[1])
        self.rounded_values += rounded
        return rows


class StoredLayer(WidenedLayer):
    """A matrix in a file, row after row."""

    def __init__(self, file: Binary, start: int, shape: tuple[int, int], numbers: NumberFormat) -> None:
        super().__init__(shape, numbers)
        self._file, self._start = file, start

    def _read(self, ids: np.ndarray) -> np.ndarray:
        stored = np.empty((len(ids), self._numbers.width(self.shape[1])), self._numbers.stored)
        width = stored.shape[1] * stored.itemsize
        first, last = runs(ids)
        self._file.gather(stored, (self._start + ids[first] * width).tolist(), ((last - first) * width).tolist())
        return stored


class ArrayLayer(WidenedLayer):
    """A matrix of plain numbers in an array, which may be mapped."""

    def __init__(self, array: np.ndarray, numbers: NumberFormat) -> None:
        rows, dim = array.shape
        super().__init__((rows, dim), numbers)
        self._array = array

    def _read(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._array[ids])


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
