"""The kinds of parts that a page consists of, and what is chosen by kind: a bare page, a line of suggestions.

A page is what a result yields for rich: titles, tables, pictures, notes and plain texts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.segment import Segment
from rich.text import Text

from embcli.page.colors import STYLES
from embcli.wording import in_line

if TYPE_CHECKING:
    import numpy as np
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.style import Style

    from embcli.selection import Excerpt

_FEWEST = 3  # lines of a page that is cut
_OTHER_LINES, _FEWEST_ROWS = 12, 6


def rows_that_fit(options: ConsoleOptions, elsewhere: int) -> int:
    """Return how many rows a long table shows: on a terminal those that leave room for the other parts of a page."""
    return (
        max(options.max_height - _OTHER_LINES, _FEWEST_ROWS) if options.is_terminal else elsewhere
    )


def safe_text(text: object, style: str | Style = "") -> Text:
    """Return a text from anywhere as rich's Text, made safe for one line; a style can be a name in STYLES."""
    return Text(in_line(str(text)), STYLES.get(style, style) if isinstance(style, str) else style)


class Title(Text):
    """The title of a page, or of a table on it."""


def title(text: str) -> Title:
    return Title(in_line(text), STYLES["strong"])


class Note(Text):
    """A remark on a page; `parameters` of the verb change what it is about."""

    def __init__(self, text: str, *parameters: str, style: str = "") -> None:
        super().__init__(in_line(text), STYLES.get(style, style))
        self.parameters = parameters


class LeftOut(Note):
    """The note on what a page leaves out; its parameters show it."""


def left_out(*parts: str, parameters: Sequence[str] = ()) -> LeftOut | None:
    """Return the note on what is not shown, `Left out: row 3 (1 of 9).`, or None for nothing."""
    missing = [part for part in parts if part]
    return LeftOut(f"Left out: {' and '.join(missing)}.", *parameters) if missing else None


def omission(
    excerpt: Excerpt, what: str, numbers: np.ndarray | None = None, plural: str = ""
) -> str:
    """Return in words what an excerpt leaves out, `columns 3 to 252 (250 of 256)`, or "".

    `numbers` are the numbers of all places, by default counted from 0. `plural` is the plural of
    `what` if that does not end in s.
    """
    if not excerpt.left_out:
        return ""
    import numpy as np

    if numbers is None:
        numbers = np.arange(excerpt.total)
    hidden = numbers[excerpt.head : excerpt.total - excerpt.tail]
    share = f"({excerpt.left_out:,} of {excerpt.total:,})"
    if len(hidden) == 1:
        return f"{what} {hidden[0]} {share}"
    things = plural or f"{what}s"
    are_consecutive = (np.diff(hidden) == 1).all()
    if are_consecutive:
        return f"{things} {hidden[0]} to {hidden[-1]} {share}"
    return f"{things} {share}"


@dataclass(frozen=True, eq=False)
class Hint:
    """Parameters that show more of what a page shows in short; it is not seen itself."""

    parameters: tuple[str, ...]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return ()


class Composite:
    """A renderable of our own that yields parts, among them notes."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class BarePage:
    """The titles, tables, pictures and drawings of a page; a page of words alone is whole."""

    page: Any

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = [*self.page.__rich_console__(console, options)]
        figures = [
            place for place, part in enumerate(parts) if not isinstance(part, str | Text | Hint)
        ]
        if not figures:
            yield from parts
            return
        for part in parts[: figures[-1] + 1]:
            if isinstance(part, Title) or not isinstance(part, Text):
                yield part


@dataclass(frozen=True, eq=False)
class SuggestingPage:
    """A page, and below it a line that a function makes of the notes on the page."""

    page: Any
    suggest: Callable[[Sequence[Note | Hint]], str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        notes: list[Note | Hint] = []
        for part in self.page.__rich_console__(console, options):
            # A composite yields parts of its own.
            parts = (
                part.__rich_console__(console, options) if isinstance(part, Composite) else [part]
            )
            for each in parts:
                if isinstance(each, Note | Hint):
                    notes.append(each)
                yield each
        line = self.suggest(notes)
        if line:
            yield safe_text(line, "dim")


@dataclass(frozen=True, eq=False)
class CutPage:
    """A result's page in the lines that others leave of a height; a line says that more were cut off."""

    page: RenderableType
    others: Sequence[RenderableType]
    height: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = max(self.height - len(console.render_lines(Group(*self.others), options)), _FEWEST)
        within = options.update(
            height=room + _OTHER_LINES // 2
        ).reset_height()  # the others are around it
        lines = console.render_lines(self.page, within, pad=False)
        kept = lines if len(lines) <= room else lines[: room - 1]
        for line in kept:
            yield from line
            yield Segment.line()
        if len(kept) < len(lines):
            more = safe_text(
                f"… {len(lines) - len(kept):,} more lines; the command alone prints them"
            )
            more.no_wrap = True
            yield more


@dataclass(frozen=True, eq=False)
class Sheets:
    """Pages one after another; as HTML each begins a sheet of paper, unless the one before has room for it."""

    sheets: Sequence[RenderableType]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for place, sheet in enumerate(self.sheets):
            if place:
                yield ""
            yield sheet
