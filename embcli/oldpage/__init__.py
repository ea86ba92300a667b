"""What a page holds, whatever draws it: titles, lines, tables, grids of numbers, strips and pictures of colours.

Views know only this. A page collects lines and tables, whose text it makes safe to print; `layout` decides which
columns fit and how numbers are written, `heat` which colours stand for numbers. Each kind of page draws the lines and
tables in its own way: `lines` lays them out in cells for `terminal`, `svg`, `html` and `png`; `markup` makes blocks of
them for `markdown`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.oldpage import heat
from embcli.oldpage.heat import Fit, Lines, Scale, Strip
from embcli.oldpage.layout import (
    BYTE_IN_HEX,
    LEAST_TOKEN,
    TOKEN_TONES,
    Bar,
    Block,
    Column,
    Columns,
    Grid,
    NumberFormat,
    Raster,
    Tone,
    Word,
    beside,
    fitted,
    width,
)
from embcli.safe import in_line
from embcli.selection import Excerpt
from embcli.words import counted

if TYPE_CHECKING:
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
    "NumberFormat",
    "Page",
    "Paper",
    "Raster",
    "Tone",
    "Word",
]

NARROWEST = 40
_LINES_WITHOUT_SCREEN = 40  # of a picture in a pipe or a file
_AROUND = 4  # lines around a picture: its axis, a rule, and a colour bar below a blank line
_LIMIT_DIGITS = 4  # of the ends of a scale, at least


@dataclass(frozen=True, eq=False)
class Paper:
    """What a page is put on, and how its numbers look."""

    width: int  # cells
    screen: int | None = None  # lines of a terminal; None for a pipe or a file
    color: bool = False
    precision: int = 4  # decimals
    heat: bool = False  # whether matrices are strips of colours instead of numbers
    scale: float | None = None  # the largest number of a strip; None for that of its matrix
    theme: Theme = "light"  # of a picture
    encoding: str = "utf-8"  # of a terminal

    @property
    def lines(self) -> int:
        """How many lines a picture can take, with everything around it."""
        return self.screen or _LINES_WITHOUT_SCREEN


@dataclass(frozen=True, eq=False)
class Line:
    """A line of a page: words, or a colour bar between two numbers."""

    cells: Sequence[Word | Strip]


@dataclass(frozen=True, eq=False)
class Table:
    """A table of a page; `gaps` are the rows before which others are omitted."""

    columns: Columns
    gaps: Sequence[int]
    ruled: bool


class Page(ABC):
    """A page that a view writes from top to bottom."""

    colors = 0  # the number of colours on the scale of strips; 0 if strips are made of characters

    def __init__(self, paper: Paper) -> None:
        self.paper = paper
        self.width = max(paper.width, NARROWEST)
        self.items: list[Line | Table] = []

    def title(self, text: str) -> None:
        """Put a heading on the page."""
        self.line(Word(text, "strong"))

    def line(self, *words: str | Word) -> None:
        """Put a line on the page; without words it is blank."""
        self.items.append(Line([self._safe_word(Word(word) if isinstance(word, str) else word) for word in words]))

    def drawing(self, lines: Sequence[Sequence[Word]]) -> None:
        """Put lines on the page whose characters are aligned with those below them."""
        for words in lines:
            self.line(*words)

    def table(self, columns: Columns, gaps: Sequence[int] = (), ruled: bool = True) -> None:
        """Put a table on the page; its columns are shortened, where allowed, if it is too wide.

        A row of dots stands before each row in `gaps`. Without a rule, columns are one cell apart.
        """
        safe = [self._safe_column(column) for column in columns]
        self.items.append(Table(fitted(safe, self.width), gaps, ruled))

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

        All blocks show the same columns, whose numbers are `numbers`, (columns,) int64. Columns in the middle are
        omitted if the page is too narrow; with `every` they continue in further tables. `tones` are those of the rows.
        With heat the matrices become `strips`.
        """
        if self.paper.heat:
            return self.strips(labels, blocks, numbers, gaps, after)
        grid = Grid(labels, blocks, numbers, self._format(blocks), after, tones)
        if not every or grid.fits(self.width):
            columns, shown = grid.columns(self.width)
            self.table(columns, gaps)
            return shown
        for place, part in enumerate(grid.parts(self.width)):
            if place:
                self.line()
            self.table(part.columns(self.width)[0], gaps)
        return Excerpt.first(len(numbers), len(numbers))

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
        """Put matrices on the page as strips of colours, one per row, with labels before and after, and a colour bar.

        Strips show all columns, whose numbers are `numbers`, (columns,) int64; in bins if there are too many. Numbers
        that are not `signed` are sizes, from 0 up. `below` are marks under the columns, one character or none each.
        """
        shown_labels, cells = beside(self.width, labels, after, len(blocks))
        fit = Fit.of(len(numbers), cells, self.colors > 0, max((block.apart for block in blocks), default=1))
        shown = [heat.means(block.values, fit.per, fit.apart) for block in blocks]
        scale = Scale.of(shown, self.paper.scale, signed)
        marks = [fit.marks(below)] if below else []
        blank = [""] * len(marks)
        columns: Columns = [replace(label, cells=[*label.cells, *blank]) for label in shown_labels]
        for block, values in zip(blocks, shown, strict=True):
            strips = [*fit.strips(values, scale), *marks]
            columns += [Bar(block.title), Column(_axis(numbers, fit.width), strips, "left")]
        columns += [replace(column, cells=[*column.cells, *blank]) for column in after]
        self.table(columns, gaps)
        self._put_scale(scale, shown, _mean(1, fit.per, (1, len(numbers)), fit.apart))
        return Excerpt.first(len(numbers), len(numbers))

    def picture(self, raster: Raster, lines: int, square: bool = False) -> None:
        """Put a matrix on the page as a picture of all its rows, with a colour bar, in at most `lines` lines.

        What does not fit is averaged. With `square` each number is as high as it is wide.
        """
        for most in (lines, lines - 1):  # the remark about means may need a line of its own
            part = self.part()
            part._put_picture(raster, max(most - _AROUND, 1), square)
            if part.lines <= lines:
                break
        self.add(part)

    def _put_picture(self, raster: Raster, lines: int, square: bool) -> None:
        rows, columns, colored = raster.rows, raster.columns, self.colors > 0
        shape = len(rows), len(columns)
        _, cells = beside(self.width, [Column(raster.label, [str(rows.max(initial=0))])], ())
        fit = Lines.of(shape, lines, cells, colored, raster.apart)
        if square:
            fit = Lines.squares(shape, lines, cells, colored)
        values = heat.means(heat.row_means(raster.values, rows, fit.per), fit.columns.per, raster.apart)
        scale = Scale.of([values], self.paper.scale)
        strips = fit.strips(values, scale)
        begin = ["" if row is None else str(rows[row]) for row in fit.rows(len(strips))]
        axis = _axis(columns, max((strip.width for strip in strips), default=0))
        self.table([Column(raster.label, begin), Bar(), Column(axis, strips, "left")])
        self._put_scale(scale, [values], _mean(fit.per, fit.columns.per, shape, raster.apart))

    def _put_scale(self, scale: Scale, shown: Sequence[np.ndarray], mean: str) -> None:
        """Put a colour bar on the page, with remarks about the colours above it, which are each a mean of numbers."""
        limit = f"{scale.limit:.{max(self.paper.precision, _LIMIT_DIGITS)}g}"
        low = f"-{limit}" if scale.signed and scale.limit else "0"
        available = self.width - len(f"{low}  {limit}")
        numbers = scale.bar(available * self._per_cell)[None]
        bar = Strip(numbers, scale, 1, "row" if self.colors else "no")
        remarks = f"each {'colour' if self.colors else 'character'}: {mean}; " if mean else ""
        if beyond := sum(map(scale.beyond, shown)):
            remarks += f"{beyond:,} beyond {'±' if scale.signed else ''}{limit} (clipped); "
        for mark, name, which in ((heat.NAN_MARK, "NaN", np.isnan), (heat.INFINITE_MARK, "infinite", np.isinf)):
            if count := sum(int(which(values).sum()) for values in shown):
                remarks += f"{mark}: {count:,} {name}; "
        remarks = remarks.removesuffix("; ")
        fits = bar.width + len(f"  {remarks}") <= available
        self.line()
        high = f" {limit}  {remarks}" if remarks and fits else f" {limit}"
        self.items.append(Line([Word(f"{low} "), bar, Word(high)]))
        if remarks and not fits:
            self.line(remarks)

    def strip_numbers(self, labels: Sequence[Column], after: Sequence[Column] = ()) -> int:
        """Return how many numbers a strip beside these columns can show one by one."""
        return beside(self.width, labels, after)[1] * self._per_cell

    def fits_table(self, columns: Columns) -> bool:
        """Return whether a table of these columns, as short as possible, fits on the page."""
        shortest = [column.shortest if isinstance(column, Column) else column for column in columns]
        return width(shortest) <= self.width

    def fits_grid(self, labels: Sequence[Column], blocks: Sequence[Block], numbers: np.ndarray) -> bool:
        """Return whether a grid fits with all columns of its blocks, whose numbers are `numbers`."""
        if self.paper.heat:
            least = max(-(-len(numbers) // self._per_cell), heat.LEAST)
            return beside(self.width, labels, (), len(blocks), least)[1] >= least
        return Grid(labels, blocks, numbers, self._format(blocks)).fits(self.width)

    def numbers(self, *arrays: np.ndarray) -> NumberFormat:
        """Return how this page writes the numbers of some arrays, all alike."""
        return NumberFormat(arrays, self.paper.precision)

    def written(self, values: np.ndarray) -> list[str]:
        """Return the numbers of an array (n,) as this page writes them, all alike."""
        return [*map(self.numbers(values).write, values)]

    def _format(self, blocks: Sequence[Block]) -> NumberFormat:
        return self.numbers(*(block.values for block in blocks))

    def part(self) -> Page:
        """Return an empty page like this one, for a part that may be added."""
        return type(self)(self.paper)

    def add(self, part: Page) -> None:
        """Put everything from another page on this one."""
        self.items += part.items

    @property
    def _per_cell(self) -> int:
        """How many numbers share a cell of a strip."""
        return 2 if self.colors else 1

    def safe(self, text: str) -> str:
        """Return a text as this page can show it within a line."""
        return in_line(text)

    def _safe_word(self, word: Word) -> Word:
        return replace(word, text=self.safe(word.text))

    def _safe_column(self, column: Column | Bar) -> Column | Bar:
        if isinstance(column, Bar):
            return replace(column, title=self.safe(column.title))
        cells = [cell if isinstance(cell, Strip) else self._safe_word(cell) for cell in column.cells]
        return replace(column, header=self.safe(column.header), cells=cells)

    @property
    def lines(self) -> int:
        """How many lines of a screen the page takes; 0 for a document, which has no height limit."""
        return 0

    @abstractmethod
    def content(self) -> bytes:
        """Return the page as bytes."""


def _axis(numbers: np.ndarray, width: int) -> str:
    """Return the header of strips: the numbers of their first and last column at both ends."""
    if not len(numbers):
        return ""
    first, last = (str(number) for number in numbers[[0, -1]])
    return f"{first}{last:>{max(width - len(first), len(last) + 1)}}" if len(numbers) > 1 else first


def _mean(per_rows: int, per_columns: int, shape: tuple[int, int], apart: int) -> str:
    """Return in words which numbers each colour is the mean of; an empty text if it is one number."""
    of_rows = counted(per_rows, "row") if per_rows > 1 else ""
    of_columns = f"{per_columns} {'even or odd ' if apart > 1 else ''}columns" if per_columns > 1 else ""
    if not of_rows and not of_columns:
        return ""
    if not of_rows and apart == 1:
        rest = shape[1] % per_columns
        return f"the mean of {of_columns}{f' (last: {rest})' if rest else ''}"
    fewer = shape[0] % per_rows or any(len(range(kind, shape[1], apart)) % per_columns for kind in range(apart))
    return f"the mean of {' x '.join(filter(None, (of_rows, of_columns)))}{' (fewer at the ends)' if fewer else ''}"
