"""The tensors of a checkpoint's file, of any format: described by name, read as layers and widened to float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embcli.binary import Binary, quoted
from embcli.encodings.encoding import Encoding
from embcli.files.numbers import STORED_DTYPES, StoredDtype
from embcli.layer import Layer

_GAP = 1 << 11  # numbers of a column that are read faster than a read begins
_AT_ONCE = 1 << 20  # numbers of columns that are read together


class StoredLayer(Layer):
    """A matrix whose numbers are widened to float32 when its rows are read.

    `read` returns rows by ascending IDs, (n,) int64, as they are stored, (n, width).
    """

    def __init__(
        self, shape: tuple[int, ...], numbers: StoredDtype, read: Callable[[np.ndarray], np.ndarray]
    ) -> None:
        rows, dim = shape
        self.shape = (rows, dim)
        self.dtype = numbers.name
        self._numbers = numbers
        self._read = read

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; each is read once, in the order of the file."""
        wanted, places = np.unique(
            ids.astype(np.int64), return_inverse=True
        )  # offsets can exceed 32 bits
        rows, rounded = self._numbers.widened(self._read(wanted))
        self.rounded_values += rounded
        return rows[places]

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, width), in the machine's byte order."""
        wanted, places = np.unique(ids.astype(np.int64), return_inverse=True)
        stored = self._read(wanted)[places]
        return stored.astype(stored.dtype.newbyteorder("="), copy=False)

    def widened(self, stored: np.ndarray) -> np.ndarray:
        return self._numbers.widened(stored)[0]


def file_layer(tensor: Tensor, numbers: StoredDtype | None = None) -> StoredLayer:
    """Return a matrix in a file; its numbers are stored as its dtype says, unless `numbers` says otherwise."""
    numbers = numbers or STORED_DTYPES.get(tensor.dtype)
    if numbers is None:
        known = ", ".join(STORED_DTYPES)
        raise tensor.binary.file_error(
            f"{tensor} has numbers that embcli does not read; it reads {known}"
        )
    stored = numbers.stored
    dim = tensor.shape[1]
    width = dim // numbers.values
    row_step, column_step = tensor.strides or (width, 1)

    def read_rows(ids: np.ndarray) -> np.ndarray:
        """Read each run of rows as one range."""
        rows = np.empty((len(ids), width), stored)
        first, last = runs(ids, gap=1 if row_step == width else 0)
        starts = tensor.start + ids[first] * row_step * stored.itemsize
        lengths = (last - first) * width * stored.itemsize
        tensor.binary.gather(rows, starts.tolist(), lengths.tolist())
        return rows

    def read_columns(ids: np.ndarray) -> np.ndarray:
        """Read each column of a run of rows as one range, with the rows between them."""
        rows = np.empty((len(ids), dim), stored)
        columns = tensor.start + np.arange(dim) * column_step * stored.itemsize
        for first, last in zip(*runs(ids, gap=_GAP if row_step == 1 else 0), strict=True):
            places = ids[first:last] - ids[first]
            span = int(places[-1]) + 1
            step = max(_AT_ONCE // span, 1)
            for column in range(0, dim, step):
                starts = columns[column : column + step] + ids[first] * row_step * stored.itemsize
                part = np.empty((len(starts), span), stored)
                tensor.binary.gather(part, starts.tolist(), [part[0].nbytes] * len(part))
                rows[first:last, column : column + step] = part[:, places].T
        return rows

    return StoredLayer(tensor.shape, numbers, read_rows if column_step == 1 else read_columns)


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; its numbers have not been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    binary: Binary
    start: int  # offset of its first byte: two names with equal starts are one tensor
    strides: tuple[
        int, ...
    ] = ()  # items from one index to the next, by dimension; empty for row after row
    matrix: Callable[[Tensor], Layer] = file_layer  # makes a layer of it, if it has two dimensions

    def __str__(self) -> str:
        return f"{quoted(self.name)} ({', '.join(f'{size:,}' for size in self.shape)}) {self.dtype}"

    @property
    def is_matrix(self) -> bool:
        return len(self.shape) == 2 and all(self.shape)

    @property
    def place(self) -> tuple[Path, int, tuple[int, ...]]:
        """Where the numbers are stored: equal for two names of one tensor."""
        return self.binary.path, self.start, self.shape


class Tensors(Mapping[str, Tensor]):
    def __init__(
        self,
        binary: Binary,
        format: str,  # its name
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, Any]
        | None = None,  # what the file says about the model, uninterpreted
        files: Iterable[Path] = (),  # that contain the tensors, if there are others
        own_words: Callable[[], Encoding | None] = lambda: (
            None
        ),  # returns the encoding that the file's tokens make
    ) -> None:
        self.path = binary.path
        self.file_error = binary.file_error
        self.format = format
        self.tensors = tensors
        self.metadata = metadata or {}
        self.files = tuple(files) or (binary.path,)
        self.own_words = own_words

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def layer(self, name: str) -> Layer:
        """Return a matrix as a layer of rows; raises InputError for a tensor that is none or cannot be read."""
        tensor = self[name]
        if not tensor.is_matrix:
            raise self.file_error(
                f"{tensor} is not a matrix: it needs two dimensions, (V, D), of at least 1"
            )
        return tensor.matrix(tensor)

    def array(self, name: str) -> np.ndarray:
        """Return a whole tensor of one or two dimensions, as float32; raises InputError for another one."""
        tensor = self[name]
        if len(tensor.shape) != 1:
            layer = self.layer(name)
            return layer.rows(np.arange(layer.shape[0]))
        strides = (0, *tensor.strides) if tensor.strides else ()
        row = replace(tensor, shape=(1, *tensor.shape), strides=strides)
        return row.matrix(row).rows(np.arange(1)).ravel()


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of runs of ascending IDs that are at most `gap` apart, both (runs,) int64."""
    splits = np.flatnonzero(np.diff(ids) > gap) + 1
    bounds = np.unique(np.r_[0, splits, len(ids)])  # 0 once if there are no IDs
    return bounds[:-1], bounds[1:]
