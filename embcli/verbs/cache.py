"""The cache as a result: what it holds, whether that is sound, and what was removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import embcli
from embcli.errors import OutputError
from embcli.records import Records, listed
from embcli.safe import in_data
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    from embcli.weights.cache import Cache, Entry


@dataclass(frozen=True)
class Contents:
    """What the cache holds, least recently used first; `faults` says what is wrong with each, if that was looked at."""

    cache: Cache
    entries: tuple[Entry, ...]
    faults: tuple[str | None, ...] | None

    @property
    def damaged(self) -> int:
        """How many files are not what was written."""
        return sum(fault is not None for fault in self.faults or ())

    @property
    def size(self) -> int:
        """How many bytes the files take."""
        return sum(entry.size for entry in self.entries)

    def records(self) -> Records:
        """Return the files as rows."""
        used = [datetime.fromtimestamp(entry.used, timezone.utc).isoformat() for entry in self.entries]
        fields: dict[str, list[Any]] = {
            "file": [entry.path.name for entry in self.entries],
            "bytes": [entry.size for entry in self.entries],
            "used": used,
        }
        if self.faults is not None:
            fields["fault"] = list(self.faults)
        types = {"file": str, "bytes": int, "used": str, "fault": str}
        return listed(_run(self.cache, self.size), "layers", {name: types[name] for name in fields}, fields)


@dataclass(frozen=True)
class Cleared:
    """What was removed from the cache: kept layers, and half-written files."""

    cache: Cache
    removed: tuple[Entry, ...]

    @property
    def size(self) -> int:
        """How many bytes the files took."""
        return sum(entry.size for entry in self.removed)

    @property
    def in_words(self) -> str:
        """All of it in one line."""
        return f"{counted(len(self.removed), 'file')} removed, {in_bytes(self.size)}, from {self.cache.folder}"


def contents(cache: Cache | None, verify: bool = False) -> Contents:
    """Return what the cache holds; with `verify` every file is read and checked.

    Raises OutputError where this user has no cache.
    """
    cache = _existing(cache)
    checked = list(cache.verify()) if verify else [(entry, None) for entry in cache.entries()]
    entries, faults = tuple(entry for entry, _ in checked), tuple(fault for _, fault in checked)
    return Contents(cache, entries, faults if verify else None)


def clear(cache: Cache | None) -> Cleared:
    """Remove all kept layers and half-written files, and return what that was.

    Raises OutputError for a file that cannot be removed, and where this user has no cache.
    """
    cache = _existing(cache)
    return Cleared(cache, tuple(cache.clear()))


def _existing(cache: Cache | None) -> Cache:
    if cache is None:
        raise OutputError("there is no cache folder: set EMBCLI_CACHE_DIR to one, or HOME")
    return cache


def _run(cache: Cache, size: int) -> dict[str, Any]:
    return {"embcli": embcli.__version__, "folder": in_data(str(cache.folder)), "bytes": size, "limit": cache.limit}
