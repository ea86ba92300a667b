"""The tensors of a checkpoint's file, of any format: described by name, and read as layers.

Each format has a module whose `read` returns a Tensors. No number is read before a row is needed;
then as few bytes as possible are read, and widened to float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from embcli.binary import Binary, JsonObject, quoted
from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.files.numbers import STORED_DTYPES, StoredDtype
from embcli.layer import Layer, RowsOf
from embcli.names import Shape, Strings


class StoredLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read.

    `read` returns rows by ascending IDs, (n,) int64, as they are stored, (n, width). `load` is that
    of the layer, for a file that can be remote.
    """

    def __init__(
        self,
        shape: Shape,
        numbers: StoredDtype,
        read: RowsOf,
        load: Callable[[], None] = lambda: None,
    ) -> None:
        rows, dim = shape
        self.shape = (rows, dim)
        self.dtype = numbers.name
        self._numbers = numbers
        self._read = read
        self._load = load
        self._rounded = np.zeros(rows, np.int64)  # how many values of each row were rounded

    def load(self) -> None:
        self._load()

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in file order."""
        # Offsets of rows can exceed 32 bits.
        unique_ids, places = np.unique(ids.astype(np.int64), return_inverse=True)
        rows, rounded = self._numbers.widened(self._read(unique_ids))
        self._rounded[unique_ids] = rounded
        self.rounded_values = int(self._rounded.sum())
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
    width, rest = divmod(tensor.shape[1], numbers.values)
    if rest:
        raise tensor.binary.file_error(f"{tensor} has rows that end within a byte")
    row_step, column_step = tensor.strides or (width, 1)
    read = partial(_read_rows, tensor, numbers.stored, width, row_step)
    if column_step != 1:
        read = partial(_read_columns, tensor, numbers.stored)
    byte_range = range(tensor.start, tensor.start + tensor.size)
    load = partial(tensor.binary.load, byte_range, quoted(tensor.name))
    return StoredLayer(tensor.shape, numbers, read, load)


def computed_layer(
    described: Tensor,
    computed_rows: RowsOf,
    computed_from: tuple[Layer, ...] = (),
) -> StoredLayer:
    """Return a matrix of a tensor's shape and dtype, whose float32 rows a function computes.

    If all its rows will be read, those of the layers that it is computed from are loaded.
    """

    def load() -> None:
        for layer in computed_from:
            layer.load()

    numbers = STORED_DTYPES["float32"]._replace(name=described.dtype)
    return StoredLayer(described.shape, numbers, computed_rows, load)


def _read_rows(
    tensor: Tensor, dtype: np.dtype[Any], width: int, row_step: int, ids: np.ndarray
) -> np.ndarray:
    """Read rows of `width` items by ascending IDs, (n,) int64, each run of them as one range.

    `row_step` is in items, from one row to the next.
    """
    rows = np.empty((len(ids), width), dtype)
    are_adjacent = row_step == width
    first, last = runs(ids, gap=1 if are_adjacent else 0)
    starts = tensor.start + ids[first] * row_step * dtype.itemsize
    lengths = (last - first) * width * dtype.itemsize
    tensor.binary.gather(rows, starts.tolist(), lengths.tolist())
    return rows


def _read_columns(tensor: Tensor, dtype: np.dtype[Any], ids: np.ndarray) -> np.ndarray:
    """Read rows by ascending IDs, (n,) int64: of each column, the range that has all of them."""
    row_step, column_step = tensor.strides
    rows = np.empty((len(ids), tensor.shape[1]), dtype)
    if not len(ids):
        return rows
    places = (ids - ids[0]) * row_step
    values = np.empty(places[-1] + 1, dtype)
    for column in range(tensor.shape[1]):
        first = int(ids[0]) * row_step + column * column_step
        tensor.binary.gather(values, [tensor.start + first * dtype.itemsize], [values.nbytes])
        rows[:, column] = values[places]
    return rows


class PackedError(InputError):
    """A matrix is packed by a scheme that embcli knows by name and does not unpack."""


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; its numbers have not been read."""

    name: str
    shape: Shape
    dtype: str  # the dtype of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    binary: Binary
    start: int  # offset of its first byte
    # Items from one index to the next, by dimension; empty if row follows row.
    strides: tuple[int, ...] = ()
    matrix: Callable[[Tensor], Layer] = file_layer  # makes a layer of a tensor of two dimensions
    computed_from: Strings = ()  # the names of other tensors that its rows depend on
    unreadable: str = ""  # why its numbers are not those of the matrix, such as a packing
    packed: bool = False  # whether it is unreadable because a known scheme packs it
    # The shape in the file of an array of other than two dimensions that is read as a matrix.
    array_shape: Shape = ()

    def __str__(self) -> str:
        sizes = ", ".join(f"{size:,}" for size in self.shape)
        return f"{quoted(self.name)} ({sizes}) {self.dtype}"

    def check_readable(self) -> None:
        """Raise InputError if its numbers are not those of the matrix."""
        if self.unreadable:
            error = self.binary.file_error(f"{self}: {self.unreadable}")
            raise PackedError(error.message) if self.packed else error

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and all(self.shape)

    @property
    def stored_at(self) -> tuple[object, ...]:
        """Where the numbers are stored, and how they are read: equal for two names of a tensor."""
        return self.binary.path, self.start, self.dtype, self.shape, self.strides


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name, in one file or several, which stay open.

    `metadata` is what the file says about the model, uninterpreted. `files` are those that contain
    the tensors, if it is not the file itself. `own_words` returns the encoding that the file's
    words make, or None. `is_array` says whether the format has numbers without a model.
    """

    def __init__(
        self,
        binary: Binary,
        format: str,
        tensors: Mapping[str, Tensor],
        metadata: JsonObject | None = None,
        files: Iterable[str] = (),
        own_words: Callable[[], Encoding | None] = lambda: None,
        *,
        is_array: bool,
    ) -> None:
        self.binary = binary
        self.path = binary.path
        self.file_error = binary.file_error
        self.format = format  # its name
        self.is_array = is_array
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

    def in_files(self) -> Iterator[Tensor]:
        """Return the tensors of each file as it is stored, also those that an index does not name.

        All headers are read, each once; raises InputError for a damaged file.
        """
        return iter(self.values())

    def layer(self, name: str) -> Layer:
        """Return a matrix as a layer of rows.

        Raises InputError for a tensor that is not a matrix, or that cannot be read.
        """
        tensor = self[name]
        tensor.check_readable()
        if not tensor.is_matrix:
            raise self.file_error(
                f"{tensor} is not a matrix: it needs two dimensions, (V, D), of at least 1"
            )
        return tensor.matrix(tensor)

    def array(self, name: str) -> np.ndarray:
        """Return a whole tensor as float32; raises InputError if it cannot be read."""
        tensor = self[name]
        tensor.check_readable()
        if len(tensor.shape) == 2 or len(tensor.strides) > 2:
            return self.layer(name).whole()
        # It is read as a matrix, a vector as one of one row.
        *sizes, dim = tensor.shape or (1,)
        strides = (0, *tensor.strides) if tensor.strides else ()
        rows = replace(tensor, shape=(math.prod(sizes), dim), strides=strides)
        return rows.matrix(rows).whole().reshape(tensor.shape)


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of runs of ascending IDs, both (runs,) int64.

    The IDs of a run are at most `gap` apart.
    """
    splits = np.flatnonzero(np.diff(ids) > gap) + 1
    bounds = np.unique(np.r_[0, splits, len(ids)])  # only 0 if there are no IDs
    return bounds[:-1], bounds[1:]
