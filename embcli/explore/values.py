"""The values of a row, or of several, as tables that go on down the screen from a first column on."""

from __future__ import annotations

import math
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING

from embcli.explore.drawing import BOLD, DIM, PLAIN, Line, beside, length, lines_of, new_sheet
from embcli.oldpage import Bar, Column, Word
from embcli.oldpage.layout import GAP, cell_len
from embcli.oldpage.lines import Look, Piece

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from embcli.oldpage import NumberFormat, Page

_WARM, _COLD, _BAD = Look("warm"), Look("cold"), Look("bad", bold=True)
_LABEL = "col"
_PER_LINE = (16, 10, 8, 5, 4, 2, 1)
ABOVE = 2  # lines above the first values: the header and its rule


def across(page: Page, values: np.ndarray, first: int, width: int, lines: int) -> tuple[int, int]:
    """Put values of a row, (D,), on a page, line after line; return how many a line has, and the end of the last."""
    dim = len(values)
    label = max(len(str(dim - 1)), len(_LABEL))
    here = values[first : first + lines * _PER_LINE[0]]
    while True:
        numbers = page.numbers(here)
        available = width - label - 2 * GAP - 1
        per = next((each for each in _PER_LINE if each * (numbers.width + GAP) - GAP <= available), 1)
        if len(here) <= lines * per:
            break
        here = here[: lines * per]
    starts = range(first, first + len(here), per)
    cells = [[numbers.word(here[place]) for place in range(at, len(here), per)] for at in range(min(per, len(here)))]
    filled = [[*column, *[Word("")] * (len(starts) - len(column))] for column in cells]
    columns = [Column(f"+{at}", column, minimum=numbers.width) for at, column in enumerate(filled)]
    page.table([Column(_LABEL, list(map(str, starts)), minimum=label, tone="dim"), Bar(), *columns])
    return per, first + len(here)


def down(
    rows: Mapping[str, np.ndarray], first: int, width: int, height: int, color: bool
) -> tuple[list[Line], int, int]:
    """Return the values of named rows, (D,) each, side by side: a line per column, in blocks beside each other.

    The other numbers are how many columns a block has, and the first one that is not shown.
    """
    page = new_sheet(width, color)
    dim, lines = len(next(iter(rows.values()))), max(height - ABOVE, 1)
    widest = page.numbers(*(values[first : first + lines * width] for values in rows.values())).width
    label = max(len(str(dim - 1)), len(_LABEL))
    cells = label + GAP + 1 + sum(GAP + max(widest, cell_len(name)) for name in rows)
    end = min(first + max((width + GAP + 1) // (cells + GAP + 1), 1) * lines, dim)
    numbers = page.numbers(*(values[first:end] for values in rows.values()))
    drawn: list[Line] = []
    for start in range(first, end, lines):
        stop = min(start + lines, end)
        block = new_sheet(width, color)
        label_column = Column(_LABEL, list(map(str, range(start, stop))), minimum=label, tone="dim")
        columns = [
            Column(name, [numbers.word(value) for value in values[start:stop]], minimum=numbers.width)
            for name, values in rows.items()
        ]
        block.table([label_column, Bar(), *columns])
        found = lines_of(block)
        drawn = beside(drawn, found, max(map(length, drawn))) if drawn else found
    return drawn, lines, end


def with_numbers(table: list[Line], values: np.ndarray, first: int, numbers: NumberFormat, cell: int) -> list[Line]:
    """Return a table with numbers, (rows, columns), behind its rows; their first column has this number.

    A page would take ten times as long for a table of a whole screen.
    """
    header, rule, *rows = table
    count = values.shape[1]
    gap = " " * GAP
    names = "".join(f"{gap}{number:>{cell}}" for number in range(first, first + count))
    lines = [[*header, Piece(names, BOLD)], [*rule, Piece("─" * len(names), DIM)]]
    for row, line in zip(values.tolist(), rows, strict=True):
        written = [(_look(value), f"{gap}{numbers.write(value):>{cell}}") for value in row]
        pieces = [Piece("".join(text for _, text in same), look) for look, same in groupby(written, key=itemgetter(0))]
        lines.append([*line, *pieces])
    return lines


def _look(value: float) -> Look:
    if not math.isfinite(value):
        return _BAD
    return _WARM if value > 0 else _COLD if value < 0 else PLAIN
