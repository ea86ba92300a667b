"""The terminal: errors, notes and a progress bar on standard error.

All commands write there through this module, so that nothing unsafe reaches a terminal.
"""

import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import TextIO, TypeVar

from embcli.cli.options import flag_of
from embcli.errors import EmbcliError, Notes, Watch
from embcli.wording import Sentence, in_line, shortened

Item = TypeVar("Item")
PATIENCE = 1.0  # seconds before a bar is shown


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal; it is None if it was closed."""
    return stream is not None and stream.isatty()


def say(*lines: str) -> None:
    """Print lines on standard error, made safe and short.

    On a terminal they are broken between words.
    """
    if sys.stderr is None:
        return
    first, *others = lines
    printed = [in_line(shortened(line)) for line in (f"embcli: {first}", *others)]
    if is_terminal(sys.stderr):
        columns = shutil.get_terminal_size().columns
        printed = [
            textwrap.fill(line, columns, break_long_words=False, break_on_hyphens=False)
            for line in printed
        ]
    with suppress(OSError):  # if nobody reads it, the result is still good
        print("\n".join(printed), file=sys.stderr, flush=True)


def say_error(error: EmbcliError) -> None:
    """Print an error, with flags in the places of its parameters, and its hint."""
    lines = [_with_flags(error.message)]
    if error.hint:
        lines.append(error.hint)
    say(*lines)


def _with_flags(message: str | Sentence) -> str:
    return message.with_names(flag_of) if isinstance(message, Sentence) else message


def watched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Yield the items, under a progress bar if they take more than a second.

    `total` is the sum of their sizes; without it there is no bar.
    """
    if not (total and is_terminal(sys.stderr)):
        yield from items
        return
    start = time.monotonic()
    done = 0
    with ExitStack() as stack:
        bar = None
        for item in items:
            yield item
            done += size(item)
            if bar is None and time.monotonic() - start > PATIENCE:
                from rich.console import Console
                from rich.progress import Progress

                # No thread refreshes the bar: it would run while something is measured.
                bar = stack.enter_context(
                    Progress(console=Console(stderr=True), transient=True, auto_refresh=False)
                )
                task = bar.add_task("", total=total, completed=done)
            if bar is not None:
                bar.update(task, completed=done, refresh=True)


class PrintedNotes(Notes):
    """Notes that are printed as they come about."""

    watch: Watch = staticmethod(watched)

    def added(self, remark: str | Sentence) -> None:
        say(_with_flags(remark))

    @contextmanager
    def slow(self, what: str) -> Iterator[None]:
        """Show the name of a step, and erase it at the end."""
        if not is_terminal(sys.stderr):
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.text import Text

        with Live(
            Text(in_line(f"embcli: {what}")),
            console=Console(stderr=True),
            auto_refresh=False,
            transient=True,
        ):
            yield
