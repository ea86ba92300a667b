"""What the screens share: a title, the command that prints the same, keys and a prompt; passes in a thread; lines."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from itertools import groupby
from typing import Any, ClassVar, TypeVar

import numpy as np
from rich.cells import cell_len
from rich.color import Color
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
from embcli.page.colors import MARKS, RAMP, STYLES, ColorScale, colors_of, means, sign_style
from embcli.page.matrix import NumberFormat
from embcli.page.strips import Fit
from embcli.wording import in_line

Item = TypeVar("Item")
DIM, STRONG, CURSOR = Style(dim=True), Style(bold=True), Style(bold=True, reverse=True)


def _background(color: Color) -> Style:
    return Style(
        bgcolor=Color.from_triplet(color.get_truecolor())
    )  # for a name, textual has a shade of its own


class Prompt(Input):
    """The line that `:` opens: it is always there, and seen while it has the focus."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "screen.close_prompt", show=False)]


class KeyLine(Footer):
    """Textual's footer, which it builds anew for each focus; as garbage, those of 10 jumps hold up a key for 0.2 s."""

    shown: tuple[Binding, ...] = ()

    def bindings_changed(self, screen: Screen[Any]) -> None:
        """Build the footer anew if it shows other keys; while the prompt is open, it stays as it is."""
        shown = tuple(
            active.binding for active in screen.active_bindings.values() if active.binding.show
        )
        if shown != self.shown and not isinstance(screen.focused, Prompt):
            self.shown = shown
            super().bindings_changed(screen)


class ListTable(DataTable[Text | str], inherit_bindings=False):
    """A list of rows, with keys of less and vi; Enter is the screen's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "cursor_down", tooltip="down", show=False),
        Binding("up,k", "cursor_up", tooltip="up", show=False),
        Binding("pagedown,ctrl+f", "page_down", tooltip="a page down", show=False),
        Binding("pageup,ctrl+b", "page_up", tooltip="a page up", show=False),
        Binding("home", "scroll_top", tooltip="the first line", show=False),
        Binding("end,G", "scroll_bottom", tooltip="the last line", show=False),
    ]


class ExplorerScreen(Screen[int]):
    """A screen; a new one has a title, a body and commands."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority, a field has the focus before the app looks at the next key, which may be typed at once.
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
    body: Callable[[], ComposeResult]
    heading: Callable[[], str]
    commands: Callable[[], list[str]]  # that print what is on the screen

    def __init__(self, matrix: ExploredMatrix) -> None:
        super().__init__()
        self.matrix = matrix

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield from self.body()
        yield Static(id="command", markup=False)
        yield KeyLine(compact=True)
        yield Prompt(placeholder="a row's ID or token, or row,column", compact=True)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        # Textual gives a colon to a field that has the focus, but not a slash, whose Unicode name is solidus.
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

    def tell(self, progress: str = "") -> None:
        if self.query("#title"):  # it is not there yet, or no longer
            title, *parts = [*in_line(self.heading()).split("   "), *filter(None, [progress])]
            for part in parts:  # a number is shown whole or not at all
                title += (
                    f"   {part}" if cell_len(f"{title}   {part}") <= self.size.width - 2 else ""
                )
            self.query_one("#title", Static).update(title, layout=False)
            self.query_one("#command", Static).update(
                f"$ {in_line('; '.join(self.commands()))}", layout=False
            )

    def on_screen_resume(self) -> None:
        self.tell()

    @on(events.Resize)
    def ignore_passed_size(self, event: events.Resize) -> None:
        """Ignore a size that has passed: of two sizes on their way, textual would draw one after the other forever."""
        if event.size != self.app.size:
            event.prevent_default()

    @work(thread=True, exclusive=True)
    def run_passes(
        self, what: str, passes: list[tuple[Callable[[Watch], Any], Callable[[Any], None]]]
    ) -> None:
        """Run passes one after the other in a thread; the screen takes what each returns, or its EmbcliError."""
        worker, told = get_current_worker(), time.monotonic()

        def watched(
            items: Iterable[Item], total: int, size: Callable[[Item], int], /
        ) -> Iterator[Item]:
            nonlocal told
            passed = 0
            for item in items:
                if worker.is_cancelled:
                    raise CancelledError
                yield item
                passed += size(item)
                if time.monotonic() - told > 0.2:  # seconds
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
            with suppress(NoMatches):  # as the app ends, a screen's widgets go before the screen
                take(found)
                self.tell()


def sentence(error: EmbcliError) -> str:
    return "; ".join(in_line(part) for part in (str(error), error.hint) if part)


class Lines(ScrollView, can_focus=True):
    """A list of lines, of which only those on the screen are made; the header stays while they scroll."""

    def moved(self) -> None:
        if isinstance(self.screen, ExplorerScreen):
            self.screen.tell()

    def line(self, *segments: Segment) -> Strip:
        base = self.rich_style
        styled = (
            s if s.style and s.style.bgcolor else Segment(s.text, base + s.style) for s in segments
        )
        return Strip(styled).adjust_cell_length(self.size.width, base)

    def numbers(self, values: np.ndarray, style: NumberFormat, cell: int) -> list[Segment]:
        runs = groupby(values.tolist(), sign_style)
        return [
            Segment("".join(f"  {style.write(each):>{cell}}" for each in same), look)
            for look, same in runs
        ]

    def heat(self, values: np.ndarray, limit: float, width: int) -> list[Segment]:
        """Return a row, (D,), as colours from -limit to limit or as marks; columns that share a cell, as their mean."""
        fit = Fit.of(len(values), width, halves=False)
        colors = () if self.app.no_color else colors_of(self.app.console)
        colors = colors[:: len(colors) // 32 or 1]  # a third of the 97: fewer bytes
        cells = means(values[None], fit.per)[0]
        cells = np.where(np.isfinite(cells), np.clip(cells, -limit, limit), cells)
        steps, segments = ColorScale(limit).levels(cells, len(colors) or len(RAMP)).tolist(), []
        for step, same in groupby(steps):
            mark = MARKS[step] if step < 0 else " " if colors else RAMP[step]
            style = STYLES["bad"] if step < 0 else _background(colors[step]) if colors else None
            segments.append(Segment(mark * (fit.cells * len([*same])), style))
        return segments
