"""Two rows: their cosine and L2 distance, and the columns that differ most."""

from __future__ import annotations

import numpy as np
from rich.text import Text
from textual.app import ComposeResult
from textual.widgets import DataTable

from embcli.explore.numbers import number_format, sign_style
from embcli.explore.source import Source
from embcli.explore.view import View

_COLUMNS = 100


class PairScreen(View):
    AUTO_FOCUS = "DataTable"

    def __init__(self, source: Source, one: int, other: int) -> None:
        super().__init__(source)
        self.rows = one, other
        values = np.stack([source.row(one), source.row(other)])
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
        yield DataTable(cursor_type="row", cell_padding=1)

    def on_mount(self) -> None:
        table, dark = self.query_one(DataTable), self.app.current_theme.dark
        names = [f"{label} {row}" for label, row in zip("AB", self.rows, strict=True)]
        table.add_columns(*(Text(name, justify="right") for name in ("column", *names, "A - B")))
        spec = number_format(self.values)[0]
        for column, values in zip(self.columns.tolist(), self.values.tolist(), strict=True):
            cells = (Text(format(value, spec), sign_style(value, dark), justify="right") for value in values)
            table.add_row(Text(str(column), justify="right"), *cells)
        self.tell()

    def heading(self) -> str:
        one, other = (f"{row} {self.source.token(row, 10)}".strip() for row in self.rows)
        cosine, distance = (
            "none" if np.isnan(score) else format(score, number_format(np.array([score]))[0])
            for score in (self.cosine, self.distance)
        )
        return f"Rows {one} and {other}   cosine {cosine}   L2 distance {distance}   columns that differ most:"

    def commands(self) -> list[str]:
        one, other = map(str, self.rows)
        columns = ",".join(map(str, self.columns.tolist()))
        return [
            self.source.spell("neighbors", "--ids", one, "--rows", other),
            self.source.spell("neighbors", "--ids", one, "--rows", other, "--metric", "l2"),
            self.source.spell("weights", "--rows", f"{one},{other}", "--columns", columns),
        ]
