"""Tables of numbers: which rows and columns fit, and how the numbers stand in them.

A number is never cut: columns in the middle are left out instead, and the line below the table says which.
"""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from rich.cells import cell_len
from rich.text import Text

from embcli.page.terminal import plain_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import JustifyMethod as Justify
    from rich.table import Table

    from embcli.page.terminal import Page

_GAP = 2  # cells between columns
_LEAST_TOKEN = 6  # a token label is not shortened below this
_MOST_TOKEN = 24
_FIXED_LIMIT = 1e6  # from here on numbers are written with an exponent
_COLD, _NEUTRAL, _WARM = (60, 130, 246), (140, 140, 140), (234, 88, 12)
_SHADES = 8
_SHOWN_CHARACTER = re.compile(r"\\x..|\\u.{4}|\\U.{8}|\\.|.", re.DOTALL)  # as embcli.tokens.shown writes them
BYTE_IN_HEX = re.compile("[0-9a-f]{2} ?")


@dataclass(frozen=True)
class Label:
    """A column beside the numbers: what row this is."""

    header: str
    cells: list[str]
    justify: Justify = "right"
    shortens: bool = False  # tokens may be shortened in the middle, nothing else is


@dataclass(frozen=True)
class Half:
    """A matrix in a table: a row for each label."""

    title: str
    values: np.ndarray  # (n, columns) float32


@dataclass(frozen=True)
class Shown:
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

    @classmethod
    def most(cls, count: int, total: int) -> Shown:
        """Show at most `count` of `total`, as many of the first as of the last."""
        if total <= count:
            return cls(total, 0, total)
        return cls(count - count // 2, count // 2, total)


class Numbers:
    """How the numbers of a table are written, all alike: fixed, or with an exponent where that says too little."""

    def __init__(self, halves: Sequence[Half], precision: int) -> None:
        finite = [half.values[np.isfinite(half.values)] for half in halves]
        self.scale = max((float(np.abs(values).max()) for values in finite if values.size), default=0.0)
        exponent = self.scale >= _FIXED_LIMIT or 0 < self.scale < 0.5 * 10.0**-precision
        self._spec = f".{precision}{'e' if exponent else 'f'}"
        self.width = max((len(self.write(value)) for half in halves for value in _extremes(half.values)), default=1)

    def write(self, value: float) -> str:
        """Return a number with the chosen decimals."""
        return format(float(value), self._spec)

    def style(self, value: float) -> str:
        """Return a colour by sign and size: cold below zero, warm above, grey near it."""
        if not np.isfinite(value):
            return "bold red"
        share = round(min(abs(float(value)) / self.scale, 1.0) * _SHADES) / _SHADES if self.scale else 0.0
        end = _WARM if value > 0 else _COLD
        red, green, blue = (round(n + (e - n) * share) for n, e in zip(_NEUTRAL, end, strict=True))
        return f"rgb({red},{green},{blue})"


def _extremes(values: np.ndarray) -> list[float]:
    """Return the values that are longest to write."""
    finite = values[np.isfinite(values)]
    longest = [float(finite.min()), float(finite.max())] if finite.size else []
    return longest + [value for value in (np.nan, np.inf, -np.inf) if _has(values, value)]


def _has(values: np.ndarray, value: float) -> bool:
    return bool(np.isnan(values).any() if np.isnan(value) else (values == value).any())


def print_grid(
    page: Page,
    labels: Sequence[Label],
    halves: Sequence[Half],
    columns: np.ndarray,
    rows: Shown,
    after: Sequence[Label] = (),
) -> Shown:
    """Put a table on the page and return which of its columns are shown, the same ones in each half.

    `columns` are the numbers of the columns, (columns,) int64; labels and halves have a row for each place of `rows`.
    """
    numbers = Numbers(halves, page.precision)
    cell = max(numbers.width, *(len(str(number)) for number in _ends(columns)), 1)
    labels, shown = _fit(page.width, [*labels], [*after], len(halves), cell, len(columns))
    table = plain_table()
    for label in labels:
        _add_column(table, label.header, label.justify, max(map(cell_len, [label.header, *label.cells])))
    for _ in halves:
        _add_column(table, "│", "left", 1, "dim")
        for place, index in enumerate(shown.places.tolist()):
            if shown.left_out and place == shown.head:
                _add_column(table, "…", "left", 1, "dim")
            _add_column(table, str(columns[index]), "right", cell)
        if shown.left_out and not shown.tail:
            _add_column(table, "…", "left", 1, "dim")
    for label in after:
        _add_column(table, label.header, label.justify, max(map(cell_len, [label.header, *label.cells])))
    for row in range(len(rows.places)):
        if rows.left_out and row == rows.head:
            table.add_row(*["│" if str(column.header) == "│" else "⋮" for column in table.columns], style="dim")
        table.add_row(*_cells(page, numbers, labels, halves, shown, after, row))
    width = sum(column.min_width or 0 for column in table.columns) + _GAP * (len(table.columns) - 1)
    if any(half.title for half in halves):
        page.print(_titles(labels, halves, table), width=width)
    page.print(table, width=width)
    return shown


def _fit(
    width: int, labels: list[Label], after: list[Label], halves: int, cell: int, count: int
) -> tuple[list[Label], Shown]:
    """Shorten token labels where there is need, and return how many columns fit beside them."""

    def fitting(dots: bool) -> int:
        """Return how many columns of numbers fit: all other columns, and a gap behind each but the last, come first."""
        taken = sum(max(map(cell_len, [label.header, *label.cells])) + _GAP for label in [*labels, *after])
        taken += halves * (1 + dots) * (1 + _GAP)
        return (width + _GAP - taken) // (halves * (cell + _GAP))

    for most in (_MOST_TOKEN, _LEAST_TOKEN):
        labels = [_shortened(label, most) if label.shortens else label for label in labels]
        if fitting(dots=False) >= count:
            return labels, Shown(count, 0, count)
        if fitting(dots=True) >= 2:
            break
    if fitting(dots=True) < 1:
        labels = [label for label in labels if not label.shortens]  # a number is worth more than a token's text
    return labels, Shown.most(max(fitting(dots=True), 1), count)


def _shortened(label: Label, most: int) -> Label:
    cells = [shorten(text, most) for text in label.cells]
    return Label(label.header, cells, label.justify, label.shortens)


def shorten(text: str, most: int, unit: re.Pattern[str] = _SHOWN_CHARACTER) -> str:
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


def _add_column(table: Table, header: str, justify: Justify, width: int, style: str = "") -> None:
    table.add_column(
        Text(header),
        justify=justify,
        min_width=width,
        no_wrap=True,
        overflow="crop",
        style=style,
    )


def _cells(
    page: Page,
    numbers: Numbers,
    labels: Sequence[Label],
    halves: Sequence[Half],
    shown: Shown,
    after: Sequence[Label],
    row: int,
) -> list[Text]:
    cells = [Text(label.cells[row]) for label in labels]
    for half in halves:
        values = half.values[row, shown.places]
        written = [Text(numbers.write(value), numbers.style(value) if page.color else "") for value in values]
        if shown.left_out:
            written.insert(shown.head, Text("…"))
        cells += [Text("│"), *written]
    return cells + [Text(label.cells[row]) for label in after]


def _titles(labels: Sequence[Label], halves: Sequence[Half], table: Table) -> Text:
    """Return the line over a table that names its halves, each over its own columns."""
    widths = [column.min_width or 0 for column in table.columns]
    bars = [place for place, column in enumerate(table.columns) if str(column.header) == "│"]
    line = Text()
    for bar, half in zip(bars, halves, strict=True):
        start = sum(width + _GAP for width in widths[:bar])
        line.pad_right(start - line.cell_len)
        line.append("│  ", "dim").append(half.title, "bold")
    return line


def _ends(columns: np.ndarray) -> list[int]:
    return [int(columns.max())] if len(columns) else []


def left_out(shown: Shown, numbers: np.ndarray, what: str) -> str:
    """Return in words what is not shown: `columns 3 to 252 (250 of 256)`; an empty text where nothing is left out."""
    if not shown.left_out:
        return ""
    hidden = numbers[shown.head : shown.total - shown.tail]
    consecutive = bool((np.diff(hidden) == 1).all())
    which = f" {hidden[0]} to {hidden[-1]}" if consecutive and len(hidden) > 1 else ""
    which = f" {hidden[0]}" if len(hidden) == 1 else which
    return f"{what}{'s' * (len(hidden) > 1)}{which} ({shown.left_out:,} of {shown.total:,})"
