"""A file that is read at any offset, the errors that name it, and JSON of such a file without a name twice."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Callable, Iterable
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from embcli.errors import InputError

_SEEKING = Lock()  # the offset of a descriptor belongs to all threads


class _File(FileIO):
    """A file that nobody has to close: it ends without a warning, also as a part of cyclic garbage."""

    def __del__(self) -> None:
        self.close()


class Binary:
    """A regular file, open for reading at any offset.

    Raises InputError for a file that cannot be opened or is not a regular file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()  # before it is opened: opening a pipe waits for a writer
            if not stat.S_ISREG(status.st_mode):
                raise self.refused("it is not a regular file")
            self.file = _File(path)  # stays open for the rows to come
        except (OSError, ValueError) as error:
            raise self.refused(getattr(error, "strerror", None) or str(error)) from None
        self.size = os.fstat(self.file.fileno()).st_size

    def refused(self, reason: str, hint: str = "", parameters: tuple[str, ...] = ()) -> InputError:
        """Return the error that says why this file cannot be read."""
        return refused(self.path, reason, hint, parameters)

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
                end = start + length
                while start < end:
                    count = _read_at(self.file.fileno(), target[start:end], offset + length - (end - start))
                    if not count:
                        size = os.fstat(self.file.fileno()).st_size
                        raise self.refused(f"it was cut off while it was read, from {self.size:,} to {size:,} bytes")
                    start += count
        except OSError as error:
            raise self.refused(str(error.strerror)) from None


def _read_at(descriptor: int, buffer: memoryview, offset: int) -> int:
    if hasattr(os, "preadv"):
        return os.preadv(descriptor, [buffer], offset)
    with _SEEKING:  # Windows
        os.lseek(descriptor, offset, os.SEEK_SET)
        data = os.read(descriptor, len(buffer))
    buffer[: len(data)] = data
    return len(data)


def refused(path: Path, reason: str, hint: str = "", parameters: tuple[str, ...] = ()) -> InputError:
    """Return the error that names a file and says why it cannot be read."""
    return InputError(f"cannot read {str(path)!r}: {reason}", hint, parameters=parameters)


def shortened(name: str, longest: int = 80) -> str:
    r"""Return a name from a file as it appears in messages.

    >>> shortened("a\x1b[2J"), shortened("abc" * 9, 6)
    ("'a\\x1b[2J'", "'abcabc...'")
    """
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

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise Malformed(f"{what} has {shortened(name, 60)} twice")
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
