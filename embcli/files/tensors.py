"""The tensors of a checkpoint's file, of any format: described by name, read as layers and widened to float32."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embcli.binary import Binary, quoted
from embcli.encodings.encoding import Encoding
from embcli.files.numbers import NUMBER_FORMATS, NumberFormat
from embcli.layer import Layer


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
        wanted, places = np.unique(ids.astype(np.int64), return_inverse=True)  # offsets can exceed 32 bits
        rows, rounded = self._numbers.widened(self._read(wanted))
        self.rounded_values += rounded
        return rows if np.array_equal(wanted, ids) else rows[places]

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, width), in the machine's byte order."""
        wanted, places = np.unique(ids.astype(np.int64), return_inverse=True)
        stored = self._read(wanted)[places]
        return np.ascontiguousarray(stored, stored.dtype.newbyteorder("="))

    def widened(self, stored: np.ndarray) -> np.ndarray:
        return self._numbers.widened(stored)[0]


def array_layer(array: np.ndarray, numbers: NumberFormat) -> StoredLayer:
    rows, dim = array.shape
    return StoredLayer((rows, dim), numbers, lambda ids: np.asarray(array[ids]))


def file_layer(tensor: Tensor, numbers: NumberFormat | None = None) -> StoredLayer:
    """Return a matrix in a file; the format of its numbers is that of its dtype, unless it is given."""
    if numbers is None and tensor.dtype not in NUMBER_FORMATS:
        known = ", ".join(NUMBER_FORMATS)
        raise tensor.binary.refused(f"{tensor} has numbers that embcli does not read; it reads {known}")
    numbers, (rows, dim) = numbers or NUMBER_FORMATS[tensor.dtype], tensor.shape
    item = numbers.stored.itemsize
    if tensor.strides in (None, (dim, 1)):
        width = numbers.width(dim)

        def read(ids: np.ndarray) -> np.ndarray:
            stored = np.empty((len(ids), width), numbers.stored)
            first, last = runs(ids)
            starts, lengths = tensor.start + ids[first] * width * item, (last - first) * width * item
            tensor.binary.gather(stored, starts.tolist(), lengths.tolist())
            return stored

        return StoredLayer((rows, dim), numbers, read)
    strides = [each * item for each in tensor.strides]
    size = (rows - 1) * strides[0] + (dim - 1) * strides[1] + item
    try:
        mapped = np.memmap(tensor.binary.path, np.uint8, "r", tensor.start, (size,))
    except (OSError, ValueError) as error:
        raise tensor.binary.refused(f"{tensor} cannot be mapped ({error})") from None
    return array_layer(np.ndarray((rows, dim), numbers.stored, mapped, 0, strides), numbers)


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; its numbers have not been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    binary: Binary
    start: int  # offset of its first byte: two names with equal starts are one tensor
    strides: tuple[int, ...] | None = None  # items from one index to the next, by dimension; None for row after row
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
        metadata: Mapping[str, Any] | None = None,  # what the file says about the model, uninterpreted
        files: Iterable[Path] = (),  # that contain the tensors, if there are others
        own_words: Callable[[], Encoding | None] = lambda: None,  # returns the encoding that the file's tokens make
    ) -> None:
        self.path, self.format, self.metadata, self.own_words = binary.path, format, metadata or {}, own_words
        self.files = tuple(files) or (binary.path,)
        self.refused = binary.refused
        self.tensors = tensors

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
            raise self.refused(f"{tensor} is not a matrix: it needs two dimensions, (V, D), of at least 1")
        return tensor.matrix(tensor)

    def array(self, name: str) -> np.ndarray:
        """Return a whole tensor of one or two dimensions, as float32; raises InputError for another one."""
        tensor = self[name]
        if len(tensor.shape) == 1:
            strides = tensor.strides and (0, *tensor.strides)
            row = replace(tensor, shape=(1, *tensor.shape), strides=strides)
            return np.asarray(row.matrix(row).rows(np.zeros(1, np.int64))[0])
        layer = self.layer(name)
        return layer.rows(np.arange(layer.shape[0]))


def runs(ids: np.ndarray, gap: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Return the starts and ends of runs of ascending IDs that are at most `gap` apart, both (runs,) int64."""
    begins = np.ones(len(ids), bool)
    begins[1:] = np.diff(ids) > gap
    first = np.flatnonzero(begins)
    return first, np.append(first[1:], len(ids))[: len(first)]
