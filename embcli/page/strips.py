"""Numbers as colours: strips, one per row of a table, or a picture of a whole matrix.

Each has a colour bar. On a terminal two rows of a picture can share a line; in a file each number
has a cell of its own if the picture then fits a slide. Without colour each number is a character,
denser for a larger number. `Matrix` yields strips in place of numbers if a page is to be a heat
map.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.style import Style
from rich.text import Text

from embcli.page.colors import INFINITE, MARKS, NAN, RAMP, ColorScale, colors_of, means
from embcli.page.parts import Composite
from embcli.page.table import GAP, Label, label_versions, ruled
from embcli.wording import counted, in_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

_WIDEST = 4  # the most cells of a number
_SLIDE_CELLS = 204  # the width of a file's page, unless the user chose a larger one
_MOST_LABELS = 24  # of the rows of a picture
_NOTHING = -3  # the level of a half of a cell without a number
_MARKED = Style.parse("bold #ffd700 on #000000")
_colored = lru_cache(4096)(Style.from_color)


class Values(NamedTuple):
    """A matrix on a page, with its title."""

    values: np.ndarray  # (n, columns) float32, or whole numbers
    title: str = ""


def can_stack(console: Console) -> bool:
    """Return whether two rows can share a line: on a coloured screen, but not in a file."""
    return bool(colors_of(console)) and not console.record


class Shades(Text):
    """A line of colours or, without colour, of characters."""


def strip(
    values: np.ndarray,
    scale: ColorScale,
    console: Console,
    cells: int = 1,
    is_stacked: bool = False,
) -> Shades:
    """Return numbers, (1, columns), as one line of colours, in some cells each.

    Those of a second row are in the lower halves of the cells, which a single stacked row leaves
    empty.
    """
    colors = colors_of(console)
    if not colors:
        levels = scale.levels(values[0], len(RAMP)).repeat(cells)
        characters = [MARKS.get(level) or RAMP[level] for level in levels.tolist()]
        return Shades("".join(characters), no_wrap=True)

    # Numbers without a sign use the upper half of the colours.
    zero = 0 if scale.signed else len(colors) // 2
    levels = scale.levels(values, len(colors) - zero)
    levels[levels >= 0] += zero

    text = Shades(no_wrap=True)
    lower_levels = levels[-1]
    if is_stacked and len(levels) == 1:  # the last of an odd number of rows
        lower_levels = np.full_like(lower_levels, _NOTHING)
    pairs = np.stack([levels[0], lower_levels], axis=1).repeat(cells, axis=0).tolist()
    for (upper, lower), run in groupby(pairs):
        count = len(list(run))
        marks = [mark for level, mark in MARKS.items() if level in (upper, lower)]
        if marks:  # a mark stands for both halves of its cell
            text.append(marks[0] * count, _MARKED)
        elif upper == lower:
            text.append(" " * count, _colored(None, colors[upper]))
        else:
            background = None if lower == _NOTHING else colors[lower]
            text.append("▀" * count, _colored(colors[upper], background))
    return text


class Fit(NamedTuple):
    """How numbers fit into cells: they are averaged in bins, and bins take cells or half of one.

    A bin is of one row in a strip; in a picture it can be of several rows and in several strips.
    """

    bins: int  # in a row
    columns_per_bin: int = 1  # fewer in the last bin
    cells_per_bin: int = 1
    is_stacked: bool = False  # two strips share a line
    rows_per_bin: int = 1  # fewer in the last bin
    strips_per_bin: int = 1

    @classmethod
    def of(cls, columns: int, available: int) -> Fit:
        """Return how columns fit into the available cells; bins hold one number if possible."""
        if columns <= available:
            cells = min(available // max(columns, 1), _WIDEST)
            return cls(columns, cells_per_bin=cells)
        columns_per_bin = math.ceil(columns / available)
        return cls(math.ceil(columns / columns_per_bin), columns_per_bin)

    @property
    def width(self) -> int:
        return self.bins * self.cells_per_bin


@dataclass(frozen=True, eq=False)
class Strips(Composite):
    """Matrices as strips of colours, one per row, between labels, and a colour bar below.

    With `lines` they are a picture of at most that many lines, in which rows are averaged as well;
    with `square` each number is as high as it is wide.
    """

    labels: Sequence[Label]
    blocks: Sequence[Values]
    numbers: np.ndarray  # (columns,) int64: the numbers of the columns
    gaps: Sequence[int] = ()
    trailing: Sequence[Label] = ()
    precision: int = 4
    lines: int | None = None  # None for a strip of each row
    square: bool = False
    sections: Sequence[int] = ()  # rows that have a blank line before them; dots are counted

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        labels, cells = fit_labels(options.max_width, self.labels, self.trailing, len(self.blocks))
        cells_of_slide = cells
        if console.record:
            cells_of_slide += max(_SLIDE_CELLS - options.max_width, 0) // len(self.blocks)
        fit = self._fit(console, cells, cells_of_slide)
        averages = []
        for block in self.blocks:
            rows = means(block.values.T, fit.rows_per_bin).T
            averages.append(means(rows, fit.columns_per_bin))
        scale = ColorScale.of(averages).without_outliers(averages)

        table = self._strips(labels, averages, scale, fit, console)
        if console.record:
            # A file is as wide as its strips.
            largest_width = 10_000
            unlimited = options.update(max_width=largest_width)
            table.width = console.measure(table, options=unlimited).maximum
        yield table
        yield ""
        yield self._bar(averages, scale, fit, console, options.max_width)

    def _fit(self, console: Console, cells: int, cells_of_slide: int) -> Fit:
        """Return how the numbers fit into a block's cells, and into the lines of a picture.

        In a file, numbers that have no cells of their own there can take those of a slide.
        """
        columns = len(self.numbers)
        available = max(cells, min(columns, cells_of_slide))
        fit = Fit.of(columns, available)
        if self.lines is None:
            return fit

        # An axis and a rule are above a picture; a blank line, a colour bar and a remark below.
        lines_around = 5
        height = max(self.lines - lines_around, 1)
        rows = len(self.blocks[0].values)
        is_stacked = can_stack(console) and (self.square or rows > height)
        if is_stacked:
            height *= 2
        rows_per_bin = max(math.ceil(rows / height), 1)
        if not self.square:
            return fit._replace(rows_per_bin=rows_per_bin, is_stacked=is_stacked)

        cells_of_square = 1 if is_stacked else 2
        width = max(cells // cells_of_square, min(columns, cells_of_slide // cells_of_square))
        per_bin = max(rows_per_bin, math.ceil(columns / width))
        side = 1
        if colors_of(console):  # Characters would only be repeated.
            side = _side_of_square(rows, columns, height, width)
        bins = math.ceil(columns / per_bin)
        return Fit(
            bins=bins,
            columns_per_bin=per_bin,
            cells_per_bin=cells_of_square * side,
            is_stacked=is_stacked,
            rows_per_bin=per_bin,
            strips_per_bin=side,
        )

    def _strips(
        self,
        labels: Sequence[Label],
        averages: Sequence[np.ndarray],
        scale: ColorScale,
        fit: Fit,
        console: Console,
    ) -> Table:
        """Return the table of strips, without the colour bar."""
        strips_per_line = 2 if fit.is_stacked else 1
        first_strips = range(0, len(averages[0]) * fit.strips_per_bin, strips_per_line)
        rows_per_label = 1
        if self.lines is not None:
            rows_per_label = math.ceil(len(averages[0]) / _MOST_LABELS)
        rows: list[int | None] = []  # the row whose labels a line has, if it has labels
        for first in first_strips:
            row, strip_of_row = divmod(first, fit.strips_per_bin)
            has_labels = not strip_of_row and row % rows_per_label == 0
            rows.append(row * fit.rows_per_bin if has_labels else None)

        axis = self._axis(fit.width)
        blocks = []
        for block, values in zip(self.blocks, averages, strict=True):
            numbers = values.repeat(fit.strips_per_bin, axis=0)
            strips: list[Text] = []
            for first in first_strips:
                numbers_of_line = numbers[first : first + strips_per_line]
                line = strip(numbers_of_line, scale, console, fit.cells_per_bin, fit.is_stacked)
                strips.append(line)
            for gap in reversed(self.gaps):
                strips.insert(gap, Text("⋮", "dim"))
            header = f"{in_line(block.title)}\n{axis}" if block.title else axis
            blocks.append((Text(header), strips))

        labels_of_lines = [_at_rows(label, rows) for label in labels]
        trailing_of_lines = [_at_rows(label, rows) for label in self.trailing]
        return ruled(labels_of_lines, blocks, trailing_of_lines, self.gaps, sections=self.sections)

    def _axis(self, width: int) -> str:
        """Return the numbers of the first and the last column, at the ends of the strips."""
        if not len(self.numbers):
            return ""
        first = str(self.numbers[0])
        if len(self.numbers) == 1:
            return first
        last = str(self.numbers[-1])
        room_for_last = max(width - len(first), len(last) + 1)
        return first + last.rjust(room_for_last)

    def _bar(
        self,
        averages: Sequence[np.ndarray],
        scale: ColorScale,
        fit: Fit,
        console: Console,
        width: int,
    ) -> Text:
        """Return a colour bar with the ends of its scale, and remarks about the colours above."""
        limit = f"{scale.limit:.{max(self.precision, 4)}g}"
        low = "0"
        lowest_share = 0.0
        if scale.signed:
            low = f"-{limit}"
            lowest_share = -1.0
        cells = width - len(f"{low}  {limit}")
        if cells % 2 == 0:  # an odd number of colours has one in the middle
            cells -= 1
        shares = np.linspace(lowest_share, 1.0, min(cells, 33))
        shades = strip(scale.limit * shares[None], scale, console)
        bar = Text(f"{low} ").append_text(shades).append(f" {limit}")

        remarks = "; ".join(self._remarks(averages, scale, fit, console))
        if remarks:
            fits = bar.cell_len + GAP + len(remarks) <= width
            bar.append("  " if fits else "\n")
            bar.append(remarks)
        return bar

    def _remarks(
        self, averages: Sequence[np.ndarray], scale: ColorScale, fit: Fit, console: Console
    ) -> list[str]:
        """Return what colours do not tell.

        These are which numbers are averaged, how many are beyond the scale, or not finite.
        """
        remarks = []
        sizes = []
        if fit.rows_per_bin > 1:
            sizes.append(counted(fit.rows_per_bin, "row"))
        if fit.columns_per_bin > 1:
            sizes.append(f"{fit.columns_per_bin} columns")
        if sizes:
            shade = "colour" if colors_of(console) else "character"
            remarks.append(f"each {shade}: the mean of up to {' x '.join(sizes)}")

        largest = ColorScale.of(averages).limit
        if largest > scale.limit:
            # Infinite numbers have a mark.
            beyond = [np.isfinite(values) & (np.abs(values) > scale.limit) for values in averages]
            count = sum(int(is_beyond.sum()) for is_beyond in beyond)
            ends = "the scale ends at the 99.5th percentile"
            remarks.append(f"{ends}; {count:,} beyond, up to {largest:.{self.precision}g}")

        nans = sum(int(np.isnan(values).sum()) for values in averages)
        if nans:
            remarks.append(f"{MARKS[NAN]}: {nans:,} NaN")
        infinities = sum(int(np.isinf(values).sum()) for values in averages)
        if infinities:
            remarks.append(f"{MARKS[INFINITE]}: {infinities:,} infinite")
        return remarks


def _side_of_square(rows: int, columns: int, height: int, width: int) -> int:
    """Return the side of each number in a picture of squares, in strips: as large as fits."""
    for side in (_WIDEST, 2):
        if side * rows <= height and side * columns <= width:
            return side
    return 1


def _at_rows(label: Label, rows: Sequence[int | None]) -> Label:
    """Return a label with the cells of some rows; a cell without a row is empty."""
    cells = ["" if row is None else label.cells[row] for row in rows]
    return label._replace(cells=cells)


def fit_labels(
    width: int, labels: Sequence[Label], trailing: Sequence[Label], blocks: int = 1
) -> tuple[list[Label], int]:
    """Return the labels of strips, and the cells that each block has beside them.

    If a strip would be too short to be of use, tokens are shortened, and then omitted.
    """
    shortest_strip = 16
    for version in label_versions(labels):
        label_cells = sum(label.width + GAP for label in [*version, *trailing])
        bar_cells = blocks * (1 + GAP)
        cells = (width + GAP - label_cells - bar_cells) // blocks - GAP
        if cells >= shortest_strip:
            break
    return version, max(cells, 1)
