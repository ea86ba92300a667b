"""How `info` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.page.terminal import plain_table

if TYPE_CHECKING:
    from embcli.verbs.info import Info
    from embcli.page.terminal import Page


def view(result: Info, page: Page) -> None:
    """Put versions, CPU capability, cache and encodings on a page."""
    lines = {**result.versions, "CPU capability": result.cpu_capability, "cache": result.cache}
    width = max(map(len, lines))
    for name, value in lines.items():
        page.print(f"{name:{width}}  {value}")
    page.print()
    table = plain_table(("encoding", "left"), ("V", "right"), ("carried", "left"))
    for name, size, carried in result.encodings:
        table.add_row(name, f"{size:,}", "yes" if carried else "no")
    page.print(table)
