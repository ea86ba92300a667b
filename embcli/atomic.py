"""Files and folders written atomically: beside the old one, then renamed, so that a failure keeps the old one whole."""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from embcli.errors import OutputError

_OPEN_DESCRIPTOR = re.compile("/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})")
PARTIAL = re.compile("[.]embcli-[0-9a-f]{12}[.]part")  # the names of unfinished files


@contextmanager
def replacing(path: Path, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a new file that replaces `path` at the end; an error removes it and keeps what is there.

    `mode` are its permissions, from before the first byte on.
    """
    partial = _partial(path)
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
        with os.fdopen(os.dup(number), "wb") as file:  # a duplicate, as opening it anew would start at the beginning
            yield file
        return
    refuse_read_only(path)
    status = status_of(path)
    if status is None or stat.S_ISREG(status.st_mode):
        with replacing(path.resolve(), None if status is None else stat.S_IMODE(status.st_mode)) as file:
            yield file
    else:
        with path.open("wb") as file:
            yield file


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a new folder whose files replace those of `path` at the end.

    Raises OutputError if the folder then contains other files than the new one.
    """
    path = path.resolve()
    partial = _partial(path)
    partial.mkdir()
    try:
        yield partial
        if path.exists():
            refuse_others(path, [each.name for each in partial.iterdir()])
            for each in partial.iterdir():
                each.replace(path / each.name)
            partial.rmdir()
        else:
            partial.replace(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def refuse_unwritable(path: Path, names: tuple[str, ...] = ()) -> None:
    """Raise OutputError for a place that obviously cannot be written; `names` are the files of a folder."""
    with explaining_failure(path):
        if not path.parent.is_dir():
            raise _failed(errno.ENOTDIR if path.parent.exists() else errno.ENOENT)
        if not path.exists():
            return
        if names:
            refuse_others(path, names)
        elif stat.S_ISDIR(path.stat().st_mode):
            raise _failed(errno.EISDIR)
        refuse_read_only(path)


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


def _failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def refuse_others(folder: Path, own: Iterable[str]) -> None:
    """Raise OutputError for a folder that contains files with other names than these."""
    others = sorted({each.name for each in folder.iterdir()} - {*own})
    if others:
        raise OutputError(f"{str(folder)!r} contains {others[0]!r}, which is not embcli's; name another folder")


def refuse_read_only(path: Path) -> None:
    """Raise PermissionError for a file that its owner, or the system, protects: replacing it needs no permission."""
    status = status_of(path)
    if status is None or not stat.S_ISREG(status.st_mode):
        return
    if not status.st_mode & 0o222 or not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "it is read-only")


def status_of(path: Path) -> os.stat_result | None:
    """Return the status of a file, or None if it does not exist."""
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _partial(path: Path) -> Path:
    """Return a new name in the same folder for an unfinished file."""
    return path.with_name(f".embcli-{os.urandom(6).hex()}.part")
