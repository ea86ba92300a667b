"""Whether rows are as they were initialised: independent numbers around 0, of one distribution.

Training moves the mean of a column away from 0, and values away from a normal or a uniform
distribution. Both are tested for the whole matrix, and for groups of consecutive rows.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

Distribution = Literal["normal", "uniform"]
_KURTOSIS: dict[Distribution, float] = {"normal": 3.0, "uniform": 1.8}
_LEAST_VALUES = 1_000  # fewer tell too little
_LEAST_ROWS = 100  # for the standard errors of columns
_VALUES_OF_GROUP = 6_000
_MOST_GROUPS = 64
_DEVIATIONS = 5  # standard deviations from what is expected


class Moments(NamedTuple):
    """Mean powers of the values of rows, by column, (D,) float64 each."""

    rows: int
    mean: np.ndarray
    squares: np.ndarray
    fourth_powers: np.ndarray

    @property
    def spread(self) -> float:
        """The root of the mean squared distance of a row from the mean."""
        squared = self.squares.sum() - np.square(self.mean).sum()
        return math.sqrt(max(squared, 0.0))

    @property
    def distribution(self) -> Distribution | None:
        """The distribution that the values are drawn from; None if they are not drawn.

        The squares of the columns' means, each divided by its standard error, have a chi-square
        distribution of D degrees of freedom then.
        """
        dim = len(self.mean)
        values = self.rows * dim
        variances = self.squares - np.square(self.mean)
        if self.rows < _LEAST_ROWS or values < _LEAST_VALUES or not (variances > 0).all():
            return None
        chi_square = (np.square(self.mean) * self.rows / variances).sum()
        if abs(chi_square - dim) > _DEVIATIONS * math.sqrt(2 * dim):
            return None
        kurtosis = self.fourth_powers.mean() / np.square(self.squares.mean())
        for name, expected in _KURTOSIS.items():
            if abs(kurtosis - expected) <= _DEVIATIONS * math.sqrt(24 / values):
                return name
        return None


class Initial(NamedTuple):
    """Rows that are as they were initialised."""

    first: int
    stop: int
    distribution: Distribution


class RowGroups:
    """Sums over the used rows of a matrix, in groups of consecutive IDs."""

    def __init__(self, size: int, dim: int) -> None:
        most = min(size // _LEAST_ROWS, size * dim // _VALUES_OF_GROUP, _MOST_GROUPS)
        self._count = max(most, 1)
        self._starts = np.linspace(0, size, self._count + 1).astype(np.int64)
        self._rows = np.zeros(self._count, np.int64)
        self._powers = np.zeros((3, self._count, dim))  # sums of values, squares, fourth powers

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Add rows in the order of their IDs, (n,) int64 and (n, D) float64."""
        borders = np.searchsorted(ids, self._starts)
        self._rows += np.diff(borders)
        for group in np.flatnonzero(np.diff(borders)):
            part = rows[borders[group] : borders[group + 1]]
            squares = np.square(part)
            self._powers[0, group] += part.sum(axis=0)
            self._powers[1, group] += squares.sum(axis=0)
            self._powers[2, group] += np.square(squares).sum(axis=0)

    def moments(self, first: int = 0, stop: int | None = None) -> Moments:
        """Return the moments of some of the groups, by default of all."""
        rows = int(self._rows[first:stop].sum())
        means = self._powers[:, first:stop].sum(axis=1) / max(rows, 1)
        return Moments(rows, *means)

    def initial(self) -> Iterator[Initial]:
        """Yield the rows that are as they were initialised: all of them, or at least two groups.

        A group with some other rows is not among them.
        """
        runs = [(0, self._count)]
        if self.moments().distribution is None:
            runs = [(first, stop) for first, stop in self._runs() if stop - first > 1]
        for first, stop in runs:
            distribution = self.moments(first, stop).distribution
            if distribution is not None:
                start = int(self._starts[first])
                end = int(self._starts[stop])
                yield Initial(start, end, distribution)

    def _runs(self) -> Iterator[tuple[int, int]]:
        """Yield the first of consecutive groups of one distribution, and the end of them."""
        start = 0
        groups = range(self._count)
        for _, run in groupby(groups, lambda group: self.moments(group, group + 1).distribution):
            stop = start + len(list(run))
            yield start, stop
            start = stop
