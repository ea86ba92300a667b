"""A file that is read at any offset, the errors that name it, and what is read through it: a stream, or JSON."""

from __future__ import annotations

import io
import os
import stat
import weakref
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from embcli.errors import InputError
from embcli.wording import Sentence

_SEEKING = Lock()  # the offset of a file belongs to all threads


class Binary:
    """A file as its readers know it: its size, one range of its bytes, or several ranges that fill an array."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            status = path.stat()  # before it is opened: opening a pipe waits for a writer
            if not stat.S_ISREG(status.st_mode):
                raise self.file_error("it is not a regular file")
            self._file = path.open("rb")  # stays open for the rows to come
        except (OSError, ValueError) as error:
            raise self.file_error(getattr(error, "strerror", None) or str(error)) from None
        weakref.finalize(self, self._file.close)
        self.size = status.st_size

    def file_error(self, reason: str | Sentence, hint: str = "") -> InputError:
        return file_error(self.path, reason, hint)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from an offset on, fewer at the end of the file."""
        available = min(length, self.size - offset)
        if available <= 0:
            return b""
        buffer = np.empty(available, np.uint8)
        self.gather(buffer, [offset], [available])
        return buffer.tobytes()

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with several ranges of bytes; raises InputError if one of them is missing."""
        rest = buffer.reshape(-1).view(np.uint8).data
        try:
            for offset, length in zip(offsets, lengths, strict=True):
                with _SEEKING:
                    self._file.seek(offset)
                    count = self._file.readinto(rest[:length])
                if count < length:
                    size = os.fstat(self._file.fileno()).st_size
                    raise self.file_error(
                        f"it was cut off while it was read, from {self.size:,} to {size:,} bytes"
                    )
                rest = rest[length:]
        except OSError as error:
            raise self.file_error(str(error.strerror)) from None


class BinaryStream(io.RawIOBase):
    """The bytes of a file in order, for what reads open files."""

    def __init__(self, binary: Binary) -> None:
        self._binary = binary
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        start = (0, self._place, self._binary.size)[whence]
        self._place = max(start + offset, 0)
        return self._place

    def readinto(self, buffer: Any) -> int:
        data = self._binary.read(self._place, len(buffer))
        buffer[: len(data)] = data
        self._place += len(data)
        return len(data)


def file_error(path: Path, reason: str | Sentence, hint: str = "") -> InputError:
    """Return the error that names a file and says why it cannot be read."""
    return InputError(
        Sentence("cannot read {path!r}: {reason}", path=str(path), reason=reason), hint
    )


def quoted(name: str, longest: int = 80) -> str:
    """Return a name from a file as it appears in messages."""
    return repr(name if len(name) <= longest else f"{name[:longest]}...")


def read_whole(binary: Binary, longest: int) -> bytes:
    """Return all bytes of a file; raises InputError for a file of more than `longest` bytes."""
    if binary.size > longest:
        raise binary.file_error(
            f"it is too long: {binary.size:,} bytes, and embcli reads up to {longest:,}"
        )
    return binary.read(0, binary.size)


def read_object(binary: Binary, longest: int) -> dict[str, Any]:
    """Return the JSON object that a file of up to `longest` bytes contains; raises InputError if it does not."""
    return parsed_object(binary, read_whole(binary, longest), "its JSON")


def parsed_object(
    binary: Binary, data: bytes, what: str, whole_number: Callable[[str], int] = int
) -> dict[str, Any]:
    """Return a JSON object in a file; raises InputError, with a sentence about `what`, for anything else."""
    import json

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise binary.file_error(f"{what} has {quoted(name, 60)} twice")
            result[name] = value
        return result

    try:
        result = json.loads(data.decode(), object_pairs_hook=distinct, parse_int=whole_number)
    except (ValueError, RecursionError) as error:  # invalid UTF-8, invalid or deeply nested JSON
        raise binary.file_error(f"{what} cannot be read ({error})") from None
    if not isinstance(result, dict):
        raise binary.file_error(f"{what} is not an object")
    return result
