"""A file that is read at any offset, the errors that name it, and what its bytes may be: JSON, or GGUF's header."""

from __future__ import annotations

import os
import stat
import struct
import weakref
from array import array
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from embcli.errors import InputError
from embcli.words import Sentence

_SEEKING = Lock()  # the offset of a file belongs to all threads


class Binary:
    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()  # before it is opened: opening a pipe waits for a writer
            if not stat.S_ISREG(status.st_mode):
                raise self.refused("it is not a regular file")
            self.file = path.open("rb", buffering=0)  # stays open for the rows to come
        except (OSError, ValueError) as error:
            raise self.refused(getattr(error, "strerror", None) or str(error)) from None
        weakref.finalize(self, self.file.close)
        self.size = os.fstat(self.file.fileno()).st_size

    def refused(self, reason: str | Sentence, hint: str = "") -> InputError:
        return refused(self.path, reason, hint)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from an offset on, fewer at the end of the file."""
        buffer = np.empty(max(min(length, self.size - offset), 0), np.uint8)
        self.gather(buffer, (offset,), (len(buffer),))
        return buffer.tobytes()

    def read_whole(self, longest: int) -> bytes:
        """Return all bytes; raises InputError for a file of more than `longest` bytes."""
        if self.size > longest:
            raise self.refused(f"it is too long: {self.size:,} bytes, and embcli reads up to {longest:,}")
        return self.read(0, self.size)

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with several ranges of bytes; raises InputError if one of them is missing."""
        target, start = buffer.reshape(-1).view(np.uint8).data, 0
        try:
            for offset, length in zip(offsets, lengths, strict=True):
                while length:
                    with _SEEKING:
                        self.file.seek(offset)
                        count = self.file.readinto(target[start : start + length])
                    if not count:
                        size = os.fstat(self.file.fileno()).st_size
                        raise self.refused(f"it was cut off while it was read, from {self.size:,} to {size:,} bytes")
                    start, offset, length = start + count, offset + count, length - count
        except OSError as error:
            raise self.refused(str(error.strerror)) from None


def refused(path: Path, reason: str | Sentence, hint: str = "") -> InputError:
    """Return the error that names a file and says why it cannot be read."""
    return InputError(Sentence("cannot read {path!r}: {reason}", path=str(path), reason=reason), hint)


def quoted(name: str, longest: int = 80) -> str:
    """Return a name from a file as it appears in messages."""
    return repr(name if len(name) <= longest else f"{name[:longest]}...")


class Malformed(ValueError):
    """Bytes are not of their format; the message says why, without the name of the file."""


def read_object(binary: Binary, longest: int) -> dict[str, Any]:
    """Return the JSON object that a file of up to `longest` bytes contains; raises InputError if it does not."""
    data = binary.read_whole(longest)
    try:
        return parsed_object(data, "its JSON")
    except Malformed as error:
        raise binary.refused(str(error)) from None


def parsed_object(data: bytes, what: str, whole_number: Callable[[str], int] = int) -> dict[str, Any]:
    """Return a JSON object; raises Malformed, with a sentence about `what`, for anything else."""
    import json

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise Malformed(f"{what} has {quoted(name, 60)} twice")
            result[name] = value
        return result

    try:
        result = json.loads(data.decode(), object_pairs_hook=distinct, parse_int=whole_number)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply") from None
    except ValueError as error:  # invalid UTF-8 or invalid JSON
        raise Malformed(f"{what} cannot be read ({error})") from None
    if not isinstance(result, dict):
        raise Malformed(f"{what} is not an object")
    return result


# The types of metadata in a GGUF file; its format is described in ggml's docs/gguf.md.
_STRING, _ARRAY = 8, 9
_SCALARS = dict(enumerate("BbHhIif?")) | {10: "Q", 11: "q", 12: "d"}
_WINDOW = 1 << 22  # bytes that most headers fit in
_LONGEST_HEADER = 1 << 28  # ten times that of any model; it bounds the work that a header can cause


@dataclass(frozen=True)
class GgufArray:
    """An array of the metadata, not read: a vocabulary of 262,144 words takes as many steps to skip, but no objects."""

    kind: int
    count: int
    start: int
    end: int

    @property
    def has_strings(self) -> bool:
        return self.kind == _STRING


@dataclass
class GgufHeader:
    """The header of a GGUF file; a tensor is its name, its shape as numpy has it, its type and its offset."""

    metadata: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, GgufArray] = field(default_factory=dict)
    tensors: list[tuple[str, tuple[int, ...], int, int]] = field(default_factory=list)
    end: int = 0  # in bytes


def read_header(binary: Binary) -> GgufHeader:
    """Return the header of a file; raises InputError for one that is damaged, or of another version."""
    for longest in (_WINDOW, _LONGEST_HEADER):
        data = binary.read(0, longest)
        try:
            return _parsed_header(data)
        except Malformed as error:
            raise binary.refused(str(error)) from None
        except (struct.error, OverflowError):  # it goes on behind the data
            if len(data) == binary.size:
                break
    raise binary.refused(f"it is cut off: its header goes on after byte {len(data):,}")


def _parsed_header(data: bytes) -> GgufHeader:
    header, reader = GgufHeader(), _Reader(data)
    magic, version = reader.numbers("4sI")
    if magic != b"GGUF":
        raise Malformed(f"it begins with {magic!r}, and not with b'GGUF'")
    if version not in (2, 3):
        what = "its numbers are big-endian" if version in (2 << 24, 3 << 24) else f"it has GGUF version {version}"
        raise Malformed(f"{what}; embcli reads little-endian versions 2 and 3")
    tensors, pairs = reader.numbers("QQ")
    for _ in range(pairs):
        key = reader.text()
        if key in header.metadata or key in header.arrays:
            raise Malformed(f"its metadata has {quoted(key)} twice")
        value = reader.value(f"{quoted(key)} of its metadata", *reader.numbers("I"))
        (header.arrays if isinstance(value, GgufArray) else header.metadata)[key] = value
    for _ in range(tensors):
        name, (dimensions,) = reader.text(), reader.numbers("I")
        if dimensions > 4:
            raise Malformed(f"tensor {quoted(name)} has {dimensions:,} dimensions, more than 4")
        header.tensors.append((name, reader.numbers(f"{dimensions}Q")[::-1], *reader.numbers("IQ")))
    header.end = reader.place
    return header


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data, self.place = data, 0

    def numbers(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.data, self.place)
        self.place += struct.calcsize(f"<{form}")
        return found

    def skip(self, count: int) -> None:
        self.place += count
        if self.place > len(self.data):
            raise struct.error

    def text(self) -> str:
        (length,) = self.numbers("Q")
        self.skip(length)
        return self.data[self.place - length : self.place].decode("utf-8", "backslashreplace")

    def value(self, what: str, kind: int) -> Any:
        if kind == _STRING:
            return self.text()
        if kind in _SCALARS:
            return self.numbers(_SCALARS[kind])[0]
        if kind != _ARRAY:
            raise Malformed(f"{what} is of the unknown type {kind}")
        kind, count = self.numbers("IQ")
        start = end = self.place
        if kind == _STRING:
            self.skip(8 * count)  # at least
            length = struct.Struct("<Q").unpack_from
            for _ in range(count):
                end += 8 + length(self.data, end)[0]
        elif kind in _SCALARS:
            end += count * struct.calcsize(_SCALARS[kind])
        else:
            raise Malformed(f"{what} is an array of the unknown type {kind}")
        self.skip(end - self.place)
        return GgufArray(kind, count, start, end)


def read_words(binary: Binary, words: GgufArray) -> tuple[bytes, np.ndarray, np.ndarray]:
    """Return an array of strings as one string of bytes, and the start and end of each in it, both (n,) int64."""
    text = binary.read(words.start, words.end - words.start)
    places, place, length = array("q"), 0, struct.Struct("<Q").unpack_from
    for _ in range(words.count):
        places.append(place)
        place += 8 + length(text, place)[0]
    places.append(place)
    edges = np.frombuffer(places, np.int64)
    return text, edges[:-1] + 8, edges[1:]


def read_numbers(binary: Binary, numbers: GgufArray) -> np.ndarray:
    form = np.dtype(_SCALARS[numbers.kind]).newbyteorder("<")
    return np.frombuffer(binary.read(numbers.start, numbers.count * form.itemsize), form)
