"""The store: the one folder of files that embcli keeps for later runs, up to a number of bytes.

It does not know what its files contain. Whoever keeps a file names it, writes it and reads it again; the store writes
it atomically, trusts only files that no stranger can have put there, and lists, limits and clears them all.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeVar

from embcli.atomic import replacing
from embcli.errors import InputError, OutputError
from embcli.notes import Notes

DEFAULT_LIMIT = 2 * 10**9
_LARGEST_SHARE = 2  # a file of more than one part in 2 of the limit is not kept
_ABANDONED = 3600.0  # seconds after which nobody is still writing a partial file
_LATEST = 253_370_764_800.0  # the first second of the year 9999, the last that datetime represents
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
# The names of all kept files: a kind, what tells files of this kind apart, a hash.
_NAME = re.compile(r"(?P<kind>token|position|vectors)-(?:[0-9]+x[0-9]+-seed[0-9]+-)?[0-9a-f]{8}\.safetensors")
_PARTIAL = re.compile(rf"\.{_NAME.pattern}\..+\.part")
Content = TypeVar("Content")


class Damaged(Exception):
    """A kept file is not what was written, or not what its name says."""


@dataclass(frozen=True, eq=False)
class Entry:
    """A kept file."""

    path: Path
    kind: str  # the first word of its name
    size: int  # bytes
    used: float  # time of the last use, seconds since the epoch


@dataclass(frozen=True, eq=False)
class Store:
    """A folder of kept files and its limit in bytes; remarks go to the notes."""

    folder: Path
    limit: int = DEFAULT_LIMIT
    notes: Notes = field(default_factory=Notes)

    @classmethod
    def from_environment(cls, notes: Notes) -> Store | None:
        """Return the user's store: EMBCLI_CACHE_DIR and EMBCLI_CACHE_LIMIT, or the platform's cache folder and 2 GB.

        None, and a note, if the platform has no folder for this user.
        """
        limit = os.environ.get("EMBCLI_CACHE_LIMIT")
        size, folder = parse_size(limit) if limit else DEFAULT_LIMIT, _folder()
        if folder is None:
            notes.add("nothing is cached: this user has no home folder; EMBCLI_CACHE_DIR can name another")
            return None
        return cls(folder, size, notes)

    def open(self, name: str) -> FileIO:
        """Open a kept file for reading; raises OSError, and Damaged for a file that must not be trusted."""
        file = FileIO(self.folder / name, opener=_open_at_once)
        try:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise Damaged("it is not a regular file")
            if self._is_strangers(status.st_uid):
                raise Damaged("it belongs to another user, and anyone may write to its folder")
        except BaseException:
            file.close()
            raise
        return file

    def read(self, name: str, load: Callable[[FileIO], Content]) -> Content | None:
        """Return what `load` makes of a kept file, or None if there is no such file or it is damaged."""
        try:
            with self.open(name) as file:
                content = load(file)
        except (OSError, Damaged):
            return None
        with suppress(OSError):
            os.utime(self.folder / name)
        return content

    def write(self, name: str, size: int, write: Callable[[BinaryIO], object]) -> bool:
        """Keep a file of `size` bytes; return whether it was kept.

        `write` is not called for a file that is too large. A note says why a file cannot be written.
        """
        if size * _LARGEST_SHARE > self.limit:
            return False
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / name) as file:
                write(file)
            self._remove_excess(name)
        except OSError as error:
            self.notes.add(f"nothing is cached: cannot write to {self.folder} ({error.strerror})")
            return False
        return True

    def entries(self) -> list[Entry]:
        """Return the kept files, least recently used first."""
        return sorted(self._matching(_NAME), key=lambda entry: (entry.used, entry.path))

    def verify(self, checks: Mapping[str, Callable[[FileIO, str], None]]) -> Iterator[tuple[Entry, str | None]]:
        """Yield each kept file and its fault, None if it has none.

        `checks` has a function by kind that reads a whole file and raises Damaged; it gets the file's name, too.
        """
        for entry in self.entries():
            try:
                with self.open(entry.path.name) as file:
                    checks[entry.kind](file, entry.path.name)
            except (OSError, Damaged) as error:
                yield entry, (error.strerror if isinstance(error, OSError) else None) or str(error)
            else:
                yield entry, None

    def clear(self) -> list[Entry]:
        """Remove all kept and partial files, and return them; raises OutputError for a file that cannot be removed."""
        removed = []
        for entry in [*self.entries(), *self._matching(_PARTIAL)]:
            try:
                entry.path.unlink()
            except FileNotFoundError:
                continue  # another process was faster
            except OSError as error:
                raise OutputError(f"cannot remove {str(entry.path)!r}: {error.strerror}") from None
            removed.append(entry)
        return removed

    def _is_strangers(self, owner: int) -> bool:
        """Return whether another user than this one or root put a file into a folder that anyone may write to."""
        if not hasattr(os, "geteuid") or owner in (os.geteuid(), 0):
            return False
        return bool(self.folder.stat().st_mode & stat.S_IWOTH)

    def _matching(self, names: re.Pattern[str]) -> Iterator[Entry]:
        try:
            paths = [(path, match) for path in self.folder.iterdir() if (match := names.fullmatch(path.name))]
        except OSError:
            return
        for path, match in paths:
            with suppress(OSError):
                status = path.lstat()
                yield Entry(path, match["kind"], status.st_size, min(max(status.st_mtime, 0.0), _LATEST))

    def _remove_excess(self, newest: str) -> None:
        """Remove abandoned partial files, and the least recently used files until the limit holds."""
        abandoned = [entry for entry in self._matching(_PARTIAL) if time.time() - entry.used > _ABANDONED]
        entries = self.entries()
        excess = sum(entry.size for entry in entries) - self.limit
        for entry in entries:
            if excess > 0 and entry.path.name != newest:
                abandoned.append(entry)
                excess -= entry.size
        for entry in abandoned:
            with suppress(OSError):
                entry.path.unlink()


def _open_at_once(path: str, flags: int) -> int:
    """Open a file; a pipe does not wait for a writer."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _folder() -> Path | None:
    named = os.environ.get("EMBCLI_CACHE_DIR")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("embcli", appauthor=False)
    except (RuntimeError, LookupError):
        return None
    return folder if folder.is_absolute() else None  # it starts with "~" if the user's home is unknown


def parse_size(text: str) -> int:
    """Return a size in bytes; raises InputError for text that is not a size.

    >>> parse_size("2GB"), parse_size("0")
    (2000000000, 0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)\s*", text.upper())
    if match is None or len(match[1]) > 20:
        raise InputError(f"EMBCLI_CACHE_LIMIT {text[:40]!r} is not a size; write a number of bytes, or 500MB, or 2GB")
    unit = match[2] if match[2] in _UNITS else f"{match[2]}B"
    return int(float(match[1]) * _UNITS[unit])
