"""numpy's formats: .npy, one array, and .npz, a zip archive of arrays by name.

numpy reads the headers, and `StoredLayer` the rows; pickles in the files are never read. A
compressed array is read like a file, whose bytes are unpacked. The functions for zip archives serve
PyTorch's files, too.
"""

from __future__ import annotations

import io
import shutil
import struct
import warnings
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, partial
from itertools import accumulate
from math import prod
from operator import mul
from typing import Any

import numpy as np
from numpy.lib import format as numpy_format

from embcli.binary import UNCOMPRESSED, Binary, BinaryStream
from embcli.errors import InputError, Notes
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import Tensor, Tensors, file_layer
from embcli.layer import Layer

_PREFIX = 1 << 14  # the bytes of an array that contain its header
_LARGEST_KEPT = 10**9  # bytes of a compressed array that is unpacked into memory
_UNPACKED_AT_ONCE = 1 << 20  # bytes


def opened_archive(binary: Binary) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(BinaryStream(binary))
    except Exception as error:  # zipfile raises many kinds
        raise binary.file_error(f"it is a damaged archive ({error})") from None


def member_start(binary: Binary, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member begin; raises InputError if it has no header."""
    local_header = binary.read(info.header_offset, 30)
    if len(local_header) < 30 or not local_header.startswith(b"PK\x03\x04"):
        raise binary.file_error(f"it is a damaged archive: {info.filename!r} has no header")
    name_length, extra_length = struct.unpack_from("<2H", local_header, 26)
    return info.header_offset + 30 + int(name_length) + int(extra_length)


class _CompressedMember(Binary):
    """A compressed array of an archive, whose bytes are read as if it was stored.

    It is unpacked when it is first read, and kept in memory. If it is too large for that, it is
    unpacked from its beginning on whenever earlier bytes are read than the last ones.
    """

    def __init__(self, binary: Binary, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> None:
        self.path = binary.path
        self.folder = binary.folder
        self.name = binary.name
        self.start = member_start(binary, info)
        self.size = self.start + info.file_size
        self.is_streamed = info.file_size > _LARGEST_KEPT
        self._archive = archive
        self._info = info
        self._is_checked = False

    @cached_property
    def _unpacked(self) -> io.BufferedIOBase:
        unpacking: io.BufferedIOBase = self._archive.open(self._info)  # type: ignore[assignment]
        if self.is_streamed:
            return unpacking
        kept = io.BytesIO()
        shutil.copyfileobj(unpacking, kept, _UNPACKED_AT_ONCE)
        return kept

    def gather(self, buffer: np.ndarray, offsets: Sequence[int], lengths: Sequence[int]) -> None:
        """Fill an array as Binary does; raises InputError if any byte of the member is damaged."""
        try:
            super().gather(buffer, offsets, lengths)
            # Only at the end of a member is its checksum compared.
            while not self._is_checked:
                self._is_checked = not self._unpacked.read(_UNPACKED_AT_ONCE)
        except MemoryError:
            raise
        except Exception as error:  # zipfile raises many kinds
            raise _damage_error(self, self._info, error) from None

    def _fill(self, buffer: memoryview, offset: int) -> None:
        self._unpacked.seek(offset - self.start)
        if self._unpacked.readinto(buffer) < len(buffer):
            raise EOFError


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return the arrays of a .npz by name, or the array of a .npy under the name of the file.

    The only array is read as a matrix: a vector as one row, (B, T, D) as B * T rows.
    """
    if binary.read(0, 2) != b"PK":
        name = binary.path.stem
        tensor = _tensor(name, binary, 0, binary.size, binary.read(0, _PREFIX))
        return Tensors(binary, "npy", {name: _flattened(tensor, notes)}, is_array=True)

    archive = opened_archive(binary)
    arrays = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            continue
        if name in arrays:
            raise binary.file_error(f"it has array {name!r} twice")
        try:
            with archive.open(info) as file:
                prefix = file.read(_PREFIX)
        except Exception as error:  # zipfile raises many kinds
            raise _damage_error(binary, info, error) from None
        file_of_array = binary
        if info.compress_type != zipfile.ZIP_STORED:
            file_of_array = _CompressedMember(binary, archive, info)
        start = member_start(binary, info)
        arrays[name] = _tensor(name, file_of_array, start, info.file_size, prefix)
    if len(arrays) == 1:
        [name] = arrays
        arrays[name] = _flattened(arrays[name], notes)
    return Tensors(binary, "npz", arrays, is_array=True)


def _flattened(tensor: Tensor, notes: Notes) -> Tensor:
    """Return an array as a matrix of its last dimension, if its rows are stored one by one."""
    if len(tensor.shape) in (0, 2) or tensor.strides:
        return tensor
    *sizes, dim = tensor.shape
    if sizes:
        notes.add(f"{tensor} is read as a matrix, with {prod(sizes[1:]):,} rows per sample")
    return replace(tensor, shape=(prod(sizes), dim), array_shape=tensor.shape)


def _damage_error(binary: Binary, info: zipfile.ZipInfo, error: Exception) -> InputError:
    reason = str(error)[:200] or "it ends too early"
    return binary.file_error(f"its member {info.filename!r} is damaged ({reason})")


def _tensor(name: str, binary: Binary, offset: int, size: int, prefix: bytes) -> Tensor:
    """Return the array of a .npy, which begins with `prefix` at an offset of a file.

    numpy.lib.format describes its header.
    """
    # numpy takes seconds to refuse some headers of 10,000 bytes, its own limit.
    longest_header = 2_000
    later = numpy_format.read_array_header_2_0
    # Version 3 differs from 2 only in the names of fields, which no matrix has.
    readers = {1: numpy_format.read_array_header_1_0, 2: later, 3: later}
    file = io.BytesIO(prefix)
    try:
        with warnings.catch_warnings():
            # numpy warns about headers that Python 2 wrote.
            warnings.simplefilter("ignore")
            major, _ = numpy_format.read_magic(file)
            stored_shape, is_fortran, dtype = readers[major](file, max_header_size=longest_header)
        if min(stored_shape, default=0) < 0:
            raise ValueError(f"its shape is {stored_shape}")
    except Exception as error:  # Python's parser raises many kinds, with messages of any length
        raise binary.file_error(
            f"array {name!r} has a header that cannot be read ({error!r})"
        ) from None

    shape = tuple(map(int, stored_shape))
    array_size = prod(shape) * dtype.itemsize
    end = file.tell() + array_size
    available = min(size, binary.size - offset)
    if end > available:
        raise binary.file_error(f"array {name!r} ends at byte {end:,} of {available:,}")

    strides = ()
    if is_fortran:
        strides = (1, *accumulate(shape[:-1], mul))
    start = offset + file.tell()
    matrix = partial(_layer, dtype)
    return Tensor(name, shape, dtype.name, array_size, binary, start, strides, matrix)


def _layer(dtype: np.dtype[Any], tensor: Tensor) -> Layer:
    array = f"array {tensor.name!r}"
    if dtype.kind not in "fiu":
        values = f"{dtype.name}, not real numbers"
        if dtype.hasobject:
            values = "Python objects, which need a pickle"
        raise tensor.binary.file_error(f"{array} has {values}")
    if tensor.strides and tensor.binary.is_streamed:
        raise tensor.binary.file_error(
            f"{array} is compressed, and stored by columns (Fortran order)", UNCOMPRESSED
        )
    return file_layer(tensor, StoredDtype(dtype.name, dtype))
