"""How `cache` looks."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from embcli.page.terminal import plain_table
from embcli.weights import counted, in_bytes

if TYPE_CHECKING:
    from embcli.page.terminal import Page
    from embcli.weights.kept import Contents


def view(result: Contents, page: Page) -> None:
    """Put the folder, how much it holds, and a line for each kept layer on a page."""
    page.print(f"{result.cache.folder}")
    page.print(
        f"{counted(len(result.entries), 'layer')}, {in_bytes(result.size)} of at most {in_bytes(result.cache.limit)}"
    )
    if not result.entries:
        return
    table = plain_table(("last used", "left"), ("size", "right"), ("layer", "left"))
    for entry in result.entries:
        used = datetime.fromtimestamp(entry.used).isoformat(" ", "minutes")
        table.add_row(used, in_bytes(entry.size), entry.path.stem)
    page.print()
    page.print(table, width=200)
    if result.faults is not None:
        page.print()
        for entry, fault in zip(result.entries, result.faults, strict=True):
            if fault is not None:
                page.print(f"damaged: {entry.path.name}: {fault}")
        page.print(f"{result.damaged} of {len(result.entries)} layers are damaged; they will be drawn anew when needed")
