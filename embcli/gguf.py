"""The header of a GGUF file: what it says about the model and its vocabulary, and where its tensors are.

The format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import io
import struct
from typing import Any, NamedTuple

import numpy as np

from embcli.binary import Binary, BinaryStream, quoted

# Types of metadata by number: those of numbers as numpy names them.
_TYPES = (
    *("uint8", "int8", "uint16", "int16", "uint32", "int32", "float32", "bool"),
    *("string", "array", "uint64", "int64", "float64"),
)
_LENGTH = struct.Struct("<Q")  # of a string, before its bytes
_BUFFER = 1 << 20  # bytes
_LONGEST = (
    1 << 28
)  # bytes, ten times those of any header; they bound the work that a header can cause


class GgufTensor(NamedTuple):
    name: str
    shape: tuple[int, ...]  # as numpy has it
    kind: int  # the number of its type
    offset: int  # from the first tensor on


class GgufHeader(NamedTuple):
    metadata: dict[str, Any]  # texts, numbers and booleans
    arrays: dict[str, list[bytes] | np.ndarray]  # of strings or numbers
    tensors: list[GgufTensor]
    end: int  # in bytes


def read_header(binary: Binary) -> GgufHeader:
    """Return the header of a file; raises InputError for one that is damaged, or of another version."""
    try:
        return _Reader(binary).header()
    except (EOFError, struct.error):
        raise binary.file_error(
            f"it is cut off: its header goes on after byte {min(binary.size, _LONGEST):,}"
        ) from None


class _Reader:
    """The parts of a header, read in order; raises EOFError or struct.error where the file ends."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.file = io.BufferedReader(BinaryStream(binary), _BUFFER)
        self.end = min(binary.size, _LONGEST)

    def header(self) -> GgufHeader:
        magic = self.take(4)
        if magic != b"GGUF":
            raise self.binary.file_error(f"it begins with {magic!r}, and not with b'GGUF'")
        version = self.number("uint32")
        if version not in (2, 3):
            what = (
                "its numbers are big-endian"
                if version in (2 << 24, 3 << 24)
                else f"it has GGUF version {version}"
            )
            raise self.binary.file_error(f"{what}; embcli reads little-endian versions 2 and 3")
        tensors = self.number("uint64")
        pairs = self.number("uint64")

        metadata: dict[str, Any] = {}
        arrays: dict[str, list[bytes] | np.ndarray] = {}
        for _ in range(pairs):
            key = self.text()
            if key in metadata or key in arrays:
                raise self.binary.file_error(f"its metadata has {quoted(key)} twice")
            dtype = self.type_of(key)
            if dtype == "array":
                arrays[key] = self.array(key)
            elif dtype == "string":
                metadata[key] = self.text()
            else:
                metadata[key] = self.number(dtype)
        described = [self.tensor() for _ in range(tensors)]
        return GgufHeader(metadata, arrays, described, self.file.tell())

    def tensor(self) -> GgufTensor:
        name = self.text()
        dimensions = self.number("uint32")
        if dimensions > 4:
            raise self.binary.file_error(
                f"tensor {quoted(name)} has {dimensions:,} dimensions, more than 4"
            )
        sizes = [self.number("uint64") for _ in range(dimensions)]
        return GgufTensor(
            name, tuple(reversed(sizes)), self.number("uint32"), self.number("uint64")
        )

    def array(self, key: str) -> list[bytes] | np.ndarray:
        dtype = self.type_of(key)
        if dtype == "array":
            raise self.binary.file_error(f"{quoted(key)} of its metadata is an array of arrays")
        count = self.number("uint64")
        if dtype != "string":
            return self.numbers(dtype, count)
        words = []
        place = self.file.tell()
        for _ in range(count):
            (length,) = _LENGTH.unpack(self.file.read(8))
            place += 8 + length
            if place > self.end:
                raise EOFError
            words.append(self.file.read(length))
        return words

    def type_of(self, key: str) -> str:
        kind = self.number("uint32")
        if kind >= len(_TYPES):
            raise self.binary.file_error(
                f"{quoted(key)} of its metadata is of the unknown type {kind}"
            )
        return _TYPES[kind]

    def text(self) -> str:
        return self.take(self.number("uint64")).decode("utf-8", "backslashreplace")

    def number(self, dtype: str) -> Any:
        return self.numbers(dtype, 1).item()

    def numbers(self, dtype: str, count: int) -> np.ndarray:
        stored = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.take(count * stored.itemsize), stored)

    def take(self, count: int) -> bytes:
        if self.file.tell() + count > self.end:
            raise EOFError
        return self.file.read(count)
