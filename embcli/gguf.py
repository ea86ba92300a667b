"""The header of a GGUF file: what it says about the model and its vocabulary, and where its tensors are.

Arrays are skipped, and read when they are needed: a vocabulary of 262,144 words takes as many steps, but no objects.
The format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np

from embcli.binary import Binary, Stream, quoted

# Types of metadata by number, as numpy names them, besides strings and arrays.
_SCALARS = {0: "uint8", 1: "int8", 2: "uint16", 3: "int16", 4: "uint32", 5: "int32", 6: "float32", 7: "bool"}
_SCALARS |= {10: "uint64", 11: "int64", 12: "float64"}
_STRING = 8
_ARRAY = 9
_LENGTH = struct.Struct("<Q")  # of a string, before its bytes
_BUFFER = 1 << 20  # bytes
_LONGEST = 1 << 28  # bytes, ten times those of any header; they bound the work that a header can cause


class GgufArray(NamedTuple):
    """An array of the metadata that has not been read."""

    binary: Binary
    dtype: str  # of its numbers, or "string"
    length: int
    start: int
    end: int

    def read(self) -> bytes:
        return self.binary.read(self.start, self.end - self.start)

    def numbers(self) -> np.ndarray:
        return np.frombuffer(self.read(), np.dtype(self.dtype).newbyteorder("<"))

    def words(self) -> list[bytes]:
        """Return the strings, if it is an array of strings."""
        data = self.read()
        found = []
        end = 0
        while end < len(data):
            start = end + 8
            end = start + _LENGTH.unpack_from(data, end)[0]
            found.append(data[start:end])
        return found


class GgufTensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # as numpy has it
    kind: int  # the number of its type
    offset: int  # from the first tensor on


class GgufHeader(NamedTuple):
    metadata: dict[str, Any]  # texts, numbers and booleans
    arrays: dict[str, GgufArray]
    tensors: list[GgufTensor]
    end: int  # in bytes


def read_header(binary: Binary) -> GgufHeader:
    """Return the header of a file; raises InputError for one that is damaged, or of another version."""
    try:
        return _Reader(binary).header()
    except (EOFError, struct.error, ValueError):
        raise binary.refused(f"it is cut off: its header goes on after byte {min(binary.size, _LONGEST):,}") from None


class _Reader:
    """The parts of a header, read in order; raises EOFError, struct.error or ValueError where the file ends."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.file = io.BufferedReader(Stream(binary), _BUFFER)

    def header(self) -> GgufHeader:
        magic = self.take(4)
        if magic != b"GGUF":
            raise self.binary.refused(f"it begins with {magic!r}, and not with b'GGUF'")
        version = self.number("uint32")
        if version not in (2, 3):
            what = "its numbers are big-endian" if version in (2 << 24, 3 << 24) else f"it has GGUF version {version}"
            raise self.binary.refused(f"{what}; embcli reads little-endian versions 2 and 3")
        tensors = self.number("uint64")
        pairs = self.number("uint64")

        metadata: dict[str, Any] = {}
        arrays: dict[str, GgufArray] = {}
        for _ in range(pairs):
            key = self.text()
            if key in metadata or key in arrays:
                raise self.binary.refused(f"its metadata has {quoted(key)} twice")
            kind = self.number("uint32")
            if kind == _ARRAY:
                arrays[key] = self.array(key)
            elif kind == _STRING:
                metadata[key] = self.text()
            else:
                metadata[key] = self.number(self.scalar(key, kind))
        described = [self.tensor() for _ in range(tensors)]
        return GgufHeader(metadata, arrays, described, self.file.tell())

    def tensor(self) -> GgufTensor:
        name = self.text()
        dimensions = self.number("uint32")
        if dimensions > 4:
            raise self.binary.refused(f"tensor {quoted(name)} has {dimensions:,} dimensions, more than 4")
        sizes = [self.number("uint64") for _ in range(dimensions)]
        return GgufTensor(name, tuple(reversed(sizes)), self.number("uint32"), self.number("uint64"))

    def array(self, key: str) -> GgufArray:
        kind = self.number("uint32")
        count = self.number("uint64")
        start = self.file.tell()
        if kind == _STRING:
            dtype = "string"
            for _ in range(count):
                (length,) = _LENGTH.unpack(self.file.read(8))
                self.file.seek(length, io.SEEK_CUR)
        else:
            dtype = self.scalar(key, kind)
            self.take(count * np.dtype(dtype).itemsize)
        self.take(0)  # the last string may end after the file
        return GgufArray(self.binary, dtype, count, start, self.file.tell())

    def scalar(self, key: str, kind: int) -> str:
        if kind not in _SCALARS:
            raise self.binary.refused(f"{quoted(key)} of its metadata is of the unknown type {kind}")
        return _SCALARS[kind]

    def text(self) -> str:
        return self.take(self.number("uint64")).decode("utf-8", "backslashreplace")

    def number(self, dtype: str) -> Any:
        stored = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.take(stored.itemsize), stored)[0].item()

    def take(self, count: int) -> bytes:
        if self.file.tell() + count > min(self.binary.size, _LONGEST):
            raise EOFError
        return self.file.read(count)
