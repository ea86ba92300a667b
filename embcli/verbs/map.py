"""The map of a whole weight matrix: how large the values are in bins of rows and columns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from embcli.errors import InputError
from embcli.layer import Meter, Source, Summary
from embcli.passes import Watch, unwatched
from embcli.verbs.weights import WeightMatrix, weights


@dataclass(frozen=True)
class Bins:
    """A whole matrix in bins of consecutive rows and columns; the last bins may be smaller. Sums are in float64."""

    sizes: np.ndarray  # (row bins, column bins) float64: root mean square; NaN or infinite if a value is
    norms: np.ndarray  # (row bins,) float64: mean norm of the finite rows; NaN if there are none
    zero_rows: np.ndarray  # (row bins,) int64: number of zero rows
    non_finite_rows: np.ndarray  # (row bins,) int64: number of rows with NaN or infinity
    zero_columns: np.ndarray  # (columns,) bool
    non_finite_columns: np.ndarray  # (columns,) bool
    summary: Summary


@dataclass(frozen=True, eq=False)
class WeightMap(WeightMatrix, verb="map", content="page"):
    """A whole weight matrix, to be shown in bins; each call of `bins` passes over all rows."""

    def bins(self, rows: int, columns: int) -> Bins:
        """Return the matrix in bins of `rows` x `columns` values, from one pass."""
        total, *others = self.layer.sums(partial(_Sums, self.layer.shape, rows, columns), _Sums.add, self.watch)
        for other in others:
            total.merge(other)
        return total.bins()


class _Sums:
    """Sums of squares over the blocks so far."""

    def __init__(self, shape: tuple[int, int], rows: int, columns: int) -> None:
        self._shape, self._rows = shape, rows
        self._first_rows, self._first_columns = np.arange(0, shape[0], rows), np.arange(0, shape[1], columns)
        count = len(self._first_rows)
        self._squares = np.zeros((count, len(self._first_columns)))
        self._columns = np.zeros(shape[1])
        self._norms = np.zeros(count)
        self._zero, self._non_finite = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._meter = Meter()

    @np.errstate(invalid="ignore")  # of infinities
    def add(self, row: int, block: np.ndarray) -> None:
        """Add a block from a row on."""
        exact = block.astype(np.float64)
        total = float(exact.sum())
        np.square(exact, out=exact)
        rows = exact.sum(axis=1)
        self._meter.take(block, total, float(rows.sum()))
        first, last = row // self._rows, (row + len(block) - 1) // self._rows
        for place in range(first, last + 1):
            part = slice(max(place * self._rows - row, 0), (place + 1) * self._rows - row)
            columns = exact[part].sum(axis=0)
            self._columns += columns
            self._squares[place] += np.add.reduceat(columns, self._first_columns)
            finite = np.isfinite(rows[part])
            self._norms[place] += np.sqrt(rows[part][finite]).sum()
            self._non_finite[place] += np.count_nonzero(~finite)
            self._zero[place] += np.count_nonzero(rows[part] == 0)

    def merge(self, other: _Sums) -> None:
        """Add the sums of other blocks."""
        with np.errstate(invalid="ignore"):
            self._squares += other._squares
            self._columns += other._columns
        self._norms += other._norms
        self._zero += other._zero
        self._non_finite += other._non_finite
        self._meter += other._meter

    def bins(self) -> Bins:
        """Return the bins of all blocks."""
        size, dim = self._shape
        rows = np.diff(np.append(self._first_rows, size))
        counts = rows[:, None] * np.diff(np.append(self._first_columns, dim))
        finite = rows - self._non_finite
        norms = np.where(finite > 0, self._norms / np.maximum(finite, 1), np.nan)
        return Bins(
            np.sqrt(self._squares / counts),
            norms,
            self._zero,
            self._non_finite,
            self._columns == 0,
            ~np.isfinite(self._columns),
            self._meter.summary(),
        )


def density_map(
    source: Source, layer: str, rows: str | None = None, columns: str | None = None, watch: Watch = unwatched
) -> WeightMap:
    """Return the map of the `token` or `position` layer of a source; `watch` counts rows.

    Raises InputError if rows or columns were chosen: a map shows all of them.
    """
    for name, chosen in (("rows", rows), ("columns", columns)):
        if chosen is not None:
            problem = f"{name} {chosen[:40]} cannot be combined with map, which shows the whole matrix"
            raise InputError(problem, parameters=(name, "map"))
    return WeightMap(**vars(weights(source, layer, watch=watch)))
