"""How `positions` looks."""

import numpy as np

from embcli.names import SHORT_LENGTH
from embcli.oldpage import Block, Column, Excerpt, Page, Raster
from embcli.positions.kind import Matrix
from embcli.verbs.positions import PositionTable
from embcli.views.parts import left_out, origin_in_words, put_origin, put_prose
from embcli.words import counted

_MOST_ROWS = 200  # of the rows that the user chose
_ONE_TABLE, _TWO_TABLES = 10, 4  # rows of a longer table, if a page has one table, or two
_LEAST_ROWS = 3
_AROUND_TWO = 12  # lines around the rows of two tables, beside those above and below both
_HEAD = 3  # lines above a picture
_BELOW = 2  # lines of a screen below a page: the origin of seeded rows, and the prompt


def view(result: PositionTable, page: Page) -> None:
    """Put the matrices of a kind of positions, or its dot products, on a page."""
    options, total, result = result.options, result.length, result.for_page
    origin = None if result.origin is None or result.origin.is_seeded else result.origin  # a checkpoint
    words = result.kind.words(result.length, stored=origin is not None)
    first = f" 0 to {result.length - 1} of {total:,}" if result.length < total else ""
    shown = [matrix for matrix in result.matrices if matrix.heading is not None]
    as_pictures = page.paper.heat and (options.similarity or options.rows is None)
    end = page.part()
    for line in filter(None, (words.note if not options.similarity else "", result.reason)):
        put_prose(line, end)
    if origin is not None and not (result.reason and "position" not in origin.tensors):
        layer = "position" if "position" in origin.tensors else "token"
        offset = f"; position 0 is its row {origin.first_position}" if layer == "position" else ""
        end.line(f"{origin_in_words(origin, layer)} ({origin.dtypes[layer]}){offset if origin.first_position else ''}")
    if result.origin is not None:
        put_origin(end, result.origin)
    if options.similarity:
        page.title(f"Dot products of {options.kind} positions{first}: T = {counted(result.length, 'position')}")
        page.line(words.products)
        if result.kind.needs_row(similarity=True):
            page.line(f"The row is that of token ID {options.token_id()}.")
    else:
        page.title(f"{words.name}{first}: {words.shape}")
        put_prose(words.formula, page)
    around = _AROUND_TWO + page.lines + end.lines
    for place, matrix in enumerate(shown):
        numbers = result.chosen if matrix.numbers is None else matrix.numbers  # of its rows, (n,) int64
        if place:
            page.line()
        if matrix.heading:
            page.line(matrix.heading)
        if as_pictures:
            raster = Raster(matrix.label, numbers, matrix.columns, matrix.rows, matrix.apart)
            page.picture(raster, _picture_lines(page, end, len(shown) - place), square=options.similarity)
        else:
            _put(result, matrix, numbers, page, None if len(shown) == 1 else around)
    page.add(end)


def _put(result: PositionTable, matrix: Matrix, numbers: np.ndarray, page: Page, around: int | None) -> None:
    """Put the numbers of one matrix on the page, and the names of the rows and columns that are left out.

    The rows have numbers (n,). `around` is how many lines of a screen are around the rows of two tables; None for one.
    """
    screen = page.paper.screen
    if matrix.numbers is None and result.options.rows is not None:
        most = _MOST_ROWS
    elif around is not None and screen is not None:
        most = max((screen - around) // 2, _LEAST_ROWS)
    elif len(numbers) <= SHORT_LENGTH:  # as on a page without a T
        most = SHORT_LENGTH
    else:
        most = _ONE_TABLE if around is None else _TWO_TABLES
    rows = Excerpt.ends(most, len(numbers))
    labels = [Column(matrix.label, numbers[rows.places])]
    block = Block("", matrix.rows(numbers[rows.places]), matrix.apart)
    columns = page.grid(labels, [block], matrix.columns, rows.gaps, every=result.options.columns is not None)
    missing = left_out(rows.missing("row", numbers), columns.missing("column", matrix.columns))
    if missing:
        page.line(missing)


def _picture_lines(page: Page, end: Page, pictures: int) -> int:
    """Return how many lines the next picture has; `pictures` of them share a screen with headings and the end."""
    if page.paper.screen is None:
        return page.paper.lines - _HEAD - _BELOW
    return (page.paper.screen - page.lines - end.lines - _BELOW - 2 * (pictures - 1)) // pictures
