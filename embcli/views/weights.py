"""How `weights` looks."""

import numpy as np

from embcli.hints import hint
from embcli.layer import Summary
from embcli.oldpage import Block, Column, Excerpt, Page
from embcli.verbs.weights import WeightMatrix
from embcli.views.parts import id_labels, origin_in_words, put_left_out, put_origin
from embcli.words import counted, in_bytes

_MOST_CHOSEN_ROWS = 200
_MOST_ROWS = 10  # if no rows are chosen


def view(result: WeightMatrix, page: Page) -> None:
    """Put a weight matrix on a page, and a summary of the whole layer."""
    rows = Excerpt.ends(_MOST_CHOSEN_ROWS if result.rows_chosen else _MOST_ROWS, len(result.ids))
    ids = result.ids[rows.places]
    label = "row" if result.origin.is_other and result.encoding is None else "ID"
    tokens = result.tokens(ids) if result.encoding is not None else None
    labels = id_labels(ids, tokens, "pos" if result.name == "position" else label)
    if result.order is not None:
        labels.append(Column("norm", page.written(result.order.norms[ids])))
        labels.append(Column("rank", result.order.ranks[ids]))
    values = result.rows(ids)
    page.title(title(result))
    columns = page.grid(labels, [Block("", values)], result.columns, rows.gaps, every=result.columns_chosen)
    page.line()
    put_summary(result, result.summary, page)
    cut = [name for name, excerpt in (("rows", rows), ("columns", columns)) if excerpt.left_out]
    row, numbers, every = "row", result.ids, hint("npy")
    if result.order is not None:  # no option picks ranks
        row, numbers, every = "rank", result.order.ranks[result.ids], hint("ndjson")
        cut = cut[1:] if rows.left_out else cut
    how = ", ".join([*([hint(" and ".join(cut))] if cut else []), every])
    put_left_out(page, rows.missing(row, numbers), columns.missing("column", result.columns), how=how)
    put_padding(result, page)
    put_origin(page, result.origin)


def put_padding(result: WeightMatrix, page: Page) -> None:
    """Say which rows of a checkpoint are padding after the last token."""
    if words := _padding(result):
        page.line(f"Padding: {words}")


def _padding(result: WeightMatrix) -> str:
    size, encoding = result.layer.shape[0], result.encoding
    if encoding is None or result.origin.is_seeded or encoding.vocabulary_size >= size:
        return ""
    return f"rows {encoding.vocabulary_size} to {size - 1}, for which {encoding.name} has no tokens"


def title(result: WeightMatrix) -> str:
    """Return the title of the page of a weight matrix."""
    size, dim = result.layer.shape
    if result.name == "token" and result.origin.is_other:
        return f"Tensor {result.origin.tensors['token']}: {counted(size, 'row')}, {counted(dim, 'column')}"
    rows = f"C = {counted(size, 'position')}, one row each"
    if result.name == "token":
        rows = f"V = {counted(size, 'row')}" if _padding(result) else f"V = {counted(size, 'token')}, one row each"
    return f"{result.name.capitalize()} weight matrix: {rows}, D = {counted(dim, 'column')}"


def put_summary(result: WeightMatrix, summary: Summary, page: Page) -> None:
    """Put the origin, the size and a summary of the values of a matrix on a page."""
    size, dim = result.layer.shape
    write = page.numbers(np.array([summary.minimum, summary.maximum], np.float32)).write
    stored = result.origin.sizes.get(result.name, 4 * size * dim)
    origin = origin_in_words(result.origin, result.name)
    page.line(f"{origin}, {counted(size * dim, 'parameter')} ({result.layer.dtype}), {in_bytes(stored)}")
    page.line(
        f"mean {write(summary.mean)}, standard deviation {write(summary.std)}, "
        f"minimum {write(summary.minimum)}, maximum {write(summary.maximum)}"
    )
