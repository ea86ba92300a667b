"""Standard error: errors, notes, and a progress bar if it is a terminal."""

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TypeVar

from embcli.cli.options import flag_of
from embcli.notes import Notes
from embcli.safe import in_line, shortened
from embcli.words import Message

Item = TypeVar("Item")
_PATIENCE = 1.0  # seconds before a bar is shown


def say(*lines: str) -> None:
    """Print lines on standard error, made safe and short; the first one starts with embcli."""
    if sys.stderr is not None:
        with suppress(OSError):  # if nobody reads it, the result is still good
            print("embcli:", "\n".join(in_line(shortened(line)) for line in lines), file=sys.stderr, flush=True)


class PrintedNotes(Notes):
    """Notes that are printed at once."""

    def added(self, message: Message) -> None:
        """Print a note."""
        say(message.spelled(flag_of))

    def slow(self, what: str) -> None:
        """Print what takes long, on a terminal."""
        if sys.stderr is not None and sys.stderr.isatty():
            say(what)

    def finish(self) -> None:
        """Print the remarks that changed while rows were read."""
        for text in self.counted:
            say(text)


def watched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Yield the items under a progress bar if they take more than a second; `total` is the sum of their sizes.

    No thread refreshes the bar: it would run while something is measured.
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
