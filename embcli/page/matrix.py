"""A matrix on a page: blocks of numbers side by side, with labels and the numbers of their columns.

A number is never cut: middle columns are omitted if the page is too narrow, and named below the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from embcli.page.colors import STYLES, sign_style
from embcli.page.parts import left_out, omission
from embcli.page.strips import Strips
from embcli.page.table import GAP, SHORTEST, Label, Line, label_versions, ruled
from embcli.selection import Excerpt
from embcli.wording import in_line

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

_FEW = 2  # columns of numbers for which tokens are shortened
_FIXED = 1e6  # larger numbers are written with an exponent
_DOTS = Text("…", STYLES["dim"])


class NumberFormat:
    """How numbers are written, all alike: fixed, or with an exponent if fixed loses too much."""

    def __init__(self, arrays: Sequence[np.ndarray], precision: int) -> None:
        whole = all(values.dtype.kind in "iu" for values in arrays)
        values = np.concatenate([np.empty(0, np.int8), *map(np.ravel, arrays)])
        finite = values[np.isfinite(values)]
        largest = float(np.abs(finite).max(initial=0))
        exponent = not whole and (largest >= _FIXED or 0 < largest < 0.5 * 10.0**-precision)
        self._spec = f".{0 if whole else precision}{'e' if exponent else 'f'}"
        widest = [*np.unique(values[~np.isfinite(values)])]
        if finite.size:
            widest += [finite.min(), finite.max()]
        if np.signbit(finite).any():
            widest.append(-0.0)
        self.width = max((len(self.write(value)) for value in widest), default=1)

    def write(self, value: float) -> str:
        return format(float(value), self._spec)


def written(values: np.ndarray, precision: int) -> list[str]:
    return [*map(NumberFormat([values], precision).write, values)]


@dataclass(frozen=True, eq=False)
class Matrix(Strips):
    """Matrices side by side in a table of numbers, or with `heat` as strips of colours.

    A row of dots stands before each row in `gaps`; `tones` are the names of the rows' styles. With `every`, columns
    that do not fit continue in further tables.
    """

    tones: Sequence[str] = ()
    heat: bool = False
    every: bool = False
    column: str = "column"  # what a column is, in the sentence about those left out; "" for none
    rows_left_out: str = ""  # in words, for the same sentence
    rows_parameter: str = ""  # that chooses rows, if there is one

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        columns, width = "", options.max_width
        if self.heat:
            yield from super().__rich_console__(console, options)
        elif self.every and not self.fits(width):
            labels, count = [label.shortened(SHORTEST) for label in self.labels], len(self.numbers)
            most = max(self._most(labels, width), 1)
            for start in range(0, count, most):
                yield from [""] if start else []
                yield self._table(labels, np.arange(start, min(start + most, count)))
        else:
            labels, shown = self._excerpt(width)
            yield self._table(labels, shown.places, shown.gaps)
            columns = omission(shown, self.column, self.numbers) if self.column else ""
        parameters = [self.rows_parameter] if self.rows_left_out and self.rows_parameter else []
        if self.column == "column":
            parameters.append("columns")
        missing = left_out(self.rows_left_out, columns, parameters=parameters)
        if missing is not None:
            yield missing

    def fits(self, width: int) -> bool:
        return self._most([label.shortened(SHORTEST) for label in self.labels], width) >= len(
            self.numbers
        )

    def _table(
        self, labels: Sequence[Label], places: np.ndarray, dots: Sequence[int] = ()
    ) -> RenderableType:
        """Return a table of some columns; a column of dots stands before each place in `dots`."""
        headers = [Text(str(number)) for number in self.numbers[places].tolist()]
        widths = [self._cell] * len(headers)
        for place in dots:
            widths.insert(place, 1)
            headers.insert(place, _DOTS)
        write, tables = self._format.write, []
        for block in self.blocks:
            usual = (
                "" if block.values.dtype.kind == "f" else "dim"
            )  # a dim row has no signs to stand out, nor have IDs
            lines, tones = [], chain(self.tones, repeat(usual))
            for tone, row in zip(tones, block.values[:, places].tolist(), strict=False):
                cells = [
                    Text(write(value), "" if tone == "dim" else sign_style(value)) for value in row
                ]
                for place in dots:
                    cells.insert(place, _DOTS)
                lines.append(Line(cells, widths))
            for gap in reversed(self.gaps):
                lines.insert(gap, Line([Text("⋮")] * len(widths), widths, "dim"))
            tables.append((Line(headers, widths, title=in_line(block.title)), lines))
        return ruled(labels, tables, self.trailing, self.gaps, self.tones)

    @cached_property
    def _format(self) -> NumberFormat:
        return NumberFormat([block.values for block in self.blocks], self.precision)

    @cached_property
    def _cell(self) -> int:
        return max(self._format.width, len(str(self.numbers.max(initial=0))))

    def _most(self, labels: Sequence[Label], width: int, dots: bool = False) -> int:
        """Return how many columns of numbers each block has beside labels, a bar and perhaps a column of dots."""
        taken = sum(label.width + GAP for label in [*labels, *self.trailing])
        taken += len(self.blocks) * (2 if dots else 1) * (1 + GAP)
        return (width + GAP - taken) // (len(self.blocks) * (self._cell + GAP))

    def _excerpt(self, width: int) -> tuple[list[Label], Excerpt]:
        count = len(self.numbers)
        long, short, none = label_versions(self.labels)
        tries = (long, count, False), (short, count, False), (long, _FEW, True), (short, 1, True)
        for labels, least, dots in tries:
            if (most := self._most(labels, width, dots)) >= least:
                return labels, Excerpt.ends(most, count)
        return none, Excerpt.ends(
            max(self._most(none, width, dots=True), 1), count
        )  # a number is worth more than text
