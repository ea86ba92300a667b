"""A row: its values, the sum that a model reads, its norm, and the rows nearest to it, from one to the next."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np

from embcli.explore.desk import View
from embcli.explore.drawing import (
    BOLD,
    DIM,
    MOVES,
    Key,
    Line,
    Moving,
    beside,
    folded,
    length,
    lines_of,
    new_sheet,
    progress,
    text_line,
    under_cursor,
)
from embcli.explore.values import ABOVE, across, down
from embcli.oldpage import Block, Column, Columns
from embcli.oldpage.layout import shorten
from embcli.oldpage.lines import Look, Piece
from embcli.statistics import norms_of
from embcli.tokens import shown

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.jobs import Job
    from embcli.model import Model
    from embcli.names import Metric
    from embcli.verbs.lookup import Lookup
    from embcli.verbs.neighbors import Neighbors

_TOP = 50  # neighbours
_LIST = 34  # cells of a list of neighbours
_TOKEN = 12  # cells of a token in it
_LEAST_VALUES = 26  # cells of the values beside it
_METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "distance"}


class RowView(View):
    """A row of the token matrix."""

    KEYS = (
        Key(("down", "j", "up", "k"), "move", "↑ ↓", "neighbour", more="move through the neighbours"),
        Key(("n", "enter"), "neighbour", "n Enter", "go on", more="go on to the neighbour under the cursor"),
        Key(("tab",), "metric", "Tab", "L2", more="the nearest by L2 distance, or by cosine"),
        Key(("p",), "sum", "p", "input", more="token row + position row = input, and back"),
        Key(("right",), "right", "←→", "columns", more="scroll the columns of the row"),
        Key(("left",), "left", "", "", False),
        Key(("space",), "mark", "Space", "mark", more="mark the row, or take the mark away"),
        Key(("c",), "compare", "c", "compare", more="compare the row with the marked one"),
        *MOVES[1:],
    )

    def __init__(self, desk: Desk, row: int, column: int | None = None) -> None:
        super().__init__(desk)
        self.row = row
        self.first, self.end, self.step = column or 0, 1, 1  # the columns on the screen, and how many to scroll by
        self.metric: Metric = "cosine"
        self.both = False  # whether both lists are on the screen
        self.nearest: dict[Metric, Job[Neighbors]] = {}
        self.lists: dict[Metric, Moving] = {metric: Moving(0) for metric in _METRICS}
        self.sum: Job[Lookup] | None = None  # with its position row, if that is shown
        self.moving = self.lists[self.metric]

    # --- what is on the screen --------------------------------------------------------------------------------------

    def title(self) -> tuple[str, str]:
        """Return the row's ID and token, and the name of the matrix."""
        mark = " • marked" if self.row == self.desk.marked else ""
        return f"Row {self.row}  {self.desk.token_of(self.row)}{mark}", self.desk.named_source

    def commands(self) -> list[str]:
        """Return the commands of the values, of norm and rank, and of the neighbours."""
        columns = ("--columns", f"{self.first}:{self.end}")
        commands = [self.desk.spell("weights", "--rows", str(self.row), *columns, "--sort", "norm")]
        if self.sum is not None:
            commands.append(self.desk.spell("lookup", "--ids", str(self.row), *columns))
        return commands + [self._command(metric) for metric in self._metrics()]

    def _command(self, metric: Metric, *words: str) -> str:
        named = ("--metric", metric) if metric != "cosine" else ()
        return self.desk.spell("neighbors", "--ids", str(self.row), *named, "--top", str(_TOP), *words)

    def _metrics(self) -> list[Metric]:
        return [*_METRICS] if self.both else [self.metric]

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the norm, a strip of all values, and beside each other values and neighbours."""
        self._search()
        values = self.desk.matrix.layer.rows(np.array([self.row]))
        head = [self._norm(width), *self._strip(values, width), []]
        room = max(height - len(head), 1)
        for self.both in (True, False):
            left = width - (_LIST + 3) * len(self._metrics())
            drawn = self._values(values[0], left, room) if left >= _LEAST_VALUES else []
            if drawn and max(map(length, drawn)) <= left:  # no number is cut
                first, *others = (self._list(metric, room) for metric in self._metrics())
                for other in others:
                    first = beside(first, other, _LIST)
                return [*head, *beside(drawn, first, left)]
        above = self._values(values[0], width, max(room // 2 - 1, ABOVE + 1))
        return [*head, *above, [], *self._list(self.metric, room - len(above) - 1)]

    def _search(self) -> None:
        """Search for the neighbours by one metric after the other; then rank the norms of all rows."""
        for metric in (self.metric, *_METRICS):
            if metric not in self.nearest:
                self.nearest[metric] = self.desk.start(partial(_nearest, np.array([self.row]), metric))
                self.jobs.append(self.nearest[metric])
            if not self.nearest[metric].done:
                return
        self.desk.norms  # noqa: B018

    def _norm(self, width: int) -> Line:
        """Return the norm and its rank."""
        norm = norms_of(self.desk.matrix.layer.rows(np.array([self.row])).astype(np.float64))
        write = new_sheet(width, self.desk.color).numbers(norm).write
        order = self.desk.norms_if_done
        rank = f"{order.ranks[self.row]:,}" if order else "…"
        size = f" of {self.desk.matrix.layer.shape[0]:,}"
        return [
            *(Piece(" norm ", DIM), Piece(write(norm[0]), BOLD), Piece("   rank ", DIM), Piece(rank, BOLD)),
            Piece(size, DIM),
        ]

    def _strip(self, values: np.ndarray, width: int) -> list[Line]:
        """Return all values as one strip of colours."""
        page = new_sheet(width - 1, self.desk.color)
        page.strips([], [Block("", values)], self.desk.matrix.columns)
        return [[Piece(" "), *line[3:]] for line in lines_of(page)[ABOVE : ABOVE + 1]]

    def _values(self, values: np.ndarray, width: int, height: int) -> list[Line]:
        """Return the values from the first column on, alone or as terms of the sum."""
        page = new_sheet(width, self.desk.color)
        room = max(height - ABOVE - 1, 1)
        self.first = min(max(self.first, 0), len(values) - 1)
        if self.sum is None:
            self.step, self.end = across(page, values, self.first, width, room)
            return lines_of(page)
        if not self.sum.done:
            return [progress("looking up", self.sum.share, width)]
        if self.sum.error is not None:
            raise self.sum.error
        found = cast("Lookup", self.sum.found)
        rows = found.rows(np.array([0]), ("token", "position", "input"))
        named = {name: each[0] for name, each in rows.items()}
        lines, self.step, self.end = down(named, self.first, width, height - 1, self.desk.color)
        return [*lines, text_line(f" input = {found.sum}, at position 0", DIM, width)]

    def _list(self, metric: Metric, height: int) -> list[Line]:
        """Return the nearest rows by a metric."""
        job, moving = self.nearest.get(metric), self.lists[metric]
        heading = "nearest by cosine" if metric == "cosine" else "nearest by L2 distance"
        if job is None or not job.done:
            return [text_line(heading, BOLD), progress("searching", job.share if job else 0.0, _LIST)]
        if job.error is not None:
            words = folded(self.desk.words_of(job.error), _LIST)
            return [text_line(heading, BOLD), *(text_line(line, Look("bad")) for line in words)]
        found = cast("Neighbors", job.found)
        ranking = found.search.rankings[0]
        moving.count = len(ranking.ids)
        places = moving.fit(height - ABOVE)
        page = new_sheet(_LIST, self.desk.color)
        write = page.numbers(ranking.scores).write
        here = slice(places.start, places.stop)
        ids = ranking.ids[here]
        tokens = [shorten(shown(token), _TOKEN) for token in found.tokens(ids)]
        columns: Columns = [
            Column("", [str(place + 1) for place in places], tone="dim", minimum=2),
            *([Column("nearest", tokens, "left", minimum=_TOKEN)] if found.encoding is not None else []),
            Column("ID", list(map(str, ids.tolist())), minimum=len(str(found.layer.shape[0] - 1))),
            Column(_METRICS[metric], [write(score) for score in ranking.scores[here].tolist()]),
        ]
        page.table(columns)
        lines = lines_of(page)
        if metric == self.metric and len(ids):
            at = ABOVE + moving.at - places.start
            lines[at] = under_cursor(lines[at], length(lines[at]))
        return lines if len(ids) else [text_line(heading, BOLD), text_line("No other rows.")]

    def cover(self) -> None:
        """Cancel a search that still runs; it begins anew when one comes back."""
        for metric, job in [*self.nearest.items()]:
            if not job.done:
                job.cancel()
                del self.nearest[metric]

    # --- keys -------------------------------------------------------------------------------------------------------

    def do_neighbour(self) -> None:
        """Go on to the neighbour under the cursor."""
        job = self.nearest.get(self.metric)
        if job is not None and job.found is not None and len(job.found.ids):
            self.desk.open("row", int(job.found.ids[self.moving.at]), self.first)

    def do_metric(self) -> None:
        """Move through the other list."""
        self.metric = "l2" if self.metric == "cosine" else "cosine"
        self.moving = self.lists[self.metric]

    def do_sum(self) -> None:
        """Show the row's position row and their sum, or its values only."""
        query = np.array([self.row])
        self.sum = self.desk.start(lambda model: model.lookup(query), in_turn=True) if self.sum is None else None

    def do_right(self) -> None:
        """Scroll the columns by a line."""
        self.first += self.step

    def do_left(self) -> None:
        """Scroll the columns back by a line."""
        self.first -= self.step

    def do_mark(self) -> None:
        """Mark the row, or take the mark away."""
        self.desk.mark(self.row)

    def do_compare(self) -> None:
        """Compare the row with the marked one."""
        self.desk.compare(self.row)

    def go_to(self, row: int | None, column: int | None) -> None:
        """Show another row, or another column of this one at the top."""
        if row is not None:
            self.desk.open("row", row, self.first if column is None else column)
        elif column is not None:
            self.first = column


def _nearest(query: np.ndarray, metric: Metric, model: Model) -> Neighbors:
    return model.neighbors(query, metric=metric, top=_TOP)
