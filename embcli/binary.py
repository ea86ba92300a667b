"""A binary file that is read at any offset, as a stream, or as JSON, and the errors that name it.

All readers of models and of vocabularies open their files as a Binary. A file may be larger than
memory; it is assumed that nobody writes to it, and InputError is raised if it was cut off.
"""

from __future__ import annotations

import io
import os
import re
import stat
import weakref
from codecs import getincrementaldecoder
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from embcli.atomic import opened_files
from embcli.errors import InputError, MissingFileError
from embcli.wording import Sentence

UNCOMPRESSED = "store it without compression: numpy.savez"
JsonObject = dict[str, Any]  # of a file such as config.json, whose values can be of any type
LONGEST_LOAD = 256_000_000  # bytes that a remote file gives at once
_SEEKING = Lock()  # all threads share the offset of an open file


@dataclass(frozen=True)
class Folder:
    """A folder on this machine; `remote` has a subclass for one that is not."""

    path: Path

    def location(self, name: str) -> str:
        """Return where a file of the folder is, as a user names it."""
        return str(self.path / name)

    def has(self, name: str) -> bool:
        return os.path.isfile(self.path / name)  # noqa: PTH113 - Path.is_file raises errors for some names

    def open(self, name: str) -> Binary:
        return Binary(self.path / name)


class Binary:
    """An open file, whose bytes are read as ranges.

    It stays open until nobody refers to it, because rows are read later. Several threads can read.
    `remote` has a subclass for a file that is not on this machine.
    """

    is_remote = False
    is_streamed = False  # whether it is unpacked anew for bytes before the last ones that were read

    def __init__(self, path: Path, folder: Folder | None = None) -> None:
        self.path = path
        self.folder = folder or Folder(path.parent)
        self.name = self.folder.location(path.name)  # as a user names it
        try:
            # A pipe must be refused before it is opened: that would wait for a writer.
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise self.file_error("it is not a regular file")
            self._file = path.open("rb")
        except InputError:
            raise
        except (OSError, ValueError) as error:
            raise unreadable(self.name, error) from None
        opened_files.add(path.absolute())
        weakref.finalize(self, self._file.close)
        self.size = status.st_size

    def file_error(self, reason: str | Sentence, hint: str = "") -> InputError:
        return file_error(self.name, reason, hint)

    def read(self, offset: int, length: int) -> bytes:
        """Return up to `length` bytes from an offset on, fewer at the end of the file."""
        available = min(length, self.size - offset)
        if available <= 0:
            return b""
        buffer = np.empty(available, np.uint8)
        self.gather(buffer, [offset], [available])
        return buffer.tobytes()

    def gather(self, buffer: np.ndarray, offsets: Sequence[int], lengths: Sequence[int]) -> None:
        """Fill a contiguous array with ranges of bytes; raises InputError if one is not there."""
        unfilled = buffer.ravel().view(np.uint8).data
        for offset, length in zip(offsets, lengths, strict=True):
            self._fill(unfilled[:length], offset)
            unfilled = unfilled[length:]

    def _fill(self, buffer: memoryview, offset: int) -> None:
        """Fill a buffer with the bytes from an offset on."""
        try:
            with _SEEKING:
                self._file.seek(offset)
                count = self._file.readinto(buffer)
        except OSError as error:
            raise self.file_error(str(error.strerror)) from None
        if count < len(buffer):
            raise self.file_error("it was cut off while it was read")

    def load(self, byte_range: range, what: str) -> None:
        """Announce that a whole range will be read; a remote file then reads it at once.

        Raises InputError, which calls the range `what`, if it is too large for the network.
        """


class BinaryStream(io.RawIOBase):
    """A file as Python's stream, for functions that expect an open file."""

    def __init__(self, binary: Binary) -> None:
        self._binary = binary
        self._offset = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        starts = (0, self._offset, self._binary.size)
        self._offset = max(starts[whence] + offset, 0)
        return self._offset

    def readinto(self, buffer: Any) -> int:
        data = self._binary.read(self._offset, len(buffer))
        count = len(data)
        buffer[:count] = data
        self._offset += count
        return count


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters; the last one may be incomplete."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return not re.search("[\x00-\x08\x0e-\x1f\x7f]", text)


def file_error(path: Path | str, reason: str | Sentence, hint: str = "") -> InputError:
    """Return the error that names a file and says why it cannot be read."""
    return InputError("cannot read {path!r}: {reason}", hint, path=str(path), reason=reason)


def unreadable(path: Path | str, error: OSError | ValueError) -> InputError:
    """Return the error for a file that cannot be opened, or whose name cannot be one."""
    found = file_error(path, getattr(error, "strerror", None) or str(error))
    if isinstance(error, FileNotFoundError):
        return MissingFileError(found.message)
    return found


def quoted(name: str, longest: int = 80) -> str:
    """Return a name from a file for a page: in quotes, and cut if it is long.

    An error has the whole name, and is shortened where it is printed.
    """
    short_name = name if len(name) <= longest else f"{name[:longest]}..."
    return repr(short_name)


def read_whole(binary: Binary, longest: int) -> bytes:
    """Return all bytes of a file; raises InputError for a file of more than `longest` bytes."""
    if binary.size > longest:
        raise binary.file_error(
            f"it is too long: {binary.size:,} bytes, and embcli reads up to {longest:,}"
        )
    return binary.read(0, binary.size)


def read_object(binary: Binary, longest: int) -> JsonObject:
    """Return the JSON object of a file; raises InputError without one, and for a longer file."""
    return parsed_object(binary, read_whole(binary, longest), "its JSON")


def parsed_object(binary: Binary, data: bytes, subject: str) -> JsonObject:
    """Return the JSON object that bytes of a file contain.

    Raises InputError, whose sentence begins with the subject, for anything else.
    """
    import json

    try:
        result = json.loads(data.decode())
    except (ValueError, RecursionError) as error:  # invalid UTF-8, invalid or deeply nested JSON
        raise binary.file_error(f"{subject} cannot be read ({error})") from None
    if not isinstance(result, dict):
        raise binary.file_error(f"{subject} is not an object")
    return result


def objects_in(values: Any) -> list[JsonObject]:
    """Return the objects in a list of JSON; none for another value."""
    if not isinstance(values, list):
        return []
    return [value for value in values if isinstance(value, dict)]
