"""The matrix: rows by ID or by norm, as numbers or as colours.

Only the rows on the screen are read, so that it opens as fast for a large matrix.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from rich.segment import Segment
from textual.app import ComposeResult
from textual.geometry import Region, Size, clamp
from textual.strip import Strip

from embcli.errors import EmbcliError
from embcli.explore.explored import ExploredMatrix, fitted
from embcli.explore.view import CURSOR, DIM, MOVES, STRONG, ExplorerScreen, Lines, sentence
from embcli.numerics.statistics import NormOrder, norm_order
from embcli.page.colors import ColorScale
from embcli.page.matrix import NumberFormat, written
from embcli.page.strips import Fit, strip

_TOKEN_CELLS = 24  # the most cells of a token
_NORM_CELLS = 10
_NUMBER_CELLS = 6  # the fewest cells of a number


class MatrixLines(Lines, can_focus=True, inherit_bindings=False):
    """The rows of a matrix, and a cursor on one of them.

    Keys set the cursor, the first column and the order. `read` then reads the rows on the screen
    and fits their columns, once for all lines that are drawn of them.
    """

    app: Any  # the Explorer

    BINDINGS = [
        *MOVES,
        ("right,greater_than_sign", "columns(1)"),
        ("left,less_than_sign", "columns(-1)"),
        ("shift+right,ctrl+right", "screens(1)"),
        ("shift+left,ctrl+left", "screens(-1)"),
        ("0,circumflex_accent", "go_to(None, 0)"),
        ("dollar_sign", "go_to(None, -1)"),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int) -> None:
        super().__init__()
        self.matrix = matrix
        self.cursor = row  # a place in the order
        self.first_column = 0
        self.heat_limit: float | None = None  # the end of the scale of colours; None for numbers

        # What has been read.
        self.ids = np.empty(0, np.int64)
        self.tokens: list[str] = []
        self.values = np.empty((0, matrix.dim), np.float32)
        self.error = ""  # why no row can be read
        self._read: tuple[int, int, bool] | None = None  # the places of the rows, and the order

        # What fits on the screen.
        self.columns_shown = 1
        self.number_format = NumberFormat([], 4)
        self._number_cells = _NUMBER_CELLS  # they do not shrink while one scrolls
        self._id_cells = max(len(str(matrix.size - 1)), 2)
        self._token_cells = 0

    @property
    def row(self) -> int:
        """The ID of the row with the cursor."""
        return int(self.matrix.ids(self.cursor, self.cursor + 1)[0])

    @property
    def rows_shown(self) -> int:
        return max(self.size.height - 1, 1)

    @property
    def room(self) -> int:
        """The cells for numbers or colours beside the labels."""
        labels = self._labels("", "", "")
        return max(self.size.width - len(labels) - 3, 1)

    def move_to(self, place: int, top: int | None = None) -> None:
        """Move the cursor to a place, and scroll so that it is seen, if possible below `top`."""
        last_cursor = self.cursor
        self.cursor = clamp(place, 0, self.matrix.size - 1)
        first = self.first_line if top is None else top
        first = clamp(first, self.cursor - self.rows_shown + 1, self.cursor)
        self.scroll_to(y=first, animate=False)  # draws anew what has moved
        self.refresh_line(last_cursor + 1)
        self.refresh_line(self.cursor + 1)
        self.screen.show_title()

    def action_go_to(self, row: int | None, column: int | None) -> None:
        """Move the cursor to a row by its ID, and begin with a column, as numbers."""
        if column is not None:
            self.first_column = column % self.matrix.dim
            self.heat_limit = None
        place = self.cursor
        top = None
        if row is not None:
            place = self.matrix.place(row)
            top = place - self.rows_shown // 3
        self.refresh()
        self.move_to(place, top)

    def sort(self, by_norm: bool) -> None:
        """Sort the rows: by norm from the first on, or by ID with the cursor on the same row."""
        row = self.row
        self.matrix.by_norm = by_norm
        if by_norm:
            self.cursor = 0
            row = self.row
        self.action_go_to(row, None)

    def on_resize(self) -> None:
        self.virtual_size = Size(self.size.width, self.matrix.size + 1)
        self.call_after_refresh(self.action_go_to, None, None)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        last = self.first_line + self.rows_shown - 1
        self.cursor = clamp(self.cursor, self.first_line, last)
        self.screen.show_title()

    def read(self) -> None:
        """Read the rows on the screen, unless that has been done, and fit their columns."""
        start = self.first_line
        stop = start + self.rows_shown
        wanted = (start, stop, self.matrix.by_norm)
        if self._read != wanted:
            self._read = wanted
            self.ids = self.matrix.ids(start, stop)
            self.tokens = self.matrix.tokens(self.ids)
            self.error = ""
            try:
                self.values = np.array(self.matrix.layer.rows(self.ids))
            except EmbcliError as error:
                self.error = sentence(error)
        self._fit_columns()

    def _fit_columns(self) -> None:
        dim = self.matrix.dim
        self.number_format = NumberFormat([self.values], 4)
        cells = max(self._number_cells, self.number_format.width, len(str(dim - 1)))
        self._number_cells = cells
        self._token_cells = 0
        if self.matrix.encoding is not None:
            self._token_cells = clamp(self.size.width // 5, 6, _TOKEN_CELLS)
        self.columns_shown = clamp((self.room + 1) // (cells + 2), 1, dim)
        self.first_column = clamp(self.first_column, 0, dim - self.columns_shown)

    def render_lines(self, crop: Region) -> list[Strip]:
        self.read()
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        if y == 0:
            return self._header()
        if y > len(self.ids) or self.error:
            return self.line()
        return self._row_line(y - 1)

    def _header(self) -> Strip:
        if self.heat_limit is None:
            numbers = range(self.first_column, self.first_column + self.columns_shown)
            columns = "".join(f"  {number:>{self._number_cells}}" for number in numbers)
        else:
            columns = f" {self.matrix.dim:,} columns, blue to orange: ±{self.heat_limit:.4g}"
        labels = self._labels("ID", "token", "norm")
        return self.line(Segment(labels, STRONG), Segment(" │", DIM), Segment(columns, STRONG))

    def _row_line(self, index: int) -> Strip:
        """Return the line of a row on the screen, which is made anew for each draw."""
        row = int(self.ids[index])
        norm = ""
        if self.matrix.order:
            norm = written(self.matrix.order.norms[row : row + 1], 4)[0]
        labels = self._labels(str(row), self.tokens[index], norm)
        look = None
        if self.first_line + index == self.cursor:
            look = CURSOR

        values = self.values[index]
        if self.heat_limit is None:
            shown = values[self.first_column : self.first_column + self.columns_shown]
            cells = self.numbers(shown, self.number_format, self._number_cells)
        else:
            # Of columns that share a cell, the first is shown.
            fit = Fit.of(len(values), self.room)
            shown = values[None, :: fit.columns_per_bin]
            scale = ColorScale(self.heat_limit, -self.heat_limit)
            colors = strip(shown, scale, self.app.console, fit.cells_per_bin)
            cells = [Segment(" "), *colors.render(self.app.console)]
        return self.line(Segment(labels, look), Segment(" │", DIM), *cells)

    def _labels(self, row: str, token: str, norm: str) -> str:
        """Return the labels before a row's numbers, in cells of the widths that all lines have."""
        parts = [f"  {row:>{self._id_cells}}"]
        if self._token_cells:
            parts.append(fitted(token, self._token_cells))
        if self.matrix.by_norm:
            parts.append(f"{norm:>{_NORM_CELLS}}")
        return "  ".join(parts)

    def action_cursor_down(self) -> None:
        self.move_to(self.cursor + 1)

    def action_cursor_up(self) -> None:
        self.move_to(self.cursor - 1)

    def action_page_down(self) -> None:
        self._page(self.rows_shown)

    def action_page_up(self) -> None:
        self._page(-self.rows_shown)

    def _page(self, lines: int) -> None:
        self.move_to(self.cursor + lines, self.first_line + lines)

    def action_scroll_top(self) -> None:
        self.move_to(0)

    def action_scroll_bottom(self) -> None:
        self.move_to(self.matrix.size - 1)

    def action_columns(self, columns: int) -> None:
        self.first_column += columns
        self.refresh()
        self.screen.show_title()

    def action_screens(self, screens: int) -> None:
        self.action_columns(screens * self.columns_shown)


class MatrixScreen(ExplorerScreen):
    """The first screen: the matrix. It stays below all others."""

    AUTO_FOCUS = "MatrixLines"
    BINDINGS = [
        ("enter", "open", "Row"),
        ("s", "sort", "Sort"),
        ("h", "heat", "Heat"),
    ]

    def __init__(self, matrix: ExploredMatrix, row: int) -> None:
        super().__init__(matrix)
        self.lines = MatrixLines(matrix, row)

    def body(self) -> ComposeResult:
        yield self.lines

    def heading(self) -> list[str]:
        matrix = self.matrix
        self.lines.read()
        cursor = self.lines.cursor
        size = f"{matrix.size:,}"
        place = f"row {cursor:,} of {size}"
        if matrix.by_norm:
            place = f"by norm: {cursor + 1:,} of {size}"
        shape = f"{size} x {matrix.dim:,}, {matrix.layer.dtype}"
        return [self.lines.error or place, f"{matrix.name}: {shape}"]

    def commands(self) -> list[str]:
        lines = self.lines
        lines.read()
        ids = lines.ids.tolist()
        words = ["--heat"]
        if lines.heat_limit is None:
            stop = lines.first_column + lines.columns_shown
            words = ["--columns", f"{lines.first_column}:{stop}"]
        rows = f"{ids[0]}:{ids[-1] + 1}"
        if self.matrix.by_norm:
            words += ["--sort", "norm"]
            rows = ",".join(map(str, ids))
        return [self.matrix.spell("weights", "--rows", rows, *words)]

    async def go_to(self, row: int | None, column: int | None = None) -> None:
        self.lines.action_go_to(row, column)

    async def action_open(self) -> None:
        await self.app.open_row(self.lines.row)

    def action_sort(self) -> None:
        """Sort by norm, which takes a pass over the matrix the first time, or by ID again."""
        if self.matrix.order is not None:
            self.lines.sort(not self.matrix.by_norm)
            return
        self.start("sorting", partial(norm_order, self.matrix.layer))

    def finished(self, name: str, result: NormOrder) -> None:
        self.matrix.order = result
        self.lines.sort(by_norm=True)

    def action_heat(self) -> None:
        """Show all columns as colours, whose scale ends at the largest number on the screen."""
        lines = self.lines
        if lines.heat_limit is None:
            fit = Fit.of(self.matrix.dim, lines.room)
            lines.heat_limit = ColorScale.of([lines.values[:, :: fit.columns_per_bin]]).limit
        else:
            lines.heat_limit = None
        lines.action_columns(0)
