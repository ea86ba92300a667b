"""The map of a whole weight matrix: its rows and columns in bins, and how large the numbers are in each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError
from embcli.layer import Meter, run_of, shape_of
from embcli.passes import ahead, unwatched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.encodings import Encoding
    from embcli.layer import Layer, Source, Summary
    from embcli.passes import Watch


@dataclass(frozen=True)
class Bins:
    """A whole matrix in bins of consecutive rows and columns, the last of what is left; sums are in float64."""

    sizes: np.ndarray  # (row bins, column bins) float64: the root mean square; NaN or infinite where a number is
    norms: np.ndarray  # (row bins,) float64: the mean norm of the rows that are finite, NaN where none is
    zero_rows: np.ndarray  # (row bins,) int64: rows of zeros alone
    odd_rows: np.ndarray  # (row bins,) int64: rows with NaN or infinity
    zero_columns: np.ndarray  # (columns,) bool
    odd_columns: np.ndarray  # (columns,) bool
    summary: Summary


@dataclass(frozen=True)
class Map:
    """A whole matrix; it is gone through once the bins are known."""

    name: str  # "token" or "position"
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None where they stand for none
    run: dict[str, Any]
    watch: Watch = unwatched

    def bins(self, rows: int, columns: int) -> Bins:
        """Return the matrix in bins of so many rows and columns, from one pass through small buffers."""
        parts = self.layer.parts()
        sums = [_Sums(self.layer.shape, rows, columns) for _ in parts]
        passes = [each.reading(first, blocks) for each, (first, blocks) in zip(sums, parts, strict=True)]
        for _ in self.watch(ahead(passes), self.layer.shape[0], int):
            pass
        for other in sums[1:]:
            sums[0].add(other)
        return sums[0].bins()


class _Sums:
    """Sums of squares of what came in so far."""

    def __init__(self, shape: tuple[int, int], rows: int, columns: int) -> None:
        self._shape, self._rows = shape, rows
        self._first_rows, self._first_columns = np.arange(0, shape[0], rows), np.arange(0, shape[1], columns)
        count = len(self._first_rows)
        self._squares = np.zeros((count, len(self._first_columns)))
        self._columns = np.zeros(shape[1])
        self._norms, self._zero, self._odd = np.zeros(count), np.zeros(count, np.int64), np.zeros(count, np.int64)
        self._meter = Meter()

    def reading(self, row: int, blocks: Iterator[np.ndarray]) -> Iterator[int]:
        """Take in consecutive blocks from a row on, and yield the length of each."""
        for block in blocks:
            with np.errstate(invalid="ignore"):  # of infinities
                self._take(row, block)
            row += len(block)
            yield len(block)

    def _take(self, row: int, block: np.ndarray) -> None:
        wide = block.astype(np.float64)
        total = float(wide.sum())
        np.square(wide, out=wide)
        rows = wide.sum(axis=1)
        self._meter.take(block, total, float(rows.sum()))
        first, last = row // self._rows, (row + len(block) - 1) // self._rows
        for place in range(first, last + 1):
            part = slice(max(place * self._rows - row, 0), (place + 1) * self._rows - row)
            columns = wide[part].sum(axis=0)
            self._columns += columns
            self._squares[place] += np.add.reduceat(columns, self._first_columns)
            finite = np.isfinite(rows[part])
            self._norms[place] += np.sqrt(rows[part][finite]).sum()
            self._odd[place] += np.count_nonzero(~finite)
            self._zero[place] += np.count_nonzero(rows[part] == 0)

    def add(self, other: _Sums) -> None:
        """Take in what came into another."""
        with np.errstate(invalid="ignore"):
            self._squares += other._squares
            self._columns += other._columns
        self._norms += other._norms
        self._zero += other._zero
        self._odd += other._odd
        self._meter += other._meter

    def bins(self) -> Bins:
        """Return what came in."""
        size, dim = self._shape
        rows = np.diff(np.append(self._first_rows, size))
        counts = rows[:, None] * np.diff(np.append(self._first_columns, dim))
        finite = rows - self._odd
        norms = np.where(finite > 0, self._norms / np.maximum(finite, 1), np.nan)
        return Bins(
            np.sqrt(self._squares / counts),
            norms,
            self._zero,
            self._odd,
            self._columns == 0,
            ~np.isfinite(self._columns),
            self._meter.summary(),
        )


def density_map(
    source: Source, name: str, rows: str | None = None, columns: str | None = None, watch: Watch = unwatched
) -> Map:
    """Return the map of the `token` or of the `position` layer of a source; `watch` is told of the rows read.

    Raises InputError where rows or columns were chosen, as a map shows all of them.
    """
    for option, chosen in (("--rows", rows), ("--columns", columns)):
        if chosen is not None:
            raise InputError(f"{option} {chosen[:40]} has no place with --map, which shows the whole matrix")
    shape_of(source, name)
    encoding = source.encoding if name == "token" else None
    layer = source.open({name: None})[name]
    return Map(name, layer, encoding, run_of(source, encoding), watch)
