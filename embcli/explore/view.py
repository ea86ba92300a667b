"""What the screens have in common: a title, a prompt, keys, passes in a thread, and lists of lines.

Each screen is an ExplorerScreen and shows a part of one ExploredMatrix. Matrices and rows are drawn
as Lines, short lists as a ListTable.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import groupby
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
from rich.cells import cell_len
from rich.color import Color
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.css.query import NoMatches
from textual.screen import Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable, Footer, Input, Static
from textual.worker import get_current_worker

from embcli.errors import EmbcliError, Watch
from embcli.explore.explored import ExploredMatrix
from embcli.page.colors import ColorScale, means, sign_style
from embcli.page.matrix import NumberFormat
from embcli.page.strips import Fit, strip
from embcli.wording import in_line

DIM = Style(dim=True)
STRONG = Style(bold=True)
CURSOR = Style(bold=True, reverse=True)
_PROGRESS_SECONDS = 0.2  # between two signs of progress

Item = TypeVar("Item")


class Prompt(Input):
    """The field that `:` opens. It is always on the screen, and visible while it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.close_prompt", show=False)]


class KeyLine(Footer):
    """Textual's footer, except that it is built anew only if its keys change.

    Textual builds it anew for each focus; collecting the old footers as garbage after 10 jumps
    holds up a key for 0.2 s.
    """

    shown: tuple[Binding, ...] = ()

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Build the footer anew if it shows other keys; it stays as it is for an open prompt."""
        bindings = [active.binding for active in screen.active_bindings.values()]
        shown = tuple(binding for binding in bindings if binding.show)
        if shown != self.shown and not isinstance(screen.focused, Prompt):
            self.shown = shown
            super().bindings_changed(screen)


class ListTable(DataTable[Text | str], inherit_bindings=False):
    """A list of rows, with the keys of less and vi. The screen has the key Enter."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "cursor_down", tooltip="down", show=False),
        Binding("up,k", "cursor_up", tooltip="up", show=False),
        Binding("pagedown,ctrl+f", "page_down", tooltip="a page down", show=False),
        Binding("pageup,ctrl+b", "page_up", tooltip="a page up", show=False),
        Binding("home", "scroll_top", tooltip="the first line", show=False),
        Binding("end,G", "scroll_bottom", tooltip="the last line", show=False),
    ]


class Pass(NamedTuple):
    """A pass over a matrix: what a thread computes, and how the screen shows it.

    `show` gets what `compute` returns, or the EmbcliError that it raises.
    """

    compute: Callable[[Watch], Any]
    show: Callable[[Any], None]


class ExplorerScreen(Screen[int]):
    """A screen of the explorer. Each kind of screen has a body, a heading and commands.

    It is composed when it is opened, and lives until it is closed; passes that it has started end
    with it.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, a field has the focus before the app looks at the next key, which may be
        # typed at once.
        Binding(
            "colon,g",
            "open_prompt",
            "Go",
            key_display=":",
            priority=True,
            tooltip="go to a row by ID or token, and a column: 6109,447",
        ),
        Binding(
            "slash",
            "find",
            "Find",
            priority=True,
            tooltip="type a text: its tokens, and words like it",
        ),
    ]

    app: Any  # the Explorer

    def __init__(self, matrix: ExploredMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def body(self) -> ComposeResult:
        """Yield the widgets between the title and the command."""
        raise NotImplementedError

    def heading(self) -> list[str]:
        """Return the parts of the title. The first is always shown, others if there is room."""
        raise NotImplementedError

    def commands(self) -> list[str]:
        """Return the commands that print what is on the screen."""
        raise NotImplementedError

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from self.body()
        yield Static(id="command", markup=False)
        yield KeyLine(compact=True)
        yield Prompt(placeholder="a row's ID or token, or row,column", compact=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Textual gives a colon to a field that has the focus, but not a slash, whose Unicode name
        # is solidus.
        return action != "find" or not isinstance(self.focused, Input)

    async def action_find(self) -> None:
        await self.app.find()

    def action_open_prompt(self) -> None:
        prompt = self.query_one(Prompt)
        prompt.clear()
        self.set_focus(prompt)

    def action_close_prompt(self) -> None:
        self.set_focus(self.query(self.AUTO_FOCUS).first())

    @on(Input.Submitted, "Prompt")
    async def go_to(self, event: Input.Submitted) -> None:
        self.action_close_prompt()
        await self.app.go_to(event.value)

    def show_title(self, progress: str = "") -> None:
        """Show the title and the command line as they are now, and the progress of a pass."""
        if not self.query("#title"):  # it is not there yet, or no longer
            return
        title, *parts = [in_line(part) for part in self.heading()]
        if progress:
            parts.append(progress)
        room = self.size.width - 2
        for part in parts:
            longer_title = f"{title}   {part}"
            if cell_len(longer_title) <= room:
                title = longer_title
        commands = "; ".join(self.commands())
        self.query_one("#title", Static).update(title, layout=False)
        self.query_one("#command", Static).update(f"$ {in_line(commands)}", layout=False)

    def on_screen_resume(self) -> None:
        self.show_title()

    @on(events.Resize)
    def ignore_outdated_size(self, event: events.Resize) -> None:
        """Ignore a size that the app no longer has.

        If two sizes are on their way, textual draws one after the other forever.
        """
        if event.size != self.app.size:
            event.prevent_default()

    @work(thread=True, exclusive=True)
    def run_passes(self, name: str, passes: list[Pass]) -> None:
        """Run passes one after the other in a thread, with their progress in the title."""
        worker = get_current_worker()
        last_progress = time.monotonic()

        def watched(
            items: Iterable[Item], total: int, size: Callable[[Item], int], /
        ) -> Iterator[Item]:
            nonlocal last_progress
            passed = 0
            for item in items:
                if worker.is_cancelled:
                    raise CancelledError
                yield item
                passed += size(item)
                if time.monotonic() - last_progress > _PROGRESS_SECONDS:
                    last_progress = time.monotonic()
                    progress = f"{name} {passed / max(total, 1):.0%}"
                    self.app.call_from_thread(self.show_title, progress)

        with suppress(CancelledError, RuntimeError):  # the screen or the app is gone
            for compute, show in passes:
                result = _result_or_error(compute, watched)
                if worker.is_cancelled:
                    return
                self.app.call_from_thread(self._show_result, show, result)

    def _show_result(self, show: Callable[[Any], None], result: Any) -> None:
        if not self.is_attached:
            return
        with suppress(NoMatches):  # as the app ends, a screen's widgets go before the screen
            show(result)
            self.show_title()


def _result_or_error(compute: Callable[[Watch], Any], watch: Watch) -> Any:
    try:
        return compute(watch)
    except EmbcliError as error:
        return error
    except MemoryError:
        return EmbcliError("memory ran out: this matrix is too large for a pass")


def sentence(error: EmbcliError) -> str:
    """Return an error and its hint in one line."""
    parts = [str(error), error.hint]
    return "; ".join(in_line(part) for part in parts if part)


class Lines(ScrollView, can_focus=True):
    """A list of lines, of which only those on the screen are made; its header does not scroll."""

    def update_title(self) -> None:
        """Show the title of the screen anew, which names what the list shows."""
        if isinstance(self.screen, ExplorerScreen):
            self.screen.show_title()

    def line(self, *segments: Segment) -> Strip:
        """Return a line as wide as the list, in its colours unless a segment has a background."""
        base = self.rich_style
        styled = []
        for segment in segments:
            if segment.style and segment.style.bgcolor:
                styled.append(segment)
            else:
                styled.append(Segment(segment.text, base + segment.style))
        return Strip(styled).adjust_cell_length(self.size.width, base)

    def numbers(self, values: np.ndarray, number_format: NumberFormat, cell: int) -> list[Segment]:
        """Return some values of a row, (n,), as numbers in cells of one width."""
        segments = []
        for style, run in groupby(values.tolist(), sign_style):
            cells = [f"  {number_format.write(value):>{cell}}" for value in run]
            segments.append(Segment("".join(cells), style))
        return segments

    def heat(self, values: np.ndarray, limit: float, width: int) -> list[Segment]:
        """Return a row, (D,), as colours from -limit to limit, or as characters without colour.

        Columns that share a cell are shown as their mean.
        """
        fit = Fit.of(len(values), width)
        averages = means(values[None], fit.columns_per_bin)
        console = self.app.console
        if self.app.no_color:
            console = Console(color_system=None)
        line = strip(averages, ColorScale(limit), console, fit.cells_per_bin)
        segments = []
        for text, style, _ in line.render(console):
            segments.append(Segment(text, _by_value(style)))
        return segments


def _by_value(style: Style | None) -> Style | None:
    """Return a style whose background is given by its value: textual has shades for names."""
    if style is None or style.bgcolor is None:
        return style
    return style + Style(bgcolor=Color.from_triplet(style.bgcolor.get_truecolor()))
