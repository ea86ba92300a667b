"""Statistics of the rows of a matrix in float64: norms and their order, quantiles, covariance.

`audit`, `diff`, `weights` and the search use them. All read a layer in blocks, so that it can be
larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer, Summary
from embcli.wording import QUANTILES

QUANTILES_AT = tuple(QUANTILES.values())


def numbered_blocks(
    layer: Layer, watch: Watch = unwatched
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all rows in order, (n, D) float32, after their IDs, (n,) int64.

    `watch` counts the rows.
    """
    start = 0
    for block in watch(layer.blocks(), layer.shape[0], len):
        stop = start + len(block)
        yield np.arange(start, stop), block
        start = stop


def dots(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the dot products of pairs of rows, (n, D) float64 each -> (n,)."""
    products: np.ndarray = np.einsum("ij,ij->i", rows, others)
    return products


def squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared length of each row, (n, D) float64 -> (n,)."""
    return dots(rows, rows)


def norms_of(rows: np.ndarray) -> np.ndarray:
    """Return the norm of each row, (n, D) float64 -> (n,); NaN if a value is NaN or infinite."""
    with np.errstate(invalid="ignore"):
        squared = squares(rows)
    # The square of a float32 is never too large for a float64.
    return np.sqrt(np.where(np.isfinite(squared), squared, np.nan))


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """Return the quantiles at QUANTILES_AT of the finite numbers, (n,); empty if there are none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ()
    return tuple(np.quantile(finite, QUANTILES_AT).tolist())


class Covariance:
    """The mean and the covariance of rows that are added in blocks.

    Sums are of differences from an origin near the mean, that of the first rows, to keep all
    digits.
    """

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._origin = np.zeros(dim)
        self._sum = np.zeros(dim)
        self._products = np.zeros((dim, dim))

    def add(self, rows: np.ndarray) -> None:
        """Add rows, (n, D) float64; the array stays as it is."""
        if not self.count and len(rows):
            self._origin = rows.mean(axis=0)
        differences = rows - self._origin
        self._sum += differences.sum(axis=0)
        self._products += differences.T @ differences
        self.count += len(rows)

    def mean(self) -> np.ndarray:
        return self._origin + self._sum / max(self.count, 1)

    def matrix(self) -> np.ndarray:
        """Return the covariance, (D, D), divided by n - 1.

        It is 0 for a column that varies only by rounding.
        """
        mean_difference = self._sum / max(self.count, 1)
        products = self._products - np.outer(self._sum, mean_difference)
        matrix: np.ndarray = products / max(self.count - 1, 1)

        rounding = 2.0**-50  # that of a column's mean; different float32 values differ by far more
        is_constant = np.diagonal(matrix) <= np.square(rounding * self._origin)
        matrix[is_constant] = 0
        matrix[:, is_constant] = 0
        return matrix


@dataclass(frozen=True, eq=False)
class NormOrder:
    """The L2 norm of each row of a layer, and the order of the rows by it."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    summary: Summary  # covers all values, and comes from the same pass

    @cached_property
    def ids(self) -> np.ndarray:
        """The IDs, (V,) int64: the largest norm first, non-finite rows last, ties by ID."""
        return np.argsort(-self.norms, kind="stable")

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each row by ID, (V,) int64: its place in that order, from 1."""
        ranks = np.empty(len(self.norms), np.int64)
        ranks[self.ids] = np.arange(1, len(ranks) + 1)
        return ranks


def norm_order(layer: Layer, watch: Watch = unwatched) -> NormOrder:
    """Return the norms of all rows of a layer and their order; `watch` counts the rows."""
    norms = []
    summary = Summary()
    for block in watch(layer.blocks(), layer.shape[0], len):
        norms.append(norms_of(block.astype(np.float64)))
        summary.add(block)
    return NormOrder(np.concatenate(norms), summary)
