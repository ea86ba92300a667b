"""numpy's formats: .npy, one array, and .npz, a zip archive of arrays by name. Pickles in them are never read.

Rows of an uncompressed array are read in place; a deflated array is inflated whole when it is needed.
"""

from __future__ import annotations

import io
import warnings
import zipfile
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from embcli.binary import Binary, shortened
from embcli.files.archives import DAMAGES, member_start, opened_archive
from embcli.files.numbers import NumberFormat, number_format
from embcli.files.stored import ArrayLayer
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Layer
from embcli.memory import refuse_too_large

_MOST = 10_000  # arrays
_LONGEST_HEADER = 2_000  # bytes: numpy takes seconds to refuse some of 10,000, its own limit
_PREFIX = 1 << 14  # bytes that contain a header


def npz_begins(head: bytes) -> bool:
    """Return whether a file is a zip archive whose first member is an array; torch's archives begin otherwise."""
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy")


class _Arrays(Tensors):
    """Arrays of numpy by name."""

    def __init__(self, binary: Binary, arrays: Mapping[str, tuple[Tensor, np.dtype[Any]]]) -> None:
        super().__init__(binary, {name: tensor for name, (tensor, _) in arrays.items()})
        self._dtypes = {name: dtype for name, (_, dtype) in arrays.items()}

    def _numbers(self, tensor: Tensor) -> NumberFormat:
        dtype = self._dtypes[tensor.name]
        numbers = number_format(dtype)
        if numbers is None:
            what = "Python objects, which need a pickle" if dtype.hasobject else f"{dtype}, not real numbers"
            raise self.refused(f"array {shortened(tensor.name)} has {what}")
        return numbers


class NpyFile(_Arrays):
    """The array of a .npy file, named after the file."""

    format = "npy"

    def __init__(self, binary: Binary) -> None:
        name = binary.path.stem
        super().__init__(binary, {name: _described(binary, name, binary.read(0, _PREFIX), binary.size)})


class NpzFile(_Arrays):
    """The arrays of a .npz archive by name, stored or deflated."""

    format = "npz"

    def __init__(self, binary: Binary) -> None:
        self._archive = opened_archive(binary)
        self._deflated: dict[str, zipfile.ZipInfo] = {}
        arrays: dict[str, tuple[Tensor, np.dtype[Any]]] = {}
        members = [info for info in self._archive.infolist() if info.filename.endswith(".npy")]
        if len(members) > _MOST:
            raise binary.refused(f"it has {len(members):,} arrays, more than any checkpoint has")
        for info in members:
            name, what = info.filename.removesuffix(".npy"), f"its member {shortened(info.filename)}"
            if name in arrays:
                raise binary.refused(f"it has array {shortened(name)} twice")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise binary.refused(f"{what} is neither stored nor deflated")
            try:
                with self._archive.open(info) as member:
                    prefix = member.read(_PREFIX)
            except DAMAGES as error:
                raise binary.refused(f"{what} is damaged ({str(error) or 'it ends too early'})") from None
            tensor, dtype = _described(binary, name, prefix, info.file_size)
            start = member_start(binary, info) + tensor.start
            if info.compress_type == zipfile.ZIP_DEFLATED:
                self._deflated[name] = info
            elif start + tensor.size > binary.size:
                raise binary.refused(f"array {shortened(name)} ends at byte {start + tensor.size:,} of {binary.size:,}")
            arrays[name] = replace(tensor, start=start), dtype
        super().__init__(binary, arrays)

    def matrix(self, tensor: Tensor) -> Layer:
        """Return a matrix as a layer; a deflated one is inflated."""
        info, numbers = self._deflated.get(tensor.name), self._numbers(tensor)
        if info is None:
            return super().matrix(tensor)
        rows, dim = tensor.shape
        refuse_too_large(f"deflated array {shortened(tensor.name)}", (rows, dim), copies=2)
        try:
            array = np.load(io.BytesIO(self._archive.read(info)))
        except DAMAGES as error:
            what = f"its member {shortened(info.filename)}"
            raise self.refused(f"{what} is damaged ({str(error) or 'it ends too early'})") from None
        return ArrayLayer(np.atleast_2d(array).view(numbers.stored), numbers)


def _described(binary: Binary, name: str, prefix: bytes, file_size: int) -> tuple[Tensor, np.dtype[Any]]:
    """Return the array that a header describes, and its dtype; the format is described in numpy.lib.format."""
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
        raise binary.refused(f"array {shortened(name)} has a header that cannot be read ({reason})") from None
    shape, start = tuple(map(int, shape)), file.tell()
    size = prod(shape) * dtype.itemsize
    if start + size > file_size:
        raise binary.refused(f"array {shortened(name)} ends at byte {start + size:,} of {file_size:,}")
    strides = (1, shape[0]) if is_fortran and len(shape) == 2 else None  # column after column
    return Tensor(name, shape, dtype.name, size, binary.path, start, strides), dtype
