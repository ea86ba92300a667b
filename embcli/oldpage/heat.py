"""Numbers as colours: a scale from numbers to steps, the colours and characters of the steps, and columns in bins.

The scale of signed numbers is symmetric about 0: blue below, orange to red above, which no common colour blindness
confuses. Colours get darker with the distance from 0. Sizes, which have no sign, use the upper half of the scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

import numpy as np

NAN, INFINITE = -1, -2  # in place of a step
NAN_MARK, INFINITE_MARK = "?", "!"
WIDEST = 4  # the most cells of a number
LEAST = 16  # the fewest cells of a useful strip
RAMP = ".:-=+*#%@"  # without colour: denser means larger
_BAR = 33  # the most numbers of a colour bar

RGB = tuple[int, int, int]
_BLUE, _WARM = (0, 135, 215), (215, 95, 0)  # the colours of numbers on a terminal
_ANCHORS = np.array(
    [(0, 40, 110), _BLUE, (165, 212, 242), (228, 228, 228), (250, 196, 150), _WARM, (110, 30, 0)], float
)
_BETWEEN = 16  # steps from one anchor to the next
_PLACES = np.linspace(0, len(_ANCHORS) - 1, (len(_ANCHORS) - 1) * _BETWEEN + 1)
_PARTS = (np.interp(_PLACES, np.arange(len(_ANCHORS)), part).round().astype(int).tolist() for part in _ANCHORS.T)

# From the smallest to the largest number. The 256 and the 16 colours are named by number; the terminal chooses the
# shades of the 16, and some terminals show the bright eight as greys.
TRUECOLOR: tuple[RGB, ...] = tuple(zip(*_PARTS, strict=True))
COLORS_256 = (18, 25, 32, 74, 117, 153, 254, 223, 216, 208, 166, 130, 88)
COLORS_16 = (4, 6, 7, 3, 1)


@dataclass(frozen=True, eq=False)
class Scale:
    """The numbers from -limit to limit, or sizes from 0 to the limit, in steps; larger numbers count as the limit."""

    limit: float
    signed: bool = True

    @classmethod
    def of(cls, values: Sequence[np.ndarray], limit: float | None = None, signed: bool = True) -> Scale:
        """Return the scale up to a limit, by default the largest finite |value|."""
        finite = [np.abs(each[np.isfinite(each)]).max(initial=0) for each in values] if limit is None else [limit]
        return cls(float(max(finite, default=0)), signed)

    def steps(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return the step of each value, from 0 to count - 1, or NAN or INFINITE; int64 in the shape of the values.

        `count` is odd for signed numbers, so that 0 has a step of its own.

        >>> Scale(2.0).steps(np.array([-9, -2, 0, 0.9, np.nan]), 5).tolist()
        [0, 0, 2, 3, -1]
        """
        half = (count - 1) // 2
        zero, reach = (half, half) if self.signed else (0, count - 1)
        values = values.astype(np.float64)
        finite = np.where(np.isfinite(values), values, 0.0).clip(-self.limit, self.limit)
        shares = finite / self.limit if self.limit else finite
        steps = zero + np.rint(shares * reach).astype(np.int64)
        steps[np.isnan(values)] = NAN
        steps[np.isinf(values)] = INFINITE
        return steps

    def beyond(self, values: np.ndarray) -> int:
        """Count the finite values beyond the limit."""
        return int((np.isfinite(values) & (np.abs(values.astype(np.float64)) > self.limit)).sum())

    def bar(self, most: int) -> np.ndarray:
        """Return the numbers of a colour bar, from one end to the other: an odd count, at most `most`."""
        count = min(_BAR, most - (most + 1) % 2)
        return self.limit * np.linspace(-1.0 if self.signed else 0.0, 1.0, count)


@dataclass(frozen=True, eq=False)
class Strip:
    """Numbers side by side as colours: each takes one or more cells, or two share a cell.

    Two numbers in a cell are neighbours in a row, or stand one above the other in a column.
    """

    values: np.ndarray  # (rows, columns) float: a row, or two, one above the other
    scale: Scale
    cells: int = 1  # of each number
    shared: Literal["no", "row", "column"] = "no"

    @property
    def width(self) -> int:
        """The number of cells."""
        columns: int = self.values.shape[1]
        return -(-columns // 2) if self.shared == "row" else columns * self.cells

    def colors(self, count: int) -> Iterator[tuple[int, int | None]]:
        """Yield the places of two colours for each cell, out of `count` colours, or NAN or INFINITE.

        They are left and right where neighbours in a row share a cell, else upper and lower; the second can be missing.
        Sizes use the upper half of the colours.
        """
        zero = 0 if self.scale.signed else count // 2
        steps = self.scale.steps(self.values, count - zero)
        steps[steps >= 0] += zero
        if self.shared == "row":
            row = steps[0].tolist()
            return zip_longest(row[::2], row[1::2])
        upper, lower = (steps[row].repeat(self.cells).tolist() for row in (0, -1))
        lacks_lower = self.shared == "column" and len(steps) == 1  # the last line of an odd number of rows
        return zip(upper, [None] * len(upper) if lacks_lower else lower, strict=True)

    def characters(self) -> str:
        """Return a strip of one row in characters; denser means larger."""
        characters = {**dict(enumerate(RAMP)), NAN: NAN_MARK, INFINITE: INFINITE_MARK}
        steps = self.scale.steps(self.values[0], len(RAMP)).repeat(self.cells)
        return "".join(characters[step] for step in steps.tolist())


@dataclass(frozen=True, eq=False)
class Fit:
    """How the numbers of a row fit into cells: numbers are averaged in bins, bins take cells or share one.

    If `apart` kinds of columns alternate, such as sines and cosines, a bin has numbers of one kind only.
    """

    bins: int
    per: int = 1  # numbers in a bin, fewer in the last
    cells: int = 1  # of each bin
    halves: bool = False  # whether two bins share a cell
    apart: int = 1

    @classmethod
    def of(cls, columns: int, available: int, halves: bool, apart: int = 1) -> Fit:
        """Return how columns fit into the available cells, which may be halved; bins hold one number if possible."""
        if columns <= available:
            return cls(columns, 1, min(available // max(columns, 1), WIDEST))
        most = 2 * available if halves else available
        per = 1 if columns <= most else -(-columns // apart // max(most // apart, 1))
        return cls(sum(-(-len(range(kind, columns, apart)) // per) for kind in range(apart)), per, 1, halves, apart)

    @property
    def width(self) -> int:
        """The number of cells of a row."""
        return -(-self.bins // 2) if self.halves else self.bins * self.cells

    def strips(self, values: np.ndarray, scale: Scale) -> list[Strip]:
        """Return the rows of a matrix in bins, (n, bins), as strips."""
        return [Strip(row[None], scale, self.cells, "row" if self.halves else "no") for row in values]

    def marks(self, marks: Sequence[str]) -> str:
        """Return the line below columns with these marks ("" for none); of two marks in a cell, the first."""
        if self.halves:
            marks = [left or right for left, right in zip_longest(marks[::2], marks[1::2], fillvalue="")]
        return "".join((mark or "·") * self.cells for mark in marks)


@dataclass(frozen=True, eq=False)
class Lines:
    """How a matrix fits into lines of a page, each with a row, or with two, one above the other.

    More rows are averaged in bins.
    """

    per: int  # rows in a bin
    columns: Fit
    stacked: bool  # whether two rows share a line
    height: int = 1  # of a bin, in rows

    @classmethod
    def of(cls, shape: tuple[int, int], lines: int, available: int, colored: bool, apart: int = 1) -> Lines:
        """Return how a matrix fits into a number of lines with `available` cells each."""
        stacked = colored and shape[0] > lines
        per = max(-(-shape[0] // (2 * lines if stacked else lines)), 1)
        return cls(per, Fit.of(shape[1], available, colored and not stacked, apart), stacked)

    @classmethod
    def squares(cls, shape: tuple[int, int], lines: int, available: int, colored: bool) -> Lines:
        """Return how a matrix fits with each number as high as it is wide: half a line, or a line of two cells.

        A large matrix is averaged in square bins; a number of a small one is drawn larger.
        """
        rows, columns = (2 * lines, available) if colored else (lines, available // 2)
        per = max(-(-shape[0] // rows), -(-shape[1] // columns), 1)
        sizes = (size for size in (WIDEST, 2) if size * shape[0] <= rows and size * shape[1] <= columns)
        size = next(sizes, 1)
        return cls(per, Fit(-(-shape[1] // per), per, size if colored else 2 * size), colored, size)

    def strips(self, values: np.ndarray, scale: Scale) -> list[Strip]:
        """Return a matrix in bins, (rows, columns), as strips, line by line."""
        rows = values.repeat(self.height, axis=0)
        if not self.stacked:
            return self.columns.strips(rows, scale)
        return [Strip(rows[top : top + 2], scale, self.columns.cells, "column") for top in range(0, len(rows), 2)]

    def rows(self, lines: int) -> Sequence[int | None]:
        """Return the row that begins in each line, or None."""
        tops = [2 * line if self.stacked else line for line in range(lines)]
        return [top // self.height * self.per if top % self.height == 0 else None for top in tops]


def means(values: np.ndarray, per: int, apart: int = 1) -> np.ndarray:
    """Return the means of every `per` columns, the last of fewer: (n, columns) -> (n, bins) float64.

    If `apart` kinds of columns alternate, each is of `per` columns of a kind, and the kinds still alternate.
    The mean of a bin with a NaN is NaN; of one with infinity and no NaN, infinity.
    """
    if per == 1 or not values.size:
        return values.astype(np.float64)
    if apart > 1:
        kinds = [means(values[:, kind::apart], per) for kind in range(apart)]
        in_turn = np.empty((len(values), sum(kind.shape[1] for kind in kinds)))
        for place, kind in enumerate(kinds):
            in_turn[:, place::apart] = kind
        return in_turn
    starts = np.arange(0, values.shape[1], per)
    counts = np.diff(np.append(starts, values.shape[1]))
    with np.errstate(invalid="ignore"):
        averages: np.ndarray = np.add.reduceat(values.astype(np.float64), starts, axis=1) / counts
    for are, number in ((np.isinf, np.inf), (np.isnan, np.nan)):
        averages[np.logical_or.reduceat(are(values), starts, axis=1)] = number
    return averages


def row_means(rows: Callable[[np.ndarray], np.ndarray], numbers: np.ndarray, per: int) -> np.ndarray:
    """Return the means of every `per` rows, the last of fewer, (bins, columns) float64.

    `rows` returns rows by their numbers, (n,) int64 -> (n, columns); it is asked for those of a bin at a time.
    """
    if per == 1:
        return rows(numbers).astype(np.float64)
    starts = range(0, len(numbers), per)
    return np.concatenate([means(rows(numbers[start : start + per]).T, per).T for start in starts])
