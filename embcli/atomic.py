"""Files and folders written atomically: beside the old one, then renamed, so that a failure keeps the old one whole."""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from embcli.errors import OutputError

_OPEN_DESCRIPTOR = re.compile("/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})")
PARTIAL = re.compile("[.]embcli-[0-9a-f]{12}[.]part")  # the names of unfinished files


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` at the end; an error removes it and keeps what is there."""
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
    """Yield what a user's path names, open for writing: a file is replaced and keeps its permissions.

    A device or a pipe is written to, an open descriptor (/dev/stdout) continues at its position, and the target of a
    link is replaced.
    """
    if descriptor := _OPEN_DESCRIPTOR.fullmatch(str(path)):
        number = {"stdout": 1, "stderr": 2}.get(descriptor[1]) or int(descriptor[2])
        with os.fdopen(
            os.dup(number), "wb"
        ) as file:  # a duplicate, as opening it anew would start at the beginning
            yield file
        return
    mode = _writable_mode(path)
    replaced = mode is None or stat.S_ISREG(mode)
    with (
        replacing(path.resolve(), mode and stat.S_IMODE(mode))
        if replaced
        else path.open("wb") as file
    ):
        yield file


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder whose files replace those of `path` at the end."""
    from tempfile import TemporaryDirectory

    path = path.resolve()
    with TemporaryDirectory(prefix=".embcli-", suffix=".part", dir=path.parent) as partial:
        yield Path(partial)
        path.mkdir(exist_ok=True)
        for each in Path(partial).iterdir():
            each.replace(path / each.name)


def refuse_unwritable(path: Path, names: tuple[str, ...] = ()) -> None:
    """Raise OutputError for a place that obviously cannot be written; `names` are the files of a folder."""
    with explaining_failure(path):
        mode = _writable_mode(path)
        if mode is None:
            path.parent.stat()
        elif names:
            if others := sorted({each.name for each in path.iterdir()} - {*names}):
                raise OutputError(
                    f"{str(path)!r} contains {others[0]!r}, which is not embcli's; name another folder"
                )
        elif stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))


@contextmanager
def explaining_failure(path: Path | None) -> Iterator[None]:
    """Raise OutputError if the system cannot write to a destination; None is standard output."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        place = "standard output" if path is None else repr(str(path))
        said = str(error).partition("] ")[2] or str(
            error
        )  # with the file that failed, if it is another one
        raise OutputError(f"cannot write to {place}: {PARTIAL.sub('', said)}") from None


def _writable_mode(path: Path) -> int | None:
    """Return the mode of what is at a path; None for nothing. Raises PermissionError for a read-only file."""
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        return None
    if stat.S_ISREG(mode) and not (mode & 0o222 and os.access(path, os.W_OK)):
        raise PermissionError(errno.EACCES, "it is read-only")
    return mode
