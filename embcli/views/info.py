"""The page of `info`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.page import Column

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.info import Info


def view(result: Info, page: Page) -> None:
    """Put the versions, the CPU capability, the cache folder and the encodings on a page."""
    lines = {**result.versions, "CPU capability": result.cpu_capability or "", "cache": result.cache or "none"}
    width = max(map(len, lines))
    for name, value in lines.items():
        page.line(f"{name:{width}}  {value}")
    page.line()
    names, sizes, carried = zip(*result.encodings, strict=True)
    page.table(
        [
            Column("encoding", names, "left"),
            Column("V", [f"{size:,}" for size in sizes]),
            Column("carried", ["yes" if each else "no" for each in carried], "left"),
        ]
    )
