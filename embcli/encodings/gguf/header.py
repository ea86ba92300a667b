"""The header of a GGUF file: the metadata of the model, its vocabulary, and its tensors' places.

`files.gguf` reads the tensors, and `vocabulary` what the header says of tokens. The format is
described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np

from embcli.binary import Binary, BinaryStream
from embcli.names import Shape

# The bytes of a header that are read; ten times those of any model. They bound the work that a
# file can cause.
_LONGEST = 1 << 28
_MOST = 100_000  # tensors, and keys of metadata; a model has up to a few thousand


class GgufTensor(NamedTuple):
    """A tensor as the header describes it."""

    name: str
    shape: Shape  # in numpy's order
    kind: int  # the number of its type
    offset: int  # bytes after the start of the first tensor


class GgufHeader(NamedTuple):
    """Everything that stands before the first tensor."""

    metadata: dict[str, Any]  # texts, numbers and booleans
    arrays: dict[str, list[bytes] | np.ndarray]  # strings or numbers
    types: dict[str, str]  # those of the values of all keys
    tensors: list[GgufTensor]
    end: int  # bytes of the header


def read_header(binary: Binary) -> GgufHeader:
    """Return the header of a file; raises InputError if it is damaged or of another version."""
    reader = _Reader(binary)
    try:
        return reader.header()
    except EOFError:
        raise binary.file_error(
            f"it is cut off: its header goes on after byte {reader.end:,}"
        ) from None


# The types of metadata, in the order of the format's numbers. Numbers have numpy's names.
_TYPES = (
    "uint8",
    "int8",
    "uint16",
    "int16",
    "uint32",
    "int32",
    "float32",
    "bool",
    "string",
    "array",
    "uint64",
    "int64",
    "float64",
)


class _Reader:
    """The parts of a header, read in order: each method reads the next one.

    Methods raise EOFError where the file ends.
    """

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.file = io.BufferedReader(BinaryStream(binary), 1 << 20)
        self.end = min(binary.size, _LONGEST)
        self.place = 0

    def header(self) -> GgufHeader:
        magic = self.take(4)
        if magic != b"GGUF":
            raise self.binary.file_error(f"it begins with {magic!r}, and not with b'GGUF'")
        version = self.number("uint32")
        if version not in (2, 3):
            fault = f"it has GGUF version {version}"
            if version in (2 << 24, 3 << 24):
                fault = "its numbers are big-endian"
            raise self.binary.file_error(f"{fault}; embcli reads little-endian versions 2 and 3")
        tensor_count = self.number("uint64")
        pair_count = self.number("uint64")
        if max(tensor_count, pair_count) > _MOST:
            raise self.binary.file_error(f"it has more than {_MOST:,} tensors or keys of metadata")

        metadata = {}
        types = {}
        arrays = {}
        for _ in range(pair_count):
            key = self.text()
            if key in metadata or key in arrays:
                raise self.binary.file_error(f"its metadata has {key!r} twice")
            dtype = self.type_of(key)
            types[key] = dtype
            if dtype == "array":
                arrays[key] = self.array(key)
            elif dtype == "string":
                metadata[key] = self.text()
            else:
                metadata[key] = self.number(dtype)
        tensors = [self.tensor() for _ in range(tensor_count)]
        return GgufHeader(metadata, arrays, types, tensors, self.place)

    def tensor(self) -> GgufTensor:
        name = self.text()
        dimensions = self.number("uint32")
        if dimensions > 4:
            raise self.binary.file_error(
                f"tensor {name!r} has {dimensions:,} dimensions, more than 4"
            )
        sizes = [self.number("uint64") for _ in range(dimensions)]
        kind = self.number("uint32")
        offset = self.number("uint64")
        return GgufTensor(name, tuple(reversed(sizes)), kind, offset)

    def array(self, key: str) -> list[bytes] | np.ndarray:
        dtype = self.type_of(key)
        if dtype == "array":
            raise self.binary.file_error(f"{key!r} of its metadata is an array of arrays")
        count = self.number("uint64")
        if dtype == "string":
            return [self.string() for _ in range(count)]
        return self.numbers(dtype, count)

    def type_of(self, key: str) -> str:
        """Return the type of a key's value."""
        number = self.number("uint32")
        if number >= len(_TYPES):
            raise self.binary.file_error(f"{key!r} of its metadata is of the unknown type {number}")
        return _TYPES[number]

    def text(self) -> str:
        return self.string().decode("utf-8", "backslashreplace")

    def string(self) -> bytes:
        """Return a string; a vocabulary has many, so it is read in few steps."""
        length = int.from_bytes(self.file.read(8), "little")
        self.place += 8 + length
        if self.place > self.end:
            raise EOFError
        return self.file.read(length)

    def number(self, dtype: str) -> Any:
        return self.numbers(dtype, 1).item()

    def numbers(self, dtype: str, count: int) -> np.ndarray:
        stored = np.dtype(dtype).newbyteorder("<")
        return np.frombuffer(self.take(count * stored.itemsize), stored)

    def take(self, count: int) -> bytes:
        """Return the next bytes; raises EOFError if there are not as many."""
        self.place += count
        if self.place > self.end:
            raise EOFError
        return self.file.read(count)
