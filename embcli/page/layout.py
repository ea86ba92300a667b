"""Tables worked out before they are put on a page: which columns fit, how wide they are, how numbers stand in them.

A number is never cut: columns in the middle are left out instead, and the view says which.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from embcli.page.heat import Strip

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

GAP = 2  # cells between columns
LEAST_TOKEN = 6  # cells that a token is shortened to at most
_TOKEN_CELLS = 24, LEAST_TOKEN  # that a token beside numbers may take
_FEW_COLUMNS = 2  # of numbers, for which tokens are shortened
_FIXED_LIMIT = 1e6  # from here on numbers are written with an exponent
_UNIT = re.compile(r"\\x..|\\u.{4}|\\U.{8}|\\.|.", re.DOTALL)  # a character as embcli.tokens.shown writes it
BYTE_IN_HEX = re.compile("[0-9a-f]{2} ?")

Tone = Literal[
    "plain", "strong", "dim", "good", "bad", "embedding", "linear", "token 0", "token 1", "token 2", "token 3"
]
TOKEN_TONES: tuple[Tone, ...] = ("token 0", "token 1", "token 2", "token 3")  # of tokens that follow each other
Align = Literal["left", "right"]


@dataclass(frozen=True, eq=False)
class Word:
    """A piece of a line or a cell of a table, and how it is to look.

    `share` is for a number: its part of the largest one beside it, from -1 to 1.
    """

    text: str
    tone: Tone = "plain"
    share: float | None = None

    @property
    def width(self) -> int:
        """How many cells it takes."""
        return cell_len(self.text)


Cell = str | Word | Strip


@dataclass(frozen=True, eq=False)
class Column:
    """A column of a table; where `least` is given its cells may be shortened in the middle, to so many cells."""

    header: str
    cells: Sequence[Cell]
    align: Align = "right"
    least: int | None = None
    unit: re.Pattern[str] = _UNIT  # what is shown whole or not at all
    tone: Tone = "plain"
    minimum: int = 0  # cells that it takes where all of its own are shorter

    @property
    def width(self) -> int:
        """How many cells it takes."""
        return max(self.minimum, cell_len(self.header), *map(_cells_of, self.cells), 0)

    def shortened(self, most: int) -> Column:
        """Return the column with no text longer than this."""
        return replace(self, cells=[self._shortened(cell, most) for cell in self.cells])

    def _shortened(self, cell: Cell, most: int) -> Cell:
        if isinstance(cell, Word):
            return replace(cell, text=shorten(cell.text, most, self.unit))
        return shorten(cell, most, self.unit) if isinstance(cell, str) else cell

    def ordered(self, order: np.ndarray) -> Column:
        """Return the column with its cells in another order, (n,) int64."""
        return replace(self, cells=[self.cells[place] for place in order.tolist()])

    def filled(self, count: int) -> Column:
        """Return the column with so many cells, the last of them empty."""
        return replace(self, cells=[*self.cells, *[""] * (count - len(self.cells))])

    @property
    def shortest(self) -> Column:
        """The column with its cells as short as they may get."""
        return self.shortened(self.least) if self.least else self


@dataclass(frozen=True, eq=False)
class Bar:
    """A line down a table; the columns behind it, so many, may have a title in common."""

    title: str = ""
    columns: int = 1
    width: int = 1


Columns = list[Column | Bar]


@dataclass(frozen=True, eq=False)
class Block:
    """A matrix in a table: a row for each label."""

    title: str
    values: np.ndarray  # (n, columns) float32, or whole numbers


def consecutive(numbers: np.ndarray) -> bool:
    """Return whether each number is one more than the last."""
    return bool((np.diff(numbers) == 1).all())


@dataclass(frozen=True, eq=False)
class Excerpt:
    """Which places of a longer list are shown: the first and the last, or all."""

    head: int
    tail: int
    total: int

    @property
    def places(self) -> np.ndarray:
        """The places that are shown, (n,) int64."""
        return np.concatenate([np.arange(self.head), np.arange(self.total - self.tail, self.total)])

    @property
    def left_out(self) -> int:
        """How many are not shown."""
        return self.total - self.head - self.tail

    @property
    def gaps(self) -> tuple[int, ...]:
        """The place among those shown in front of which others are left out, if any are."""
        return (self.head,) if self.left_out else ()

    @classmethod
    def most(cls, count: int, total: int) -> Excerpt:
        """Show at most `count` of `total`, as many of the first as of the last."""
        if total <= count:
            return cls(total, 0, total)
        return cls(count - count // 2, count // 2, total)

    def missing(self, numbers: np.ndarray, what: str, several: str = "") -> str:
        """Return in words what is not shown: `columns 3 to 252 (250 of 256)`; an empty text where nothing is left out.

        `numbers` are those of all places, and `several` is the word for more than one, where that is not `what` and s.
        """
        if not self.left_out:
            return ""
        hidden = numbers[self.head : self.total - self.tail]
        which = f" {hidden[0]} to {hidden[-1]}" if consecutive(hidden) and len(hidden) > 1 else ""
        which = f" {hidden[0]}" if len(hidden) == 1 else which
        name = (several or f"{what}s") if len(hidden) > 1 else what
        return f"{name}{which} ({self.left_out:,} of {self.total:,})"


class Numbers:
    """How the numbers of a table are written, all alike: fixed, or with an exponent where that says too little.

    Whole numbers are written as such.
    """

    def __init__(self, blocks: Sequence[Block], precision: int) -> None:
        finite = [block.values[np.isfinite(block.values)] for block in blocks]
        self._scale = max((float(np.abs(values).max()) for values in finite if values.size), default=0.0)
        whole = all(block.values.dtype.kind in "iu" for block in blocks)
        exponent = not whole and (self._scale >= _FIXED_LIMIT or 0 < self._scale < 0.5 * 10.0**-precision)
        self._spec = f".{0 if whole else precision}{'e' if exponent else 'f'}"
        longest = (value for block in blocks for value in _longest(block.values))
        self.width = max((len(self.write(value)) for value in longest), default=1)

    def write(self, value: float) -> str:
        """Return a number with the chosen decimals."""
        return format(float(value), self._spec)

    def word(self, value: float) -> Word:
        """Return a number as it stands in a table, with its share of the largest one."""
        if not np.isfinite(value):
            return Word(self.write(value), "bad")
        return Word(self.write(value), share=float(value) / self._scale if self._scale else 0.0)


def _longest(values: np.ndarray) -> list[float]:
    """Return the values that are longest to write."""
    finite = values[np.isfinite(values)]
    longest = [float(finite.min()), float(finite.max())] if finite.size else []
    longest += [-0.0] if (np.signbit(finite) & (finite == 0)).any() else []
    return longest + [value for value in (np.nan, np.inf, -np.inf) if _has(values, value)]


def _has(values: np.ndarray, value: float) -> bool:
    return bool(np.isnan(values).any() if np.isnan(value) else (values == value).any())


def cell_len(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from rich.cells import cell_len

    return cell_len(text)


def _cells_of(cell: Cell) -> int:
    """Return how many cells of a terminal a cell of a table takes."""
    return cell_len(cell) if isinstance(cell, str) else cell.width


def width(columns: Columns, gap: int = GAP) -> int:
    """Return how many cells a table of these columns takes."""
    return sum(column.width + gap for column in columns) - gap


def fitted(columns: Columns, room: int) -> Columns:
    """Return the columns, shortened where they may be and all of them are wider than the room.

    What there is room for goes to the columns in equal parts, and what one of them does not need to the others.
    """
    excess = width(columns) - room
    soft = sorted((each for each in columns if isinstance(each, Column) and each.least), key=lambda each: each.width)
    if excess <= 0 or not soft:
        return columns
    left = sum(column.width for column in soft) - excess
    shortened = {}
    for place, column in enumerate(soft):
        others = sum(each.least or 0 for each in soft[place + 1 :])
        most = max(min(left // (len(soft) - place), left - others), column.least or 0)
        shortened[id(column)] = column if column.width <= most else column.shortened(most)
        left -= min(column.width, most)
    return [shortened.get(id(column), column) for column in columns]


def shorten(text: str, most: int, unit: re.Pattern[str] = _UNIT) -> str:
    """Return a text in at most so many cells, with … in place of its middle; a unit of it is shown whole or not."""
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


def grid(
    room: int,
    written: Numbers,
    labels: Sequence[Column],
    blocks: Sequence[Block],
    numbers: np.ndarray,
    after: Sequence[Column] = (),
    tones: Sequence[Tone] = (),
) -> tuple[Columns, Excerpt]:
    """Return matrices side by side as the columns of a table, and which of their columns are in it.

    `tones` are those of the rows, where they are not coloured by their numbers.
    """
    cell = _cell(written, numbers)
    kept, shown = _fit(room, [*labels], [*after], len(blocks), cell, len(numbers))
    columns: Columns = [*kept]
    for block in blocks:
        columns.append(Bar(block.title, len(shown.places) + len(shown.gaps)))
        for place, index in enumerate(shown.places.tolist()):
            if place in shown.gaps:
                columns.append(_dots(len(block.values)))
            words = [written.word(value) for value in block.values[:, index]]
            if tones:
                words = [Word(word.text, tone) for word, tone in zip(words, tones, strict=True)]
            columns.append(Column(str(numbers[index]), words, minimum=cell))
        if shown.left_out and not shown.tail:
            columns.append(_dots(len(block.values)))
    return [*columns, *after], shown


def beside(
    room: int, labels: Sequence[Column], after: Sequence[Column], blocks: int, least: int
) -> tuple[list[Column], int]:
    """Return the labels of strips, shortened where there is need, and how many cells each block has beside them.

    Labels are shortened, and tokens then left out, where a strip would have fewer cells than `least`.
    """
    whole, short = ([label.shortened(most) if label.least else label for label in labels] for most in _TOKEN_CELLS)
    for kept in (whole, short, [label for label in labels if not label.least]):
        taken = sum(label.width + GAP for label in [*kept, *after]) + blocks * (1 + GAP)
        cells = (room + GAP - taken) // blocks - GAP
        if cells >= least:
            break
    return kept, max(cells, 1)


def parts(
    room: int, written: Numbers, labels: Sequence[Column], blocks: int, numbers: np.ndarray
) -> Iterator[np.ndarray]:
    """Yield the places of columns with these numbers in parts that fit beside the labels, one after the other."""
    most = max(_most(room, [label.shortest for label in labels], blocks, _cell(written, numbers), False), 1)
    for start in range(0, max(len(numbers), 1), most):
        yield np.arange(start, min(start + most, len(numbers)))


def _dots(rows: int) -> Column:
    """Return the column that tells of others which are left out."""
    return Column("…", ["…"] * rows, "left", tone="dim")


def fits(room: int, written: Numbers, labels: Sequence[Column], blocks: int, numbers: np.ndarray) -> bool:
    """Return whether there is room for all columns of numbers in each block."""
    shortest = [label.shortest for label in labels]
    return _most(room, shortest, blocks, _cell(written, numbers), False) >= len(numbers)


def _cell(written: Numbers, numbers: np.ndarray) -> int:
    """Return how many cells a column takes, with its number above it."""
    return max(written.width, len(str(numbers.max(initial=0))))


def _most(room: int, labels: Sequence[Column], blocks: int, cell: int, dots: bool) -> int:
    """Return how many columns of numbers fit into each block beside labels, a bar and dots."""
    taken = sum(label.width + GAP for label in labels) + blocks * (2 if dots else 1) * (1 + GAP)
    return (room + GAP - taken) // (blocks * (cell + GAP))


def _fit(
    room: int, labels: list[Column], after: list[Column], blocks: int, cell: int, count: int
) -> tuple[list[Column], Excerpt]:
    """Shorten labels where there is need, and return how many columns of numbers fit beside them."""
    whole, short = ([label.shortened(most) if label.least else label for label in labels] for most in _TOKEN_CELLS)
    for kept in (whole, short):
        if _most(room, [*kept, *after], blocks, cell, False) >= count:
            return kept, Excerpt(count, 0, count)
    kept = whole if _most(room, [*whole, *after], blocks, cell, True) >= _FEW_COLUMNS else short
    if _most(room, [*kept, *after], blocks, cell, True) < 1:
        kept = [label for label in labels if not label.least]  # a number is worth more than a token's text
    return kept, Excerpt.most(max(_most(room, [*kept, *after], blocks, cell, True), 1), count)
