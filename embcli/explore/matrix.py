"""The matrix: its rows with tokens and norms, as numbers or as strips of colours; only rows on the screen are read."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.explore.desk import View
from embcli.explore.drawing import MOVES, Key, Line, lines_of, new_sheet, progress, under_cursor
from embcli.explore.values import with_numbers
from embcli.oldpage import Bar, Block, Column
from embcli.oldpage.heat import Fit, Scale, means
from embcli.oldpage.layout import GAP, beside, shorten
from embcli.safe import in_line
from embcli.statistics import norms_of
from embcli.tokens import shown

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.explore.desk import Desk
    from embcli.explore.jobs import Job
    from embcli.oldpage import NumberFormat, Page
    from embcli.statistics import NormOrder
    from embcli.verbs.neighbors import Neighbors

_MOST_OF_TOKEN, _NORM = 24, 7  # cells
_BELOW_HEAT = 2  # lines below the last one: the scale of the colours


@dataclass(frozen=True, eq=False)
class Order:
    """All rows in an order that a pass found, with a number of each that the screen shows: its rank, or its score."""

    name: str
    header: str  # of the numbers
    ids: np.ndarray  # (V,) int64
    numbers: np.ndarray  # (V,) int64 or float64, of the rows in this order; NaN for rows without a score
    row: int | None = None  # that the scores are with

    @classmethod
    def by_norm(cls, norms: NormOrder) -> Order:
        """Return the rows by norm, the largest first."""
        return cls("norm", "rank", norms.ids, norms.ranks[norms.ids])

    @classmethod
    def by_cosine(cls, row: int, found: Neighbors) -> Order:
        """Return the rows by cosine to a row; those without a score are last, by ID."""
        ranking = found.search.rankings[0]
        scored = np.zeros(found.layer.shape[0], bool)
        scored[ranking.ids] = True
        others = np.flatnonzero(~scored)
        numbers = np.concatenate([ranking.scores, np.full(len(others), np.nan)])
        return cls(f"cosine to {row}", "cosine", np.concatenate([ranking.ids, others]), numbers, row)


class MatrixView(View):
    """The rows of the token matrix, by ID, by norm, or by cosine to the marked row."""

    KEYS = (
        *MOVES,
        Key(("enter",), "row", "Enter", "row", more="the row: its values and neighbours"),
        Key(("h",), "heat", "h", "heat", more="colours in place of numbers, and back"),
        Key(("s",), "sort", "s", "sort", more="sort by norm, by cosine to the marked row, by ID"),
        Key(("space",), "mark", "Space", "mark", more="mark the row, or take the mark away"),
        Key(("c",), "compare", "c", "compare", more="compare the row with the marked one"),
        Key(("left", "right"), "scroll", "← →", "scroll by a column, with Shift by a screen", False),
        Key(("0", "dollar_sign"), "scroll", "0 $", "the first and the last column", False),
    )

    above = 2

    def __init__(self, desk: Desk, row: int = 0, sort: str = "id") -> None:
        super().__init__(desk, desk.matrix.layer.shape[0], row)
        self.matrix = desk.matrix
        self.left, self.columns = 0, 1  # the first column on the screen, and how many there are
        self.heat, self.cell = False, 0  # whether rows are strips; the cells of a number so far
        self.scale: tuple[int, float | None] | None = None  # of strips, and the width of a page it is for
        self.order: Order | None = None
        self.sorting: Job[Any] | None = None  # a pass, and the order that its result gives
        self._order_of: Callable[[Any], Order] = Order.by_norm
        if sort != "id":
            self._sort_by(sort)

    # --- where one is -----------------------------------------------------------------------------------------------

    @property
    def row(self) -> int:
        """The ID of the row under the cursor."""
        return int(self._ids(range(self.moving.at, self.moving.at + 1))[0])

    def _ids(self, places: range) -> np.ndarray:
        return (
            np.arange(places.start, places.stop) if self.order is None else self.order.ids[places.start : places.stop]
        )

    def go_to(self, row: int | None, column: int | None = None) -> None:
        """Put the cursor on a row, wherever it is in this order, and a column at the left."""
        if row is not None:
            self.moving.at = row if self.order is None else int(np.flatnonzero(self.order.ids == row)[0])
            self.moving.top = self.moving.at - self.moving.height // 3
        if column is not None:
            self.left, self.heat = column, False

    # --- what is on the screen --------------------------------------------------------------------------------------

    def title(self) -> tuple[str, str]:
        """Return the name and shape of the matrix, and the place in it."""
        size, dim = self.matrix.layer.shape
        place = f"row {self.moving.at:,} of {size:,}"
        if self.order is not None:
            place = f"by {self.order.name}: {self.moving.at + 1:,} of {size:,}"
        shape = f"{size:,} rows x {dim:,} columns, {self.matrix.layer.dtype}"
        room = self.desk.size[0] - len(shape) - len(place) - 7
        return f"{shorten(in_line(self.desk.named_source), max(room, 8))}: {shape}", place

    def commands(self) -> list[str]:
        """Return the command of the rows on the screen, and that of their order."""
        places = self.moving.fit(self.moving.height)
        ids = self._ids(places).tolist()
        rows = f"{ids[0]}:{ids[-1] + 1}" if self.order is None and len(ids) > 1 else ",".join(map(str, ids))
        shown = ["--columns", f"{self.left}:{self.left + self.columns}"]
        if self.heat:
            shown = ["--heat"]
        if self.order is None or self.order.row is not None:
            commands = [self.desk.spell("weights", "--rows", rows, *shown)]
        else:
            commands = [self.desk.spell("weights", "--rows", rows, *shown, "--sort", "norm")]
        if self.order is not None and self.order.row is not None:
            query = ("--ids", str(self.order.row), "--top", str(places.stop))
            commands.append(self.desk.spell("neighbors", *query))
        return commands

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the rows as a table, with the cursor's row marked."""
        running: list[Line] = []
        if self.sorting is not None and self.sorting.done:
            self._take_found(self.sorting)
        if self.sorting is not None:
            running = [progress("sorting", self.sorting.share, width)]
        rows = height - self.above - len(running) - (_BELOW_HEAT if self.heat else 0)
        places = self.moving.fit(rows)
        ids = self._ids(places)
        values = self.matrix.layer.rows(ids)  # (n, D) float32
        page = new_sheet(width, self.desk.color)
        labels = self._labels(page, ids, places, width, norms_of(values.astype(np.float64)))
        taken = sum(label.width + GAP for label in labels)
        if self.heat:
            page = new_sheet(width, self.desk.color, scale=self._scale(page, labels, values))
            page.strips(labels, [Block("", values)], self.matrix.columns)
            lines = lines_of(page)
        else:
            page.table([*labels, Bar()])
            lines = with_numbers(lines_of(page), *self._numbers(page, values, width - taken - 1 - GAP))
        at = self.moving.at - places.start + self.above
        lines[at] = under_cursor(lines[at], taken - GAP)
        return [*lines[: height - len(running)], *([[]] * (height - len(running) - len(lines))), *running]

    def _scale(self, page: Page, labels: list[Column], values: np.ndarray) -> float | None:
        """Return the limit of the colours: that of the first screen, until the width changes."""
        if self.scale is None or self.scale[0] != page.width:
            fit = Fit.of(values.shape[1], beside(page.width, labels, ())[1], page.colors > 0)
            limit = Scale.of([means(values, fit.per)]).limit
            self.scale = page.width, float(f"{limit:.4g}") or None
        return self.scale[1]

    def _labels(self, page: Page, ids: np.ndarray, places: range, width: int, norms: np.ndarray) -> list[Column]:
        rows, last = ids.tolist(), str(self.matrix.layer.shape[0] - 1)
        marks = ["•" if row == self.desk.marked else " " for row in rows]
        labels = [Column("", marks, "left"), Column("ID", list(map(str, rows)), minimum=len(last))]
        if self.matrix.encoding is not None:
            most = min(_MOST_OF_TOKEN, max(width // 5, 6))
            tokens = [shorten(shown(token), most) for token in self.matrix.tokens(ids)]
            labels.append(Column("token", tokens, "left", minimum=most))
        numbers = {"norm": norms}
        if self.order is not None:
            numbers[self.order.header] = self.order.numbers[places.start : places.stop]
        for name, values in numbers.items():
            write = page.numbers(values).write
            labels.append(Column(name, [write(value) for value in values.tolist()], minimum=_NORM))
        return labels

    def _numbers(self, page: Page, values: np.ndarray, available: int) -> tuple[np.ndarray, int, NumberFormat, int]:
        """Return the numbers that fit, the first column, how they are written, and the cells of each.

        Columns keep their width while one scrolls.
        """
        dim = values.shape[1]
        while True:
            cell = max(self.cell, len(str(dim - 1)))
            self.columns = min(max((available + GAP) // (cell + GAP), 1), dim)
            self.left = min(max(self.left, 0), dim - self.columns)
            here = values[:, self.left : self.left + self.columns]
            numbers = page.numbers(here)
            if numbers.width <= cell:
                return here, self.left, numbers, cell
            self.cell = numbers.width

    # --- keys -------------------------------------------------------------------------------------------------------

    def press(self, name: str) -> bool:
        """Scroll the columns, or do what a key does on any screen."""
        page, all_ = self.columns, self.matrix.layer.shape[1]
        steps = {"left": -1, "less_than_sign": -1, "right": 1, "greater_than_sign": 1}
        steps |= {"shift+left": -page, "ctrl+left": -page, "shift+right": page, "ctrl+right": page}
        steps |= {"0": -all_, "circumflex_accent": -all_, "dollar_sign": all_}
        self.left += steps.get(name, 0)
        return name in steps or super().press(name)

    def do_row(self) -> None:
        """Open the row under the cursor."""
        self.desk.open("row", self.row)

    def do_compare(self) -> None:
        """Compare the row with the marked one."""
        self.desk.compare(self.row)

    def do_heat(self) -> None:
        """Show strips of colours in place of numbers, or numbers again."""
        self.heat, self.cell, self.scale = not self.heat, 0, None

    def do_mark(self) -> None:
        """Mark the row, or take the mark away."""
        self.desk.mark(self.row)

    def do_sort(self) -> None:
        """Sort by the next order: by norm, by cosine if a row is marked, by ID."""
        now = "id" if self.order is None else "norm" if self.order.row is None else "cosine"
        self._sort_by({"id": "norm", "norm": "cosine", "cosine": "id"}[now])

    def _sort_by(self, name: str) -> None:
        self.leave()
        self.sorting, row = None, self.desk.marked
        if name == "norm":
            self.sorting, self._order_of = self.desk.norms, Order.by_norm
        elif name == "cosine" and row is not None:
            query = self.desk.matrix.layer.rows(np.array([row]))
            self.sorting = self.desk.start(lambda model: model.neighbors(vector=query, top=len(model)))
            self.jobs, self._order_of = [self.sorting], partial(Order.by_cosine, row)
        else:
            self._take(None)

    def _take_found(self, job: Job[Any]) -> None:
        """Sort by what a pass found, or say why it failed."""
        self.sorting = None
        if job.error is not None:
            self.desk.said = self.desk.words_of(job.error)
        else:
            self._take(self._order_of(job.found))

    def _take(self, order: Order | None) -> None:
        """Show the rows in an order; a new one begins at its first row, that of IDs at the same row."""
        row = self.row
        self.order, self.cell = order, 0
        self.moving.at = self.moving.top = 0
        if order is None:
            self.go_to(row)
