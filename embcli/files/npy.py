"""numpy's formats: .npy, one array, and .npz, a zip archive of arrays by name. Pickles in them are never read.

Rows of an uncompressed array are read in place. A deflated array is inflated up to the last row needed, every time; a
small one is inflated once and kept.
"""

from __future__ import annotations

import ast
import io
import re
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from math import prod
from struct import Struct
from threading import Lock
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from embcli.binary import Binary, Bytes, shortened
from embcli.files import numbers
from embcli.files.stored import StoredLayer
from embcli.files.tensors import Tensor, Tensors

if TYPE_CHECKING:
    from embcli.errors import InputError
    from embcli.layer import Layer

_U16, _U32 = Struct("<H"), Struct("<I")
_LOCAL_HEADER = Struct("<26x2H")  # of a member: the lengths of its name and of its extra field
_MOST = 10_000  # arrays
_SMALL = 1 << 26  # bytes of a deflated array that is kept inflated
_LONGEST_HEADER = 10_000  # bytes, numpy's limit
_PREFIX = 1 << 14  # bytes that contain a header


@dataclass(frozen=True)
class _Array:
    """An array as its header describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    fortran: bool  # column after column
    start: int  # bytes from the beginning of the file, or of the inflated member


def npy_begins(head: bytes) -> bool:
    """Return whether a file begins with numpy's magic bytes."""
    return head.startswith(b"\x93NUMPY")


def npz_begins(head: bytes) -> bool:
    """Return whether a file is a zip archive whose first member is an array; torch's archives begin otherwise."""
    return head.startswith(b"PK\x03\x04") and head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy")


class NpyFile(Tensors):
    """The array of a .npy file, named after the file."""

    format = "npy"

    def __init__(self, binary: Binary) -> None:
        array = _described(binary, binary.path.stem, binary.read(0, _PREFIX))
        _check_size(binary, array, array.start, binary.size)
        super().__init__(binary.path, {array.name: _tensor(binary, array, array.start)})
        self._binary, self._array = binary, array

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of its rows, or of its columns if `transposed`."""
        return _layer(self._binary, self._array, self._binary, tensor.start, transposed)


class NpzFile(Tensors):
    """The arrays of a .npz archive by name, stored or deflated."""

    format = "npz"

    def __init__(self, binary: Binary) -> None:
        try:
            self._archive = zipfile.ZipFile(binary.file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
            raise binary.refused(f"it is a damaged archive ({error})") from None
        self._binary = binary
        self._members: dict[str, tuple[zipfile.ZipInfo, _Array]] = {}
        tensors: dict[str, Tensor] = {}
        members = [info for info in self._archive.infolist() if info.filename.endswith(".npy")]
        if len(members) > _MOST:
            raise binary.refused(f"it has {len(members):,} arrays, more than any checkpoint has")
        for info in members:
            name = info.filename.removesuffix(".npy")
            if name in tensors:
                raise binary.refused(f"it has array {shortened(name)} twice")
            tensors[name] = self._read_member(name, info)
        super().__init__(binary.path, tensors)

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of its rows, or of its columns if `transposed`."""
        info, array = self._members[tensor.name]
        if info.compress_type == zipfile.ZIP_STORED:
            return _layer(self._binary, array, self._binary, tensor.start, transposed)
        return _layer(self._binary, array, _Deflated(self, info), array.start, transposed)

    def opened(self, info: zipfile.ZipInfo) -> IO[bytes]:
        """Open a member; raises InputError where the archive is damaged there."""
        try:
            return self._archive.open(info)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, OSError, ValueError, EOFError) as error:
            raise self.damaged(info, error) from None

    def damaged(self, info: zipfile.ZipInfo, error: Exception) -> InputError:
        """Return the error that says what is wrong with a member."""
        return self._binary.refused(
            f"its member {shortened(info.filename)} is damaged ({str(error) or 'it ends too early'})"
        )

    def _read_member(self, name: str, info: zipfile.ZipInfo) -> Tensor:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._binary.refused(f"its member {shortened(info.filename)} is neither stored nor deflated")
        with self.opened(info) as member:
            try:
                prefix = member.read(_PREFIX)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise self.damaged(info, error) from None
        array = _described(self._binary, name, prefix)
        _check_size(self._binary, array, array.start, info.file_size)
        self._members[name] = info, array
        start = info.header_offset
        if info.compress_type == zipfile.ZIP_STORED:
            local = self._binary.read(start, _LOCAL_HEADER.size)
            start += _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(local)) + array.start
            _check_size(self._binary, array, start, self._binary.size)
        return _tensor(self._binary, array, start)


class _Deflated(Bytes):
    """A deflated member, read at ascending offsets; a lower offset starts again from the beginning."""

    is_shared = False

    def __init__(self, archive: NpzFile, info: zipfile.ZipInfo) -> None:
        self._archive, self._info = archive, info
        self._member: IO[bytes] | None = None
        self._lock = Lock()  # threads would move each other's offset

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with several ranges of bytes; raises InputError if one of them is missing."""
        left = buffer.reshape(-1).view(np.uint8).data
        try:
            with self._lock:
                if self._member is None:
                    self._member = self._opened()
                for offset, length in zip(offsets, lengths, strict=True):
                    self._member.seek(offset)
                    end = len(left) - length
                    while len(left) > end:
                        data = self._member.read(min(len(left) - end, 1 << 20))
                        if not data:
                            raise EOFError
                        left[: len(data)] = data
                        left = left[len(data) :]
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise self._archive.damaged(self._info, error) from None

    def _opened(self) -> IO[bytes]:
        member = self._archive.opened(self._info)
        return member if self._info.file_size > _SMALL else io.BytesIO(member.read())


def _described(binary: Binary, name: str, prefix: bytes) -> _Array:
    """Return the array that a header describes; the header is a Python dictionary, read as a literal.

    numpy's own reader takes seconds to refuse some headers. The format is described in numpy.lib.format.
    """
    try:
        length = {1: _U16, 2: _U32, 3: _U32}[prefix[6]]
        start = 8 + length.size
        end = start + length.unpack_from(prefix, 8)[0]
        if end > min(len(prefix), _LONGEST_HEADER):
            raise ValueError(f"it ends at byte {end:,}")
        text = prefix[start:end].decode("utf-8" if prefix[6] == 3 else "latin-1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser, about invalid escapes
            described = ast.literal_eval(re.sub(r"(?<=[0-9])L\b", "", text).strip())  # Python 2 wrote numbers as 2L
        shape, fortran, descr = (described[key] for key in ("shape", "fortran_order", "descr"))
        if not isinstance(shape, tuple) or not all(type(size) is int and size >= 0 for size in shape):
            raise ValueError(f"its shape is {shape}")
        if type(fortran) is not bool or len(described) != 3:
            raise ValueError("it does not say the order of the numbers")
        dtype = _dtype(descr)
    except Exception as error:  # Python's parser raises many kinds, with messages of any length
        reason = shortened((str(error) or type(error).__name__).partition("\n")[0], 100)
        raise binary.refused(f"array {shortened(name)} has a header that cannot be read ({reason})") from None
    return _Array(name, shape, dtype, fortran, end)


def _dtype(descr: object) -> np.dtype[Any]:
    """Return the dtype that a header names, or describes field by field."""
    if isinstance(descr, list):
        return np.dtype(descr)
    if not isinstance(descr, str) or not re.fullmatch(r"[<>|=]?[a-zA-Z][0-9]{0,9}(\[\w+\])?", descr):
        raise ValueError(f"its dtype is {descr!r}")
    return np.dtype(descr)


def _check_size(binary: Binary, array: _Array, start: int, size: int) -> None:
    end = start + prod(array.shape) * array.dtype.itemsize
    if end > size:
        raise binary.refused(f"array {shortened(array.name)} ends at byte {end:,} of {size:,}")


def _tensor(binary: Binary, array: _Array, start: int) -> Tensor:
    size = prod(array.shape) * array.dtype.itemsize
    return Tensor(array.name, array.shape, array.dtype.name, size, binary.path, start)


def _layer(binary: Binary, array: _Array, file: Bytes, start: int, transposed: bool) -> Layer:
    stored_as = numbers.of(array.dtype)
    if stored_as is None:
        what = (
            "has Python objects, which need a pickle"
            if array.dtype.hasobject
            else f"has {array.dtype}, not real numbers"
        )
        raise binary.refused(f"array {shortened(array.name)} {what}")
    rows, columns = array.shape
    shape = (columns, rows) if transposed else (rows, columns)
    return StoredLayer(file, start, shape, stored_as, (1, shape[0]) if array.fortran != transposed else None)
