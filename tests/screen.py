"""Reading tables of numbers that embcli prints, as a person would."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from wcwidth import wcswidth

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Grid:
    """A table of numbers, read from what was printed."""

    headers: list[str]  # of the columns of numbers, with … where some are left out
    labels: list[list[str]]  # each cell before the bar, empty ones too
    values: list[list[str]]

    def check(self, expected: np.ndarray) -> None:
        """Hold the numbers against (rows, D) float32 values, each row by its columns' headers."""
        assert len(self.values) == len(expected)
        columns = [int(header) for header in self.headers if header != "…"]
        for row, values in zip(self.values, expected, strict=True):
            assert [cell == "…" for cell in row] == [header == "…" for header in self.headers]
            assert [cell for cell in row if cell != "…"] == [f"{values[column]:.4f}" for column in columns]


def grids(printed: str, width: int) -> list[Grid]:
    """Read all tables of numbers, and hold that they are straight, and no wider than they may be."""
    lines, found = printed.split("\n"), []
    for place, line in enumerate(lines):
        if not line or {*line} != {"─"} or "│" not in lines[place - 1]:
            continue
        body = []
        for row in lines[place + 1 :]:
            if "│" not in row:
                break
            body.append(row)
        table = [lines[place - 1], *body]
        halves = [(left, right.rstrip()) for left, _, right in (row.rpartition("│") for row in table)]
        assert len({wcswidth(left) for left, _ in halves}) == 1, table  # the bar stands straight
        assert len({len(right) for _, right in halves}) == 1, table  # and so does the last digit
        assert max(map(wcswidth, [line, *table])) <= width, table
        rows = [(left, right.split()) for left, right in halves[1:] if {*right.split()} != {"⋮"}]
        labels = [re.split(r" {2,}", left.strip()) for left, _ in rows]
        found.append(Grid(halves[0][1].split(), labels, [values for _, values in rows]))
    return found
