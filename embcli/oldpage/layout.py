"""Tables before they are drawn: which columns fit, how wide they are, how their numbers are written.

A number is never cut: columns in the middle are omitted instead, and the view names them.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from embcli.oldpage.heat import LEAST, Strip
from embcli.selection import Excerpt

GAP = 2  # cells between columns
LEAST_TOKEN = 6  # cells of the shortest shortened token
_TOKEN_CELLS = 24, LEAST_TOKEN  # of a token beside numbers: as long as possible, or short
_FEW_COLUMNS = 2  # columns of numbers for which tokens are shortened, at most
_FIXED_LIMIT = 1e6  # larger numbers are written with an exponent
_UNIT = re.compile(r"\\x..|\\u.{4}|\\U.{8}|\\.|.", re.DOTALL)  # a character as embcli.tokens.shown writes it
BYTE_IN_HEX = re.compile("[0-9a-f]{2} ?")

Tone = Literal[
    "plain", "strong", "dim", "good", "bad", "embedding", "linear", "token 0", "token 1", "token 2", "token 3"
]
TOKEN_TONES: tuple[Tone, ...] = ("token 0", "token 1", "token 2", "token 3")  # of consecutive tokens


def token_tone(place: int) -> Tone:
    """Return the tone of a token, which differs from those of its neighbours."""
    return TOKEN_TONES[place % len(TOKEN_TONES)]


Align = Literal["left", "right"]


@dataclass(frozen=True, eq=False)
class Word:
    """A piece of a line, or a cell of a table, its tone, and the sign of a number: -1, 0 or 1."""

    text: str
    tone: Tone = "plain"
    sign: int = 0

    @property
    def width(self) -> int:
        """The number of cells."""
        return cell_len(self.text)


Cell = Word | Strip


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table; `least` is the width to which its cells may be shortened, in the middle.

    Anything that is neither a word nor a strip becomes a word.
    """

    header: str
    cells: Sequence[Any] | np.ndarray
    align: Align = "right"
    least: int | None = None
    unit: re.Pattern[str] = _UNIT  # never split
    tone: Tone = "plain"
    minimum: int = 0  # cells of an empty column

    def __post_init__(self) -> None:
        cells = [cell if isinstance(cell, Cell) else Word(str(cell)) for cell in self.cells]
        object.__setattr__(self, "cells", cells)

    @property
    def width(self) -> int:
        """The number of cells."""
        widest: int = max(self.minimum, cell_len(self.header), *(cell.width for cell in self.cells))
        return widest

    def shortened(self, most: int) -> Column:
        """Return the column with each text in at most `most` cells, if they may be shortened."""
        if not self.least:
            return self
        return replace(self, cells=[replace(cell, text=shorten(cell.text, most, self.unit)) for cell in self.cells])

    @property
    def shortest(self) -> Column:
        """The column with its cells as short as possible."""
        return self.shortened(self.least or 0)


@dataclass(frozen=True, eq=False)
class Bar:
    """A line down a table; the columns after it, this many, can have a title in common."""

    title: str = ""
    columns: int = 1
    width: int = 1


Columns = list[Column | Bar]


@dataclass(frozen=True, eq=False)
class Block:
    """A matrix in a table: one row per label."""

    title: str
    values: np.ndarray  # (n, columns) float32, or whole numbers
    apart: int = 1  # kinds of columns that alternate, such as sines and cosines; a colour is a mean of one kind


@dataclass(frozen=True, eq=False)
class Raster:
    """A matrix whose rows are computed as a picture needs them."""

    label: str  # of the numbers of its rows
    rows: np.ndarray  # their numbers, (n,) int64
    columns: np.ndarray  # their numbers, (columns,) int64
    values: Callable[[np.ndarray], np.ndarray]  # numbers of rows -> (n, columns)
    apart: int = 1  # as of a block


class NumberFormat:
    """How the numbers of a table are written, all alike: fixed, or with an exponent if fixed loses too much.

    Whole numbers have no decimals.
    """

    def __init__(self, arrays: Sequence[np.ndarray], precision: int) -> None:
        finite = [values[np.isfinite(values)] for values in arrays]
        largest = max((float(np.abs(values).max()) for values in finite if values.size), default=0.0)
        whole = all(values.dtype.kind in "iu" for values in arrays)
        exponent = not whole and (largest >= _FIXED_LIMIT or 0 < largest < 0.5 * 10.0**-precision)
        self._spec = f".{0 if whole else precision}{'e' if exponent else 'f'}"
        longest = (value for values in arrays for value in _longest(values))
        self.width = max((len(self.write(value)) for value in longest), default=1)

    def write(self, value: float) -> str:
        """Return a number with the chosen decimals."""
        return format(float(value), self._spec)

    def word(self, value: float) -> Word:
        """Return a number as a word with its sign."""
        if not np.isfinite(value):
            return Word(self.write(value), "bad")
        return Word(self.write(value), sign=int(np.sign(value)))


def _longest(values: np.ndarray) -> list[float]:
    """Return the values that are longest to write: both ends, a negative zero, those that are not finite."""
    is_finite = np.isfinite(values)
    finite, others = values[is_finite], values[~is_finite]
    zero = finite[np.signbit(finite) & (finite == 0)][:1]
    ends = [finite.min(), finite.max()] if finite.size else []
    kinds = (others > 0, others < 0, np.isnan(others))
    return [*ends, *zero, *(each for kind in kinds for each in others[kind][:1])]


def cell_len(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def width(columns: Columns, gap: int = GAP) -> int:
    """Return how many cells a table of these columns takes."""
    return sum(column.width + gap for column in columns) - gap


def fitted(columns: Columns, available: int) -> Columns:
    """Return the columns, shortened where allowed if they need more than the available cells.

    The columns share the cells equally; what one of them does not need goes to the others.
    """
    excess = width(columns) - available
    shortenable = [each for each in columns if isinstance(each, Column) and each.least]
    if excess <= 0 or not shortenable:
        return columns
    left = sum(column.width for column in shortenable) - excess
    shortenable.sort(key=lambda each: each.width)
    shortened = {}
    for place, column in enumerate(shortenable):
        others = sum(each.least or 0 for each in shortenable[place + 1 :])
        most = max(min(left // (len(shortenable) - place), left - others), column.least or 0)
        shortened[id(column)] = column if column.width <= most else column.shortened(most)
        left -= min(column.width, most)
    return [shortened.get(id(column), column) for column in columns]


def shorten(text: str, most: int, unit: re.Pattern[str] = _UNIT) -> str:
    r"""Return a text in at most `most` cells, with … in place of its middle; units such as `\xf0` are never split."""
    if cell_len(text) <= most:
        return text
    units = deque(unit.findall(text))
    head, tail = "", ""
    while True:
        at_head = cell_len(head) <= cell_len(tail)
        nearest = units.popleft() if at_head else units.pop()
        if cell_len(head) + cell_len(tail) + cell_len(nearest) >= most:
            return f"{head}…{tail}"
        head, tail = (head + nearest, tail) if at_head else (head, nearest + tail)


def _versions(labels: Sequence[Column]) -> tuple[list[Column], list[Column], list[Column]]:
    """Return labels with long tokens, with short tokens, and without tokens."""
    long, short = ([label.shortened(most) for label in labels] for most in _TOKEN_CELLS)
    return long, short, [label for label in labels if not label.least]


@dataclass(frozen=True, eq=False)
class Grid:
    """Matrices side by side in a table, with labels before and after them; all show the same columns."""

    labels: Sequence[Column]
    blocks: Sequence[Block]
    numbers: np.ndarray  # (columns,) int64: those of the columns
    format: NumberFormat
    after: Sequence[Column] = ()
    tones: Sequence[Tone] = ()  # of the rows

    @property
    def _cell(self) -> int:
        """The number of cells of a column, with its number above it."""
        return max(self.format.width, len(str(self.numbers.max(initial=0))))

    def _most(self, available: int, labels: Sequence[Column], dots: bool = False) -> int:
        """Return how many columns of numbers each block has beside labels, a bar and perhaps a column of dots."""
        taken = sum(label.width + GAP for label in [*labels, *self.after])
        taken += len(self.blocks) * (2 if dots else 1) * (1 + GAP)
        return (available + GAP - taken) // (len(self.blocks) * (self._cell + GAP))

    def _most_beside_shortest(self, available: int) -> int:
        short = replace(self, after=[label.shortest for label in self.after])
        return short._most(available, [label.shortest for label in self.labels])

    def fits(self, available: int) -> bool:
        """Return whether the available cells are enough for all columns."""
        return self._most_beside_shortest(available) >= len(self.numbers)

    def parts(self, available: int) -> Iterator[Grid]:
        """Yield the grid in parts that fit, with consecutive columns."""
        most = max(self._most_beside_shortest(available), 1)
        for start in range(0, max(len(self.numbers), 1), most):
            blocks = [replace(block, values=block.values[:, start : start + most]) for block in self.blocks]
            yield replace(self, blocks=blocks, numbers=self.numbers[start : start + most])

    def columns(self, available: int) -> tuple[Columns, Excerpt]:
        """Return the columns of the table, and which of the matrices' columns it shows."""
        labels, shown = self._fit(available)
        columns: Columns = [*labels]
        for block in self.blocks:
            dots = Column("…", ["…"] * len(block.values), "left", tone="dim")
            inner = [self._column(block, index) for index in shown.places.tolist()]
            inner[shown.head : shown.head] = [dots] if shown.left_out else []
            columns += [Bar(block.title, len(inner)), *inner]
        return [*columns, *self.after], shown

    def _column(self, block: Block, index: int) -> Column:
        words = [self.format.word(value) for value in block.values[:, index]]
        for row, tone in enumerate(self.tones):  # a number in a dim row has no sign to stand out by
            word = words[row]
            words[row] = Word(word.text, tone if word.tone == "plain" else word.tone, 0 if tone == "dim" else word.sign)
        return Column(str(self.numbers[index]), words, minimum=self._cell)

    def _fit(self, available: int) -> tuple[list[Column], Excerpt]:
        """Return labels, shortened if necessary, and which columns of numbers fit beside them."""
        count = len(self.numbers)
        long, short, without_tokens = _versions(self.labels)
        for labels in (long, short):
            if self._most(available, labels) >= count:
                return labels, Excerpt.first(count, count)
        labels = long if self._most(available, long, dots=True) >= _FEW_COLUMNS else short
        if self._most(available, labels, dots=True) < 1:
            labels = without_tokens  # a number is worth more than a token's text
        return labels, Excerpt.ends(max(self._most(available, labels, dots=True), 1), count)


def beside(
    available: int, labels: Sequence[Column], after: Sequence[Column], blocks: int = 1, least: int = LEAST
) -> tuple[list[Column], int]:
    """Return the labels of strips and how many cells each block has beside them.

    If a strip has fewer cells than `least`, tokens are shortened, and then omitted.
    """
    for version in _versions(labels):
        taken = sum(label.width + GAP for label in [*version, *after]) + blocks * (1 + GAP)
        cells = (available + GAP - taken) // blocks - GAP
        if cells >= least:
            break
    return version, max(cells, 1)
