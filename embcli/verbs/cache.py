"""The cache as a result: the kept files and their faults, or the removed files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone

from embcli.errors import OutputError
from embcli.files import index
from embcli.records import Records, listed
from embcli.result import Result
from embcli.store import Entry, Store
from embcli.version import __version__
from embcli.weights import kept
from embcli.words import counted, in_bytes

_CHECKS = {"token": kept.check, "position": kept.check, "vectors": index.check}  # by kind of file


@dataclass(frozen=True, eq=False)
class Files(Result, verb="cache", content="list"):
    """Files of the cache."""

    folder: str
    limit: int  # bytes
    entries: tuple[Entry, ...]
    faults: tuple[str | None, ...] | None = None  # of each file; None if they were not verified

    @property
    def size(self) -> int:
        """The bytes of all files."""
        return sum(entry.size for entry in self.entries)

    @property
    def damaged(self) -> int:
        """The number of damaged files."""
        return sum(fault is not None for fault in self.faults or ())

    @property
    def why_no(self) -> str:
        """How many files are damaged; empty if none."""
        return f"{self.damaged} of {counted(len(self.entries), 'file')} damaged" if self.damaged else ""

    @property
    def removed(self) -> str:
        """A line about files that were removed."""
        return f"{counted(len(self.entries), 'file')} removed, {in_bytes(self.size)}, from {self.folder}"

    def records(self) -> Records:
        """Return the files as rows."""
        used = [datetime.fromtimestamp(entry.used, timezone.utc).isoformat() for entry in self.entries]
        run = {"embcli": __version__, "folder": self.folder, "bytes": self.size, "limit": self.limit}
        return listed(
            run,
            "layers",
            file=(str, [entry.path.name for entry in self.entries]),
            bytes=(int, [entry.size for entry in self.entries]),
            used=(str, used),
            **({} if self.faults is None else {"fault": (str, list(self.faults))}),
        )


def contents(store: Store | None, verify: bool = False) -> Files:
    """Return the kept files, least recently used first; `verify` reads and checks them all.

    Raises OutputError if this user has no cache.
    """
    store = _existing(store)
    if not verify:
        return Files(str(store.folder), store.limit, tuple(store.entries()))
    entries, faults = [], []
    for entry, fault in store.verify(_CHECKS):
        entries.append(entry)
        faults.append(fault)
    return Files(str(store.folder), store.limit, tuple(entries), tuple(faults))


def clear(store: Store | None) -> Files:
    """Remove all kept and partial files, and return them.

    Raises OutputError for a file that cannot be removed, and if this user has no cache.
    """
    store = _existing(store)
    return Files(str(store.folder), store.limit, tuple(store.clear()))


def _existing(store: Store | None) -> Store:
    if store is None:
        raise OutputError("there is no cache folder: set EMBCLI_CACHE_DIR to one, or HOME")
    return store
