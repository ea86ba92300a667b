"""Numbers as colours: a scale from numbers to steps, the colours and characters of the steps, and columns in bins.

The scale of signed numbers is symmetric about 0, blue below and orange to red above, which no common colour blindness
confuses; the further from 0, the darker a colour. Sizes, which have no sign, take its upper half.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Literal

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

NAN, INFINITE = -1, -2  # in place of a step
NAN_MARK, INFINITE_MARK = "?", "!"
WIDEST = 4  # cells that a number takes at most
LEAST = 16  # cells of a strip that tells something
RAMP = ".:-=+*#%@"  # without colour: ever more ink
_BAR = 33  # numbers of a colour bar, at most

_BLUE, _WARM = (0, 135, 215), (215, 95, 0)  # as the terminal's numbers have them
_ANCHORS = np.array(
    [(0, 40, 110), _BLUE, (165, 212, 242), (228, 228, 228), (250, 196, 150), _WARM, (110, 30, 0)], float
)
_BETWEEN = 16  # steps from one anchor to the next


def _blended() -> tuple[tuple[int, int, int], ...]:
    places = np.arange(0, len(_ANCHORS) - 1 + 0.5 / _BETWEEN, 1 / _BETWEEN)
    parts = [np.interp(places, np.arange(len(_ANCHORS)), part).round().astype(int).tolist() for part in _ANCHORS.T]
    return tuple(zip(*parts, strict=True))


# From the least to the largest number. Those of 256 and of 16 by their numbers; the terminal chooses the shades of the
# 16, and some make greys of the bright eight.
TRUECOLOR = _blended()
COLORS_256 = (18, 25, 32, 74, 117, 153, 254, 223, 216, 208, 166, 130, 88)
COLORS_16 = (4, 6, 7, 3, 1)


@dataclass(frozen=True, eq=False)
class Scale:
    """The numbers from -limit to limit, or sizes from 0 to it, in steps; what lies beyond counts as the limit."""

    limit: float
    signed: bool = True

    @classmethod
    def of(cls, values: Sequence[np.ndarray], limit: float | None = None, signed: bool = True) -> Scale:
        """Return the scale that reaches as far as the largest finite |value|, or as it is told."""
        finite = [np.abs(each[np.isfinite(each)]).max(initial=0) for each in values] if limit is None else [limit]
        return cls(float(max(finite, default=0)), signed)

    def steps(self, values: np.ndarray, count: int) -> np.ndarray:
        """Return the step of each value, from 0 to count - 1, or NAN or INFINITE; int64 in the shape of the values.

        `count` is odd where numbers have a sign, so that 0 has a step of its own.

        >>> Scale(2.0).steps(np.array([-9, -2, 0, 0.9, np.nan]), 5).tolist()
        [0, 0, 2, 3, -1]
        """
        half = (count - 1) // 2
        zero, reach = (half, half) if self.signed else (0, count - 1)
        values = values.astype(np.float64)
        finite = np.where(np.isfinite(values), values, 0.0).clip(-self.limit, self.limit)
        shares = finite / self.limit if self.limit else finite
        found = zero + np.rint(shares * reach).astype(np.int64)
        found[np.isnan(values)] = NAN
        found[np.isinf(values)] = INFINITE
        return found

    def beyond(self, values: np.ndarray) -> int:
        """Return how many values are finite, and beyond the limit."""
        return int((np.isfinite(values) & (np.abs(values.astype(np.float64)) > self.limit)).sum())

    def bar(self, room: int) -> np.ndarray:
        """Return the numbers of a colour bar, from one end to the other."""
        count = min(_BAR, room - (room + 1) % 2)
        return self.limit * np.linspace(-1.0 if self.signed else 0.0, 1.0, count)


@dataclass(frozen=True, eq=False)
class Strip:
    """Numbers side by side as colours: each takes some cells, or two share one.

    Those that share a cell are neighbours in a row, or stand one above the other in two.
    """

    values: np.ndarray  # (rows, columns) float: a row, or two where one stands above the other
    scale: Scale
    cells: int = 1  # of each number
    shared: Literal["no", "row", "column"] = "no"

    @property
    def width(self) -> int:
        """How many cells it takes."""
        columns: int = self.values.shape[1]
        return -(-columns // 2) if self.shared == "row" else columns * self.cells


def colored(strip: Strip, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the places of the colours of both halves of each cell, (width,) int64 each, of so many colours.

    The halves are left and right where neighbours in a row share a cell, and upper and lower else; `count` stands for
    a half in which there is none. Sizes have the upper half of the colours.
    """
    zero = 0 if strip.scale.signed else count // 2
    steps = strip.scale.steps(strip.values, count - zero)
    steps[steps >= 0] += zero
    if strip.shared == "row":
        first, second = steps[0, ::2], steps[0, 1::2]
        return first, np.append(second, count) if len(second) < len(first) else second
    first, second = steps[0].repeat(strip.cells), steps[-1].repeat(strip.cells)
    lower = len(steps) > 1 or strip.shared == "no"
    return first, second if lower else np.full_like(first, count)  # the last line of an odd number of rows


def drawn(strip: Strip) -> str:
    """Return a strip of one row in characters, the more ink the larger a number."""
    characters = {**dict(enumerate(RAMP)), NAN: NAN_MARK, INFINITE: INFINITE_MARK}
    steps = strip.scale.steps(strip.values[0], len(RAMP)).repeat(strip.cells)
    return "".join(characters[step] for step in steps.tolist())


@dataclass(frozen=True, eq=False)
class Fit:
    """How the numbers of a row fit into cells: so many of them in a bin, and bins of so many cells or two to a cell."""

    bins: int
    per: int = 1  # numbers in a bin, fewer in the last
    cells: int = 1
    halves: bool = False

    @classmethod
    def of(cls, columns: int, room: int, halves: bool) -> Fit:
        """Return how so many columns fit into so many cells, which may be halved; into bins only where they must."""
        if columns <= room:
            return cls(columns, 1, min(room // max(columns, 1), WIDEST))
        per = -(-columns // (2 * room if halves else room))
        return cls(-(-columns // per), per, 1, halves)

    @property
    def width(self) -> int:
        """How many cells a row takes."""
        return -(-self.bins // 2) if self.halves else self.bins * self.cells

    def strips(self, values: np.ndarray, scale: Scale) -> list[Strip]:
        """Return rows whose columns are in bins, (n, bins), as strips."""
        return [Strip(row[None], scale, self.cells, "row" if self.halves else "no") for row in values]

    def marks(self, marks: Sequence[str]) -> str:
        """Return what stands in the cells below columns with these marks, or none; of two in a cell, the first."""
        if self.halves:
            marks = [left or right for left, right in zip_longest(marks[::2], marks[1::2], fillvalue="")]
        return "".join((mark or "·") * self.cells for mark in marks)


@dataclass(frozen=True, eq=False)
class Squares:
    """How a matrix fits on a page with each number as high as it is wide: half a line, or a line where no cell halves.

    So many rows and columns are in a bin where all of them have no room; where there is more, a number takes `size`
    times as much.
    """

    per: int
    size: int
    halves: bool

    @classmethod
    def of(cls, shape: tuple[int, int], lines: int, room: int, halves: bool) -> Squares:
        """Return how a matrix fits into so many lines of so many cells."""
        rows, columns = (2 * lines, room) if halves else (lines, room // 2)
        per = max(-(-shape[0] // rows), -(-shape[1] // columns), 1)
        sizes = [size for size in (WIDEST, 2) if size * shape[0] <= rows and size * shape[1] <= columns]
        return cls(per, sizes[0] if sizes else 1, halves)

    def strips(self, values: np.ndarray, scale: Scale) -> list[Strip]:
        """Return a matrix in bins, (rows, columns), as strips, line by line."""
        high = values.repeat(self.size, axis=0)
        if not self.halves:
            return [Strip(row[None], scale, 2 * self.size) for row in high]
        return [Strip(high[top : top + 2], scale, self.size, "column") for top in range(0, len(high), 2)]

    def rows(self, lines: int) -> list[int | None]:
        """Return the row that begins in each line; None for a line in which none does."""
        tops = [2 * line if self.halves else line for line in range(lines)]
        return [top // self.size * self.per if top % self.size == 0 else None for top in tops]


def means(values: np.ndarray, per: int) -> np.ndarray:
    """Return the means of so many columns each, the last of what is left, (n, columns) -> (n, bins) float64.

    The mean of what holds a NaN is NaN, else of what holds an infinity infinity, so that either is seen.
    """
    if per == 1 or not values.size:
        return values.astype(np.float64)
    starts = np.arange(0, values.shape[1], per)
    counts = np.diff(np.append(starts, values.shape[1]))
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.add.reduceat(values.astype(np.float64), starts, axis=1) / counts
    if not np.isfinite(found).all():
        odd = np.isinf(values), np.isnan(values)
        for which, number in zip(odd, (np.inf, np.nan), strict=True):
            found[np.logical_or.reduceat(which, starts, axis=1)] = number
    return found
