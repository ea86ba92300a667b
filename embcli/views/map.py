"""How the map of a weight matrix looks."""

import numpy as np

from embcli.oldpage import Block, Column, Page
from embcli.verbs.map import Bins, WeightMap
from embcli.views.parts import put_origin
from embcli.views.weights import put_padding, put_summary, title
from embcli.words import counted

_FRAME = 14  # lines around the map
_NORM = 10  # cells of the longest norm
ZERO, NON_FINITE = "0", "!"  # marks of rows and columns


def view(result: WeightMap, page: Page) -> None:
    """Put a map of a whole weight matrix on a page, with row norms and marks for zeros and non-finite values."""
    size, dim = result.layer.shape
    lines = max(page.paper.lines - _FRAME, 4)
    rows = -(-size // lines)
    starts = np.arange(0, size, rows)
    labels = [Column("from row", starts)]
    after = [Column("", [], "left", minimum=2), Column("mean norm", [], minimum=_NORM)]
    columns = -(-dim // page.strip_numbers(labels, after))
    bins = result.bins(rows, columns)
    page.title(title(result))
    each = f"{counted(rows, 'row')} x {counted(columns, 'column')}"
    page.line(
        "The size of all numbers: " + (f"the root mean square of {each} each" if rows * columns > 1 else "|number|")
    )
    marks = [
        ZERO * bool(zero) + NON_FINITE * bool(bad)
        for zero, bad in zip(bins.zero_rows, bins.non_finite_rows, strict=True)
    ]
    norms = [f"{norm:#.4g}".rstrip(".") for norm in bins.norms]
    after = [Column("", marks, "left", minimum=2), Column("mean norm", norms, minimum=_NORM)]
    ends = np.append(np.arange(0, dim, columns)[:-1], dim - 1)
    page.strips(labels, [Block("", bins.sizes)], ends, after=after, signed=False, below=_below(bins, columns))
    _put_marks(bins, page)
    page.line()
    put_summary(result, bins.summary, page)
    put_padding(result, page)
    put_origin(page, result.origin)


def _below(bins: Bins, columns: int) -> list[str]:
    """Return the mark of each bin of columns; empty if no column has one."""
    starts = np.arange(0, len(bins.zero_columns), columns)
    zero, bad = (np.logical_or.reduceat(which, starts) for which in (bins.zero_columns, bins.non_finite_columns))
    marks = [NON_FINITE if no_number else ZERO if empty else "" for empty, no_number in zip(zero, bad, strict=True)]
    return marks if any(marks) else []


def _put_marks(bins: Bins, page: Page) -> None:
    """Explain the marks, and count the rows and columns that have them."""
    counts = (
        (ZERO, "all zero", bins.zero_rows, bins.zero_columns),
        (NON_FINITE, "not finite", bins.non_finite_rows, bins.non_finite_columns),
    )
    words = [
        f"{mark}: {counted(int(rows.sum()), 'row')} and {counted(int(columns.sum()), 'column')} {what}"
        for mark, what, rows, columns in counts
        if rows.any() or columns.any()
    ]
    if words:
        page.line(f"{'; '.join(words)}.")
