"""A progress bar on standard error, when that is a terminal and the work takes more than a second."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from embcli.records import Piece

_PATIENCE = 1.0  # seconds


def progress(pieces: Iterable[Piece], total: int, file: BinaryIO) -> Iterator[Piece]:
    """Yield the pieces; `total` is the number of rows in all of them, and `file` is where they go.

    There is no bar where the data itself runs over the terminal.
    """
    if sys.stderr is None or not sys.stderr.isatty() or file.isatty():
        yield from pieces
        return
    start, done = time.monotonic(), 0
    with ExitStack() as stack:
        bar = None
        for piece in pieces:
            yield piece
            done += piece.rows
            if bar is None and time.monotonic() - start > _PATIENCE:
                from rich.console import Console
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True))
                task = bar.add_task("rows", total=total, completed=done)
            if bar is not None:
                bar.update(task, completed=done)
