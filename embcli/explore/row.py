"""A row with its nearest rows, and a pair of rows with the columns in which they differ most."""

from __future__ import annotations

import math
from functools import partial
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.strip import Strip

from embcli.errors import EmbcliError
from embcli.explore.explored import TOP, ExploredMatrix, fitted
from embcli.explore.view import DIM, STRONG, ExplorerScreen, Lines, ListTable, Pass, sentence
from embcli.names import Metric
from embcli.numerics.statistics import norms_of
from embcli.page.colors import sign_style
from embcli.page.matrix import NumberFormat, written

# The metrics of the two lists beside the values of a row.
_SHOWN_METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "L2 distance"}


class RowValues(Lines):
    """The values of a row, as many in a line as fit, with keys of less and vi beside textual's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("ctrl+f", "page_down", show=False),
        Binding("ctrl+b", "page_up", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, values: np.ndarray, column: int) -> None:
        super().__init__()
        self.values = values  # (D,) float32
        self.column = column  # the first on the screen
        self.per_line = 1
        self.number_format = NumberFormat([values], 4)
        self.number_cells = max(self.number_format.width, 3)
        self.label_cells = max(len(str(len(values) - 1)), 3)

    def on_resize(self) -> None:
        room = self.size.width - self.label_cells - 2
        self.per_line = 1
        for count in (16, 10, 8, 5, 4, 2):
            if count * (self.number_cells + 2) <= room:
                self.per_line = count
                break
        lines = math.ceil(len(self.values) / self.per_line)
        self.virtual_size = Size(self.size.width, lines + 1)
        self.call_after_refresh(self.go_to, self.column)

    def go_to(self, column: int) -> None:
        self.scroll_to(y=column // self.per_line, animate=False)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.column = round(new_value) * self.per_line
        self.update_title()

    @property
    def shown_columns(self) -> range:
        """The columns on the screen."""
        first = round(self.scroll_y) * self.per_line
        lines = max(self.size.height - 1, 1)
        return range(first, min(first + lines * self.per_line, len(self.values)))

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._header()
        first = (round(self.scroll_y) + y - 1) * self.per_line
        if first >= len(self.values):
            return self.line()
        values = self.values[first : first + self.per_line]
        numbers = self.numbers(values, self.number_format, self.number_cells)
        return self.line(Segment(f"{first:>{self.label_cells}} │", DIM), *numbers)

    def _header(self) -> Strip:
        """Return the line of offsets, which are added to the column number before each line."""
        count = min(self.per_line, len(self.values))
        offsets = [f"+{offset}".rjust(self.number_cells) for offset in range(count)]
        label = "col".rjust(self.label_cells)
        cells = "".join(f"  {offset}" for offset in offsets)
        return self.line(Segment(f"{label} │{cells}", STRONG))


class RowScreen(ExplorerScreen):
    """The values of a row, and lists of the rows nearest to it by cosine and by L2 distance.

    The lists are searched for when the screen is first shown; a search that is not finished when
    another screen is opened begins anew when it comes back.
    """

    AUTO_FOCUS = "#cosine"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,n", "open", "Row", tooltip="go on to this neighbour"),
        Binding(
            "tab",
            "app.focus_next",
            "List",
            tooltip="to the nearest by L2 distance, to the values, and back",
        ),
        Binding("right", "page(1)", "Values", key_display="←→", tooltip="scroll the values"),
        Binding("left", "page(-1)", show=False),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int, column: int = 0) -> None:
        super().__init__(matrix)
        self.row = row
        self.token = matrix.token(row, 24)
        self.lines = RowValues(matrix.row(row), column)
        self.nearest: dict[Metric, tuple[np.ndarray, np.ndarray]] = {}  # IDs and scores, (n,) each

    def body(self) -> ComposeResult:
        with Horizontal():
            yield self.lines
            with Vertical(id="nearest"):
                for metric in _SHOWN_METRICS:
                    yield ListTable(id=metric, cursor_type="row", cell_padding=1)

    def heading(self) -> list[str]:
        row = f"Row {self.row}"
        if self.row == self.matrix.marked:
            row = f"• {row}"
        values = self.lines.values.astype(np.float64)
        norm = f"norm {written(norms_of(values[None]), 4)[0]}"
        if self.token:
            row += f"  {self.token}"
        else:
            norm = f"  {norm}"  # the blanks before a token stay
        order = self.matrix.order
        if order:
            norm += f", rank {order.ranks[self.row]:,} of {self.matrix.size:,}"
        return [row, norm, self.matrix.name]

    def commands(self) -> list[str]:
        spell = self.matrix.spell
        row = str(self.row)
        shown = self.lines.shown_columns
        columns = f"{shown.start}:{shown.stop}"
        query = ("neighbors", "--ids", row, "--top", str(TOP))
        return [
            spell("weights", "--rows", row, "--columns", columns, "--sort", "norm"),
            spell(*query),
            spell(*query, "--metric", "l2"),
        ]

    def on_screen_resume(self) -> None:
        """Search for the nearest rows by each metric for which they are not known yet."""
        passes = []
        for metric, name in _SHOWN_METRICS.items():
            if metric not in self.nearest:
                table = self.query_one(f"#{metric}", ListTable)
                table.clear(columns=True)
                table.add_column(f"{name}: searching …")
                search = partial(self.matrix.nearest, self.row, metric)
                passes.append(Pass(search, partial(self._show_nearest, metric)))
        if passes:
            self.run_passes("searching", passes)

    def on_screen_suspend(self) -> None:
        self.workers.cancel_node(self)

    def _show_nearest(
        self, metric: Metric, nearest: tuple[np.ndarray, np.ndarray] | EmbcliError
    ) -> None:
        name = _SHOWN_METRICS[metric]
        table = self.query_one(f"#{metric}", ListTable)
        table.clear(columns=True)
        if isinstance(nearest, EmbcliError):
            table.add_column(f"nearest by {name}")
            for line in Text(sentence(nearest)).wrap(self.app.console, 38):
                table.add_row(line)
            return
        self.nearest[metric] = nearest
        ids, scores = nearest

        # Widths that textual chooses come late: they cut the numbers of a first draw.
        number_format = NumberFormat([scores], 4)
        id_cells = max(len(str(ids.max(initial=0))), 2)
        token_cells = 0
        if self.matrix.encoding is not None:
            token_cells = 14 - max(id_cells - 6, 0)
            table.add_column("nearest", width=token_cells)
        table.add_column(_right("ID"), width=id_cells)
        score_cells = max(number_format.width, len(name))
        table.add_column(_right(name), width=score_cells)

        tokens = self.matrix.tokens(ids)
        for row, token, score in zip(ids.tolist(), tokens, scores.tolist(), strict=True):
            cells = [_right(str(row)), _right(number_format.write(score))]
            if token_cells:
                cells.insert(0, Text(fitted(token, token_cells)))
            table.add_row(*cells)

    async def on_data_table_row_selected(self) -> None:
        await self.action_open()

    async def action_open(self) -> None:
        """Open the row at the cursor of the list that has the focus, at the same columns."""
        metric: Metric = "cosine"
        if self.focused is not None and self.focused.id == "l2":
            metric = "l2"
        if metric not in self.nearest:
            return
        ids, _ = self.nearest[metric]
        if len(ids):
            place = self.query_one(f"#{metric}", ListTable).cursor_row
            await self.app.open_row(int(ids[place]), self.lines.shown_columns.start)

    def action_page(self, pages: int) -> None:
        lines = max(self.lines.size.height - 2, 1)
        self.lines.scroll_relative(y=pages * lines, animate=False)


class PairScreen(ExplorerScreen):
    """The columns in which two rows differ most, and their cosine and L2 distance."""

    AUTO_FOCUS = "ListTable"

    def __init__(self, matrix: ExploredMatrix, one: int, other: int) -> None:
        super().__init__(matrix)
        self.rows = (one, other)
        values = np.stack([matrix.row(one), matrix.row(other)])
        with np.errstate(invalid="ignore", over="ignore"):
            difference = values[0] - values[1]
            first, second = values.astype(np.float64)
            self.distance = float(np.linalg.norm(first - second))
            lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
            self.cosine = float(first @ second) / lengths if lengths else np.nan
        order = np.argsort(-np.abs(difference), kind="stable")  # NaN last
        self.columns = order[:100]
        # One row, the other, and their difference: (n, 3) float32.
        self.values = np.stack([*values, difference], axis=1)[self.columns]

    def body(self) -> ComposeResult:
        yield ListTable(cursor_type="row", cell_padding=1)

    def on_resize(self) -> None:
        """Fill the table anew, with the columns that fit: no number is cut."""
        table = self.query_one(ListTable)
        cursor_row = table.cursor_row
        table.clear(columns=True)
        columns = []
        room = self.size.width - 1
        for name, cells in self._table_columns().items():
            width = max(len(name), *map(len, cells))
            room -= width + 2
            if room >= 0:
                table.add_column(_right(name), width=width)
                columns.append(cells)
        for row in zip(*columns, strict=True):
            table.add_row(*row)
        table.move_cursor(row=cursor_row)

    def _table_columns(self) -> dict[str, list[Text]]:
        """Return the columns of the table by name; a row of it is a column of the matrix."""
        one, other = self.rows
        names = [f"A {one}", f"B {other}", "A - B"]
        number_format = NumberFormat([self.values], 4)
        columns = {"column": [_right(str(column)) for column in self.columns.tolist()]}
        for name, values in zip(names, self.values.T, strict=True):
            columns[name] = [
                Text(number_format.write(value), sign_style(value), justify="right")
                for value in values
            ]
        return columns

    def heading(self) -> list[str]:
        one, other = self.rows
        names = f"{self._row_in_words(one)} and {self._row_in_words(other)}"
        return [
            f"cosine {_score(self.cosine)}",
            f"L2 distance {_score(self.distance)}",
            f"rows {names}",
            "columns that differ most:",
        ]

    def _row_in_words(self, row: int) -> str:
        return f"{row} {self.matrix.token(row, 10)}".strip()

    def commands(self) -> list[str]:
        spell = self.matrix.spell
        one, other = map(str, self.rows)
        columns = ",".join(map(str, self.columns.tolist()))
        query = ("neighbors", "--ids", one, "--rows", other)
        return [
            spell(*query),
            spell(*query, "--metric", "l2"),
            spell("weights", "--rows", f"{one},{other}", "--columns", columns),
        ]


def _right(text: str) -> Text:
    return Text(text, justify="right")


def _score(value: float) -> str:
    return "none" if np.isnan(value) else written(np.array([value]), 4)[0]
