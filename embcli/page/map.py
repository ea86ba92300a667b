"""A map: rows as points in a drawing, by their first two principal components, with labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from embcli.errors import InputError
from embcli.numerics.principal import principal_map
from embcli.page.parts import Composite, Drawing, LeftOut, rows_that_fit, safe_text
from embcli.wording import Sentence, counted


@dataclass(frozen=True, eq=False)
class Map(Composite):
    """Rows as points, at equal scales across and up, and what the two components are.

    A label is beside its point, or it is left out, if others are there.
    """

    rows: np.ndarray  # (n, D)
    labels: Sequence[Text]  # of the rows, (n,); a point has the style of its label

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        height = rows_that_fit(options, 28) + 2  # There are fewer other lines than for a table.
        if not np.isfinite(self.rows).all():
            raise InputError(Sentence("{map} needs rows without NaN and infinity"))
        points, (first, second) = principal_map(self.rows)
        lines, cells = _places(points, width, height)

        canvas: list[list[tuple[int, Text]]] = [[] for _ in range(max(lines) + 1)]
        for line, cell, label in zip(lines, cells, self.labels, strict=True):
            _put(canvas[line], cell, safe_text("●", label.style or "accent"), width)
        without_room = 0
        for line, cell, label in zip(lines, cells, self.labels, strict=True):
            has_room = _put(canvas[line], cell + 2, label, width)
            if not has_room and not _put(canvas[line], cell - 1 - label.cell_len, label, width):
                without_room += 1
        yield Drawing([_joined(placed) for placed in canvas])
        yield ""

        yield safe_text(
            f"Across: the first principal component of the centred rows, {first:.1%} of the "
            f"variance; up: the second, {second:.1%}"
        )
        if not first:
            yield safe_text("All rows are at one point: they do not differ.")
        if without_room:
            yield LeftOut(f"Left out: {counted(without_room, 'label')} without room.")


def _places(points: np.ndarray, width: int, height: int) -> tuple[list[int], list[int]]:
    """Return the lines and the cells of points, (n, 2); a line is as high as two cells are wide."""
    middle = (points.max(axis=0) + points.min(axis=0)) / 2
    last_cells = np.array([width - 1, 2 * (height - 1)])
    spans = np.maximum(np.ptp(points, axis=0), 1e-300)  # 0 if all are at one place
    scale = (last_cells / spans).min()  # cells of a unit
    across, up = np.transpose((points - middle) * scale)
    lines = np.rint((up.max() - up) / 2).astype(int)
    cells = np.rint((width - 1) / 2 + across).astype(int)
    return lines.tolist(), cells.tolist()


def _put(placed: list[tuple[int, Text]], cell: int, text: Text, width: int) -> bool:
    """Put a text at a cell of a line, a cell apart from others, and return whether it has room."""
    stop = cell + text.cell_len
    has_room = cell >= 0 and stop <= width
    for other_cell, other in placed:
        if cell <= other_cell + other.cell_len and other_cell <= stop:
            has_room = False
    if has_room:
        placed.append((cell, text))
    return has_room


def _joined(placed: list[tuple[int, Text]]) -> Text:
    line = Text()
    for cell, text in sorted(placed, key=lambda each: each[0]):
        line.append(" " * (cell - line.cell_len)).append_text(text)
    return line
