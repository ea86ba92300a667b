"""Matrices whose numbers lie in a file as they are: rows are read where they stand and widened to float32.

Rows are read, and windows mapped only where nobody can cut the file meanwhile, so that a file which is cut is an error
rather than a signal; a limit on address space below the size of the file does not matter.
"""

from __future__ import annotations

import os
import stat
import sys
from abc import ABC, abstractmethod
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from embcli.files.mapping import Mapping
from embcli.files.numbers import BFLOAT16, FLOAT16, FLOAT32, NAMED
from embcli.files.tensors import refused
from embcli.layer import Layer

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from embcli.errors import InputError
    from embcli.files.numbers import Numbers
    from embcli.files.tensors import Tensor

_BLOCK = 1 << 18  # values that are widened at a time: they stay in the processor's cache
_COLUMNS = 1 << 24  # values of a block where each of its columns is a read of its own
_GAP = 1 << 12  # bytes that are sooner read than stepped over
_READ = 1 << 22  # bytes of rows as they are stored that are taken at a time: they stay in a cache
_WINDOW = 3 << 22  # bytes that are mapped at a time, in each of some threads
_WORD = 8  # bytes: where windows begin, numbers of all kinds lie as they should


class Bytes(ABC):
    """Bytes that can be read at any offset."""

    @property
    @abstractmethod
    def is_shared(self) -> bool:
        """Whether several threads may read at the same time."""

    @abstractmethod
    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with pieces, one behind the other; raises InputError where one is not there."""

    def pieces(self, offset: int, length: int, size: int) -> Iterator[np.ndarray]:
        """Yield so many bytes from an offset on, `size` at a time, (n,) uint8; each is valid until the next one."""
        room = np.empty(min(size, length), np.uint8)
        for start in range(0, length, size):
            part = room[: length - start]
            self.gather(part, (offset + start,), (len(part),))
            yield part


class Binary(Bytes):
    """A regular file, open for reading at any offset.

    Raises InputError for what cannot be opened, and for what is no regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()  # a pipe would wait for a writer, so it is looked at before it is opened
            if not stat.S_ISREG(status.st_mode):
                raise self.refused("it is no file")
            self.file = open(path, "rb", buffering=0)  # noqa: SIM115 - it stays open for the rows to come
        except (OSError, ValueError) as error:
            raise self.refused(getattr(error, "strerror", None) or str(error)) from None
        self.size = os.fstat(self.file.fileno()).st_size

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()

    @property
    def is_shared(self) -> bool:
        """Whether several threads may read at the same time: without preadv they would move each other's place."""
        return hasattr(os, "preadv")

    def refused(self, reason: str) -> InputError:
        """Return the error that says why this file is of no use."""
        return refused(self.path, reason)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from an offset on, fewer at the end of the file."""
        buffer = np.empty(max(min(length, self.size - offset), 0), np.uint8)
        self.gather(buffer, (offset,), (len(buffer),))
        return buffer.tobytes()

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with pieces, one behind the other; raises InputError where one is not there."""
        room, place, descriptor = buffer.reshape(-1).view(np.uint8).data, 0, self.file.fileno()
        try:
            for offset, length in zip(offsets, lengths, strict=True):
                done = 0
                while done < length:
                    count = _read_at(descriptor, room[place + done : place + length], offset + done)
                    if not count:
                        raise self._cut()
                    done += count
                place += length
        except OSError as error:
            raise self.refused(str(error.strerror)) from None

    def pieces(self, offset: int, length: int, size: int) -> Iterator[np.ndarray]:
        """Yield so many bytes from an offset on, `size` at a time, (n,) uint8; each is valid until the next one.

        They are mapped as long as that can be done, and read else.
        """
        end = offset + length
        for window in self._windows(offset, length, size * max(_WINDOW // size, 1)):
            for start in range(0, len(window), size):
                yield window[start : start + size]
            offset += len(window)
        yield from super().pieces(offset, end - offset, size)

    def _windows(self, offset: int, length: int, size: int) -> Iterator[np.ndarray]:
        """Yield bytes from an offset on, (n,) uint8, as long as they can be mapped and lie where numbers should."""
        if offset % _WORD:
            return
        try:
            mapping = Mapping(self.file)
        except (OSError, AttributeError, ImportError):
            return
        with closing(mapping):
            for start in range(0, length, size):
                window = mapping.window(offset + start, min(size, length - start))
                if window is None:
                    return
                yield window

    def _cut(self) -> InputError:
        size = os.fstat(self.file.fileno()).st_size
        return self.refused(f"it was cut off while it was read, from {self.size:,} to {size:,} bytes")


def _read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    os.lseek(descriptor, offset, os.SEEK_SET)  # Windows
    data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


class StoredLayer(Layer):
    """A matrix in a file: row after row, or column after column.

    `changed` counts the values read so far that float32 cannot hold and that were rounded.
    """

    def __init__(
        self, file: Bytes, start: int, shape: tuple[int, int], numbers: Numbers, by_columns: bool = False
    ) -> None:
        self.shape, self.dtype = shape, numbers.name
        self.changed = 0
        self._file, self._start, self._numbers, self._by_columns = file, start, numbers, by_columns

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in the order of the file."""
        wanted, places = np.unique(ids.astype(np.int64), return_inverse=True)  # 32 bits hold no place behind 4 GB
        found = np.empty((len(wanted), self.shape[1]), np.float32)
        self._fill(wanted, found, self._room(found))
        return found if np.array_equal(wanted, ids) else found[places]

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, width), but in the machine's order of bytes."""
        wanted, places = np.unique(ids.astype(np.int64), return_inverse=True)
        found = self._read(wanted, self._room(np.empty((len(wanted), self.shape[1]), np.float32)))
        native = np.ascontiguousarray(found, found.dtype.newbyteorder("="))
        return native if np.array_equal(wanted, ids) else native[places]

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D)."""
        return self._numbers.widened(stored, self.shape[1])

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each; a block is valid until the next one."""
        rows, dim = self.shape
        step = min(max((_COLUMNS if self._by_columns else _BLOCK) // dim, 1), rows)
        found = np.empty((step, dim), np.float32)
        room = self._room(found)
        for start in range(0, rows, step):
            ids = np.arange(start, min(start + step, rows))
            self._fill(ids, found[: len(ids)], room)
            yield found[: len(ids)]

    def stretches(self, count: int, rows: int) -> list[tuple[int, Iterator[np.ndarray]]]:
        """Return the windows of so many first rows, in up to `count` parts; see Layer."""
        known = self._numbers in (BFLOAT16, FLOAT16) or self._numbers.stored == FLOAT32.stored
        if self._by_columns or not known or sys.byteorder != "little":
            return [(0, self.blocks())]
        count = max(min(count, rows), 1) if self._file.is_shared else 1
        edges = [rows * place // count for place in range(count + 1)]
        return [(first, self._as_stored(first, last)) for first, last in pairwise(edges)]

    def _as_stored(self, first: int, last: int) -> Iterator[np.ndarray]:
        width = self.shape[1] * self._numbers.stored.itemsize
        size = max(_READ // width, 1) * width
        for piece in self._file.pieces(self._start + first * width, (last - first) * width, size):
            yield piece.view(self._numbers.stored).reshape(-1, self.shape[1])

    def _room(self, found: np.ndarray) -> np.ndarray:
        """Return a place for the stored form of rows, (n, width), or (D, n) where they are columns in the file.

        Where rows lie in the file as they are wanted, this is the place where they are wanted.
        """
        if self._by_columns:
            return np.empty(found.shape[::-1], self._numbers.stored)
        if self._numbers.stored == found.dtype:
            return found
        return np.empty((len(found), self._numbers.width(self.shape[1])), self._numbers.stored)

    def _fill(self, ids: np.ndarray, found: np.ndarray, room: np.ndarray) -> None:
        """Read rows by IDs that ascend, by way of a place for their stored form."""
        stored = self._read(ids, room)
        if room.dtype != found.dtype or self._by_columns:
            self.changed += self._numbers.widen(stored, found)

    def _read(self, ids: np.ndarray, room: np.ndarray) -> np.ndarray:
        """Return the stored form of rows by IDs that ascend, (n, width), read into its place."""
        if self._by_columns:
            self._read_columns(ids, room)
            return room[:, : len(ids)].T
        self._read_rows(ids, room[: len(ids)])
        return room[: len(ids)]

    def _read_rows(self, ids: np.ndarray, stored: np.ndarray) -> None:
        width = stored.shape[1] * stored.itemsize
        first, last = runs(ids)
        self._file.gather(stored, (self._start + ids[first] * width).tolist(), ((last - first) * width).tolist())

    def _read_columns(self, ids: np.ndarray, stored: np.ndarray) -> None:
        """Read each column as far as these rows reach, with small gaps between them."""
        size = stored.itemsize
        first, last = runs(ids, _GAP // size)
        lengths = ids[last - 1] + 1 - ids[first]
        ends = np.cumsum(lengths)
        span = np.empty(int(ends[-1]) if len(ends) else 0, stored.dtype)
        places = ids + np.repeat(ends - lengths - ids[first], last - first)
        starts, sizes = self._start + ids[first] * size, (lengths * size).tolist()
        for column in range(self.shape[1]):
            self._file.gather(span, (starts + column * self.shape[0] * size).tolist(), sizes)
            stored[column, : len(ids)] = span[places]


def stored_layer(binary: Binary, tensor: Tensor, transposed: bool) -> StoredLayer:
    """Return a matrix that lies in a file row after row as a layer of its rows, or of its columns if `transposed`.

    Raises InputError where its numbers are of a kind that does not become float32.
    """
    stored_as = NAMED.get(tensor.dtype)
    if stored_as is None:
        raise binary.refused(f"{tensor} holds numbers that embcli does not read; it reads {', '.join(NAMED)}")
    rows, columns = tensor.shape
    shape = (columns, rows) if transposed else (rows, columns)
    return StoredLayer(binary, tensor.start, shape, stored_as, by_columns=transposed)


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return from where to where ascending IDs are at most `gap` apart, both (runs,) int64.

    >>> first, last = runs(np.array([3, 4, 5, 9, 11]), gap=2)
    >>> first.tolist(), last.tolist()
    ([0, 3], [3, 5])
    """
    begins = np.ones(len(ids), bool)
    begins[1:] = np.diff(ids) > gap
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], len(ids))[: len(first)]
