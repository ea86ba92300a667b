"""How `weights` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Excerpt
from embcli.views.parts import left_out, put_guesses, token_column
from embcli.words import counted, in_bytes

if TYPE_CHECKING:
    from embcli.layer import Summary
    from embcli.page import Page
    from embcli.verbs.map import Map
    from embcli.verbs.weights import Matrix

_MOST_ROWS = 200  # of those that were chosen
_FEW_ROWS = 10  # of a whole matrix


def view(result: Matrix, page: Page) -> None:
    """Put a weight matrix on a page, and what all of it is like."""
    rows = Excerpt.most(_MOST_ROWS if result.rows_chosen else _FEW_ROWS, len(result.ids))
    ids = result.ids[rows.places]
    labels = [Column("pos" if result.name == "position" else "ID", [str(row) for row in ids])]
    if result.encoding is not None:
        labels.append(token_column(result.tokens(ids)))
    page.title(title(result))
    columns = page.grid(labels, [Block("", result.rows(ids))], result.columns, rows.gaps, every=result.columns_chosen)
    page.line()
    put_summary(result, result.summary, page)
    _put_left_out(result, page, rows, columns)
    put_padding(result, page)
    put_guesses(page, result.run)


def put_padding(result: Matrix | Map, page: Page) -> None:
    """Say which rows of a real model come behind the last token."""
    size, known = result.layer.shape[0], result.encoding
    if "from" in result.run and known is not None and known.vocabulary_size < size:
        page.line(f"Padding: rows {known.vocabulary_size} to {size - 1}, for which {known.name} has no tokens")


def title(result: Matrix | Map) -> str:
    """Return what heads the page of a weight matrix."""
    size, dim = result.layer.shape
    rows, what = ("V", "token ID") if result.name == "token" else ("C", "position")
    return f"{result.name.capitalize()} weight matrix, ({rows}, D) = ({size:,}, {dim:,}): a row a {what}"


def put_summary(result: Matrix | Map, summary: Summary, page: Page) -> None:
    """Put on the page where a matrix is from, how large it is, and what all of it is like."""
    size, dim = result.layer.shape
    write = page.numbers([Block("", np.array([[summary.minimum, summary.maximum]], np.float32))]).write
    origin = f"seed {result.run['seed']}" if "seed" in result.run else result.run["tensors"][result.name]
    stored = result.run.get("bytes", {}).get(result.name, 4 * size * dim)
    page.line(f"{origin}, {counted(size * dim, 'parameter')} ({result.layer.dtype}), {in_bytes(stored)}")
    page.line(
        f"mean {write(summary.mean)}, standard deviation {write(summary.std)}, "
        f"minimum {write(summary.minimum)}, maximum {write(summary.maximum)}"
    )


def _put_left_out(result: Matrix, page: Page, rows: Excerpt, columns: Excerpt) -> None:
    """Say what is not shown, and how to see it."""
    missing = left_out(rows.missing(result.ids, "row"), columns.missing(result.columns, "column"))
    options = [flag for flag, shown in (("--rows", rows), ("--columns", columns)) if shown.left_out]
    if missing:
        pick = f"{' and '.join(options)} {'picks' if len(options) == 1 else 'pick'}"
        page.line(f"{missing}; {pick}, -f npy gives all.")
