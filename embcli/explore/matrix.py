"""The matrix: rows by ID or by norm, as numbers or as colours; only rows on the screen are read."""

from __future__ import annotations

from functools import partial
from typing import Any, ClassVar

import numpy as np
from rich.segment import Segment
from rich.text import Text
from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.cache import LRUCache
from textual.geometry import Size
from textual.strip import Strip

from embcli.errors import EmbcliError
from embcli.explore.explored import ExploredMatrix, fitted
from embcli.explore.view import CURSOR, DIM, STRONG, ExplorerScreen, Lines, sentence
from embcli.numerics.statistics import NormOrder, norm_order
from embcli.page.colors import ColorScale, means
from embcli.page.matrix import NumberFormat, written
from embcli.page.strips import Fit

_MOST_OF_TOKEN, _NORM = 24, 10  # cells


class MatrixLines(Lines, inherit_bindings=False):
    """The rows of a matrix, and a cursor on one of them."""

    app: Any  # the Explorer

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("down,j", "move(1)", tooltip="down", show=False),
        Binding("up,k", "move(-1)", tooltip="up", show=False),
        Binding("pagedown,ctrl+f", "page(1)", tooltip="a page down", show=False),
        Binding("pageup,ctrl+b", "page(-1)", tooltip="a page up", show=False),
        Binding("home", "scroll_home", tooltip="the first row", show=False),
        Binding("end,G", "scroll_end", tooltip="the last row", show=False),
        Binding(
            "right,greater_than_sign", "columns(1)", tooltip="scroll right by a column", show=False
        ),
        Binding(
            "left,less_than_sign", "columns(-1)", tooltip="scroll left by a column", show=False
        ),
        Binding(
            "shift+right,ctrl+right", "screens(1)", tooltip="scroll right by a screen", show=False
        ),
        Binding(
            "shift+left,ctrl+left", "screens(-1)", tooltip="scroll left by a screen", show=False
        ),
        Binding("0,circumflex_accent", "first_column", tooltip="the first column", show=False),
        Binding("dollar_sign", "last_column", tooltip="the last column", show=False),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int) -> None:
        super().__init__()
        self.matrix, self.cursor = matrix, row
        self.left, self.rows_shown = 0, 1  # the first column, and how many rows fit
        self.limit: float | None = None  # the end of the scale of colours, if there are colours
        self.by_norm = False
        self._cell = 0  # cells of a number: they do not shrink while one scrolls
        self._id_width, self._token_width = max(len(str(matrix.size - 1)), 2), 0  # cells
        self._seen: tuple[Any, ...] = ()
        self._strips: LRUCache[tuple[Any, ...], Strip] = LRUCache(1024)
        self.ids, self.values = (
            np.empty(0, np.int64),
            np.empty((0, matrix.dim), np.float32),
        )  # on the screen
        self.count, self.style_of_numbers = (
            1,
            NumberFormat([], 4),
        )  # how many columns fit, and how they are written
        self.error = ""  # why no row can be read

    @property
    def row(self) -> int:
        return int(self.matrix.ids(self.cursor, self.cursor + 1, self.by_norm)[0])

    def move_to(self, place: int, top: int | None = None) -> None:
        before, self.cursor = self.cursor, min(max(place, 0), self.matrix.size - 1)
        first = round(self.scroll_y) if top is None else top
        first = min(max(first, self.cursor - self.rows_shown + 1), self.cursor)
        self.scroll_to(y=first, animate=False)  # draws anew what has moved
        self.refresh_line(before + 1)
        self.refresh_line(self.cursor + 1)
        self.moved()

    def go_to(self, row: int | None, column: int | None) -> None:
        if column is not None:
            self.left, self.limit = column, None
        place = self.cursor
        if row is not None:
            place = (
                int(self.matrix.order.ranks[row]) - 1 if self.by_norm and self.matrix.order else row
            )
        self.refresh()
        self.move_to(place, None if row is None else place - self.rows_shown // 3)

    def sort(self, by_norm: bool) -> None:
        row, self.by_norm, self._cell = self.row, by_norm, 0
        self.go_to(self.matrix.order.ids[0] if by_norm and self.matrix.order else row, None)

    def on_resize(self) -> None:
        self._token_width = (
            0 if self.matrix.encoding is None else min(_MOST_OF_TOKEN, max(self.size.width // 5, 6))
        )
        self.virtual_size = Size(self.size.width, self.matrix.size + 1)
        self.rows_shown = max(self.size.height - 1, 1)
        self.call_after_refresh(self.go_to, None, None)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        first = round(new_value)
        self.cursor = min(
            max(self.cursor, first), first + self.rows_shown - 1, self.matrix.size - 1
        )
        self.moved()

    def read(self) -> None:
        """Read the rows on the screen, unless they are those of before."""
        rows = round(self.scroll_y), round(self.scroll_y) + self.rows_shown, self.by_norm
        seen = rows, self.size, self.left, self.limit, self._cell, self._token_width
        if seen == self._seen:
            return
        self._seen, self.ids = seen, self.matrix.ids(*rows)
        try:
            self.values, self.error = self.matrix.rows(*rows), ""
        except EmbcliError as error:
            self.error = sentence(error)
            return
        cell, self._cell = 0, max(self._cell, len(str(self.matrix.dim - 1)), 6)
        while cell != self._cell:
            cell = self._cell
            if self.room < cell + 1:
                self._token_width = 0  # a number is worth more than a token's text
            self.count = min(max((self.room + 1) // (cell + 2), 1), self.matrix.dim)
            self.left = min(max(self.left, 0), self.matrix.dim - self.count)
            self.style_of_numbers = NumberFormat(
                [self.values[:, self.left : self.left + self.count]], 4
            )
            self._cell = max(self.style_of_numbers.width, cell)

    def render_line(self, y: int) -> Strip:
        self.read()
        if self.error:
            lines = Text(self.error).wrap(self.app.console, max(self.size.width - 2, 1))
            return self.line(
                Segment(f" {lines[y - 1].plain}" if 0 < y <= len(lines) else "", STRONG)
            )
        shown = range(self.left, self.left + self.count)
        if y == 0:
            columns = "".join(f"  {each:>{self._cell}}" for each in shown)
            if self.limit is not None:
                columns = f" {self.matrix.dim:,} columns, {-self.limit:.4g} blue to {self.limit:.4g} orange"
            return self.line(
                Segment(self._labels(" ", "ID", "token", "norm"), STRONG),
                Segment(" │", DIM),
                Segment(columns, STRONG),
            )
        if y > len(self.ids):
            return self.line()
        row, has_cursor = int(self.ids[y - 1]), round(self.scroll_y) + y - 1 == self.cursor
        look = self._cell, self.style_of_numbers.write(0.0), *self._seen[1:]
        key = row, has_cursor, row == self.matrix.marked, self.by_norm, *look
        if (strip := self._strips.get(key)) is None:
            norm = (
                written(self.matrix.order.norms[row : row + 1], 4)[0] if self.matrix.order else ""
            )
            token = self.matrix.token(row, _MOST_OF_TOKEN)
            label = self._labels("•" if row == self.matrix.marked else " ", str(row), token, norm)
            if self.limit is None:
                values = self.numbers(
                    self.values[y - 1, shown.start : shown.stop], self.style_of_numbers, self._cell
                )
            else:
                values = [Segment(" "), *self.heat(self.values[y - 1], self.limit, self.room)]
            lead = [Segment(label, CURSOR if has_cursor else None), Segment(" │", DIM)]
            strip = self._strips[key] = self.line(*lead, *values)
        return strip

    @property
    def room(self) -> int:
        return max(self.size.width - len(self._labels("", "", "", "")) - 3, 1)

    def _labels(self, mark: str, row: str, token: str, norm: str) -> str:
        parts = [f"{mark:1} {row:>{self._id_width}}"]
        if self._token_width:
            parts.append(fitted(token, self._token_width))
        if self.by_norm:
            parts.append(f"{norm:>{_NORM}}")
        return "  ".join(parts)

    def action_move(self, lines: int) -> None:
        self.move_to(self.cursor + lines)

    def action_scroll_home(self) -> None:
        self.move_to(0)

    def action_scroll_end(self) -> None:
        self.move_to(self.matrix.size - 1)

    def action_page(self, pages: int) -> None:
        lines = pages * self.rows_shown
        self.move_to(self.cursor + lines, round(self.scroll_y) + lines)

    def action_columns(self, columns: int) -> None:
        self.left = min(max(self.left + columns, 0), self.matrix.dim - 1)
        self.refresh()
        self.moved()

    def action_screens(self, screens: int) -> None:
        self.read()
        self.action_columns(screens * self.count)

    def action_first_column(self) -> None:
        self.action_columns(-self.matrix.dim)

    def action_last_column(self) -> None:
        self.action_columns(self.matrix.dim)

    async def on_click(self, event: events.Click) -> None:
        place = round(self.scroll_y) + event.y - 1
        if event.y > 0 and place == self.cursor:
            await self.app.open_row(self.row)
        elif event.y > 0 and place < self.matrix.size:
            self.move_to(place)


class MatrixScreen(ExplorerScreen):
    AUTO_FOCUS = "MatrixLines"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("enter", "open", "Row", tooltip="the row: its values, norm and neighbours"),
        Binding("s", "sort", "Sort", tooltip="sort by norm, or by ID again"),
        Binding(
            "h", "heat", "Heat", tooltip="colours of all columns in place of numbers, and back"
        ),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int) -> None:
        super().__init__(matrix)
        self.lines = MatrixLines(matrix, row)

    def body(self) -> ComposeResult:
        yield self.lines

    def heading(self) -> str:
        size, dim, at = self.matrix.size, self.matrix.dim, self.lines.cursor
        place = (
            f"by norm: {at + 1:,} of {size:,}" if self.lines.by_norm else f"row {at:,} of {size:,}"
        )
        return f"{place}   {self.matrix.name}: {size:,} x {dim:,}, {self.matrix.layer.dtype}"

    def commands(self) -> list[str]:
        lines = self.lines
        lines.read()
        if lines.error:
            return [self.matrix.spell("weights")]
        ids = lines.ids.tolist()
        rows = (
            ",".join(map(str, ids)) if lines.by_norm or len(ids) == 1 else f"{ids[0]}:{ids[-1] + 1}"
        )
        given = (
            ["--columns", f"{lines.left}:{lines.left + lines.count}"]
            if lines.limit is None
            else ["--heat"]
        )
        given += ["--sort", "norm"] if lines.by_norm else []
        return [self.matrix.spell("weights", "--rows", rows, *given)]

    async def action_open(self) -> None:
        await self.app.open_row(self.lines.row)

    def action_sort(self) -> None:
        if self.lines.by_norm or self.matrix.order is not None:
            self.lines.sort(not self.lines.by_norm)
        else:
            self.tell("sorting …")
            self.run_passes("sorting", [(partial(norm_order, self.matrix.layer), self._take)])

    def _take(self, found: NormOrder | EmbcliError) -> None:
        if isinstance(found, EmbcliError):
            self.notify(sentence(found), severity="error", markup=False)
        else:
            self.matrix.order = found
            self.lines.sort(by_norm=True)

    def action_heat(self) -> None:
        lines = self.lines
        lines.read()
        per = Fit.of(self.matrix.dim, lines.room, halves=False).per
        lines.limit = (
            ColorScale.of([means(lines.values, per)]).limit if lines.limit is None else None
        )
        lines.action_columns(0)

    @property
    def row(self) -> int:
        return self.lines.row
