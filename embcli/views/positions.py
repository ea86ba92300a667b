"""How `positions` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embcli.page import Block, Column, Excerpt
from embcli.views.parts import left_out, put_origin

if TYPE_CHECKING:
    from embcli.layer import Origin
    from embcli.page import Page
    from embcli.positions.kind import Matrix
    from embcli.verbs.positions import PositionTable

_MOST_ROWS = 200  # of the rows that the user chose
_ONE_TABLE, _TWO_TABLES = 10, 4  # rows of all positions in a table, if a page has one table, or two
_AROUND_ONE, _AROUND_TWO = 10, 17  # lines around the strips of one table, or of two


def view(result: PositionTable, page: Page) -> None:
    """Put the matrices of a kind of positions, or its dot products, on a page."""
    options = result.options
    origin = None if result.origin is None or result.origin.is_seeded else result.origin  # a checkpoint
    words = result.kind.shown_words(result.length, stored=origin is not None)
    if options.similarity:
        t = f"{result.length:,}"
        page.title(f"Dot products of {options.kind} positions, (T, T) = ({t}, {t}), D = {result.kind.dim:,}")
        page.line(words.products)
        if result.kind.needs_row(similarity=True):
            page.line(f"The row is that of token ID {options.token_id()}.")
    else:
        page.title(words.title)
        page.line(words.formula)
    shown = [matrix for matrix in result.matrices if matrix.heading is not None]
    if options.similarity and page.paper.heat:
        page.picture("pos", result.chosen, result.columns, result.means)
        shown = []
    for place, matrix in enumerate(shown):
        if place:
            page.line()
        if matrix.heading:
            page.line(matrix.heading)
        _put(result, matrix, page, alone=len(shown) == 1)
    if words.note and not options.similarity:
        page.line(words.note)
    if origin is not None:
        page.line(_origin_in_words(origin))
    if result.origin is not None:
        put_origin(page, result.origin)


def _put(result: PositionTable, matrix: Matrix, page: Page, alone: bool) -> None:
    """Put one matrix on the page, and the names of the rows and columns that are left out."""
    most = _ONE_TABLE if alone else _TWO_TABLES
    numbers = result.chosen if matrix.numbers is None else matrix.numbers
    rows = Excerpt.most(most, len(numbers))
    if matrix.numbers is None and result.options.rows is not None:
        rows = Excerpt.most(_MOST_ROWS, len(numbers))
    elif matrix.numbers is None and page.paper.heat:  # positions in a row: waves become visible
        strips = page.paper.lines - _AROUND_ONE if alone else (page.paper.lines - _AROUND_TWO) // 2
        rows = Excerpt(min(max(strips, 3), len(numbers)), 0, len(numbers))
    labels = [Column(matrix.label, [str(number) for number in numbers[rows.places]])]
    block = Block("", matrix.rows(numbers[rows.places]))
    columns = page.grid(labels, [block], matrix.columns, rows.gaps, every=result.options.columns is not None)
    missing = left_out(rows.missing(numbers, "row"), columns.missing(matrix.columns, "column"))
    if missing:
        page.line(missing)


def _origin_in_words(origin: Origin) -> str:
    """Return in words which rows of a file these are."""
    first = f"; position 0 is its row {origin.first_position}" if origin.first_position else ""
    return f"{origin.tensors['position']} ({origin.dtypes['position']}){first}"
