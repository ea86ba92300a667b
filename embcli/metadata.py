"""The header of a GGUF file: metadata, and descriptions of tensors; arrays are skipped until they are asked for.

A vocabulary of 262,144 words takes as many steps to skip, but no objects. The format is described in ggml's
docs/gguf.md.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field
from struct import Struct, error
from typing import Any

import numpy as np

from embcli.binary import Binary, shortened

_U32, _U64, _TENSOR_END = Struct("<I"), Struct("<Q"), Struct("<IQ")
_STRING, _ARRAY = 8, 9  # types of metadata
_SCALARS = {number: Struct(f"<{form}") for number, form in enumerate("BbHhIif?")}
_SCALARS |= {10: Struct("<Q"), 11: Struct("<q"), 12: Struct("<d")}

_LONGEST = 1 << 28  # bytes of a header: ten times those of any model; it bounds the work that a header can cause
_DIMENSIONS = 4
_WINDOW = 1 << 20  # bytes of the header that are read at a time


@dataclass(frozen=True)
class Array:
    """An array of the metadata, not read."""

    kind: int
    count: int
    start: int
    end: int

    @property
    def has_strings(self) -> bool:
        """Whether its items are strings."""
        return self.kind == _STRING


@dataclass
class Header:
    """The header of one file; a tensor is its name, its shape as numpy has it, its type and its offset."""

    metadata: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, Array] = field(default_factory=dict)
    tensors: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)
    end: int = 0  # in bytes


def read_header(binary: Binary) -> Header:
    """Return the header of a file; raises InputError for one that is damaged, or of another version."""
    reader, header = _Reader(binary), Header()
    magic, version = reader.take(4), reader.number(_U32)
    if magic != b"GGUF":
        raise binary.refused(f"it begins with {magic!r}, and not with b'GGUF'")
    if version not in (2, 3):
        what = "its numbers are big-endian" if version in (2 << 24, 3 << 24) else f"it has GGUF version {version}"
        raise binary.refused(f"{what}; embcli reads little-endian versions 2 and 3")
    tensors, keys = reader.number(_U64), reader.number(_U64)
    for _ in range(keys):
        _read_pair(reader, header)
    for _ in range(tensors):
        header.tensors.append(_read_tensor(reader))
    header.end = reader.place
    return header


def read_words(binary: Binary, words: Array) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return an array of strings as one string of bytes, and the start and end of each in it, both (n,) int64."""
    text = binary.read(words.start, words.end - words.start)
    places, place, length = array("q"), 0, _U64.unpack_from
    for _ in range(words.count):
        places.append(place)
        place += 8 + length(text, place)[0]
    places.append(place)
    edges = np.frombuffer(places, np.int64)
    return text, edges[:-1] + 8, edges[1:]


def read_numbers(binary: Binary, numbers: Array) -> np.ndarray:
    """Return an array of numbers, (n,)."""
    form = np.dtype(_SCALARS[numbers.kind].format)
    return np.frombuffer(binary.read(numbers.start, numbers.count * form.itemsize), form)


def _read_pair(reader: _Reader, header: Header) -> None:
    """Read a key of the metadata and its value; skip the items of an array."""
    key, kind = reader.text(), reader.number(_U32)
    if key in header.metadata or key in header.arrays:
        raise reader.binary.refused(f"its metadata has {shortened(key)} twice")
    if kind in _SCALARS:
        header.metadata[key] = reader.number(_SCALARS[kind])
    elif kind == _STRING:
        header.metadata[key] = reader.text()
    elif kind == _ARRAY:
        kind, count = reader.number(_U32), reader.number(_U64)
        start = reader.place
        if kind not in (_STRING, *_SCALARS):
            raise reader.binary.refused(f"{shortened(key)} of its metadata is an array of the unknown type {kind}")
        reader.skip_strings(count) if kind == _STRING else reader.skip(count * _SCALARS[kind].size)
        header.arrays[key] = Array(kind, count, start, reader.place)
    else:
        raise reader.binary.refused(f"{shortened(key)} of its metadata is of the unknown type {kind}")


def _read_tensor(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's name, its shape as numpy has it, its type and its offset."""
    name = reader.text()
    dimensions = reader.number(_U32)
    if dimensions > _DIMENSIONS:
        raise reader.binary.refused(f"tensor {shortened(name)} has {dimensions:,} dimensions, more than {_DIMENSIONS}")
    shape = Struct(f"<{dimensions}Q").unpack(reader.take(8 * dimensions))
    kind, offset = _TENSOR_END.unpack(reader.take(_TENSOR_END.size))
    return name, shape[::-1], kind, offset


class _Reader:
    """Reads a header from its beginning, a window at a time."""

    def __init__(self, binary: Binary) -> None:
        self.binary, self.place = binary, 0
        self._window, self._start = b"", 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        first = self.place - self._start
        if not 0 <= first <= len(self._window) - count:
            self._need(count)
            self._window, self._start, first = self.binary.read(self.place, max(count, _WINDOW)), self.place, 0
        self.place += count
        return self._window[first : first + count]

    def number(self, form: Struct) -> Any:
        """Return the next number."""
        return form.unpack(self.take(form.size))[0]

    def text(self) -> str:
        """Return the next string."""
        return self.take(self.number(_U64)).decode("utf-8", "backslashreplace")

    def skip(self, count: int) -> None:
        """Skip bytes."""
        self._need(count)
        self.place += count

    def skip_strings(self, count: int) -> None:
        """Skip strings, each by its length."""
        self._need(8 * count)
        length = _U64.unpack_from
        while count:
            self.take(8)  # fills the window
            window, place, done = self._window, self.place - 8 - self._start, 0
            try:
                for done in range(1, count + 1):  # noqa: B007 - used after the loop
                    place += 8 + length(window, place)[0]
            except (error, OverflowError):  # the next length is beyond the window, or far beyond the file
                done -= 1
            count -= done
            self.place = self._start + place
        self._need(0)

    def _need(self, count: int) -> None:
        end = self.place + count
        if end > min(self.binary.size, _LONGEST):
            limit = f"of {self.binary.size:,}" if end > self.binary.size else "beyond that of any model"
            raise self.binary.refused(f"it is cut off: its header reaches byte {end:,} {limit}")
