"""The cache as a result: the files that are kept, or those that were removed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from embcli.errors import OutputError
from embcli.names import CacheAction
from embcli.result import Result
from embcli.store import LIMIT, KeptFile, Store
from embcli.wording import counted, in_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, eq=False)
class Files(Result, verb="cache"):
    """The kept files, or those that were removed."""

    folder: str
    entries: tuple[KeptFile, ...]  # least recently used first
    action: CacheAction

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, ruled, safe_text

        entries = self.entries
        count = len(entries)
        size = in_bytes(sum(entry.size for entry in entries))
        if self.action == "clear":
            yield safe_text(f"{counted(count, 'file')} removed, {size}, from {self.folder}")
            return
        yield safe_text(self.folder)
        yield safe_text(f"{counted(count, 'file')}, {size} of at most {in_bytes(LIMIT)}")
        if not entries:
            return
        yield ""
        times = [datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") for entry in entries]
        names = [entry.path.stem.partition("-torch")[0] for entry in entries]
        yield ruled(
            [
                Label("last used", times, "left"),
                Label("size", [in_bytes(entry.size) for entry in entries]),
                Label("file", names, "left"),
            ]
        )


def files(store: Store | None, action: CacheAction = "list") -> Files:
    """Return the kept and the partial files, or those that were removed.

    The least recently used are first.
    """
    if store is None:
        raise OutputError("there is no cache folder: set EMBCLI_CACHE_DIR to one, or HOME")
    match action:
        case "list":
            entries = store.entries()
        case "clear":
            entries = store.clear()
    return Files(str(store.folder), tuple(entries), action)
