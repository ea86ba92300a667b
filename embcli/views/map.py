"""How the map of a weight matrix looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column
from embcli.views.parts import put_guesses
from embcli.views.weights import put_padding, put_summary, title
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.map import Bins, Map

_FRAME = 14  # lines around the map
_NORM = 10  # cells that a norm takes at most
ZERO, ODD = "0", "!"  # marks of rows and columns


def view(result: Map, page: Page) -> None:
    """Put a whole weight matrix on a page as a map of its bins, with the norms of the rows and what is odd about it."""
    size, dim = result.layer.shape
    lines = max(page.paper.lines - _FRAME, 4)
    rows = -(-size // lines)
    starts = np.arange(0, size, rows)
    labels = [Column("from row", [str(start) for start in starts])]
    after = [Column("", [], "left", minimum=2), Column("mean norm", [], minimum=_NORM)]
    columns = -(-dim // page.room(labels, after))
    bins = result.bins(rows, columns)
    page.title(title(result))
    each = f"{counted(rows, 'row')} x {counted(columns, 'column')}"
    page.line(
        "The size of all numbers: " + (f"the root mean square of {each} each" if rows * columns > 1 else "|number|")
    )
    marks = [_mark(zero > 0, odd > 0) for zero, odd in zip(bins.zero_rows, bins.odd_rows, strict=True)]
    norms = [f"{norm:#.4g}".rstrip(".") for norm in bins.norms]
    after = [Column("", marks, "left", minimum=2), Column("mean norm", norms, minimum=_NORM)]
    ends = np.append(np.arange(0, dim, columns)[:-1], dim - 1)
    page.strips(labels, [Block("", bins.sizes)], ends, after=after, signed=False, below=_below(bins, columns))
    _put_odd(bins, page)
    page.line()
    put_summary(result, bins.summary, page)
    put_padding(result, page)
    put_guesses(page, result.run)


def _mark(zero: bool, odd: bool) -> str:
    return (ZERO if zero else "") + (ODD if odd else "")


def _below(bins: Bins, columns: int) -> list[str]:
    """Return the mark of each bin of columns; none at all where there is nothing to mark."""
    starts = np.arange(0, len(bins.zero_columns), columns)
    zero, odd = (np.logical_or.reduceat(which, starts) for which in (bins.zero_columns, bins.odd_columns))
    marks = [ODD if no_number else ZERO if empty else "" for empty, no_number in zip(zero, odd, strict=True)]
    return marks if any(marks) else []


def _put_odd(bins: Bins, page: Page) -> None:
    """Say what the marks stand for, and how many rows and columns have them."""
    found = [
        (ZERO, "all zero", int(bins.zero_rows.sum()), int(bins.zero_columns.sum())),
        (ODD, "not finite", int(bins.odd_rows.sum()), int(bins.odd_columns.sum())),
    ]
    words = [
        f"{mark}: {counted(rows, 'row')} and {counted(columns, 'column')} {what}"
        for mark, what, rows, columns in found
        if rows or columns
    ]
    if words:
        page.line(f"{'; '.join(words)}.")
