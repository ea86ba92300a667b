"""What a page can hold, whatever it is put on: titles, lines, tables, grids of numbers, strips and pictures of colours.

Views speak only this. A kind of page says how a title, a line, a table and a colour bar look on it: that of a
`terminal`; those of `markup`; and those `drawn` for a file (`svg`, `html`, and `picture`, which is PNG), which show
what a terminal would. What is the same on all of them stands here: in `layout` which columns fit and how numbers are
written, in `heat` which colours stand for them; and that no text gets on a page that is not safe to print.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.page import heat, layout
from embcli.page.heat import Fit, Scale, Squares, Strip
from embcli.page.layout import (
    BYTE_IN_HEX,
    LEAST_TOKEN,
    TOKEN_TONES,
    Bar,
    Block,
    Cell,
    Column,
    Columns,
    Excerpt,
    Numbers,
    Tone,
    Word,
)
from embcli.safe import in_line

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from embcli.names import Theme

__all__ = [
    "BYTE_IN_HEX",
    "LEAST_TOKEN",
    "TOKEN_TONES",
    "Bar",
    "Block",
    "Column",
    "Columns",
    "Excerpt",
    "Numbers",
    "Page",
    "Paper",
    "Tone",
    "Word",
]

NARROWEST = 40
_PIPE_LINES = 40  # that a picture has room in, where there is no screen
_FRAME = 9  # lines of a screen around a picture
_LIMIT_DIGITS = 4  # of the end of a scale, at least


@dataclass(frozen=True, eq=False)
class Paper:
    """What a page is put on: so many cells wide; on a screen so many lines high (a pipe has no screen)."""

    width: int
    screen: int | None = None  # lines
    color: bool = False
    precision: int = 4  # decimals
    heat: bool = False  # whether matrices are strips of colours in place of numbers
    scale: float | None = None  # the largest number of a strip; None for that of its matrix
    theme: Theme = "light"  # of a picture

    @property
    def lines(self) -> int:
        """How many lines a picture has room in, with all that is around it."""
        return self.screen or _PIPE_LINES


class Page(ABC):
    """A page that a view writes from top to bottom; its content is there when all of it is written."""

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.width = max(paper.width, NARROWEST)
        self._parts: list[str] = []

    def title(self, text: str) -> None:
        """Put a heading on the page."""
        self._parts.append(self._title(self._safe(text)))

    def line(self, *words: str | Word) -> None:
        """Put a line on the page, made of words with a tone each; without words it is blank."""
        self._parts.append(self._line([self._safe_word(word) for word in words]))

    def table(self, columns: Columns, gaps: Sequence[int] = (), ruled: bool = True) -> None:
        """Put a table on the page. Columns that may be shortened are, where it is too wide.

        `gaps` are the rows in front of which others are left out, which a row of dots tells. Without a rule a table
        stands close, as terms of a sum do.
        """
        safe = [self._safe_column(each) for each in columns]
        self._parts.append(self._table(layout.fitted(safe, self.width), gaps, ruled))

    def grid(
        self,
        labels: Sequence[Column],
        blocks: Sequence[Block],
        numbers: np.ndarray,
        gaps: Sequence[int] = (),
        after: Sequence[Column] = (),
        tones: Sequence[Tone] = (),
        every: bool = False,
    ) -> Excerpt:
        """Put matrices side by side in one table, with labels before and after; return which of their columns it shows.

        All blocks show the same columns, whose numbers are `numbers`, (columns,) int64. No number is cut: columns in
        the middle are left out where the page is too narrow; where every column is wanted they go on in further tables.
        `tones` are those of the rows, where they are not coloured by their numbers. On a page of heat all of it is
        `strips`.
        """
        if self.paper.heat:
            return self.strips(labels, blocks, numbers, gaps, after)
        written = self.numbers(blocks)
        around = [*labels, *after]
        if not every or layout.fits(self.width, written, around, len(blocks), numbers):
            return self._put_grid(written, labels, blocks, numbers, gaps, after, tones)
        for place, places in enumerate(layout.parts(self.width, written, around, len(blocks), numbers)):
            if place:
                self.line()
            part = [replace(block, values=block.values[:, places]) for block in blocks]
            self._put_grid(written, labels, part, numbers[places], gaps, after, tones)
        return Excerpt(len(numbers), 0, len(numbers))

    def _put_grid(
        self,
        written: Numbers,
        labels: Sequence[Column],
        blocks: Sequence[Block],
        numbers: np.ndarray,
        gaps: Sequence[int],
        after: Sequence[Column],
        tones: Sequence[Tone],
    ) -> Excerpt:
        columns, shown = layout.grid(self.width, written, labels, blocks, numbers, after, tones)
        self._parts.append(self._table([self._safe_column(each) for each in columns], gaps, True))
        return shown

    def strips(
        self,
        labels: Sequence[Column],
        blocks: Sequence[Block],
        numbers: np.ndarray,
        gaps: Sequence[int] = (),
        after: Sequence[Column] = (),
        signed: bool = True,
        below: Sequence[str] = (),
    ) -> Excerpt:
        """Put matrices on the page as strips of colours, a row each, with labels before and after, and a colour bar.

        All their columns, which have these numbers, (columns,) int64, are there: in bins, where there is no room for
        them otherwise. Numbers that are not `signed` are sizes, from 0 on. `below` are marks of the columns, one
        character or none each, that stand below them where all columns have room.
        """
        kept, room = layout.beside(self.width, labels, after, len(blocks), heat.LEAST)
        fit = Fit.of(len(numbers), room, self._halves)
        shown = [heat.means(block.values, fit.per) for block in blocks]
        scale = Scale.of(shown, self.paper.scale, signed)
        columns: Columns = [*kept]
        for block, values in zip(blocks, shown, strict=True):
            cells: list[Cell] = [*fit.strips(values, scale)]
            if below:
                cells.append(fit.marks(below))
            columns += [Bar(block.title), Column(_axis(numbers, fit.width), cells, "left")]
        columns += after
        if below:
            length = max(len(each.cells) for each in columns if isinstance(each, Column))
            columns = [each.filled(length) if isinstance(each, Column) else each for each in columns]
        self._parts.append(self._table([self._safe_column(each) for each in columns], gaps, True))
        last = f" (last: {len(numbers) % fit.per})" if len(numbers) % fit.per else ""
        self._put_scale(scale, shown, f"the mean of {fit.per} columns{last}" if fit.per > 1 else "")
        return Excerpt(len(numbers), 0, len(numbers))

    def picture(self, label: str, rows: np.ndarray, columns: np.ndarray, means: Callable[[int], np.ndarray]) -> None:
        """Put a matrix on the page as a picture, in which each number is as high as it is wide, with a colour bar.

        `rows` and `columns` are their numbers, int64; `means` returns the means of squares of so many rows and as many
        columns, for where there is no room for all numbers.
        """
        lines = max(self.paper.lines - _FRAME, 1)
        _, room = layout.beside(self.width, [Column(label, [str(rows.max(initial=0))])], (), 1, heat.LEAST)
        squares = Squares.of((len(rows), len(columns)), lines, room, self._halves)
        values = means(squares.per)
        scale = Scale.of([values], self.paper.scale)
        strips = squares.strips(values, scale)
        begin = ["" if row is None else str(rows[row]) for row in squares.rows(len(strips))]
        picture = Column(_axis(columns, max((strip.width for strip in strips), default=0)), strips, "left")
        self._parts.append(self._table([Column(label, begin), Bar(), picture], (), True))
        per = squares.per
        fewer = " (fewer at the ends)" if len(rows) % per or len(columns) % per else ""
        self._put_scale(scale, [values], f"the mean of {per} x {per} numbers{fewer}" if per > 1 else "")

    def _put_scale(self, scale: Scale, shown: Sequence[np.ndarray], mean: str) -> None:
        """Put a colour bar on the page, and what there is to say of the colours above it."""
        limit = f"{scale.limit:.{max(self.paper.precision, _LIMIT_DIGITS)}g}"
        low = f"-{limit}" if scale.signed and scale.limit else "0"
        room = self.width - len(f"{low}  {limit}")
        bar = Strip(scale.bar(room * self._per_cell)[None], scale, 1, "row" if self._halves else "no")
        words = self._said(scale, shown, mean, f"{'±' if scale.signed else ''}{limit}")
        beside = bool(words) and bar.width + len(f"  {words}") <= room
        self.line()
        self._parts.append(self._scale(low, bar, f"{limit}  {words}" if beside else limit))
        if words and not beside:
            self.line(words)

    def _said(self, scale: Scale, shown: Sequence[np.ndarray], mean: str, limit: str) -> str:
        """Return in words what colours stand for, how many numbers are beyond the scale, and which are none."""
        words = [f"each {'colour' if self._halves else 'character'}: {mean}"] if mean else []
        beyond = sum(map(scale.beyond, shown))
        if beyond:
            words.append(f"{beyond:,} beyond {limit}, shown as that")
        for mark, name, which in ((heat.NAN_MARK, "NaN", np.isnan), (heat.INFINITE_MARK, "infinite", np.isinf)):
            count = sum(int(which(each).sum()) for each in shown)
            if count:
                words.append(f"{mark}: {count:,} {name}")
        return "; ".join(words)

    def room(self, labels: Sequence[Column], after: Sequence[Column] = ()) -> int:
        """Return how many numbers there is room for in a strip beside these columns."""
        _, cells = layout.beside(self.width, labels, after, 1, heat.LEAST)
        return cells * self._per_cell

    def holds(self, columns: Columns) -> bool:
        """Return whether a table of these columns fits on the page, shortened as far as they may be."""
        least = [column.shortest if isinstance(column, Column) else column for column in columns]
        return layout.width(least) <= self.width

    def holds_grid(self, labels: Sequence[Column], blocks: Sequence[Block], numbers: np.ndarray) -> bool:
        """Return whether a grid fits with all columns of its blocks, which have these numbers."""
        if self.paper.heat:
            least = max(-(-len(numbers) // self._per_cell), heat.LEAST)
            return layout.beside(self.width, labels, (), len(blocks), least)[1] >= least
        return layout.fits(self.width, self.numbers(blocks), labels, len(blocks), numbers)

    def numbers(self, blocks: Sequence[Block]) -> Numbers:
        """Return how the numbers of some matrices are written on this page, all alike."""
        return Numbers(blocks, self.paper.precision)

    def part(self) -> Page:
        """Return an empty page like this one, for a part that may be added."""
        return type(self)(self.paper)

    def add(self, part: Page) -> None:
        """Put all of another page on this one."""
        self._parts += part._parts

    def _safe(self, text: str) -> str:
        """Return a text as it can stand on this page, in a line of it."""
        return in_line(text)

    def _safe_word(self, word: str | Word) -> Word:
        return Word(self._safe(word)) if isinstance(word, str) else replace(word, text=self._safe(word.text))

    def _safe_cell(self, cell: Cell) -> Word | Strip:
        return cell if isinstance(cell, Strip) else self._safe_word(cell)

    def _safe_column(self, column: Column | Bar) -> Column | Bar:
        if isinstance(column, Bar):
            return replace(column, title=self._safe(column.title))
        return replace(column, header=self._safe(column.header), cells=[*map(self._safe_cell, column.cells)])

    @property
    def lines(self) -> int:
        """How many lines are on the page."""
        return sum(part.count("\n") for part in self._parts)

    def content(self) -> bytes:
        """Return the page as bytes."""
        return "".join(self._parts).encode("utf-8", "backslashreplace")

    @abstractmethod
    def _title(self, text: str) -> str: ...

    @abstractmethod
    def _line(self, words: list[Word]) -> str: ...

    @abstractmethod
    def _table(self, columns: Columns, gaps: Sequence[int], ruled: bool) -> str: ...

    @property
    @abstractmethod
    def _halves(self) -> bool:
        """Whether cells have colours, two each."""

    @property
    def _per_cell(self) -> int:
        """How many numbers have room in a cell of a strip."""
        return 2 if self._halves else 1

    @abstractmethod
    def _scale(self, low: str, bar: Strip, high: str) -> str: ...


def _axis(numbers: np.ndarray, width: int) -> str:
    """Return the header of strips: the numbers of their first and last column at both ends."""
    if not len(numbers):
        return ""
    first, last = (str(number) for number in numbers[[0, -1]])
    return f"{first}{last:>{max(width - len(first), len(last) + 1)}}" if len(numbers) > 1 else first
