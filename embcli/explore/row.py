"""A row: its values, its norm, and the rows nearest to it."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np
from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.strip import Strip

from embcli.explore.explored import TOP, ExploredMatrix, fitted
from embcli.explore.view import DIM, STRONG, ExplorerScreen, Lines, ListTable, right
from embcli.names import METRICS, Metric
from embcli.numerics.search import Ranking
from embcli.numerics.statistics import norms_of
from embcli.page.matrix import NumberFormat, written

# The metrics of the two lists beside the values of a row.
_SHOWN_METRICS: tuple[Metric, ...] = ("cosine", "l2")
_TOKEN_CELLS = 12


class RowValues(Lines):
    """The values of a row, as many in a line as fit."""

    def __init__(self, values: np.ndarray, column: int) -> None:
        super().__init__()
        self.values = values  # (D,) float32
        self.column = column  # the first on the screen
        self.per_line = 1
        self.number_format = NumberFormat([values], 4)
        self.number_cells = self.number_format.width
        self.label_cells = max(len(str(len(values))), 3)

    def on_resize(self) -> None:
        room = self.size.width - self.label_cells - 2
        self.per_line = 1
        for count in (2, 4, 5, 8, 10, 16):
            if count * (self.number_cells + 2) <= room:
                self.per_line = count
        lines = math.ceil(len(self.values) / self.per_line)
        self.virtual_size = Size(self.size.width, lines + 1)
        self.call_after_refresh(self.go_to, self.column)

    def go_to(self, column: int) -> None:
        self.scroll_to(y=column // self.per_line, animate=False)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.column = self.first_line * self.per_line

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._header()
        first = (self.first_line + y - 1) * self.per_line
        if first >= len(self.values):
            return self.line()
        values = self.values[first : first + self.per_line]
        numbers = self.numbers(values, self.number_format, self.number_cells)
        return self.line(Segment(f"{first:>{self.label_cells}} │", DIM), *numbers)

    def _header(self) -> Strip:
        """Return the line of offsets, which are added to the column number before each line."""
        offsets = [f"+{offset}" for offset in range(min(self.per_line, len(self.values)))]
        cells = "".join(f"  {offset:>{self.number_cells}}" for offset in offsets)
        return self.line(Segment(f"{'col':>{self.label_cells}} │{cells}", STRONG))


class RowScreen(ExplorerScreen):
    """The values of a row, and lists of the rows nearest to it by cosine and by L2 distance.

    The lists are searched for one after the other, when the screen is first shown; a search that
    is not finished when another screen is opened begins anew when it comes back.
    """

    AUTO_FOCUS = "#cosine"
    BINDINGS = [
        ("tab", "app.focus_next", "List"),
        Binding("right", "page(1)", "Values", key_display="←→"),
        ("left", "page(-1)"),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int, column: int) -> None:
        super().__init__(matrix)
        self.row = row
        self.token = matrix.tokens(np.array([row]))[0]
        self.lines = RowValues(matrix.row(row), column)
        self.nearest: dict[str, np.ndarray] = {}  # the IDs by metric, (n,) int64

    def body(self) -> ComposeResult:
        with Horizontal():
            yield self.lines
            with Vertical(id="nearest"):
                for metric in _SHOWN_METRICS:
                    yield ListTable(id=metric, cursor_type="row")

    def heading(self) -> list[str]:
        values = self.lines.values.astype(np.float64)
        norm = f"norm {written(norms_of(values[None]), 4)[0]}"
        order = self.matrix.order
        if order:
            norm += f", rank {order.ranks[self.row]:,} of {self.matrix.size:,}"
        return [f"Row {self.row}  {self.token}", norm, self.matrix.name]

    def commands(self) -> list[str]:
        spell = self.matrix.spell
        row = str(self.row)
        columns = f"0:{self.matrix.dim}"
        nearest = ["neighbors", "--ids", row, "--top", str(TOP)]
        return [
            spell("weights", "--rows", row, "--columns", columns, "--sort", "norm"),
            spell(*nearest),
            spell(*nearest, "--metric", "l2"),
        ]

    async def go_to(self, row: int | None, column: int | None = None) -> None:
        if row is None and column is not None:
            self.lines.go_to(column)
        await super().go_to(row, column)

    def on_mount(self) -> None:
        for metric in _SHOWN_METRICS:
            table = self.query_one(f"#{metric}", ListTable)
            # Widths that textual chooses come late: they cut the IDs of a first draw.
            table.add_column("nearest", width=_TOKEN_CELLS)
            table.add_column(right("ID"), width=7)
            table.add_column(right(METRICS[metric].words), width=11)

    def on_screen_suspend(self) -> None:
        self.workers.cancel_node(self)

    def on_screen_resume(self) -> None:
        """Search for the nearest rows by the first metric for which they are not known yet."""
        for metric in _SHOWN_METRICS:
            if metric not in self.nearest:
                self.start(metric, partial(self.matrix.nearest, self.row, metric))
                return

    def finished(self, name: Any, result: Ranking) -> None:
        ids, scores = result
        self.nearest[name] = ids
        number_format = NumberFormat([scores], 4)

        table = self.query_one(f"#{name}", ListTable)
        tokens = self.matrix.tokens(ids)
        for row, token, score in zip(ids, tokens, scores, strict=True):
            number = number_format.write(score)
            table.add_row(Text(fitted(token, _TOKEN_CELLS)), right(str(row)), right(number))
        self.on_screen_resume()

    def failed(self, name: str, error: Any) -> None:
        super().failed(name, error)
        self.finished(name, Ranking(np.empty(0, np.int64), np.empty(0)))

    async def on_data_table_row_selected(self, event: ListTable.RowSelected) -> None:
        """Open the row that was chosen in a list, at the same columns."""
        ids = self.nearest[str(event.data_table.id)]
        await self.app.open_row(int(ids[event.cursor_row]), self.lines.column)

    def action_page(self, pages: int) -> None:
        lines = max(self.lines.size.height - 2, 1)
        self.lines.scroll_relative(y=pages * lines, animate=False)
