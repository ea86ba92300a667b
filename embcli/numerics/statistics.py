"""Statistics of the rows of a matrix in float64: norms and their order, quantiles, covariance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer, Summary
from embcli.wording import QUANTILES

AT = tuple(QUANTILES.values())
_ROUNDING = 2.0**-50  # of a column's mean; different float32 values differ by far more


def numbered_blocks(
    layer: Layer, watch: Watch = unwatched
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield all rows in order, (n, D) float32, with their IDs, (n,) int64; `watch` counts the rows."""
    done = 0
    for block in watch(layer.blocks(), layer.shape[0], len):
        yield np.arange(done, done + len(block)), block
        done += len(block)


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
        lengths = squares(rows)
    return np.sqrt(
        np.where(np.isfinite(lengths), lengths, np.nan)
    )  # no square of a float32 is too large


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """Return the quantiles at AT of the finite numbers, (n,); empty if there are none."""
    finite = values[np.isfinite(values)]
    return tuple(np.quantile(finite, AT).tolist()) if len(finite) else ()


class Covariance:
    """The mean and the covariance of rows that arrive in blocks; sums start near the mean to keep all digits."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._origin = np.zeros(dim)
        self._sum = np.zeros(dim)  # of the rows minus the origin
        self._products = np.zeros((dim, dim))

    def add(self, rows: np.ndarray) -> None:
        """Add rows, (n, D) float64, which stay as they are."""
        if not self.count and len(rows):
            self._origin = rows.mean(axis=0)
        rows = rows - self._origin
        self._sum += rows.sum(axis=0)
        self._products += rows.T @ rows
        self.count += len(rows)

    def mean(self) -> np.ndarray:
        return self._origin + self._sum / max(self.count, 1)

    def matrix(self) -> np.ndarray:
        """Return the covariance, (D, D), divided by n - 1; a column that varies only by rounding has none."""
        matrix = (self._products - np.outer(self._sum, self._sum / max(self.count, 1))) / max(
            self.count - 1, 1
        )
        constant = np.diagonal(matrix) <= np.square(_ROUNDING * self._origin)
        matrix[constant], matrix[:, constant] = 0, 0
        return matrix


@dataclass(frozen=True, eq=False)
class NormOrder:
    """The L2 norm of each row of a layer, and the order of the rows by it."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    summary: Summary  # of all values, from the same pass

    @cached_property
    def ids(self) -> np.ndarray:
        """The IDs, (V,) int64, the largest norm first; rows that are not finite last, ties by ID."""
        return np.argsort(-self.norms, kind="stable")

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each row by ID, (V,) int64: its place in that order, from 1."""
        ranks = np.empty(len(self.norms), np.int64)
        ranks[self.ids] = np.arange(1, len(ranks) + 1)
        return ranks


def norm_order(layer: Layer, watch: Watch = unwatched) -> NormOrder:
    """Return the norms of all rows of a layer and their order; `watch` counts the rows."""
    norms, summary = [], Summary()
    for block in watch(layer.blocks(), layer.shape[0], len):
        norms.append(norms_of(block.astype(np.float64)))
        summary.add(block)
    return NormOrder(np.concatenate(norms), summary)
