"""What the screens have in common: a title, a prompt, keys, passes in a thread, and lists of lines.

Each screen is an ExplorerScreen and shows a part of one ExploredMatrix. Matrices and rows are drawn
as Lines, short lists as a ListTable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import Worker, WorkerState, get_current_worker

from embcli.errors import EmbcliError, Watch
from embcli.explore.explored import ExploredMatrix, fitted
from embcli.page.colors import sign_style
from embcli.page.matrix import NumberFormat
from embcli.selection import select
from embcli.wording import in_line

DIM = Style(dim=True)
STRONG = Style(bold=True)
CURSOR = Style(bold=True, reverse=True)

# The keys that move the cursor of a list, with those of less and vi beside textual's. The line of
# keys shows those that have a description.
MOVES = [
    ("down,j", "cursor_down"),
    ("up,k", "cursor_up"),
    ("pagedown,ctrl+f", "page_down"),
    ("pageup,ctrl+b", "page_up"),
    ("home", "scroll_top"),
    ("end,G", "scroll_bottom"),
]


class Prompt(Input, can_focus=False):
    """The line of the screen's commands, and the field that `:` opens in their place.

    It can have the focus only while it is open; then the commands are not its placeholder.
    """

    BINDINGS = [("escape", "screen.close_prompt")]


class KeyLine(Footer):
    """Textual's footer, except that it is built once: a screen's keys stay the same.

    Textual builds it anew for each focus, which takes 15 ms; collecting the old footers as garbage
    after 10 jumps takes 0.2 s.
    """

    def bindings_changed(self, screen: Screen[Any]) -> None:
        if not self.children:
            super().bindings_changed(screen)


class ListTable(DataTable[Text | str], inherit_bindings=False):
    """A list of rows, one of which can be chosen."""

    BINDINGS = [*MOVES, ("enter,n", "select_cursor", "Row")]


class ExplorerScreen(Screen[int]):
    """A screen of the explorer. Each kind of screen has a body, a heading and commands.

    It is composed when it is opened, and lives until it is closed; a pass that it has started ends
    with it.
    """

    app: Any  # the Explorer

    def __init__(self, matrix: ExploredMatrix) -> None:
        super().__init__()
        self.matrix = matrix
        self.progress = ""  # the name of the pass that goes on

    def body(self) -> ComposeResult:
        """Yield the widgets between the title and the commands."""
        raise NotImplementedError

    def heading(self) -> list[str]:
        """Return the parts of the title, the most important first."""
        raise NotImplementedError

    def commands(self) -> list[str]:
        """Return the commands that print what is on the screen."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from self.body()
        yield KeyLine(compact=True)
        yield Prompt(compact=True)

    def action_open_prompt(self) -> None:
        prompt = self.query_one(Prompt)
        prompt.placeholder = "a row's ID or token, or row,column; Enter goes there, Esc closes"
        prompt.can_focus = True
        self.set_focus(prompt)

    def action_close_prompt(self) -> None:
        prompt = self.query_one(Prompt)
        self.set_focus(self.query(self.AUTO_FOCUS).first())
        prompt.can_focus = False
        prompt.clear()
        self.show_title()

    @on(Input.Submitted, "Prompt")
    async def go_to_typed(self, event: Input.Submitted) -> None:
        """Go to the row, the column, or both that are typed at the prompt: `6109,447`."""
        self.action_close_prompt()
        name, _, number = event.value.partition(",")
        row = None
        column = None
        with self.app.errors_as_notes():
            if name.strip():
                row = self.matrix.row_of(name)
            if number.strip():
                column = int(select(number.strip(), self.matrix.dim, "column")[0])
            await self.go_to(row, column)

    async def go_to(self, row: int | None, column: int | None = None) -> None:
        """Open the row, on a screen of its own."""
        if row is not None:
            await self.app.open_row(row, column or 0)

    def show_title(self) -> None:
        """Show the title, with the name of a pass that goes on, and the commands."""
        if not self.query("#title"):  # it is not there yet, or no longer
            return
        first, *parts = self.heading()
        title = "   ".join(filter(None, [first, self.progress, *parts]))
        self.query_one("#title", Static).update(in_line(title), layout=False)
        prompt = self.query_one(Prompt)
        if prompt is not self.focused:
            commands = in_line("; ".join(self.commands()))
            prompt.placeholder = fitted(f"$ {commands}", max(self.size.width - 2, 1))

    def on_screen_resume(self) -> None:
        self.show_title()

    @on(events.Resize)
    def take_size(self, event: events.Resize) -> None:
        """Fit the title, but ignore a size that the app no longer has.

        If two sizes are on their way, textual draws one after the other forever.
        """
        if event.size != self.app.size:
            event.prevent_default()
        self.call_after_refresh(self.show_title)

    def start(self, name: str, compute: Callable[[Watch], Any]) -> None:
        """Compute in a thread what `finished` is called with; the title names the pass."""
        self.progress = f"{name} …"
        self.show_title()
        self.run_worker(
            partial(compute, self._watched),
            name,
            thread=True,
            exclusive=True,
            exit_on_error=False,
        )

    def _watched(
        self, items: Iterable[Any], total: int, size: Callable[[Any], int], /
    ) -> Iterator[Any]:
        """Yield the items of a pass, until its screen is closed."""
        worker = get_current_worker()
        for item in items:
            if worker.is_cancelled:
                raise CancelledError
            yield item

    def on_worker_state_changed(self, event: Worker.StateChanged) -> None:
        worker = event.worker
        with suppress(NoMatches):  # as the app ends, a screen's widgets go before the screen
            if event.state not in (WorkerState.SUCCESS, WorkerState.ERROR):
                return
            self.progress = ""
            if event.state is WorkerState.SUCCESS:
                self.finished(worker.name, worker.result)
            else:
                self.failed(worker.name, worker.error)
            self.show_title()

    def finished(self, name: str, result: Any) -> None:
        """Show the result of the pass of this name."""

    def failed(self, name: str, error: Any) -> None:
        """Say why the pass of this name has no result."""
        with self.app.errors_as_notes():
            raise error


def sentence(error: EmbcliError) -> str:
    """Return an error and its hint in one line."""
    return in_line(f"{error}; {error.hint}").removesuffix("; ")


class Lines(ScrollView):
    """A list of lines, of which only those on the screen are made; its header does not scroll."""

    screen: Any  # the ExplorerScreen, whose title names what the list shows

    @property
    def first_line(self) -> int:
        """The first line below the header."""
        return round(self.scroll_y)

    def line(self, *segments: Segment) -> Strip:
        """Return a line as wide as the list, in its colours where a segment has no others."""
        style = self.rich_style
        strip = Strip(segments).simplify().apply_style(style)
        return strip.adjust_cell_length(self.size.width, style)

    def numbers(self, values: np.ndarray, number_format: NumberFormat, cell: int) -> list[Segment]:
        """Return some values of a row, (n,), as numbers in cells of one width."""
        segments = []
        for value in values.tolist():
            number = f"  {number_format.write(value):>{cell}}"
            segments.append(Segment(number, sign_style(value)))
        return segments


def right(text: str) -> Text:
    """Return a cell of a table, or its header, at the right."""
    return Text(text, justify="right")
