"""The tensors of a checkpoint's file, of any format: described by name, and read as layers.

Each format has a module whose `read` returns a Tensors. No number is read before a row is needed;
then as few bytes as possible are read, and widened to float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from embcli.binary import Binary, quoted
from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.files.numbers import STORED_DTYPES, StoredDtype
from embcli.layer import Layer


class StoredLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read.

    `read` returns rows by ascending IDs, (n,) int64, as they are stored, (n, width). `load` is that
    of the layer, for a file that can be remote.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        numbers: StoredDtype,
        read: Callable[[np.ndarray], np.ndarray],
        load: Callable[[], None] | None = None,
    ) -> None:
        rows, dim = shape
        self.shape = (rows, dim)
        self.dtype = numbers.name
        self._numbers = numbers
        self._read = read
        self._load = load

    def load(self) -> None:
        if self._load is not None:
            self._load()

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in file order."""
        # Offsets of rows can exceed 32 bits.
        unique_ids, places = np.unique(ids.astype(np.int64), return_inverse=True)
        rows, rounded = self._numbers.widened(self._read(unique_ids))
        self.rounded_values += rounded
        return rows[places]

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as stored, (n,) int64 -> (n, width), in the machine's byte order."""
        unique_ids, places = np.unique(ids.astype(np.int64), return_inverse=True)
        stored = self._read(unique_ids)[places]
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)

    def widened(self, stored: np.ndarray) -> np.ndarray:
        rows, _ = self._numbers.widened(stored)
        return rows


def file_layer(tensor: Tensor, numbers: StoredDtype | None = None) -> StoredLayer:
    """Return a matrix in a file, whose numbers are stored as `numbers` or the dtype's name says."""
    numbers = numbers or STORED_DTYPES.get(tensor.dtype)
    if numbers is None:
        known = ", ".join(STORED_DTYPES)
        raise tensor.binary.file_error(
            f"{tensor} has numbers that embcli does not read; it reads {known}"
        )
    matrix = _FileMatrix(tensor, numbers)
    is_by_row = matrix.column_step == 1
    read = matrix.read_rows if is_by_row else matrix.read_columns
    place = range(tensor.start, tensor.start + tensor.size)
    load = partial(tensor.binary.load, place, quoted(tensor.name))
    return StoredLayer(tensor.shape, numbers, read, load)


class _FileMatrix:
    """A matrix in a file, read as ranges of bytes; IDs are ascending, (n,) int64."""

    def __init__(self, tensor: Tensor, numbers: StoredDtype) -> None:
        self.binary = tensor.binary
        self.start = tensor.start
        self.dtype = numbers.stored
        self.width = tensor.shape[1] // numbers.values
        row_step, column_step = tensor.strides or (self.width, 1)
        self.row_step = row_step
        self.column_step = column_step

    def read_rows(self, ids: np.ndarray) -> np.ndarray:
        """Read each run of rows as one range."""
        rows = np.empty((len(ids), self.width), self.dtype)
        are_adjacent = self.row_step == self.width
        first, last = runs(ids, gap=1 if are_adjacent else 0)
        starts = self.start + ids[first] * self.row_step * self.dtype.itemsize
        lengths = (last - first) * self.width * self.dtype.itemsize
        self.binary.gather(rows, starts.tolist(), lengths.tolist())
        return rows

    def read_columns(self, ids: np.ndarray) -> np.ndarray:
        """Read each column of a run of rows as one range, with the rows between them."""
        longest_gap = 1 << 11  # numbers that are read faster than another read begins
        rows = np.empty((len(ids), self.width), self.dtype)
        are_adjacent = self.row_step == 1
        all_runs = runs(ids, gap=longest_gap if are_adjacent else 0)
        for first, last in zip(*all_runs, strict=True):
            places = ids[first:last] - ids[first]
            values = np.empty(places[-1] + 1, self.dtype)
            for column in range(self.width):
                step = ids[first] * self.row_step + column * self.column_step
                start = self.start + int(step) * self.dtype.itemsize
                self.binary.gather(values, [start], [values.nbytes])
                rows[first:last, column] = values[places]
        return rows


class PackedError(InputError):
    """A matrix is packed by a scheme that embcli knows by name and does not unpack."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; its numbers have not been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # the dtype of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    binary: Binary
    start: int  # offset of its first byte
    # Items from one index to the next, by dimension; empty if row follows row.
    strides: tuple[int, ...] = ()
    matrix: Callable[[Tensor], Layer] = file_layer  # makes a layer of a tensor of two dimensions
    parts: tuple[str, ...] = ()  # the names of other tensors that the matrix is computed from
    unreadable: str = ""  # why its numbers are not those of the matrix, such as a packing
    packed: bool = False  # whether it is unreadable because a known scheme packs it
    # The shape in the file of an array of other than two dimensions that is read as a matrix.
    array_shape: tuple[int, ...] = ()

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:,}" for size in self.shape)
        return f"{quoted(self.name)} ({sizes}) {self.dtype}"

    def unreadable_error(self) -> InputError:
        error = self.binary.file_error(f"{self}: {self.unreadable}")
        return PackedError(error.message, error.hint) if self.packed else error

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and all(self.shape)

    @property
    def place(self) -> tuple[object, ...]:
        """Where the numbers are stored, and how they are read: equal for two names of a tensor."""
        return self.binary.path, self.start, self.dtype, self.shape, self.strides


def _no_words() -> Encoding | None:
    return None


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, in one file or several, which stay open.

    `metadata` is what the file says about the model, uninterpreted. `files` are those that contain
    the tensors, if it is not the file itself. `own_words` returns the encoding that the file's
    words make, or None.
    """

    def __init__(
        self,
        binary: Binary,
        format: str,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, Any] | None = None,
        files: Iterable[str] = (),
        own_words: Callable[[], Encoding | None] = _no_words,
    ) -> None:
        self.binary = binary
        self.path = binary.path
        self.file_error = binary.file_error
        self.format = format  # its name
        self.tensors = tensors
        self.metadata = metadata or {}
        self.files = tuple(files) or (binary.name,)
        self.own_words = own_words

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def layer(self, name: str) -> Layer:
        """Return a matrix as a layer of rows.

        Raises InputError for a tensor that is not a matrix, or that cannot be read.
        """
        tensor = self[name]
        if tensor.unreadable:
            raise tensor.unreadable_error()
        if not tensor.is_matrix:
            raise self.file_error(
                f"{tensor} is not a matrix: it needs two dimensions, (V, D), of at least 1"
            )
        return tensor.matrix(tensor)

    def array(self, name: str) -> np.ndarray:
        """Return a whole vector or matrix as float32; raises InputError for another tensor."""
        tensor = self[name]
        if len(tensor.shape) != 1:
            return self.layer(name).whole()
        # A vector is read as a matrix of one row.
        strides = (0, *tensor.strides) if tensor.strides else ()
        row = replace(tensor, shape=(1, *tensor.shape), strides=strides)
        return row.matrix(row).rows(np.arange(1)).ravel()


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of runs of ascending IDs, both (runs,) int64.

    The IDs of a run are at most `gap` apart.
    """
    splits = np.flatnonzero(np.diff(ids) > gap) + 1
    bounds = np.unique(np.r_[0, splits, len(ids)])  # only 0 if there are no IDs
    return bounds[:-1], bounds[1:]
