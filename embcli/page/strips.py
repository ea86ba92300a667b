"""Numbers as colours: strips, one per row of a table, or a picture of a whole matrix.

Each has a colour bar. In an SVG picture many numbers share a line and a cell. Without colour each
number is a character, denser for a larger number. `Matrix` yields strips in place of numbers if a
page is to be a heat map.
"""

from __future__ import annotations

import math
import sys
from bisect import bisect
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, pairwise
from typing import NamedTuple

import numpy as np
from rich.color import Color
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.table import Table
from rich.text import Text

from embcli.page.colors import INFINITE, MARKS, NAN, RAMP, ColorScale, colors_of
from embcli.page.medium import medium_of
from embcli.page.parts import Composite
from embcli.page.svg import CELL, CRISP, LINE
from embcli.page.table import GAP, Label, label_versions, ruled
from embcli.wording import in_line

_SHORTEST_STRIP = 16  # cells, below which labels make room
WIDEST = 4  # the most cells of a number
_PICTURE_LINES = 36  # which strips of few rows fill
SLIDE_STRIPS = 12  # lines that they fill on a slide
_LINES_AROUND = 5  # an axis and a rule above a picture; a blank line and a colour bar below
_TICKS = (1, 8, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000)  # steps from one to the next
_MARK = Color.parse("#ffd700")  # of NaN and infinity: the last two places of a list of colours
_MARKED = Style(color=_MARK, bgcolor="#000000", bold=True)
_colored = lru_cache(4096)(Style.from_color)


class Values(NamedTuple):
    """A matrix on a page, with its title."""

    values: np.ndarray  # (n, columns) float32, or whole numbers
    title: str = ""


_FINE = 20  # numbers share a cell, and as many a line, in an SVG picture, which can be enlarged


def numbers_per_cell(console: Console) -> int:
    """Return how many columns can share a cell, and how many rows a line."""
    return _FINE if colors_of(console) and medium_of(console).has_fine_cells else 1


class Shades(Text):
    """A line of colours or, without colour, of characters."""


def strip(values: np.ndarray, scale: ColorScale, console: Console, cells: int = 1) -> Shades:
    """Return numbers, (1, columns), as one line of colours, in some cells each."""
    colors = colors_of(console)
    if not colors:
        levels = scale.levels(values[0], len(RAMP)).repeat(cells)
        characters = [MARKS.get(level) or RAMP[level] for level in levels.tolist()]
        return Shades("".join(characters), no_wrap=True)

    levels = _levels(values[0], scale, colors).repeat(cells)
    text = Shades(no_wrap=True)
    for level, run in groupby(levels.tolist()):
        count = len(list(run))
        if level in MARKS:
            text.append(MARKS[level] * count, _MARKED)
        else:
            text.append(" " * count, _colored(None, colors[level]))
    return text


def fine_strip(
    values: np.ndarray, scale: ColorScale, console: Console, fit: Fit, height: float
) -> Shades:
    """Return numbers, (rows, bins), as a blank line that an SVG picture fills with their colours.

    They are so many pixels high.

    Their paths, one for each colour, are meta data of the line's style.
    """
    colors = colors_of(console)
    names = np.array([color.get_truecolor().hex for color in [*colors, _MARK, _MARK]])
    rows = names[_levels(values, scale, colors)].tolist()
    paths: defaultdict[str, str] = defaultdict(str)  # parts of lines that are 1 wide
    for row_number, row in enumerate(rows):
        for place, color in enumerate(row):
            paths[color] += f"M{place} {row_number}.5h1"
    elements = [f'<path stroke="{color}" d="{path}"/>' for color, path in paths.items()]
    size = f"scale({fit.width * CELL / len(rows[0]):g} {height / fit.rows_per_line:g})"
    svg = f'<g transform="{size}" {CRISP}>{"".join(elements)}</g>'
    return Shades(" " * fit.width, Style.from_meta({"svg": svg}), no_wrap=True)


def _levels(values: np.ndarray, scale: ColorScale, colors: Sequence[Color]) -> np.ndarray:
    """Return the places of numbers among the colours, or the levels of non-finite ones."""
    # Numbers without a sign use the upper half of the colours.
    zero = 0 if scale.least < 0 else len(colors) // 2
    levels = scale.levels(values, len(colors) - zero)
    levels[levels >= 0] += zero
    return levels


class Fit(NamedTuple):
    """How numbers fit into cells: columns are in bins, and bins and rows take cells or share one.

    A bin is of one row.
    """

    bins: int  # in a row
    width: int  # cells of a row
    columns_per_bin: int = 1  # fewer in the last bin
    cells_per_bin: int = 1
    rows_per_line: int = 1
    lines_per_row: int = 1
    row_step: int = 1  # every n-th row is shown

    @classmethod
    def of(cls, columns: int, available: int, columns_per_cell: int = 1) -> Fit:
        """Return how columns fit into the available cells; bins hold one number if possible."""
        columns_per_bin = 1
        if columns > available:
            columns_per_bin = math.ceil(columns / (available * columns_per_cell))
        bins = math.ceil(columns / columns_per_bin)
        cells = _cells(available // max(bins, 1))
        return cls(bins, min(bins * cells, available), columns_per_bin, cells)

    def cell_of(self, column: int) -> int:
        """Return the first cell of a column."""
        return column // self.columns_per_bin * self.width // self.bins


def _cells(number: int) -> int:
    """Return a number of cells, or of lines, that one number may take."""
    return max(min(number, WIDEST), 1)


@dataclass(frozen=True, eq=False)
class Strips(Composite):
    """Matrices as strips of colours, one per row, between labels, and a colour bar below.

    Without room for all columns, every n-th is shown. With `lines` they are a picture of at most
    that many lines, which also shows every n-th row. With `square` each number is as high as it is
    wide, and columns are what rows are.
    """

    labels: Sequence[Label]
    blocks: Sequence[Values]
    numbers: np.ndarray  # (columns,) int64: the numbers of the columns
    gaps: Sequence[int] = ()
    trailing: Sequence[Label] = ()
    precision: int = 4
    lines: int | None = None  # None for a strip of each row
    square: bool = False
    scale: ColorScale | None = None  # None for the scale of the numbers
    alike: Sequence[np.ndarray] = ()  # other numbers, in lines of this height, scale and precision
    sections: Sequence[int] = ()  # rows that have a blank line before them; dots are counted
    most_lines: int = sys.maxsize  # of strips in an SVG picture; more rows share them
    column: str = "column"  # what a column is; "" if the table below says it
    names: Sequence[str] = ()  # of the rows that share a line, and a label, in an SVG picture

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels, cells = self._fit_labels(options.max_width)
        fit = self._fit(console, cells)
        places = np.arange(0, len(self.numbers), fit.columns_per_bin)  # of those that are shown
        if fit.columns_per_bin % 2 == 0 and not self.square:
            # Sines and cosines alternate: bins of as many of both show one and the other in turn.
            places[1:-1:2] += 1
        shown = [block.values[:: fit.row_step, places] for block in self.blocks]
        together = [*shown, *self.alike]
        scale = self.scale or ColorScale.of(together).without_outliers(together)

        yield self._strips(labels, shown, scale, fit, console)
        yield ""
        yield self._bar(shown, scale, fit, console, options.max_width)

    def _fit_labels(self, width: int) -> tuple[list[Label], int]:
        """Return the labels of strips, and the cells that each block has beside them.

        If a strip would be too short to be of use, tokens are shortened, and then omitted.
        """
        count = len(self.blocks)
        for version in label_versions(self.labels):
            label_cells = sum(label.width + GAP for label in [*version, *self.trailing])
            bar_cells = count * (1 + GAP)
            cells = (width + GAP - label_cells - bar_cells) // count - GAP
            if cells >= _SHORTEST_STRIP:
                break
        return version, max(cells, 1)

    def _fit(self, console: Console, available: int) -> Fit:
        """Return how the numbers fit into a block's available cells, and into lines."""
        density = numbers_per_cell(console)
        medium = medium_of(console)
        columns = len(self.numbers)
        rows = max(len(self.blocks[0].values), 1)
        height = rows
        if self.lines is not None:
            height = max(self.lines - _LINES_AROUND, 1)
        elif density > 1 and not (self.sections or self.alike):
            filled = SLIDE_STRIPS if medium.is_slide else _PICTURE_LINES
            height = min(max(filled - len(self.gaps), rows), self.most_lines)

        rows_needed = math.ceil(rows / height)  # in a line
        highest = height // rows if density > 1 else 1
        if self.square:
            # A line is as high as two cells are wide.
            rows_needed = max(rows_needed, math.ceil(2 * columns / available))
            if colors_of(console):  # Characters would only be repeated.
                highest = min(height // rows, available // (2 * columns))
        rows_per_line = min(rows_needed, density)
        row_step = math.ceil(rows_needed / rows_per_line)
        lines_per_row = _cells(highest)

        if self.square:
            bins = math.ceil(columns / row_step)
            width = math.ceil(2 * lines_per_row * bins / rows_per_line)
            fit = Fit(bins, width, row_step, max(width // bins, 1))
        else:
            fit = Fit.of(columns, available, density)
            if medium.is_slide:
                fit = fit._replace(width=min(fit.bins * WIDEST, available))  # parts of cells, too
        return fit._replace(
            rows_per_line=rows_per_line,
            lines_per_row=lines_per_row,
            row_step=row_step,
        )

    def _strips(
        self,
        labels: Sequence[Label],
        shown: Sequence[np.ndarray],
        scale: ColorScale,
        fit: Fit,
        console: Console,
    ) -> Table:
        """Return the table of strips, without the colour bar."""
        starts: list[int] = []  # the first row of each strip
        for first, stop in pairwise([0, *self.gaps, len(shown[0])]):
            starts += range(first, stop, fit.rows_per_line)

        axis = self._axis(fit)
        column = self.labels[0].header if self.square else self.column and f"{self.column}s"
        density = numbers_per_cell(console)
        gaps = (np.searchsorted(starts, self.gaps) * fit.lines_per_row).tolist()
        height = LINE + 0.25
        if self.names:  # Lines are apart.
            height = 0.8 * LINE
        blocks = []
        for block, values in zip(self.blocks, shown, strict=True):
            strips: list[Text] = []
            for start, stop in pairwise([*starts, len(values)]):
                numbers = values[start:stop]
                if density > 1:
                    line = fine_strip(numbers, scale, console, fit, height)
                else:
                    line = strip(numbers, scale, console, fit.cells_per_bin)
                strips += [line] * fit.lines_per_row
            for gap in reversed(gaps):
                strips.insert(gap, Text("⋮", "dim"))
            heading = ": ".join(filter(None, (in_line(block.title), column)))
            blocks.append((Text(f"{heading}\n{axis}" if heading else axis), strips))

        middle = (fit.lines_per_row - 1) // 2  # of the lines of a row

        def at_rows(label: Label) -> Label:
            """Return a label of lines; in a picture each cell is at the middle of its row."""
            rows = [start * fit.row_step for start in starts]
            if self.square and [*label.cells] == [*self.numbers]:
                rows = self._ticks(fit)  # which the columns have, too
            texts = label._replace(cells=[label.cells[row] for row in rows]).texts
            cells = [Text()] * len(starts)
            for row, text in zip(rows, texts, strict=True):
                place = row // fit.row_step
                number = bisect(starts, place) - 1
                rows_above = place - starts[number] + max(len(self.names), 1) / 2
                lines_above = rows_above * fit.lines_per_row / fit.rows_per_line
                cells[number] = text.copy()
                if not self.gaps:  # which have no room for letters of the next line
                    style = Style.from_meta({"lines_lower": lines_above - middle - 0.5})
                    cells[number].style = console.get_style(text.style) + style
            return label._replace(cells=cells).spread(fit.lines_per_row, middle)

        labels_of_lines = list(map(at_rows, labels))
        trailing_of_lines = list(map(at_rows, self.trailing))
        return ruled(labels_of_lines, blocks, trailing_of_lines, gaps, sections=self.sections)

    def _axis(self, fit: Fit) -> str:
        """Return the numbers of the first and the last column, and ticks between them."""
        axis = ""
        for place in self._ticks(fit):
            number = str(self.numbers[place])
            cell = min(fit.cell_of(place), fit.width - len(number))
            if place:
                cell = max(cell, len(axis) + 1)
            axis = axis.ljust(cell) + number
        return axis

    def _ticks(self, fit: Fit) -> list[int]:
        """Return the columns whose numbers the axis shows."""
        count = len(self.numbers)
        if count < 2:
            return [*range(count)]
        cells_of_number = len(str(self.numbers.max())) + GAP
        last_cell = min(fit.cell_of(count - 1), fit.width - cells_of_number + GAP)
        ticks = [0]
        room = (cells_of_number + 1) * count / fit.width
        step = min((step for step in _TICKS if step >= room), default=_TICKS[-1])
        for place in np.flatnonzero(self.numbers % step == 0).tolist():
            if cells_of_number <= fit.cell_of(place) <= last_cell - cells_of_number:
                ticks.append(place)
        return [*ticks, count - 1]

    def _bar(
        self,
        shown: Sequence[np.ndarray],
        scale: ColorScale,
        fit: Fit,
        console: Console,
        width: int,
    ) -> Text:
        """Return a colour bar with the ends of its scale, and remarks about the colours above."""
        digits = max(self.precision, 4)
        low = f"{scale.least:.{digits}g}"
        limit = f"{scale.limit:.{digits}g}"
        cells = width - len(f"{low}  {limit}")
        if cells % 2 == 0:  # an odd number of colours has one in the middle
            cells -= 1
        values = np.linspace(scale.least, scale.limit, min(cells, 25))
        shades = strip(values[None], scale, console)
        bar = Text(f"{low} ").append_text(shades).append(f" {limit}")

        remarks = "; ".join(self._remarks(shown, scale, fit, console))
        if remarks:
            fits = bar.cell_len + GAP + len(remarks) <= width
            bar.append("  " if fits else "\n")
            bar.append(remarks)
        return bar

    def _remarks(
        self, shown: Sequence[np.ndarray], scale: ColorScale, fit: Fit, console: Console
    ) -> list[str]:
        """Return what colours do not tell: how numbers share them, the largest, non-finite ones."""
        remarks = self._remarks_on_sharing(fit)
        largest = ColorScale.of(shown).limit
        if largest > scale.limit and not self.scale:
            remarks.append(
                "the scale ends at the 99.5th percentile; "
                f"the largest here is {largest:.{self.precision}g}"
            )

        marks = MARKS
        if medium_of(console).has_fine_cells:
            marks = dict.fromkeys(MARKS, "yellow")
        numbers = np.concatenate([values.ravel() for values in shown])
        nans = np.isnan(numbers).sum()
        if nans:
            remarks.append(f"{marks[NAN]}: {nans:,} NaN")
        infinities = np.isinf(numbers).sum()
        if infinities:
            remarks.append(f"{marks[INFINITE]}: {infinities:,} infinite")
        return remarks

    def _remarks_on_sharing(self, fit: Fit) -> list[str]:
        """Return which rows and columns share a line or a colour, or are not shown."""
        remarks = []
        steps = []  # of a picture, unless it shows all rows and columns
        if self.names:
            remarks.append(f"each line, from above: {', '.join(self.names)}")
        elif self.lines is None and fit.rows_per_line > 1:
            remarks.append(f"each line: {fit.rows_per_line} rows, labelled by the first")
        if fit.row_step > 1:
            steps.append(f"1 in {fit.row_step} rows")
        if fit.columns_per_bin > 1 and not self.square:
            steps.append(f"1 in {fit.columns_per_bin} columns")
        if steps:
            remarks.append(f"shown: {', '.join(steps)}")
        return remarks
