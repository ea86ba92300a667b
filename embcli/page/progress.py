"""A progress bar on standard error, when that is a terminal and the work takes more than a second."""

from __future__ import annotations

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

Item = TypeVar("Item")
_PATIENCE = 1.0  # seconds


def watched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Yield the items; `total` is the sum of their sizes, by which the bar grows.

    No thread refreshes the bar: it would run in the middle of what is measured.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield from items
        return
    start, done = time.monotonic(), 0
    with ExitStack() as stack:
        bar = None
        for item in items:
            yield item
            done += size(item)
            if bar is None and time.monotonic() - start > _PATIENCE:
                from rich.console import Console
                from rich.progress import Progress

                bar = stack.enter_context(Progress(console=Console(stderr=True), transient=True, auto_refresh=False))
                task = bar.add_task("", total=total, completed=done)
            if bar is not None:
                bar.update(task, completed=done, refresh=True)
