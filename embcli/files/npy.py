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
from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import prod
from struct import Struct
from threading import Lock
from typing import IO, Any

import numpy as np

from embcli.binary import Binary, Bytes, shortened
from embcli.errors import InputError
from embcli.files.numbers import NumberFormat, number_format
from embcli.files.tensors import Tensor, Tensors

_U16, _U32 = Struct("<H"), Struct("<I")
_LOCAL_HEADER = Struct("<26x2H")  # of a member: the lengths of its name and of its extra field
_MOST = 10_000  # arrays
_SMALL = 1 << 26  # bytes of a deflated array that is kept inflated
_LONGEST_HEADER = 10_000  # bytes, numpy's limit
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
            objects = "Python objects, which need a pickle"
            what = objects if dtype.hasobject else f"{dtype}, not real numbers"
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
        try:
            self._archive = zipfile.ZipFile(binary.file)
        except (zipfile.BadZipFile, NotImplementedError, ValueError, OverflowError) as error:
            raise binary.refused(f"it is a damaged archive ({error})") from None
        self._binary = binary
        self._deflated: dict[str, zipfile.ZipInfo] = {}
        arrays: dict[str, tuple[Tensor, np.dtype[Any]]] = {}
        members = [info for info in self._archive.infolist() if info.filename.endswith(".npy")]
        if len(members) > _MOST:
            raise binary.refused(f"it has {len(members):,} arrays, more than any checkpoint has")
        for info in members:
            name = info.filename.removesuffix(".npy")
            if name in arrays:
                raise binary.refused(f"it has array {shortened(name)} twice")
            arrays[name] = self._read_member(name, info)
        super().__init__(binary, arrays)

    def _bytes(self, tensor: Tensor) -> Bytes:
        info = self._deflated.get(tensor.name)
        return _Deflated(self, info) if info else self._binary

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

    def _read_member(self, name: str, info: zipfile.ZipInfo) -> tuple[Tensor, np.dtype[Any]]:
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise self._binary.refused(f"its member {shortened(info.filename)} is neither stored nor deflated")
        with self.opened(info) as member:
            try:
                prefix = member.read(_PREFIX)
            except (zipfile.BadZipFile, zlib.error, EOFError) as error:
                raise self.damaged(info, error) from None
        tensor, dtype = _described(self._binary, name, prefix, info.file_size)
        start = info.header_offset + tensor.start
        if info.compress_type == zipfile.ZIP_STORED:
            local = self._binary.read(info.header_offset, _LOCAL_HEADER.size)
            start += _LOCAL_HEADER.size + sum(_LOCAL_HEADER.unpack(local))
            _check_end(self._binary, name, start + tensor.size, self._binary.size)
        else:
            self._deflated[name] = info
        return replace(tensor, start=start), dtype


class _Deflated(Bytes):
    """A deflated member, read at ascending offsets; a lower offset starts again from the beginning.

    Its first byte has the offset of its header in the archive, so that no two members have the same bytes.
    """

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
                    self._member.seek(offset - self._info.header_offset)
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


def _described(binary: Binary, name: str, prefix: bytes, file_size: int) -> tuple[Tensor, np.dtype[Any]]:
    """Return the array that a header describes, and its dtype; the header is a Python dictionary, read as a literal.

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
    size = prod(shape) * dtype.itemsize
    _check_end(binary, name, end + size, file_size)
    strides = (1, shape[0]) if fortran and len(shape) == 2 else None  # column after column
    return Tensor(name, shape, dtype.name, size, binary.path, end, strides), dtype


def _dtype(descr: object) -> np.dtype[Any]:
    """Return the dtype that a header names, or describes field by field."""
    if isinstance(descr, list):
        return np.dtype(descr)
    if not isinstance(descr, str) or not re.fullmatch(r"[<>|=]?[a-zA-Z][0-9]{0,9}(\[\w+\])?", descr):
        raise ValueError(f"its dtype is {descr!r}")
    return np.dtype(descr)


def _check_end(binary: Binary, name: str, end: int, size: int) -> None:
    if end > size:
        raise binary.refused(f"array {shortened(name)} ends at byte {end:,} of {size:,}")
