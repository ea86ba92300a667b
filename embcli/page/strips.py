"""Numbers as colours: strips, one per row of a table, and a picture of a whole matrix, each with a colour bar.

On a terminal two numbers can share a cell; a picture for a file has a cell for each. Without colour each number is a
character, denser for a larger number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import groupby, zip_longest
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

WIDEST = 4  # the most cells of a number
LEAST = 16  # the fewest cells of a useful strip
_BAR = 33  # the most numbers of a colour bar
_AROUND = (
    5  # lines around a picture: its axis, a rule, and below a blank line a colour bar and a remark
)
_FILE = 512, 128  # columns and rows of a picture in a file, each with cells of its own
_MARKED = Style.parse("bold #ffd700 on #000000")
_colored = lru_cache(4096)(Style.from_color)


class Values(NamedTuple):
    values: np.ndarray  # (n, columns) float32, or whole numbers
    title: str = ""
    column_period: int = 1  # kinds of columns that alternate, such as sines and cosines; a colour is a mean of one kind


def has_halves(console: Console) -> bool:
    """Return whether two numbers can share a cell of a console: on a coloured screen, not in a picture for a file."""
    return bool(colors_of(console)) and not console.record


def room(console: Console, cells: int, columns: int) -> int:
    """Return the cells for some columns: those of the page, or more in a file."""
    return max(cells, min(columns, _FILE[0])) if console.record else cells


class Shades(Text):
    """A line of colours or, without colour, of characters."""


def strip(
    values: np.ndarray, scale: ColorScale, console: Console, cells: int = 1, glyph: str = ""
) -> Shades:
    """Return numbers (rows, columns) as one line of colours.

    With a glyph two numbers share a cell: ▌ for neighbours in a row, ▀ for two rows, one above the other.
    """
    colors = colors_of(console)
    if not colors:
        places = scale.levels(values[0], len(RAMP)).repeat(cells).tolist()
        return Shades(
            "".join(MARKS[place] if place < 0 else RAMP[place] for place in places), no_wrap=True
        )
    zero = 0 if scale.signed else len(colors) // 2
    steps = scale.levels(values, len(colors) - zero)
    steps[steps >= 0] += zero
    if glyph == "▌":
        row = steps[0].tolist()
        pairs = [*zip_longest(row[::2], row[1::2])]
    else:
        upper, lower = (steps[row].repeat(cells).tolist() for row in (0, -1))
        is_last = glyph == "▀" and len(steps) == 1  # of an odd number of rows
        pairs = [*zip(upper, [None] * len(upper) if is_last else lower, strict=True)]
    text = Shades(no_wrap=True)
    for (first, second), run in groupby(pairs):
        count, marks = (
            len([*run]),
            [mark for step, mark in MARKS.items() if step in (first, second)],
        )
        if marks:  # a mark stands for both halves of its cell
            text.append(marks[0] * count, _MARKED)
        elif first == second:
            text.append(" " * count, _colored(None, colors[first]))
        else:
            text.append(
                (glyph or " ") * count,
                _colored(colors[first], None if second is None else colors[second]),
            )
    return text


class Fit(NamedTuple):
    """How numbers fit into cells: they are averaged in bins, and bins take cells or share one."""

    bins: int  # of a row
    per: int = 1  # numbers in a bin, fewer in the last
    cells: int = 1  # of each bin
    glyph: str = ""  # ▌ if two bins share a cell, ▀ if two rows do
    rows: int = 1  # of which each row is the mean
    high: int = 1  # strips of each row

    @classmethod
    def of(cls, columns: int, available: int, halves: bool, column_period: int = 1) -> Fit:
        """Return how columns fit into the available cells, which may be halved; bins hold one number if possible."""
        if columns <= available:
            return cls(columns, 1, min(available // max(columns, 1), WIDEST))
        most = 2 * available if halves else available
        per = (
            1 if columns <= most else -(-columns // column_period // max(most // column_period, 1))
        )
        whole, rest = divmod(columns, per * column_period)
        bins = whole * column_period + min(rest, column_period)
        return cls(bins, per, 1, "▌" if halves else "")

    @property
    def width(self) -> int:
        return -(-self.bins // 2) if self.glyph == "▌" else self.bins * self.cells


@dataclass(frozen=True, eq=False)
class Strips(Composite):
    """Matrices as strips of colours, one per row, with labels before and after them, and a colour bar.

    With `lines` they are a picture in at most so many lines, with rows averaged as well, and with `square` each number
    is as high as it is wide.
    """

    labels: Sequence[Label]
    blocks: Sequence[Values]
    numbers: np.ndarray  # (columns,) int64: those of the columns
    gaps: Sequence[int] = ()
    trailing: Sequence[Label] = ()
    precision: int = 4
    lines: int | None = None  # None for a strip of each row
    square: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        count, column_period = len(self.numbers), max(block.column_period for block in self.blocks)
        labels, cells = fit_labels(options.max_width, self.labels, self.trailing, len(self.blocks))
        fit = self._fit(console, cells, column_period)
        shown = [
            means(means(block.values.T, fit.rows).T, fit.per, column_period)
            for block in self.blocks
        ]
        scale, step = ColorScale.of(shown), 2 if fit.glyph == "▀" else 1
        begun = range(0, len(shown[0]) * fit.high, step)  # the strips that each line begins with
        rows = [None if k % fit.high else k // fit.high * fit.rows for k in begun]
        labels, trailing = (
            [
                each._replace(cells=["" if row is None else each.cells[row] for row in rows])
                for each in part
            ]
            for part in (labels, self.trailing)
        )
        first, last = (str(number) for number in self.numbers[[0, -1]]) if count else ("", "")
        axis = (
            f"{first}{last:>{max(fit.width - len(first), len(last) + 1)}}" if count > 1 else first
        )
        columns = []
        for block, values in zip(self.blocks, shown, strict=True):
            drawn = values.repeat(fit.high, axis=0)
            strips: list[Text] = [
                strip(drawn[k : k + step], scale, console, fit.cells, fit.glyph) for k in begun
            ]
            for gap in reversed(self.gaps):
                strips.insert(gap, Text("⋮", "dim"))
            columns.append(
                (Text(f"{in_line(block.title)}\n{axis}" if block.title else axis), strips)
            )
        table = ruled(labels, columns, trailing, self.gaps)
        if console.record:  # a file is as wide as its strips
            table.width = console.measure(
                table, options=options.update(max_width=8 * _FILE[0])
            ).maximum
        yield table
        yield ""
        yield self._bar(scale, shown, fit, console, options.max_width)

    def _fit(self, console: Console, cells: int, column_period: int) -> Fit:
        """Return how the numbers fit into these cells beside the labels, and into the lines of a picture."""
        columns, rows, halves = len(self.numbers), len(self.blocks[0].values), has_halves(console)
        if self.lines is None:
            return Fit.of(columns, room(console, cells, columns), halves, column_period)
        lines = max(self.lines - _AROUND, _FILE[1] if console.record else 1)
        stacked = halves and (self.square or rows > lines)
        height = 2 * lines if stacked else lines
        per = max(-(-rows // height), 1)
        fit = Fit.of(columns, room(console, cells, columns), halves and not stacked, column_period)
        if self.square:
            width = cells if stacked else room(console, cells // 2, columns)
            per = max(per, -(-columns // width))
            high = next(
                (high for high in (WIDEST, 2) if high * rows <= height and high * columns <= width),
                1,
            )
            fit = Fit(-(-columns // per), per, high if stacked else 2 * high, high=high)
        return fit._replace(glyph="▀" if stacked else fit.glyph, rows=per)

    def _bar(
        self, scale: ColorScale, shown: Sequence[np.ndarray], fit: Fit, console: Console, width: int
    ) -> Text:
        """Return a colour bar with the ends of its scale, and remarks about the colours above it."""
        limit = f"{scale.limit:.{max(self.precision, 4)}g}"
        low = f"-{limit}" if scale.signed else "0"
        halves, column_period, remarks = (
            has_halves(console),
            max(block.column_period for block in self.blocks),
            [],
        )
        of = [counted(fit.rows, "row")] if fit.rows > 1 else []
        of += (
            [f"{fit.per} {'even or odd ' if column_period > 1 else ''}columns"]
            if fit.per > 1
            else []
        )
        fewer = len(self.blocks[0].values) % fit.rows or (
            fit.per > 1 and len(self.numbers) % (fit.per * column_period)
        )
        if of:
            each = "colour" if colors_of(console) else "character"
            remarks.append(
                f"each {each}: the mean of {' x '.join(of)}{' (fewer at the ends)' if fewer else ''}"
            )
        for mark, name, which in (
            (MARKS[NAN], "NaN", np.isnan),
            (MARKS[INFINITE], "infinite", np.isinf),
        ):
            if found := sum(int(which(values).sum()) for values in shown):
                remarks.append(f"{mark}: {found:,} {name}")
        most = (width - len(f"{low}  {limit}")) * (2 if halves else 1)
        numbers = scale.limit * np.linspace(
            -1.0 if scale.signed else 0.0, 1.0, min(_BAR, most - (most + 1) % 2)
        )
        bar = Text(f"{low} ").append_text(
            strip(numbers[None], scale, console, 1, "▌" if halves else "")
        )
        bar.append(f" {limit}")
        text = "; ".join(remarks)
        return (
            bar.append(f"  {text}" if bar.cell_len + len(text) + GAP <= width else f"\n{text}")
            if text
            else bar
        )


def fit_labels(
    width: int, labels: Sequence[Label], trailing: Sequence[Label], blocks: int = 1
) -> tuple[list[Label], int]:
    """Return the labels of strips, if necessary with short tokens or none, and the cells of each block beside them."""
    for version in label_versions(labels):
        taken = sum(label.width + GAP for label in [*version, *trailing]) + blocks * (1 + GAP)
        cells = (width + GAP - taken) // blocks - GAP
        if cells >= LEAST:
            break
    return version, max(cells, 1)
