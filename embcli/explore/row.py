"""A row: its values, its norm, and the rows nearest to it, by cosine and by L2 distance."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar

import numpy as np
from rich.segment import Segment
from rich.style import Style
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import DataTable

from embcli.errors import EmbcliError
from embcli.explore.numbers import number_format, number_segments
from embcli.explore.source import TOP, Source
from embcli.explore.view import View, sentence
from embcli.names import Metric

_PER_LINE = (16, 10, 8, 5, 4, 2, 1)
_TOKEN = 14  # cells
_METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "L2 distance"}


class Values(ScrollView, can_focus=True):
    """The values of a row, line after line, below a header that stays."""

    def __init__(self, values: np.ndarray, column: int, moved: Callable[[], None]) -> None:
        super().__init__()
        self.values, self.per, self.column, self.moved = values, 1, column, moved
        self.spec, self.cell = number_format(values)

    def on_resize(self) -> None:
        label = max(len(str(len(self.values) - 1)), 3)
        self.cell = max(self.cell, len(f"+{_PER_LINE[0]}"))
        room = self.size.width - label - 3
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
        label, first = max(len(str(len(self.values) - 1)), 3), (round(self.scroll_y) + y - 1) * self.per
        if y == 0:
            offsets = "".join(f"  {f'+{each}':>{self.cell}}" for each in range(min(self.per, len(self.values))))
            segments = [Segment(f"{'col':>{label}} │{offsets}", Style(bold=True))]
        elif first >= len(self.values):
            segments = []
        else:
            here, dark = self.values[first : first + self.per], self.app.current_theme.dark
            segments = [Segment(f"{first:>{label}} │", Style(dim=True))]
            segments += number_segments(here, self.spec, self.cell, dark)
        return Strip(segments).adjust_cell_length(self.size.width).apply_style(self.rich_style)


class RowScreen(View):
    AUTO_FOCUS = "#cosine"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter,n", "open", "Go on", key_display="Enter", priority=True, tooltip="go on to this neighbour"),
        Binding("tab", "app.focus_next", "Next list", tooltip="to the nearest by L2 distance, to the values, and back"),
        Binding("right", "page(1)", "Columns", key_display="← →", priority=True, tooltip="scroll the values"),
        Binding("left", "page(-1)", show=False, priority=True),
    ]

    def __init__(self, source: Source, row: int, column: int = 0) -> None:
        super().__init__(source)
        self.row, self.token = row, source.token(row, 24)
        self.values = Values(source.row(row), column, self.tell)
        self.nearest: dict[Metric, tuple[np.ndarray, np.ndarray]] = {}

    def body(self) -> ComposeResult:
        with Horizontal():
            yield self.values
            with Vertical(id="nearest"):
                for metric in _METRICS:
                    yield DataTable(id=metric, cursor_type="row", cell_padding=1)

    def heading(self) -> str:
        with np.errstate(over="ignore", invalid="ignore"):
            norm = np.sqrt(np.square(self.values.values.astype(np.float64)).sum())
        norm = norm if np.isfinite(norm) else np.nan
        order, mark = self.source.order, "• " if self.row == self.source.marked else ""
        rank = f", rank {order.ranks[self.row]:,} of {self.source.size:,}" if order else ""
        written = format(norm, number_format(np.array([norm]))[0])
        return f"{mark}Row {self.row}  {self.token}   norm {written}{rank}   {self.source.name}"

    def commands(self) -> list[str]:
        columns = f"{self.values.shown.start}:{self.values.shown.stop}"
        query = ("--ids", str(self.row), "--top", str(TOP))
        return [
            self.source.spell("weights", "--rows", str(self.row), "--columns", columns, "--sort", "norm"),
            self.source.spell("neighbors", *query),
            self.source.spell("neighbors", *query, "--metric", "l2"),
        ]

    def on_screen_resume(self) -> None:
        self.tell()
        missing = [metric for metric in _METRICS if metric not in self.nearest]
        for metric in missing:
            self.query_one(f"#{metric}", DataTable).loading = True
        passes = [(partial(self.source.nearest, self.row, each), partial(self._take, each)) for each in missing]
        if passes:
            self.run_passes("searching", passes)

    def on_screen_suspend(self) -> None:
        self.workers.cancel_node(self)

    def _take(self, metric: Metric, found: tuple[np.ndarray, np.ndarray] | EmbcliError) -> None:
        table = self.query_one(f"#{metric}", DataTable)
        table.loading = False
        self.nearest[metric] = (np.empty(0, np.int64), np.empty(0)) if isinstance(found, EmbcliError) else found
        ids, scores = self.nearest[metric]
        table.clear(columns=True)
        if isinstance(found, EmbcliError):
            table.add_column("nearest by cosine" if metric == "cosine" else "nearest by L2 distance")
            for line in Text(sentence(found)).wrap(self.app.console, 38):
                table.add_row(line)
            return
        spec = number_format(scores)[0]
        names = ["nearest"] if self.source.encoding is not None else []
        table.add_columns(*names, "ID", Text(_METRICS[metric], justify="right"))
        for row, token, score in zip(ids.tolist(), self.source.tokens(ids), scores.tolist(), strict=True):
            text = Text(token)
            text.truncate(_TOKEN, overflow="ellipsis", pad=True)
            cells = [Text(str(row), justify="right"), Text(format(score, spec), justify="right")]
            table.add_row(*([text] if names else []), *cells)

    async def action_open(self) -> None:
        metric: Metric = "l2" if self.focused is not None and self.focused.id == "l2" else "cosine"
        ids = self.nearest.get(metric, (np.empty(0),))[0]
        if len(ids):
            at = self.query_one(f"#{metric}", DataTable).cursor_row
            await self.app.open_row(int(ids[at]), self.values.shown.start)

    def action_page(self, pages: int) -> None:
        self.values.scroll_relative(y=pages * max(self.values.size.height - 2, 1), animate=False)
