"""The kinds of parts that a page consists of, and pages that choose among parts by their kinds.

A page is what a result yields for rich: titles, tables, pictures, notes and plain texts. Notes know
which parameters change what they are about, so that nothing printed is read back.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.constrain import Constrain
from rich.measure import Measurement
from rich.segment import Segment
from rich.style import Style
from rich.table import Table
from rich.text import Text

from embcli.names import Paper
from embcli.page.colors import STYLES
from embcli.page.medium import medium_of
from embcli.selection import Excerpt
from embcli.wording import in_line

_NARROWEST = 36  # cells of a product beside a factor: its title, or an ID and some numbers
_OTHER_LINES = 12  # lines of a page beside its longest table


def rows_that_fit(
    options: ConsoleOptions, rows_elsewhere: int, other_lines: int = _OTHER_LINES
) -> int:
    """Return how many rows a long table shows.

    On a terminal those are the rows that leave room for the other lines of a page.
    """
    fewest_rows = 6
    if options.is_terminal:
        return max(options.max_height - other_lines, fewest_rows)
    return rows_elsewhere


def safe_text(text: object, style: str | Style = "") -> Text:
    """Return a text from anywhere as rich's Text, made safe for one line.

    A style can be a name in STYLES.
    """
    if isinstance(style, str):
        style = STYLES.get(style, style)
    return Text(in_line(str(text)), style)


class Title(Text):
    """The title of a page, or of a table on it."""


class TypedCommand(Text):
    """A line of a command as it is typed; a document sets it as code."""

    def __init__(self, line: str) -> None:
        super().__init__(in_line(line), STYLES["accent"])


def title(text: str) -> Title:
    return Title(in_line(text), STYLES["strong"])


class Note(Text):
    """A remark on a page, with the parameters of the verb that change what it is about."""

    leaves_out = False  # whether it says that the page leaves something out

    def __init__(self, text: str, *parameters: str, style: str = "dim") -> None:
        super().__init__(in_line(text), STYLES.get(style, style))
        self.parameters = parameters


class Answer(Note):
    """The answer to the question of a verb, which a bare page has too."""


class LeftOut(Note):
    """The note on what a page leaves out, with the parameters that show it."""

    leaves_out = True


def left_out(*parts: str, parameters: Sequence[str] = ()) -> Iterator[LeftOut]:
    """Yield the note on what is not shown, `Left out: row 3 (1 of 9).`, or nothing."""
    missing = " and ".join(filter(None, parts))
    if missing:
        yield LeftOut(f"Left out: {missing}.", *parameters)


def omitted(*parts: str, parameters: Sequence[str] = ()) -> RenderResult:
    """Yield a blank line and the note on what is not shown, or nothing."""
    for note in left_out(*parts, parameters=parameters):
        yield ""
        yield note


def omission(excerpt: Excerpt, what: str, numbers: np.ndarray | None = None, first: int = 0) -> str:
    """Return in words what an excerpt leaves out, `columns 3 to 252 (250 of 256)`, or "".

    `numbers` are the numbers of all places, by default counted from `first`.
    """
    if not excerpt.left_out:
        return ""
    if numbers is None:
        numbers = np.arange(first, first + excerpt.total)
    hidden = numbers[excerpt.leading : excerpt.total - excerpt.trailing]
    share = f"({excerpt.left_out:,} of {excerpt.total:,})"
    if len(hidden) == 1:
        return f"{what} {hidden[0]} {share}"
    are_consecutive = (np.diff(hidden) == 1).all()
    if are_consecutive:
        return f"{what}s {hidden[0]} to {hidden[-1]} {share}"
    return f"{what}s {share}"


@dataclass(frozen=True, eq=False)
class Drawing:
    """Lines whose characters are aligned with those below them, so that they are never wrapped."""

    lines: Sequence[Text]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            line.no_wrap = True
            line.overflow = "ignore" if medium_of(console).is_file else "crop"
            yield line

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = max(line.cell_len for line in self.lines)
        return Measurement(width, width)


@dataclass(frozen=True, eq=False)
class Hint:
    """Names of parameters that would show more; it is no part that is seen on the page."""

    parameters: Sequence[str]
    leaves_out: bool = False  # whether the page leaves out what they would show

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return ()


class Composite:
    """A part of a page that consists of parts, as a matrix does: its table, and notes below it."""

    __rich_console__: Any


@dataclass(frozen=True)
class RuledLine(Composite):
    """A line to write on by hand, after some words."""

    words: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield safe_text(f"{self.words} {'_' * 40}".strip())


def parts_of(page: Any, console: Console, options: ConsoleOptions) -> RenderResult:
    """Yield the parts of a page, and those of its composites."""
    for part in page.__rich_console__(console, options):
        if isinstance(part, Composite):
            yield from part.__rich_console__(console, options)
        else:
            yield part


class SideBySide(Table):
    """Blocks beside each other, in a row of a table."""


@dataclass(frozen=True, eq=False)
class Flow(Composite):
    """Blocks of parts: as many side by side as fit, the others below them.

    On a terminal and on a slide, which have few lines, blocks that can be narrower have equal
    shares of the width, and of what is left, if all can be beside each other then.
    """

    blocks: Sequence[Sequence[RenderableType]]
    gap: int = 3  # cells between blocks

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        rows = self._rows(console, options)
        for place, row in enumerate(rows):
            if place:
                yield ""
            if len(row) == 1:
                yield from row[0][0].renderables
                continue
            table = SideBySide.grid(padding=(0, self.gap))
            table.add_row(*(Constrain(*block) for block in row))
            table.width = Measurement.get(console, options, table).maximum
            yield table
            for part in chain.from_iterable(group.renderables for group, _ in row):
                if isinstance(part, Note | Hint):
                    yield Hint(part.parameters, part.leaves_out)

    def _rows(self, console: Console, options: ConsoleOptions) -> list[list[tuple[Group, int]]]:
        """Return the blocks that are side by side, each with its width, in rows."""
        groups = [Group(*block) for block in self.blocks]
        sizes = [Measurement.get(console, options, group) for group in groups]
        cells = options.max_width + self.gap
        least = sum(size.minimum + self.gap for size in sizes)
        most = sum(size.maximum + self.gap for size in sizes)
        rows: list[list[tuple[Group, int]]] = []
        room = 0
        has_shares = options.is_terminal and least <= cells < most
        for place, (narrowest, width) in enumerate(sizes):
            if has_shares:
                share = cells // (len(sizes) - place) - self.gap
                width = min(width, max(narrowest, share))
                cells -= width + self.gap
            if width > room:
                rows.append([])
                room = options.max_width
            room -= width + self.gap
            parts = parts_of(groups[place], console, options.update(max_width=width))
            rows[-1].append((Group(*parts), width))  # type: ignore[arg-type]
        return rows


@dataclass(frozen=True, eq=False)
class Product(Flow):
    """The blocks of two matrices and their product, as one multiplies on paper.

    The right factor is above the product, which has its columns, and the left factor beside the
    product, which has its rows. Without room for some numbers there, they are a flow.
    """

    def _rows(self, console: Console, options: ConsoleOptions) -> list[list[tuple[Group, int]]]:
        left, right, product = self.blocks
        width = Measurement.get(console, options, Group(*left)).maximum
        room = options.max_width - width - self.gap
        if room < _NARROWEST:
            return super()._rows(console, options)
        rows = []
        for beside, block in (([" " * width], right), (left, product)):
            parts = parts_of(Group(*block), console, options.update(max_width=room))
            blocks = [(Group(*beside), width), (Group(*parts), room)]  # type: ignore[arg-type]
            rows.append(blocks)
        return rows


@dataclass(frozen=True, eq=False)
class BarePage:
    """A page without remarks: its titles, tables, pictures, drawings, answers, what it leaves out.

    It ends after the last of them, titles not counted. A page that has none is shown whole.
    """

    page: Any

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        parts = list(self.page.__rich_console__(console, options))
        end = 0  # after the last figure or answer
        for number, part in enumerate(parts, 1):
            if isinstance(part, Answer | LeftOut) or not isinstance(part, str | Text | Hint):
                end = number
        if not end:
            yield from parts
        for part in parts[:end]:
            if isinstance(part, Title | Answer | LeftOut) or not isinstance(part, Text):
                yield part


@dataclass(frozen=True, eq=False)
class SuggestingPage:
    """A page, and below it a line that a function makes of the notes on the page."""

    page: Any
    suggest: Callable[[Sequence[Note | Hint]], str]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        notes = []
        for part in parts_of(self.page, console, options):
            if isinstance(part, Note | Hint):
                notes.append(part)
            yield part
        line = self.suggest(notes)
        if line:
            yield safe_text(line, "dim")


@dataclass(frozen=True, eq=False)
class CutPage:
    """A page, cut to the lines that others leave of a height; a line says how many are cut.

    The cut is in the middle: its first lines say what it is, its last lines what it comes to.
    """

    page: Any
    others: Sequence[RenderableType]
    height: int

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        fewest_lines = 3
        lines_of_others = console.render_lines(Group(*self.others), options)
        room = max(self.height - len(lines_of_others), fewest_lines)
        height = room + _OTHER_LINES
        for _ in range(2):  # Then it is known how many lines the page has beside its table.
            page_options = options.update(height=height).reset_height()
            pieces = []  # lines, each alone, except those of a drawing
            for part in parts_of(self.page, console, page_options):
                lines = console.render_lines(part, page_options, pad=False)  # type: ignore[arg-type]
                is_whole = isinstance(part, Drawing | SideBySide)
                pieces += [lines] if is_whole else [[line] for line in lines]
            height -= max(sum(map(len, pieces)) - room, 0)

        sizes = deque(map(len, pieces))
        if sum(sizes) > room:
            room -= 1  # for the line that says how many are cut
            place = 0
            while min(sizes[0], sizes[-1]) <= room:
                if sizes[0] <= room:
                    room -= sizes.popleft()
                    place += 1
                if sizes[-1] <= room:
                    room -= sizes.pop()
            more = safe_text(f"… {sum(sizes):,} more lines; the command alone prints them")
            more.no_wrap = True
            pieces[place : place + len(sizes)] = [console.render_lines(more, options, pad=False)]
        for line in chain.from_iterable(pieces):
            yield from line
            yield Segment.line()


@dataclass(frozen=True, eq=False)
class Sheets:
    """Pages one after another, each with its parts.

    In HTML each text is set as prose. A printer lets pages follow each other: it breaks one only
    below a result, before the words about it. The page that is named to begin a new sheet of paper
    does; its title is a title of the document, too.
    """

    sheets: Sequence[Sequence[RenderableType]]
    heading: str  # the title of a document
    new_paper: int | None = None  # the page that begins a new sheet of paper
    paper: Paper = "a4"

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for place, sheet in enumerate(self.sheets):
            if place:
                yield ""
            yield Group(*sheet)
