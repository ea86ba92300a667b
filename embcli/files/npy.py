"""numpy's formats: .npy, one array, and .npz, a zip archive of arrays by name. Pickles in them are never read.

Rows of an uncompressed array are read in place; a compressed array is read whole when it is needed.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from embcli.binary import Binary, shortened
from embcli.errors import refuse_too_large
from embcli.files.archives import DAMAGES, member_start, opened_archive
from embcli.files.numbers import NumberFormat, number_format
from embcli.files.stored import array_layer
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Layer

_LONGEST_HEADER = 2_000  # bytes: numpy takes seconds to refuse some of 10,000, its own limit
_PREFIX = 1 << 14  # bytes that contain a header


def npz_begins(head: bytes) -> bool:
    """Return whether a file is a zip archive whose first member is an array; torch's archives begin otherwise."""
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy")


class NpyFile(Tensors):
    """The array of a .npy file, named after the file."""

    format = "npy"

    def __init__(self, binary: Binary) -> None:
        super().__init__(binary, {})
        self._dtypes: dict[str, np.dtype[Any]] = {}
        self._tensors = self._arrays(binary)

    def _arrays(self, binary: Binary) -> dict[str, Tensor]:
        name = binary.path.stem
        return {name: self._described(name, binary.read(0, _PREFIX), 0, binary.size)}

    def _described(self, name: str, prefix: bytes, start: int, size: int) -> Tensor:
        """Return the array whose header begins at an offset; the format is described in numpy.lib.format."""
        try:
            file = io.BytesIO(prefix)
            read = {1: numpy_format.read_array_header_1_0, 2: numpy_format.read_array_header_2_0}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about headers of Python 2
                shape, is_fortran, dtype = read[numpy_format.read_magic(file)[0]](file, max_header_size=_LONGEST_HEADER)
            if min(shape, default=0) < 0:
                raise ValueError(f"its shape is {shape}")
        except Exception as error:  # Python's parser raises many kinds, with messages of any length
            reason = shortened((str(error) or type(error).__name__).partition("\n")[0], 100)
            raise self.refused(f"array {shortened(name)} has a header that cannot be read ({reason})") from None
        shape = tuple(map(int, shape))
        data, length = prod(shape) * dtype.itemsize, file.tell()
        if length + data > size:
            raise self.refused(f"array {shortened(name)} ends at byte {length + data:,} of {size:,}")
        self._dtypes[name] = dtype
        strides = (1, shape[0]) if is_fortran and len(shape) == 2 else None  # column after column
        return Tensor(name, shape, dtype.name, data, self.path, start + length, strides)

    def _numbers(self, tensor: Tensor) -> NumberFormat:
        dtype = self._dtypes[tensor.name]
        numbers = number_format(dtype)
        if numbers is None:
            what = "Python objects, which need a pickle" if dtype.hasobject else f"{dtype}, not real numbers"
            raise self.refused(f"array {shortened(tensor.name)} has {what}")
        return numbers


class NpzFile(NpyFile):
    """The arrays of a .npz archive by name."""

    format = "npz"

    def _arrays(self, binary: Binary) -> dict[str, Tensor]:
        self._archive = opened_archive(binary)
        self._compressed: dict[str, zipfile.ZipInfo] = {}
        arrays: dict[str, Tensor] = {}
        for info in self._archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename:
                continue
            if name in arrays:
                raise self.refused(f"it has array {shortened(name)} twice")
            try:
                with self._archive.open(info) as member:
                    prefix = member.read(_PREFIX)
            except DAMAGES as error:
                raise self._damaged(info, error) from None
            arrays[name] = tensor = self._described(name, prefix, member_start(binary, info), info.file_size)
            if info.compress_type != zipfile.ZIP_STORED:
                self._compressed[name] = info
            elif (end := tensor.start + tensor.size) > binary.size:
                raise self.refused(f"array {shortened(name)} ends at byte {end:,} of {binary.size:,}")
        return arrays

    def matrix(self, tensor: Tensor) -> Layer:
        """Return a matrix as a layer; a compressed one is read whole."""
        info, numbers = self._compressed.get(tensor.name), self._numbers(tensor)
        if info is None:
            return super().matrix(tensor)
        rows, dim = tensor.shape
        refuse_too_large(f"compressed array {shortened(tensor.name)}", (rows, dim), copies=2)
        try:
            array = np.load(io.BytesIO(self._archive.read(info)))
        except DAMAGES as error:
            raise self._damaged(info, error) from None
        return array_layer(np.atleast_2d(array), numbers)

    def _damaged(self, info: zipfile.ZipInfo, error: Exception) -> Exception:
        what = f"its member {shortened(info.filename)} is damaged"
        return self.refused(f"{what} ({str(error) or 'it ends too early'})")
