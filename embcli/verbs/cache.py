"""The cache as a result: the kept or the removed files."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from typing import TYPE_CHECKING

from embcli.errors import OutputError
from embcli.names import __version__
from embcli.records import Records, listed
from embcli.result import Result
from embcli.store import LIMIT, KeptFile, Store
from embcli.wording import counted, in_bytes

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult


@dataclass(frozen=True, eq=False)
class Files(Result, verb="cache", content="list"):
    """The kept files, or those that were removed."""

    folder: str
    entries: tuple[KeptFile, ...]
    are_removed: bool

    @property
    def size(self) -> int:
        return sum(entry.size for entry in self.entries)

    def records(self) -> Records:
        used = [
            datetime.fromtimestamp(entry.used, timezone.utc).isoformat() for entry in self.entries
        ]
        run = {"embcli": __version__, "folder": self.folder, "bytes": self.size, "limit": LIMIT}
        return listed(
            run,
            "layers",
            file=(str, [entry.path.name for entry in self.entries]),
            bytes=(int, [entry.size for entry in self.entries]),
            used=(str, used),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, ruled, safe_text

        if self.are_removed:
            yield safe_text(
                f"{counted(len(self.entries), 'file')} removed, {in_bytes(self.size)}, from {self.folder}"
            )
            return
        names = [entry.path.stem.partition("-torch")[0] for entry in self.entries]
        yield safe_text(self.folder)
        yield safe_text(
            f"{counted(len(self.entries), 'layer')}, {in_bytes(self.size)} of at most {in_bytes(LIMIT)}"
        )
        if self.entries:
            used = [
                datetime.fromtimestamp(entry.used).isoformat(" ", "minutes")
                for entry in self.entries
            ]
            sizes = [in_bytes(entry.size) for entry in self.entries]
            yield ""
            yield ruled(
                [
                    Label("last used", used, "left"),
                    Label("size", sizes),
                    Label("layer", names, "left"),
                ]
            )


def files(store: Store | None, remove: bool = False) -> Files:
    """Return the kept files, least recently used first; or remove all kept and partial files, and return them."""
    if store is None:
        raise OutputError("there is no cache folder: set EMBCLI_CACHE_DIR to one, or HOME")
    entries = store.clear() if remove else store.entries()
    return Files(str(store.folder), tuple(entries), remove)
