"""Two rows side by side, column by column, with their cosine and distance."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from embcli.explore.desk import View
from embcli.explore.drawing import BOLD, DIM, MOVES, Key, Line, lines_of, new_sheet
from embcli.explore.values import ABOVE, down
from embcli.oldpage import Block, Column
from embcli.oldpage.layout import shorten
from embcli.oldpage.lines import Look, Piece

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.explore.jobs import Job
    from embcli.model import Model
    from embcli.names import Metric
    from embcli.verbs.neighbors import Neighbors

_LABEL, _ERROR = 14, 44  # cells
_METRICS: dict[Metric, str] = {"cosine": "cosine", "l2": "L2 distance"}


class PairView(View):
    """The marked row and another one."""

    KEYS = (
        Key(("down", "j", "up", "k"), "move", "↑ ↓", "columns", more="scroll the columns"),
        *MOVES[1:],
    )
    has_list = False

    def __init__(self, desk: Desk, one: int, other: int) -> None:
        super().__init__(desk, desk.matrix.layer.shape[1])
        self.rows = one, other
        self.end = 1
        query, among = np.array([one]), str(other)
        self.found: dict[Metric, Job[Neighbors]] = {
            metric: desk.start(partial(_of_pair, query, among, metric)) for metric in _METRICS
        }
        self.jobs = [*self.found.values()]

    def title(self) -> tuple[str, str]:
        """Return both rows."""
        one, other = (f"{row} {self.desk.token_of(row)}" for row in self.rows)
        return f"Rows {one}  and  {other}", self.desk.named_source

    def commands(self) -> list[str]:
        """Return the commands of the values and of both scores."""
        one, other = map(str, self.rows)
        at = self.moving.at
        query = ("--ids", one, "--rows", other)
        return [
            self.desk.spell("weights", "--rows", f"{one},{other}", "--columns", f"{at}:{self.end}"),
            *(self.desk.spell("neighbors", *query, *self._named(metric)) for metric in _METRICS),
        ]

    @staticmethod
    def _named(metric: Metric) -> tuple[str, ...]:
        return ("--metric", metric) if metric != "cosine" else ()

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the scores, strips of both rows, and their values side by side."""
        rows = self.desk.matrix.layer.rows(np.array(self.rows))  # (2, D) float32
        with np.errstate(invalid="ignore"):  # of infinities
            difference = rows[:1] - rows[1:]
        labels = [shorten(f"{row} {self.desk.token_of(row)}".strip(), _LABEL) for row in self.rows]
        page = new_sheet(width, self.desk.color)
        names = ["A", "B", "A - B"]
        strips = np.concatenate([rows, difference])
        page.strips([Column("", names, "left")], [Block("", strips)], self.desk.matrix.columns)
        above = [self._scores(), [], *lines_of(page)[: ABOVE + len(names)], []]
        room = height - len(above)
        named = {f"A {labels[0]}": rows[0], f"B {labels[1]}": rows[1], "A - B": difference[0]}
        self.moving.by(0)
        lines, self.moving.height, self.end = down(named, self.moving.at, width, room, self.desk.color)
        return [*above, *lines]

    def _scores(self) -> Line:
        line: Line = []
        for metric, name in _METRICS.items():
            job = self.found[metric]
            line.append(Piece(f" {name} ", DIM))
            if job.error is not None:
                line.append(Piece(f"{shorten(self.desk.words_of(job.error), _ERROR)}  ", Look("bad")))
                continue
            if job.found is None:
                line.append(Piece("…  ", BOLD))
                continue
            scores = job.found.scores
            write = new_sheet(1, self.desk.color).numbers(scores).write
            line.append(Piece(f"{write(scores[0])}  " if len(scores) else "none  ", BOLD))
        return line

    def go_to(self, row: int | None, column: int | None) -> None:
        """Show a column at the top, or another row."""
        if row is not None:
            self.desk.open("row", row)
        elif column is not None:
            self.moving.at = column


def _of_pair(query: np.ndarray, among: str, metric: Metric, model: Model) -> Neighbors:
    return model.neighbors(query, metric=metric, rows=among)
