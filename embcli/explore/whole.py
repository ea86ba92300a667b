"""The whole matrix: its map, what an audit says, and the audit's findings, from one to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, cast

import numpy as np

from embcli.explore.drawing import MOVES, Key, Line, Moving, lines_of, new_sheet, text_line, under_cursor
from embcli.explore.paged import Paged, PageView
from embcli.oldpage import Column, Columns
from embcli.oldpage.layout import shorten
from embcli.tokens import shown

if TYPE_CHECKING:
    from embcli.explore.desk import Desk
    from embcli.verbs.audit import Audit

_TOKEN = 24  # cells
_TABS = ("map", "audit", "findings")


class WholeView(PageView):
    """Three pages about all rows, one after the other by Tab."""

    KEYS: ClassVar[tuple[Key, ...]] = (
        Key(("tab",), "next", "Tab", "map, audit, findings", more="the map, the audit, its findings"),
        Key(("down", "j", "up", "k"), "move", "↑ ↓", "move"),
        Key(("enter",), "row", "Enter", "row", more="open the row of a finding"),
        *MOVES[1:],
    )
    above = 2

    def __init__(self, desk: Desk) -> None:
        super().__init__(desk, "", lambda model: model.weights(map=True), [])
        self.audit = Paged(desk, "auditing", lambda model: model.audit())
        self.tab = 0
        self.findings: list[tuple[str, int]] | None = None  # what, and the ID of a row
        self.movings = [self.moving, Moving(0), Moving(0)]

    def title(self) -> tuple[str, str]:
        """Return which page it is."""
        place = f", {self.moving.at + 1:,} of {self.moving.count:,}" if self.has_list and self.moving.count else ""
        return f"The whole matrix: {_TABS[self.tab]}{place}", self.desk.named_source

    def commands(self) -> list[str]:
        """Return the command of the page."""
        return [self.desk.spell("weights", "--map") if self.tab == 0 else self.desk.spell("audit")]

    def lines(self, width: int, height: int) -> list[Line]:
        """Return the page."""
        if self.tab == 0:
            return self.scrolled(self.page.lines(width), height)
        page = self.audit.lines(width)
        result = cast("Audit | None", self.audit.result)
        if self.tab == 1 or result is None:
            return self.scrolled(page, height)
        if self.findings is None:
            self.findings = _findings(result)
        return self._list(result, self.findings, width, height)

    def _list(self, result: Audit, findings: list[tuple[str, int]], width: int, height: int) -> list[Line]:
        self.moving.count = len(findings)
        if not findings:
            return [text_line(" The audit finds nothing.")]
        places = self.moving.fit(height - self.above)
        here = findings[places.start : places.stop]
        ids = np.array([row for _, row in here])
        page = new_sheet(width, self.desk.color)
        write = page.numbers(result.norms[ids]).write
        columns: Columns = [
            Column("finding", [what for what, _ in here], "left", minimum=12),
            Column("ID", list(map(str, ids.tolist())), minimum=len(str(result.shape[0] - 1))),
            Column("norm", [write(norm) for norm in result.norms[ids].tolist()]),
        ]
        if result.encoding is not None:
            tokens = [shorten(shown(token), _TOKEN) for token in result.tokens(ids)]
            columns.insert(2, Column("token", tokens, "left", minimum=_TOKEN))
        page.table(columns)
        lines = lines_of(page)
        at = self.moving.at - places.start + self.above
        lines[at] = under_cursor(lines[at], width)
        return lines

    # --- keys -------------------------------------------------------------------------------------------------------

    def do_next(self) -> None:
        """Show the next page."""
        self.tab = (self.tab + 1) % len(_TABS)
        self.moving, self.has_list = self.movings[self.tab], self.tab == _TABS.index("findings")

    def do_row(self) -> None:
        """Open the row of the finding under the cursor."""
        if self.has_list and self.findings:
            self.desk.open("row", self.findings[self.moving.at][1])

    def leave(self) -> None:
        """Cancel what still runs."""
        self.audit.cancel()
        super().leave()


def _findings(audit: Audit) -> list[tuple[str, int]]:
    """Return what an audit found, the worst first, each with the ID of a row."""
    kinds = {
        "non-finite": audit.non_finite.tolist(),
        "all zero": audit.zero.tolist(),
        "equal": [row for group in audit.equal for row in group],
        "candidate": audit.candidates.tolist(),
        **{f"unused: {why}": rows.tolist() for why, rows in audit.by_use.items()},
    }
    return [(what, row) for what, rows in kinds.items() for row in rows]
