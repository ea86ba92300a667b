"""A row: its values, norm and nearest rows. Two rows: their cosine, L2 distance, and columns that differ most."""

from __future__ import annotations

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
from embcli.explore.view import DIM, STRONG, ExplorerScreen, Lines, ListTable, sentence
from embcli.names import Metric
from embcli.numerics.statistics import norms_of
from embcli.page.colors import sign_style
from embcli.page.matrix import NumberFormat, written

_PER_LINE = (16, 10, 8, 5, 4, 2, 1)
_TOKEN, _COLUMNS = 14, 100  # cells; columns of two rows
_METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "L2 distance"}


class RowValues(Lines):
    """The values of a row, with keys of less and vi beside textual's."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j", "scroll_down", show=False),
        Binding("k", "scroll_up", show=False),
        Binding("ctrl+f", "page_down", show=False),
        Binding("ctrl+b", "page_up", show=False),
        Binding("G", "scroll_end", show=False),
    ]

    def __init__(self, values: np.ndarray, column: int) -> None:
        super().__init__()
        self.values, self.column, self.per = values, column, 1
        self.style_of_numbers = NumberFormat([values], 4)
        self.cell, self.label = (
            max(self.style_of_numbers.width, 3),
            max(len(str(len(values) - 1)), 3),
        )

    def on_resize(self) -> None:
        room = self.size.width - self.label - 2
        self.per = next((each for each in _PER_LINE if each * (self.cell + 2) <= room), 1)
        self.virtual_size = Size(self.size.width, -(-len(self.values) // self.per) + 1)
        self.call_after_refresh(self.go_to, self.column)

    def go_to(self, column: int) -> None:
        self.scroll_to(y=column // self.per, animate=False)
        self.refresh()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.column = round(new_value) * self.per
        self.moved()

    @property
    def shown(self) -> range:
        first = round(self.scroll_y) * self.per
        return range(first, min(first + max(self.size.height - 1, 1) * self.per, len(self.values)))

    def render_line(self, y: int) -> Strip:
        first = (round(self.scroll_y) + y - 1) * self.per
        if y == 0:
            offsets = "".join(
                f"  {f'+{each}':>{self.cell}}" for each in range(min(self.per, len(self.values)))
            )
            return self.line(Segment(f"{'col':>{self.label}} │{offsets}", STRONG))
        if first >= len(self.values):
            return self.line()
        values = self.numbers(
            self.values[first : first + self.per], self.style_of_numbers, self.cell
        )
        return self.line(Segment(f"{first:>{self.label}} │", DIM), *values)


class RowScreen(ExplorerScreen):
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
        self.row, self.token = row, matrix.token(row, 24)
        self.values = RowValues(matrix.row(row), column)
        self.nearest: dict[Metric, tuple[np.ndarray, np.ndarray]] = {}

    def body(self) -> ComposeResult:
        with Horizontal():
            yield self.values
            with Vertical(id="nearest"):
                for metric in _METRICS:
                    yield ListTable(id=metric, cursor_type="row", cell_padding=1)

    def heading(self) -> str:
        norm = written(norms_of(self.values.values[None].astype(np.float64)), 4)[0]
        order, mark = self.matrix.order, "• " if self.row == self.matrix.marked else ""
        rank = f", rank {order.ranks[self.row]:,} of {self.matrix.size:,}" if order else ""
        return f"{mark}Row {self.row}  {self.token}   norm {norm}{rank}   {self.matrix.name}"

    def commands(self) -> list[str]:
        columns = f"{self.values.shown.start}:{self.values.shown.stop}"
        query = ("--ids", str(self.row), "--top", str(TOP))
        return [
            self.matrix.spell(
                "weights", "--rows", str(self.row), "--columns", columns, "--sort", "norm"
            ),
            self.matrix.spell("neighbors", *query),
            self.matrix.spell("neighbors", *query, "--metric", "l2"),
        ]

    def on_screen_resume(self) -> None:
        missing = [metric for metric in _METRICS if metric not in self.nearest]
        for metric in missing:
            self.query_one(f"#{metric}", ListTable).clear(columns=True).add_column(
                f"{_METRICS[metric]}: searching …"
            )
        passes = [
            (partial(self.matrix.nearest, self.row, each), partial(self._take, each))
            for each in missing
        ]
        if passes:
            self.run_passes("searching", passes)

    def on_screen_suspend(self) -> None:
        self.workers.cancel_node(self)

    def _take(self, metric: Metric, found: tuple[np.ndarray, np.ndarray] | EmbcliError) -> None:
        table = self.query_one(f"#{metric}", ListTable)
        table.clear(columns=True)
        if isinstance(found, EmbcliError):
            table.add_column(f"nearest by {_METRICS[metric]}")
            for line in Text(sentence(found)).wrap(self.app.console, 38):
                table.add_row(line)
            return
        ids, scores = self.nearest[metric] = found
        style, digits = NumberFormat([scores], 4), max(len(str(ids.max(initial=0))), 2)
        room = _TOKEN - max(digits - 6, 0) if self.matrix.encoding is not None else 0
        if room:
            table.add_column("nearest", width=room)
        # a width of textual's own comes late: it cuts the numbers of a first draw
        table.add_column(Text("ID", justify="right"), width=digits)
        score = max(style.width, len(_METRICS[metric]))
        table.add_column(Text(_METRICS[metric], justify="right"), width=score)
        for row, token, value in zip(
            ids.tolist(), self.matrix.tokens(ids), scores.tolist(), strict=True
        ):
            cells = [Text(str(row), justify="right"), Text(style.write(value), justify="right")]
            table.add_row(*([Text(fitted(token, room))] if room else []), *cells)

    async def on_data_table_row_selected(self) -> None:
        await self.action_open()

    async def action_open(self) -> None:
        metric: Metric = "l2" if self.focused is not None and self.focused.id == "l2" else "cosine"
        ids = self.nearest.get(metric, (np.empty(0),))[0]
        if len(ids):
            at = self.query_one(f"#{metric}", ListTable).cursor_row
            await self.app.open_row(int(ids[at]), self.values.shown.start)

    def action_page(self, pages: int) -> None:
        self.values.scroll_relative(y=pages * max(self.values.size.height - 2, 1), animate=False)


class PairScreen(ExplorerScreen):
    AUTO_FOCUS = "ListTable"

    def __init__(self, matrix: ExploredMatrix, one: int, other: int) -> None:
        super().__init__(matrix)
        self.rows = one, other
        values = np.stack([matrix.row(one), matrix.row(other)])
        with np.errstate(invalid="ignore", over="ignore"):
            difference = values[0] - values[1]
            first, second = values.astype(np.float64)
            self.distance = float(np.linalg.norm(first - second))
            lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
            self.cosine = float(first @ second) / lengths if lengths else np.nan
        order = np.argsort(-np.abs(difference), kind="stable")  # NaN last
        self.columns = order[:_COLUMNS]
        self.values = np.stack([*values, difference], axis=1)[self.columns]  # (n, 3) float32

    def body(self) -> ComposeResult:
        yield ListTable(cursor_type="row", cell_padding=1)

    def on_resize(self) -> None:
        """List the columns of the table for which there is room: no number is cut."""
        table, write = self.query_one(ListTable), NumberFormat([self.values], 4).write
        columns = {
            "column": [Text(str(column), justify="right") for column in self.columns.tolist()]
        }
        for name, values in zip(
            (f"A {self.rows[0]}", f"B {self.rows[1]}", "A - B"), self.values.T, strict=True
        ):
            columns[name] = [
                Text(write(value), sign_style(value), justify="right") for value in values
            ]
        room, at, rows = self.size.width - 1, table.cursor_row, []
        table.clear(columns=True)
        for name, cells in columns.items():
            width = max(len(name), *map(len, cells))
            room -= width + 2
            if room >= 0:
                table.add_column(Text(name, justify="right"), width=width)
                rows.append(cells)
        for row in zip(*rows, strict=True):
            table.add_row(*row)
        table.move_cursor(row=at)

    def heading(self) -> str:
        one, other = (f"{row} {self.matrix.token(row, 10)}".strip() for row in self.rows)
        scores = np.array([self.cosine]), np.array([self.distance])
        cosine, distance = ("none" if np.isnan(each) else written(each, 4)[0] for each in scores)
        return f"cosine {cosine}   L2 distance {distance}   rows {one} and {other}   columns that differ most:"

    def commands(self) -> list[str]:
        one, other = map(str, self.rows)
        columns = ",".join(map(str, self.columns.tolist()))
        return [
            self.matrix.spell("neighbors", "--ids", one, "--rows", other),
            self.matrix.spell("neighbors", "--ids", one, "--rows", other, "--metric", "l2"),
            self.matrix.spell("weights", "--rows", f"{one},{other}", "--columns", columns),
        ]
