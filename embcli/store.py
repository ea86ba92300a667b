"""The store: the one folder of files that embcli keeps for later runs, up to 2 GB; the files used longest ago go.

Files are written atomically. What is no regular file, or belongs to a stranger, counts as missing.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from embcli.atomic import PARTIAL, replacing
from embcli.errors import OutputError
from embcli.notes import Notes

LIMIT = 2 * 10**9  # bytes
_ABANDONED = 3600.0  # seconds after which nobody is still writing a partial file
_NAME = re.compile(r"(token|position|vectors)-[\w.+-]+\.(npy|npz)")
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)  # refuse a link; do not wait at a pipe
Content = TypeVar("Content")


class Damaged(Exception):
    """A kept file is not what its name says."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A kept file."""

    path: Path
    size: int  # bytes
    used: float  # time of the last use, seconds since the epoch


@dataclass(frozen=True, eq=False)
class Store:
    """A folder of kept files; remarks go to the notes."""

    folder: Path
    notes: Notes = field(default_factory=Notes)

    @classmethod
    def from_environment(cls, notes: Notes) -> Store | None:
        """Return the store in EMBCLI_CACHE_DIR or the platform's cache folder; None, and a note, if there is none."""
        named = os.environ.get("EMBCLI_CACHE_DIR")
        folder = Path(named) if named else Path()
        if not named:
            from platformdirs import user_cache_path

            with suppress(RuntimeError, LookupError):
                folder = user_cache_path("embcli", appauthor=False)
            if not folder.is_absolute():  # it starts with "~" if the user's home is unknown
                notes.add("nothing is cached: this user has no home folder; EMBCLI_CACHE_DIR can name another")
                return None
        return cls(folder, notes)

    def read(self, name: str, load: Callable[[FileIO], Content]) -> Content | None:
        """Return what `load` makes of a kept file; None if there is none, or `load` raises Damaged."""
        path = self.folder / name
        try:
            with FileIO(path, opener=lambda path, flags: os.open(path, flags | _FLAGS)) as file:
                status = os.fstat(file.fileno())
                if not stat.S_ISREG(status.st_mode) or self._is_strangers(status):
                    return None
                content = load(file)
            os.utime(path)
        except (OSError, Damaged):
            return None
        return content

    def write(self, name: str, size: int, write: Callable[[BinaryIO], object]) -> bool:
        """Keep a file of `size` bytes, unless it is larger than half of the limit; return whether it was kept."""
        if 2 * size > LIMIT:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / name) as file:
                write(file)
        except OSError as error:
            self.notes.add(f"nothing is cached: cannot write to {self.folder} ({error.strerror})")
            return False
        excess = sum(entry.size for entry in self.entries()) - LIMIT
        for entry in self.entries():
            if excess > 0 and entry.path.name != name:
                entry.path.unlink(missing_ok=True)
                excess -= entry.size
        for entry in self._matching(PARTIAL):
            if time.time() - entry.used > _ABANDONED:
                entry.path.unlink(missing_ok=True)
        return True

    def entries(self) -> list[Entry]:
        """Return the kept files, least recently used first."""
        return sorted(self._matching(_NAME), key=lambda entry: (entry.used, entry.path))

    def clear(self) -> list[Entry]:
        """Remove all kept and partial files, and return them; raises OutputError for a file that cannot be removed."""
        entries = [*self.entries(), *self._matching(PARTIAL)]
        for entry in entries:
            try:
                entry.path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"cannot remove {str(entry.path)!r}: {error.strerror}") from None
        return entries

    def _is_strangers(self, status: os.stat_result) -> bool:
        """Return whether neither this user, nor root, nor the owner of the folder put a file there."""
        return hasattr(os, "geteuid") and status.st_uid not in (os.geteuid(), 0, self.folder.stat().st_uid)

    def _matching(self, names: re.Pattern[str]) -> Iterator[Entry]:
        with suppress(OSError):
            for path in self.folder.iterdir():
                if names.fullmatch(path.name):
                    status = path.lstat()
                    yield Entry(path, status.st_size, status.st_mtime)
