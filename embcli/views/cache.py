"""The page of `cache`."""

from datetime import datetime

from embcli.oldpage import Column, Page
from embcli.store import LIMIT
from embcli.verbs.cache import Files
from embcli.words import counted, in_bytes


def view(result: Files, page: Page) -> None:
    """Put the folder, its size, and a line for each kept file on a page."""
    names = [entry.path.stem.partition("-torch")[0] for entry in result.entries]
    thing = "file" if any(name.startswith("vectors") for name in names) else "layer"
    page.line(result.folder)
    page.line(f"{counted(len(result.entries), thing)}, {in_bytes(result.size)} of at most {in_bytes(LIMIT)}")
    if not result.entries:
        return
    page.line()
    used = [datetime.fromtimestamp(entry.used).isoformat(" ", "minutes") for entry in result.entries]
    page.table(
        [
            Column("last used", used, "left"),
            Column("size", [in_bytes(entry.size) for entry in result.entries]),
            Column(thing, names, "left"),
        ]
    )
