"""A screen over rows: a title, what it shows, the command that prints the same, and its keys."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import Any, TypeVar

from textual import work
from textual.app import ComposeResult
from textual.screen import Screen
from textual.widgets import Footer, Static
from textual.worker import get_current_worker

from embcli.errors import EmbcliError, Watch
from embcli.explore.source import Source
from embcli.words import in_line

Item = TypeVar("Item")
_BETWEEN = 0.2  # seconds from one sign of progress to the next


class View(Screen[None]):
    """A screen; a new one has a title, a body and commands."""

    app: Any  # the Explorer

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source
        self.progress = ""

    def body(self) -> ComposeResult:
        raise NotImplementedError

    def heading(self) -> str:
        raise NotImplementedError

    def commands(self) -> list[str]:
        """Return the command lines that print what is on the screen."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from self.body()
        yield Static(id="command", markup=False)
        yield Footer(show_command_palette=False, compact=True)

    def tell(self, progress: str = "") -> None:
        """Write the title and the command anew."""
        if self.query("#title"):  # it is not there yet, or no longer
            title = "   ".join(filter(None, (in_line(self.heading()), progress)))
            self.query_one("#title", Static).update(title, layout=False)
            self.query_one("#command", Static).update(f"$ {in_line('; '.join(self.commands()))}", layout=False)

    def on_data_table_row_selected(self) -> None:
        self.app.call_later(self.app.run_action, "open", self)  # there, one after the other with keys

    @work(thread=True, exclusive=True)
    def run_passes(self, what: str, passes: list[tuple[Callable[[Watch], Any], Callable[[Any], None]]]) -> None:
        """Run passes one after the other in a thread; the screen takes what each returns, or its EmbcliError."""
        worker, told = get_current_worker(), time.monotonic()

        def watched(items: Iterable[Item], total: int, size: Callable[[Item], int], /) -> Iterator[Item]:
            nonlocal told
            passed = 0
            for item in items:
                if worker.is_cancelled:
                    raise CancelledError
                yield item
                passed += size(item)
                if time.monotonic() - told > _BETWEEN:
                    told = time.monotonic()
                    self.app.call_from_thread(self.tell, f"{what} {passed / max(total, 1):.0%}")

        with suppress(CancelledError, RuntimeError):  # the screen is gone, or the app
            for run, take in passes:
                try:
                    found = run(watched)
                except EmbcliError as error:
                    found = error
                except MemoryError:
                    found = EmbcliError("memory ran out: this matrix is too large for a pass")
                if worker.is_cancelled:
                    return
                self.app.call_from_thread(self._deliver, take, found)

    def _deliver(self, take: Callable[[Any], None], found: Any) -> None:
        if self.is_attached:
            take(found)
            self.tell()


def sentence(error: EmbcliError) -> str:
    """Return an error in a line."""
    return "; ".join(in_line(part) for part in (str(error), error.hint) if part)
