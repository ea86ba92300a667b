"""The pages of `cache` and `cache verify`."""

from datetime import datetime

from embcli.oldpage import Column, Page
from embcli.verbs.cache import Files
from embcli.words import counted, in_bytes


def view(result: Files, page: Page) -> None:
    """Put the folder, its size, and a line for each kept file on a page."""
    thing = "layer" if all(entry.kind in ("token", "position") for entry in result.entries) else "file"
    page.line(result.folder)
    page.line(f"{counted(len(result.entries), thing)}, {in_bytes(result.size)} of at most {in_bytes(result.limit)}")
    if not result.entries:
        return
    page.line()
    used = [datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") for entry in result.entries]
    page.table(
        [
            Column("last used", used, "left"),
            Column("size", [in_bytes(entry.size) for entry in result.entries]),
            Column(thing, [entry.path.stem for entry in result.entries], "left"),
        ]
    )
    if result.faults is not None:
        page.line()
        for entry, fault in zip(result.entries, result.faults, strict=True):
            if fault is not None:
                page.line(f"damaged: {entry.path.name}: {fault}")
        sound = f"all {len(result.entries)} are sound" if len(result.entries) > 1 else "it is sound"
        of_all = f"{result.damaged} of {counted(len(result.entries), thing)}"
        page.line(f"damaged: {of_all}; replaced at the next use" if result.damaged else sound)
