"""The tensors of a checkpoint's file, of any format: described by name, read as layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from embcli.binary import Binary, refused, shortened
from embcli.encodings.encoding import Encoding
from embcli.errors import InputError
from embcli.files.numbers import NUMBER_FORMATS, NumberFormat
from embcli.files.stored import array_layer, file_layer
from embcli.layer import Layer


@dataclass(frozen=True)
class Tensor:
    """A tensor as its file describes it; its numbers have not been read."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # of the stored numbers: "float32", "bfloat16", "Q4_K"
    size: int  # bytes in the file
    file: Path
    start: int  # offset of its first byte: two names with equal starts are one tensor
    strides: tuple[int, ...] | None = None  # items from one index to the next, by dimension; None for row after row

    def __str__(self) -> str:
        return f"{shortened(self.name)} ({', '.join(f'{size:,}' for size in self.shape)}) {self.dtype}"

    @property
    def is_matrix(self) -> bool:
        """Whether the tensor has two dimensions of at least 1."""
        return len(self.shape) == 2 and all(self.shape)

    @property
    def place(self) -> tuple[Path, int, tuple[int, ...]]:
        """Where the numbers are stored: equal for two names of one tensor."""
        return self.file, self.start, self.shape


class Tensors(Mapping[str, Tensor]):
    """The tensors of a checkpoint by name; a new format passes what it describes."""

    format: str  # its name
    metadata: Mapping[str, Any]  # what the file says about the model, uninterpreted

    def __init__(
        self,
        binary: Binary,
        tensors: Mapping[str, Tensor],
        metadata: Mapping[str, Any] | None = None,
        files: Iterable[Path] = (),
    ) -> None:
        self.path = binary.path
        self.files = tuple(files) or (binary.path,)  # that contain the tensors
        self.metadata = metadata or {}
        self._binary = binary
        self._tensors = tensors

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def layer(self, name: str) -> Layer:
        """Return a matrix as a layer of rows; raises InputError for a tensor that is none or cannot be read."""
        tensor = self[name]
        if not tensor.is_matrix:
            raise self.refused(f"{tensor} is not a matrix: it needs two dimensions, (V, D), of at least 1")
        return self.matrix(tensor)

    def array(self, name: str) -> np.ndarray:
        """Return a whole tensor of one or two dimensions, as float32; raises InputError for another one."""
        tensor = self[name]
        if len(tensor.shape) == 1:
            strides = tensor.strides and (0, *tensor.strides)
            row = self.matrix(replace(tensor, shape=(1, *tensor.shape), strides=strides))
            return np.asarray(row.rows(np.zeros(1, np.int64))[0])
        layer = self.layer(name)
        return layer.rows(np.arange(layer.shape[0]))

    def matrix(self, tensor: Tensor) -> Layer:
        """Return a two-dimensional tensor as a layer; raises InputError for numbers that do not become float32."""
        rows, columns = tensor.shape
        file, numbers, strides = self._bytes(tensor), self._numbers(tensor), tensor.strides or (columns, 1)
        if strides == (columns, 1):
            return file_layer(file, tensor.start, (rows, columns), numbers)
        item = numbers.stored.itemsize
        size = ((rows - 1) * strides[0] + (columns - 1) * strides[1] + 1) * item
        try:
            mapped = np.memmap(tensor.file, np.uint8, "r", tensor.start, (size,))
        except (OSError, ValueError) as error:
            raise self.refused(f"{tensor} cannot be mapped ({error})") from None
        in_bytes = (strides[0] * item, strides[1] * item)
        return array_layer(np.ndarray((rows, columns), numbers.stored, mapped, 0, in_bytes), numbers)

    def _bytes(self, tensor: Tensor) -> Binary:
        """Return what a tensor's numbers are read from."""
        return self._binary

    def _numbers(self, tensor: Tensor) -> NumberFormat:
        """Return how a tensor's numbers become float32; raises InputError if they do not."""
        if tensor.dtype not in NUMBER_FORMATS:
            reason = f"{tensor} has numbers that embcli does not read; it reads {', '.join(NUMBER_FORMATS)}"
            raise refused(tensor.file, reason)
        return NUMBER_FORMATS[tensor.dtype]

    def own_words(self) -> Encoding | None:
        """Return the encoding that the file's own tokens make, or None; they are read when the first is needed."""
        return None

    def refused(self, reason: str, hint: str = "", parameters: tuple[str, ...] = ()) -> InputError:
        """Return the error that says why this file cannot be used."""
        return self._binary.refused(reason, hint, parameters)
