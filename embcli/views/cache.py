"""How `cache` looks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from embcli.page import Column
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.cache import Contents


def view(result: Contents, page: Page) -> None:
    """Put the folder, how much it holds, and a line for each kept layer on a page."""
    page.line(f"{result.cache.folder}")
    page.line(
        f"{counted(len(result.entries), 'layer')}, {in_bytes(result.size)} of at most {in_bytes(result.cache.limit)}"
    )
    if not result.entries:
        return
    page.line()
    used = [datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") for entry in result.entries]
    page.table(
        [
            Column("last used", used, "left"),
            Column("size", [in_bytes(entry.size) for entry in result.entries]),
            Column("layer", [entry.path.stem for entry in result.entries], "left"),
        ]
    )
    if result.faults is not None:
        page.line()
        for entry, fault in zip(result.entries, result.faults, strict=True):
            if fault is not None:
                page.line(f"damaged: {entry.path.name}: {fault}")
        page.line(_verdict(result))


def _verdict(result: Contents) -> str:
    count = len(result.entries)
    if result.damaged:
        return f"{result.damaged} of {count} layers are damaged; they will be drawn anew when needed"
    return f"all {count} are sound" if count > 1 else "it is sound"
