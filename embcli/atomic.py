"""Files written atomically, and the list of files that a command must not replace.

A new file is written beside the old one, then renamed, so that a failure keeps the old one whole.
Results, completion scripts and kept layers are written like this.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from embcli.errors import OutputError

PARTIAL = re.compile("[.]embcli-[0-9a-f]{12}[.]part")  # the names of unfinished files
opened_files: set[Path] = set()  # all files that this process has opened to read


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` at the end.

    An error removes the new file and keeps the old one. `mode` is that of the new file.
    """
    partial = path.with_name(f".embcli-{os.urandom(6).hex()}.part")
    try:
        with partial.open("xb") as file:
            if mode is not None:
                partial.chmod(mode)
            yield file
        partial.replace(path)
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


@contextmanager
def destination(path: Path) -> Iterator[BinaryIO]:
    """Yield what a user's path names, open for writing.

    A file is replaced and keeps its permissions, and so is the target of a link. A device or a pipe
    is written to, and an open descriptor (/dev/stdout) continues at its position.
    """
    open_descriptor = "/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})"
    match = re.fullmatch(open_descriptor, str(path))
    if match is not None:
        descriptor = {"stdout": 1, "stderr": 2}.get(match[1]) or int(match[2])
        # A duplicate continues at the position; the path would be opened at the beginning.
        with os.fdopen(os.dup(descriptor), "wb") as file:
            yield file
        return

    mode = _writable_mode(path)
    if mode is None or stat.S_ISREG(mode):
        permissions = None if mode is None else stat.S_IMODE(mode)
        with replacing(path.resolve(), permissions) as file:
            yield file
    else:
        with path.open("wb") as file:
            yield file


def refuse_unwritable(path: Path) -> None:
    """Raise OutputError for a place that obviously cannot be written."""
    with explaining_failure(path):
        mode = _writable_mode(path)
        if mode is None:
            path.parent.stat()
        elif stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


def refuse_replacing(path: Path, files: Iterable[str | Path]) -> None:
    """Raise OutputError if a file is one of those that a command reads, or in one of its folders.

    A device or a pipe loses nothing when it is written to.
    """
    if not path.is_file():
        return
    target = path.resolve()
    for file in files:
        with suppress(OSError, ValueError):  # It is not a file's name, or the file is gone.
            if target.samefile(file) or target.parent.samefile(file):
                raise OutputError(
                    f"{str(path)!r} is read by this command; name another file with --output"
                )


@contextmanager
def explaining_failure(path: Path | None) -> Iterator[None]:
    """Raise OutputError if the system cannot write to a destination; None is standard output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "standard output" if path is None else repr(str(path))
        raise OutputError(f"cannot write to {place}: {error.strerror or error}") from None


def _writable_mode(path: Path) -> int | None:
    """Return the mode of a file, folder or device; None if there is nothing at the path.

    Raises PermissionError for a read-only file.
    """
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    is_writable = mode & 0o222 and os.access(path, os.W_OK)
    if stat.S_ISREG(mode) and not is_writable:
        raise PermissionError(errno.EACCES, "it is read-only")
    return mode
