"""Files and folders that are written whole or not at all: beside the old one first, then renamed."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import stat
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_OPEN_ALREADY = re.compile("/dev/(stdout|stderr)|/(?:dev|proc/self)/fd/([0-9]{1,6})")


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Yield a file that takes the place of another one when it is complete; a failure leaves the old one as it was.

    A device, a pipe and a descriptor that is open already are written to directly. A link stays a link.
    """
    if descriptor := _OPEN_ALREADY.fullmatch(str(path)):
        number = {"stdout": 1, "stderr": 2}.get(descriptor[1]) or int(descriptor[2])
        with os.fdopen(os.dup(number), "wb") as file:  # writing continues where it stands, so >> appends
            yield file
        return
    status = path.stat() if path.exists() else None
    if status is not None and not stat.S_ISREG(status.st_mode):
        with path.open("wb") as file:
            yield file
        return
    path = path.resolve()
    unfinished = _beside(path)
    try:
        with unfinished.open("xb") as file:
            if status is not None:
                unfinished.chmod(stat.S_IMODE(status.st_mode))  # before it has content that others could read
            yield file
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


@contextmanager
def replacing_folder(path: Path) -> Iterator[Path]:
    """Yield a folder whose files take the place of another one's when all of them are complete."""
    path = path.resolve()
    unfinished = _beside(path)
    unfinished.mkdir()
    try:
        yield unfinished
        if path.exists():
            for each in unfinished.iterdir():
                each.replace(path / each.name)
            unfinished.rmdir()
        else:
            unfinished.replace(path)
    except BaseException:
        shutil.rmtree(unfinished, ignore_errors=True)
        raise


def _beside(path: Path) -> Path:
    """Return a name in the same folder for what is not finished."""
    return path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}.part")  # 40 characters are at most 160 bytes
