"""Whether rows are as they were initialised: independent numbers around 0, of one distribution.

Training moves the mean of a column away from 0, values away from a normal or a uniform
distribution, rows towards one another, and their lengths apart. The first two are tested for the
whole matrix and for runs of rows, the others for windows of a few rows, which tell where a run is.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Literal, NamedTuple

import numpy as np

from embcli.layer import RowsOf

Distribution = Literal["normal", "uniform"]
_KURTOSIS: dict[Distribution, float] = {"normal": 3.0, "uniform": 1.8}
_LEAST_VALUES = 1_000  # fewer tell too little
_LEAST_ROWS = 100  # of a whole matrix
_DEVIATIONS = 5  # standard deviations from what is expected
_MOST_DEVIATIONS = 4  # of a window, as there are many
_WINDOW = 16  # rows
_MARGIN = f" (up to {2 * _WINDOW} more or fewer at each end)"
_CHANCE = 1e-3  # of a run of trained rows that look drawn
_TRAINED = 1.25  # times the deviation of drawn rows, of a typical window


class Moments:
    """Means of the values of rows, and of their squares, by column, (D,) float64 each."""

    def __init__(self) -> None:
        self.rows = 0
        self._fourth_lengths = 0.0  # the sum of the fourth powers of their lengths
        # The sums of values, squares and fourth powers, (3, D); (3, 1) without rows.
        self._sums: np.ndarray = np.zeros((3, 1))

    @np.errstate(all="ignore")  # Damaged values have no sums.
    def add(self, rows: np.ndarray) -> None:
        """Add rows, (n, D) float64."""
        squared = np.square(rows)
        self.rows += len(rows)
        self._fourth_lengths += np.square(squared.sum(axis=1)).sum()
        fourth_powers = np.square(squared).sum(axis=0)
        sums = np.array([rows.sum(axis=0), squared.sum(axis=0), fourth_powers])
        self._sums = self._sums + sums

    @property
    def mean(self) -> np.ndarray:
        return np.asarray(self._sums[0] / max(self.rows, 1))

    @property
    @np.errstate(all="ignore")  # Damaged values have none.
    def _variances(self) -> np.ndarray:
        return np.asarray(self._sums[1] / max(self.rows, 1) - np.square(self.mean))

    @property
    def spread(self) -> float:
        """The root of the mean squared distance of a row from the mean."""
        return math.sqrt(max(self._variances.sum(), 0.0))

    @property
    def distribution(self) -> Distribution | None:
        """The distribution that the values are drawn from; None if they are not drawn.

        The squares of the columns' means, each divided by its standard error, have a chi-square
        distribution of D degrees of freedom then, or nearly so if rows are few. The squared lengths
        of rows have the variance of D independent squares.
        """
        dim = len(self.mean)
        values = self.rows * dim
        variances = self._variances
        if values < _LEAST_VALUES or not (variances > 0).all():
            return None
        chi_square = (np.square(self.mean) * (self.rows - 3) / variances).sum()
        if abs(chi_square - dim) > _DEVIATIONS * math.sqrt(2 * dim):
            return None
        _, squares, fourth_powers = self._sums.sum(axis=1) / values
        kurtosis = fourth_powers / squares**2
        variance = self._fourth_lengths / self.rows / (dim * squares) ** 2 - 1
        error = math.sqrt((2 + 12 / dim) / self.rows)
        if abs(variance * dim / (kurtosis - 1) - 1) > _DEVIATIONS * error:
            return None
        for name, expected in _KURTOSIS.items():
            if abs(kurtosis - expected) <= _DEVIATIONS * math.sqrt(24 / values):
                return name
        return None


class Initial(NamedTuple):
    """Rows that are as they were initialised."""

    first: int
    stop: int
    distribution: Distribution
    margin: str = ""  # in words, by how much the ends can be wrong


@np.errstate(all="ignore")  # Damaged values have no products.
def look_drawn(groups: np.ndarray) -> np.ndarray:
    """Return which groups of rows, (m, n, D) float64, look drawn, (m,) bool.

    The products of n drawn rows with one another, divided by the mean of their squared lengths, are
    nearly those of perpendicular rows: what they differ by has a mean of 0, and a variance of 1 / D
    for two rows and of at most 2 / D for a row with itself. Trained rows are more alike, and their
    lengths differ more.
    """
    _, count, dim = groups.shape
    products = groups @ groups.transpose(0, 2, 1)
    lengths = np.trace(products, axis1=1, axis2=2) / count
    differences = products / lengths[:, None, None] - np.eye(count)
    variances = count * (count + 1) / dim  # all together
    is_apart = differences.sum(axis=(1, 2)) <= _MOST_DEVIATIONS * math.sqrt(2 * variances)
    limit = variances + _MOST_DEVIATIONS * math.sqrt(4 * variances / dim)
    return np.asarray(is_apart & (np.square(differences).sum(axis=(1, 2)) <= limit))


class UsedRows:
    """The moments of used rows, and which windows of rows next to each other look drawn."""

    def __init__(self) -> None:
        self.moments = Moments()
        self._ids: list[np.ndarray] = []  # (n, 16) each
        self._are_drawn: list[np.ndarray] = []
        self._deviations: list[np.ndarray] = []  # from 0, of the values of a window

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Add rows in the order of their IDs, (n,) int64 and (n, D) float64.

        The last of them are in no window if they do not fill one.
        """
        self.moments.add(rows)
        end = len(ids) - len(ids) % _WINDOW
        self._ids.append(ids[:end].reshape(-1, _WINDOW))
        windows = rows[:end].reshape(-1, _WINDOW, rows.shape[1])
        self._are_drawn.append(look_drawn(windows))
        self._deviations.append(np.sqrt(np.square(windows).mean(axis=(1, 2))))

    def initial(
        self,
        size: int,
        rows_of: RowsOf,
        ignored: Sequence[int] = (),
        deviation: float | None = None,
    ) -> Iterator[Initial]:
        """Yield the rows that are as they were initialised: all, or runs of windows.

        Windows with an ignored row are in no run. Windows of a model that was trained for a short
        time can look drawn as well. Then those count that have the standard deviation of drawn
        rows, if most have a larger one.
        """
        of_all = self.moments.distribution
        if self.moments.rows >= _LEAST_ROWS and of_all is not None:
            yield Initial(0, size, of_all)
            return
        windows = np.concatenate(self._ids)
        is_told = ~np.isin(windows, ignored).any(axis=1)
        are_drawn = np.concatenate(self._are_drawn)[is_told]
        found = [*_initial_runs(windows[is_told], are_drawn, rows_of)]
        deviations = np.concatenate(self._deviations)[is_told]
        typical = np.median(np.append(deviations, 0))
        if deviation and not found and typical > _TRAINED * deviation:
            error = deviation / math.sqrt(2 * _WINDOW * len(self.moments.mean))
            are_drawn &= abs(deviations - deviation) <= _MOST_DEVIATIONS * error
            found = [*_initial_runs(windows[is_told], are_drawn, rows_of)]
        yield from found


def _initial_runs(windows: np.ndarray, are_drawn: np.ndarray, rows_of: RowsOf) -> Iterator[Initial]:
    """Yield the runs of windows, (n, 16) int64, that look drawn, (n,) bool, each and together."""
    for start, stop in _runs(are_drawn):
        run = windows[start:stop]
        moments = Moments()
        for part in np.array_split(run, len(run) // 64 + 1):  # so many are read at once
            moments.add(rows_of(part.ravel()).astype(np.float64))
        of_run = moments.distribution
        if of_run is not None:
            first = int(run[0, 0])
            yield Initial(first, int(run[-1, -1]) + 1, of_run, _MARGIN)


def _runs(are_drawn: np.ndarray) -> Iterator[tuple[int, int]]:
    """Yield the ends of runs of windows that look drawn, (n,) bool, if they are no chance.

    One window between two such is taken for drawn. Of n windows of which a share looks drawn by
    chance, about n * share**length runs of a length do.
    """
    together = are_drawn.copy()
    together[1:-1] |= are_drawn[:-2] & are_drawn[2:]
    start = 0
    for is_drawn, run in groupby(together):
        stop = start + len(list(run))
        length = stop - start
        others = len(together) - length
        share = (np.count_nonzero(together) - length + 0.5) / (others + 1)  # Jeffreys's prior
        if is_drawn and len(together) * share**length <= _CHANCE:
            yield start, stop
        start = stop
