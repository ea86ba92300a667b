"""The page of positions: the formula of their kind, its matrices, and where the numbers are from.

`PositionTable` imports this when it is shown. A page shows the rows that fit, or those that the
user chose, and only the first ones, `SHORT_LENGTH`, if nobody chose which.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.text import Text

from embcli.names import METRICS, SHORT_LENGTH
from embcli.page import (
    Flow,
    Label,
    Matrix,
    Note,
    Values,
    medium_of,
    omission,
    rows_that_fit,
    ruled,
    safe_text,
    title,
    written,
)
from embcli.page.colors import ColorScale
from embcli.page.labels import origin_lines
from embcli.positions.kind import PositionMatrix, ShownPositions
from embcli.selection import Excerpt
from embcli.verbs.positions import PositionTable
from embcli.wording import counted

_LINES_OF_PICTURES = 48  # in a file
_LINES_AROUND = 5  # the rows of a matrix
_FEW = 12  # numbers beside a picture
_MOST_CHOSEN = 200  # of the rows that the user chose


def page(table: PositionTable, console: Console, options: ConsoleOptions) -> RenderResult:
    shown = table.shown
    views = _views(table)
    heading = list(_heading(table, shown))
    notes = list(_notes(table, shown))
    is_slide = medium_of(console).is_slide
    beside = []  # the square picture of a slide
    if is_slide and table.style.heat and table.is_similarity and not table.style.bare:
        beside = heading[1:] + notes
        del heading[1:], notes[:]
    yield from heading

    lines_elsewhere = 2 * (len(views) - 1)  # a title, and a second line of what is left out
    if not is_slide:
        lines_elsewhere += 4  # the command, suggestions, and the next prompt
    lines_elsewhere += len(heading) + len(notes) + len(notes[:1])
    lines = None
    if table.style.heat:
        lines = rows_that_fit(options, _LINES_OF_PICTURES // len(views), lines_elsewhere)
    most_rows = rows_that_fit(options, SHORT_LENGTH, lines_elsewhere + _LINES_AROUND)
    blocks = []
    for view in views:
        blocks.append(list(_drawn(table, view, most_rows, lines)))
    if beside:
        numbers = views[0].row_numbers[:_FEW]
        values = written(views[0].rows(numbers)[:, 0], table.style.precision)
        column = Label(f"column {views[0].columns[0]}", values)
        blocks.append([*beside, "", ruled([Label("pos", numbers), column])])
    yield Flow(blocks)
    if notes:
        yield ""
    yield from notes


def _heading(table: PositionTable, shown: ShownPositions) -> Iterator[Text]:
    length = table.model_positions.length
    which = f"positions: {shown.letter} = {counted(length, 'position')}, {shown.size}"
    if table.is_long:
        which = f"positions 0 to {SHORT_LENGTH - 1} of {shown.letter} = {length:,}, {shown.size}"
    if not table.is_similarity:
        parameters = 0  # numbers that training can change
        if "position" in table.layers:
            parameters = math.prod(table.layers["position"].shape)
        yield title(f"{shown.name} {which}: {counted(parameters, 'parameter')}")
        yield safe_text(shown.formula)
        return
    name = f"{METRICS[table.metric].words}s".capitalize()
    yield title(f"{name} of {shown.similar_to}{table.model_positions.kind} {which}")
    yield from map(safe_text, shown.meaning.split("\n"))


def _views(table: PositionTable) -> list[PositionMatrix]:
    """Return the matrices of the page, with the rows and columns that could be shown."""
    positions = table.chosen
    if table.is_long:
        positions = positions[:SHORT_LENGTH]
    views = []
    matrices: Sequence[PositionMatrix] = table.matrices
    if table.shown.tables and not table.is_similarity:
        matrices = table.shown.tables
    for matrix in matrices:
        columns = matrix.columns
        if table.is_similarity and table.is_long and not table._columns_chosen:
            columns = columns[:SHORT_LENGTH]
        row_numbers = matrix.row_numbers if len(matrix.row_numbers) else positions
        views.append(matrix._replace(columns=columns, row_numbers=row_numbers))
    return views


def _drawn(
    table: PositionTable, view: PositionMatrix, most_rows: int, lines: int | None
) -> Iterator[RenderableType]:
    """Yield the heading and the rows of a matrix that are shown, or with `lines` a picture of all.

    The colours of angles show their cosines.
    """
    heading = view.heading
    shows_cosines = lines is not None and view.is_angle
    count = len(view.row_numbers)
    if table._rows_chosen and view.row_numbers is table.chosen:
        most_rows = _MOST_CHOSEN
    if lines is not None or count <= most_rows + 2:  # Dots and a note take as many lines.
        most_rows = count
    if shows_cosines:
        heading = "Cosines of angles; one column per pair"
    if heading:
        yield title(heading)
    excerpt = Excerpt.ends(most_rows, count)
    numbers = view.row_numbers[excerpt.places]
    values = view.rows(numbers)[:, : len(view.columns)]
    if shows_cosines:
        values = np.cos(values)
    scale = None
    if table.is_similarity:
        # Few numbers are as large as those of the diagonal, which the scale must reach.
        scale = ColorScale.of([values]).from_least(values)
    yield Matrix(
        [Label(view.label, numbers)],
        [Values(values)],
        view.columns,
        excerpt.gaps,
        **table.style.of_numbers,
        every=table._columns_chosen,
        lines=lines,
        square=table.is_similarity,
        scale=scale,
        rows_left_out=omission(excerpt, "row", view.row_numbers),
        rows_parameter="rows",
        narrows=True,
    )


def _notes(table: PositionTable, shown: ShownPositions) -> Iterator[Text]:
    """Yield what is known of the kind, and which tensor the numbers are from."""
    if shown.note and not (table.is_similarity or (table.style.heat and shown.tables)):
        yield Note(shown.note)
    if table.model_positions.reason:
        yield Note(table.model_positions.reason)
    if not table.layers:
        return
    origin = table.layers.origin
    if "position" in origin.tensors:
        text = f"{origin.tensors['position']} ({origin.dtypes['position']})"
        if origin.first_position:
            text += f"; position 0 is its row {origin.first_position}"
        yield Note(text)
    yield from origin_lines(origin)
