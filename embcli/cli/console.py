"""The terminal: errors, notes and a progress bar on standard error, and what is typed on standard input."""

import os
import sys
import textwrap
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, suppress
from typing import TextIO, TypeVar

from embcli.cli.options import flag_of
from embcli.errors import EmbcliError, Notes
from embcli.words import in_line, shortened, spelled

Item = TypeVar("Item")
_PATIENCE = 1.0  # seconds before a bar is shown


def is_terminal(stream: TextIO | None) -> bool:
    """Return whether a standard stream is a terminal; it is None if it was closed."""
    return stream is not None and stream.isatty()


def say(*lines: str) -> None:
    """Print lines on standard error, made safe and short; the first one starts with embcli.

    A terminal would break them within words.
    """
    if sys.stderr is not None:
        with suppress(OSError):  # if nobody reads it, the result is still good
            safe = [("" if place else "embcli: ") + in_line(shortened(line)) for place, line in enumerate(lines)]
            print("\n".join(map(_wrapped, safe)), file=sys.stderr, flush=True)


def _wrapped(line: str) -> str:
    """Return a line broken between words, as wide as the terminal, if it goes to one."""
    if not sys.stderr.isatty():
        return line
    try:
        columns = os.get_terminal_size(sys.stderr.fileno()).columns
    except (OSError, ValueError):
        columns = 0
    return textwrap.fill(line, columns or 80, break_long_words=False, break_on_hyphens=False)


def say_error(error: EmbcliError) -> None:
    """Print an error, with flags in the places of its parameters, and its hint."""
    say(*filter(None, (spelled(str(error), error.parameters, flag_of), error.hint)))


class PrintedNotes(Notes):
    """Notes that are printed at once."""

    def added(self, remark: str, parameters: tuple[str, ...]) -> None:
        """Print a note."""
        say(spelled(remark, parameters, flag_of))

    def slow(self, what: str) -> None:
        """Print what takes long, on a terminal."""
        if is_terminal(sys.stderr):
            say(what)

    def finish(self) -> None:
        """Print the remarks that changed while rows were read."""
        for text in self.counted:
            say(text)


def watched(items: Iterable[Item], total: int, size: Callable[[Item], int]) -> Iterator[Item]:
    """Yield the items under a progress bar if they take more than a second; `total` is the sum of their sizes.

    No thread refreshes the bar: it would run while something is measured.
    """
    if not is_terminal(sys.stderr):
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


def read_key() -> str:
    """Return the key that is pressed, without waiting for Enter; "" at the end of input.

    Without termios it is the first character of a line. The terminal is restored however this ends.
    """
    try:
        import termios
        import tty
    except ImportError:
        typed = read_line()
        return "" if typed is None else typed[:1] or "\n"
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    try:
        tty.setcbreak(terminal, termios.TCSADRAIN)  # keeps the keys that were pressed before
        return os.read(terminal, 1).decode("latin-1").replace("\x04", "").replace("\r", "\n")
    except OSError:  # the terminal is gone
        return ""
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)


def read_line() -> str | None:
    """Return the line that is typed, without its end; None at the end of input."""
    typed = sys.stdin.buffer.readline()
    return typed.decode(errors="replace").rstrip("\r\n") if typed else None
