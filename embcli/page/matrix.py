"""A matrix on a page: blocks of numbers side by side, with labels and the numbers of their columns.

A number is never cut: middle columns are omitted if the page is too narrow, and named below the
table. Pages of all verbs use it for numbers in columns, and NumberFormat for numbers elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, repeat

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from embcli.page.colors import STYLES, sign_style
from embcli.page.parts import left_out, omission
from embcli.page.strips import WIDEST, Strips, Values
from embcli.page.table import GAP, Label, Line, label_versions, ruled
from embcli.selection import Excerpt
from embcli.wording import in_line

_LARGEST_FIXED = 1e6  # Larger numbers, and this one, have an exponent.
_FEWEST_DECIMALS = 2  # of numbers that have fewer so that all columns fit
_NARROWEST = 38  # cells of a matrix beside another part: two are on a terminal of 80 columns
_NARROWEST_STRIPS = 30  # of a heat map there
_DOTS = Text("…", STYLES["dim"])


class NumberFormat:
    """How numbers are written, all alike: fixed, or with an exponent if fixed loses too much."""

    def __init__(self, arrays: Sequence[np.ndarray], precision: int) -> None:
        values = np.concatenate([np.empty(0, np.int8), *map(np.ravel, arrays)])
        is_finite = np.isfinite(values)
        finite = values[is_finite]
        if all(array.dtype.kind in "iu" for array in arrays):
            self._spec = ".0f"
        else:
            largest = float(np.abs(finite).max(initial=0))
            half_of_last_digit = 0.5 * 10.0**-precision
            is_fixed = largest == 0 or half_of_last_digit <= largest < _LARGEST_FIXED
            self._spec = f".{precision}{'f' if is_fixed else 'e'}"

        widest = np.unique(values[~is_finite]).tolist()
        if finite.size:
            widest += [finite.min(), finite.max()]
        if np.signbit(finite).any():
            widest.append(-0.0)
        self.width = max((len(self.write(value)) for value in widest), default=1)

    def write(self, value: float) -> str:
        return format(float(value), self._spec)


def written(values: np.ndarray, precision: int) -> list[str]:
    """Return numbers, (n,), as they are written alike."""
    number_format = NumberFormat([values], precision)
    return [number_format.write(value) for value in values]


@dataclass(frozen=True, eq=False)
class Matrix(Strips):
    """Matrices side by side in a table of numbers, or with `heat` as strips of colours.

    Numbers have the colours of their signs, unless a scale is given, as of similarities. A row of
    dots is inserted before each row in `gaps`; `row_styles` are names in STYLES, one for each row.
    With `every`, columns that do not fit continue in further tables.
    """

    row_styles: Sequence[str] = ()
    heat: bool = False
    every: bool = False
    keeps_precision: bool = True  # or numbers have fewer decimals if all columns fit then
    rows_left_out: str = ""  # in words, for the same sentence
    rows_parameter: str = ""  # the parameter that chooses rows, if there is one
    has_notes: bool = False  # whether notes of the page follow, apart by a blank line
    narrows: bool = False  # whether it may leave out columns so that others are beside it

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        columns_left_out = ""
        fewer_decimals = 0
        if self.heat:
            yield from super().__rich_console__(console, options)
        else:
            matrix = self._fitting(width)
            if self.every and not matrix.fits(width):
                yield from self._tables(width)
            else:
                labels, excerpt = matrix._excerpt(width)
                yield matrix._table(labels, excerpt.places, excerpt.gaps)
                if self.column:
                    columns_left_out = omission(excerpt, self.column, self.numbers)
            fewer_decimals = self.precision - matrix.precision

        parameters = []
        if self.rows_left_out and self.rows_parameter:
            parameters.append(self.rows_parameter)
        decimals_left_out = ""
        if fewer_decimals:
            decimals_left_out = f"{fewer_decimals} of {self.precision} decimals"
            parameters.append("precision")
        elif self.column == "column":
            parameters.append("columns")
        parts = (self.rows_left_out, columns_left_out, decimals_left_out)
        notes = list(left_out(*parts, parameters=parameters))
        if notes or self.has_notes:
            yield ""
        yield from notes

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        width = options.max_width
        narrowest = _NARROWEST
        matrix = self._fitting(width)
        if self.heat:
            narrowest = _NARROWEST_STRIPS
            if self.square and self.lines:  # A line is as high as two cells are wide.
                narrowest = 2 * self.lines
            width = min(narrowest + WIDEST * len(self.numbers), width)
        elif matrix.fits(width) or not self.every:
            labels, excerpt = matrix._excerpt(width)
            table = matrix._table(labels, excerpt.places, excerpt.gaps)
            width = Measurement.get(console, options, table).maximum
        return Measurement(min(narrowest, width) if self.narrows else width, width)

    def _fitting(self, width: int) -> Matrix:
        """Return the matrix with as many decimals as leave room for all columns, at least two.

        It is the same one if they do not fit even then.
        """
        matrix = self
        while not matrix.fits(width):
            if self.keeps_precision or matrix.precision <= _FEWEST_DECIMALS:
                return self
            matrix = replace(matrix, precision=matrix.precision - 1)
        return matrix

    def fits(self, width: int) -> bool:
        """Return whether all columns fit, if tokens are shortened."""
        _, short, _ = label_versions(self.labels)
        return self._room_for(short, width) >= len(self.numbers)

    def _tables(self, width: int) -> RenderResult:
        """Yield all columns, in as many tables as they need."""
        _, labels, _ = label_versions(self.labels)
        count = len(self.numbers)
        columns_per_table = max(self._room_for(labels, width), 1)
        for start in range(0, count, columns_per_table):
            if start:
                yield ""
            stop = min(start + columns_per_table, count)
            yield self._table(labels, np.arange(start, stop))

    def _excerpt(self, width: int) -> tuple[list[Label], Excerpt]:
        """Return the labels and the columns that a page shows.

        Tokens are shortened if all columns fit then, or if fewer than two fit beside long ones;
        they are left out if not even one number fits.
        """
        count = len(self.numbers)
        long, short, without_tokens = label_versions(self.labels)
        for labels in (long, short):
            if self._room_for(labels, width) >= count:
                return labels, Excerpt.ends(count, count)
        for labels, fewest in ((long, 2), (short, 1), (without_tokens, 1)):
            room = self._room_for(labels, width, has_dots=True)
            if room >= fewest:
                break
        return labels, Excerpt.ends(max(room, 1), count)

    def _room_for(self, labels: Sequence[Label], width: int, has_dots: bool = False) -> int:
        """Return how many columns of numbers each block has beside labels and its bar.

        With `has_dots` each block also has a column of dots.
        """
        label_cells = sum(label.width + GAP for label in [*labels, *self.trailing])
        narrow_columns = 2 if has_dots else 1  # a bar, and dots
        narrow_cells = len(self.blocks) * narrow_columns * (1 + GAP)
        room = width + GAP - label_cells - narrow_cells
        return room // (len(self.blocks) * (self._format.width + GAP))

    def _table(
        self, labels: Sequence[Label], places: np.ndarray, dots: Sequence[int] = ()
    ) -> Table:
        """Return a table of some columns, with a column of dots before each place in `dots`."""
        widths = [self._format.width] * len(places)
        headers = [Text(str(number)) for number in self.numbers[places].tolist()]
        for place in dots:
            widths.insert(place, 1)
            headers.insert(place, _DOTS)
        blocks = []
        for block in self.blocks:
            header = Line(headers, widths, title=in_line(block.title))
            blocks.append((header, self._lines(block, places, dots, widths)))
        return ruled(
            labels, blocks, self.trailing, self.gaps, self.row_styles, sections=self.sections
        )

    def _lines(
        self, block: Values, places: np.ndarray, dots: Sequence[int], widths: Sequence[int]
    ) -> list[Line]:
        """Return the rows of a block, each as one line."""
        # Signs are coloured, except in dim rows and among IDs.
        has_signs = block.values.dtype.kind == "f" and self.scale is None
        row_styles = chain(self.row_styles, repeat("" if has_signs else "dim"))
        write = self._format.write
        lines = []
        for style, row in zip(row_styles, block.values[:, places].tolist(), strict=False):
            if style == "dim":
                cells = [Text(write(value)) for value in row]
            else:
                is_term = style == "term"
                cells = [Text(write(value), sign_style(value, is_term)) for value in row]
            for place in dots:
                cells.insert(place, _DOTS)
            lines.append(Line(cells, widths))
        for gap in reversed(self.gaps):
            lines.insert(gap, Line([Text("⋮")] * len(widths), widths, "dim"))
        return lines

    @cached_property
    def _format(self) -> NumberFormat:
        """The format of the numbers, which are as wide as the numbers of columns, or wider."""
        values = [block.values for block in self.blocks]
        number_format = NumberFormat([*values, *self.alike], self.precision)
        largest_number = self.numbers.max(initial=0)
        number_format.width = max(number_format.width, len(str(largest_number)))
        return number_format
