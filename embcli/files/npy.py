"""numpy's formats: .npy, one array, and .npz, a zip archive of arrays by name. Pickles in them are never read."""

from __future__ import annotations

import io
import struct
import warnings
import zipfile
import zlib
from collections.abc import Callable
from functools import cache, partial
from math import prod

import numpy as np
from numpy.lib import format as numpy_format

from embcli.binary import Binary, BinaryStream, quoted
from embcli.errors import InputError, Notes, refuse_too_large
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import StoredLayer, Tensor, Tensors, file_layer
from embcli.layer import Layer

_LONGEST_HEADER = 2_000  # bytes: numpy takes seconds to refuse some of 10,000, its own limit
_PREFIX = 1 << 14  # bytes that contain a header
# What zipfile raises for a damaged archive.
DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    RuntimeError,
    OSError,
    ValueError,
    EOFError,
    OverflowError,
)


def opened_archive(binary: Binary) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(BinaryStream(binary))
    except DAMAGES as error:
        raise binary.file_error(f"it is a damaged archive ({str(error)[:200]})") from None


def member_start(binary: Binary, info: zipfile.ZipInfo) -> int:
    """Return where the bytes of a member begin; raises InputError if it has no header."""
    local = binary.read(info.header_offset, 30)
    if len(local) < 30 or not local.startswith(b"PK\x03\x04"):
        raise binary.file_error(f"it is a damaged archive: {quoted(info.filename)} has no header")
    lengths: tuple[int, int] = struct.unpack_from(
        "<2H", local, 26
    )  # of the name and of an extra field
    return info.header_offset + 30 + sum(lengths)


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the arrays of a .npz archive by name, or the array of a .npy file, named after the file."""
    if binary.read(0, 2) != b"PK":
        name = binary.path.stem
        prefix = binary.read(0, _PREFIX)
        return Tensors(binary, "npy", {name: _described(binary, name, prefix, 0, binary.size)})

    archive = opened_archive(binary)
    arrays: dict[str, Tensor] = {}
    for info in archive.infolist():
        name = info.filename.removesuffix(".npy")
        if name == info.filename:
            continue
        if name in arrays:
            raise binary.file_error(f"it has array {quoted(name)} twice")
        try:
            with archive.open(info) as member:
                prefix = member.read(_PREFIX)
        except DAMAGES as error:
            raise _damaged(binary, info, error) from None
        start = member_start(binary, info)
        unpacked = None
        if info.compress_type != zipfile.ZIP_STORED:
            unpacked = cache(partial(_unpacked, binary, archive, info))
        arrays[name] = _described(binary, name, prefix, start, info.file_size, unpacked)
    return Tensors(binary, "npz", arrays)


def _unpacked(binary: Binary, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> np.ndarray:
    try:
        return np.atleast_2d(np.load(io.BytesIO(archive.read(info))))
    except DAMAGES as error:
        raise _damaged(binary, info, error) from None


def _described(
    binary: Binary,
    name: str,
    prefix: bytes,
    start: int,
    size: int,
    unpacked: Callable[[], np.ndarray] | None = None,  # of a compressed array
) -> Tensor:
    """Return the array whose header begins at an offset; the format is described in numpy.lib.format."""
    try:
        file = io.BytesIO(prefix)
        read = {1: numpy_format.read_array_header_1_0, 2: numpy_format.read_array_header_2_0}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about headers of Python 2
            shape, is_fortran, dtype = read[numpy_format.read_magic(file)[0]](
                file, max_header_size=_LONGEST_HEADER
            )
        if min(shape, default=0) < 0:
            raise ValueError(f"its shape is {shape}")
    except Exception as error:  # Python's parser raises many kinds, with messages of any length
        reason = quoted((str(error) or type(error).__name__).partition("\n")[0], 100)
        raise binary.file_error(
            f"array {quoted(name)} has a header that cannot be read ({reason})"
        ) from None
    shape = tuple(map(int, shape))
    data = prod(shape) * dtype.itemsize
    end = file.tell() + data
    available = size if unpacked else min(size, binary.size - start)
    if end > available:
        raise binary.file_error(f"array {quoted(name)} ends at byte {end:,} of {available:,}")

    def matrix(tensor: Tensor) -> Layer:
        if dtype.kind not in "fiu":
            what = (
                "Python objects, which need a pickle"
                if dtype.hasobject
                else f"{dtype}, not real numbers"
            )
            raise binary.file_error(f"array {quoted(name)} has {what}")
        numbers = StoredDtype(dtype.name, dtype)
        if unpacked is None:
            return file_layer(tensor, numbers)
        rows, dim = tensor.shape
        refuse_too_large(f"compressed array {quoted(name)}", (rows, dim), copies=2)
        return StoredLayer(tensor.shape, numbers, unpacked().__getitem__)

    strides = (1, shape[0]) if is_fortran and len(shape) == 2 else ()  # column after column
    return Tensor(name, shape, dtype.name, data, binary, start + file.tell(), strides, matrix)


def _damaged(binary: Binary, info: zipfile.ZipInfo, error: Exception) -> InputError:
    return binary.file_error(
        f"its member {quoted(info.filename)} is damaged ({str(error)[:200] or 'it ends too early'})"
    )
