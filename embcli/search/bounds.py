"""Bounds on how close rows are to a query, computed from products in float32."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from embcli.search.kernel import Vector
from embcli.search.space import Space

_UNIT = 2.0**-23  # twice the unit roundoff of float32, because ARM rounds products of bfloat16 to odd
_LEAST = 2.0**-126  # the smallest normal float32; smaller numbers may be flushed to zero
_EXACT = 2.0**-50  # a few roundings of float64


def gamma(dim: int) -> float:
    """Return the largest error of a product of two vectors of `dim` numbers, divided by the product of their norms.

    Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1: in any order of summation it is at most
    D u / (1 - D u), with u the unit roundoff, unless something overflows or underflows.
    """
    unit = (dim + 8) * _UNIT  # 8 for sums of SIMD lanes
    return unit / (1 - unit) if unit < 0.5 else np.inf


@dataclass(frozen=True)
class Interval:
    """A lower and an upper bound for each of some rows, both (n,) float64."""

    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Bounds:
    """Bounds on the closeness of rows to queries, from the products of the rows with the queries and with themselves.

    The error of a product is at most `gamma` times the product of the norms. Underflow adds at most the smallest normal
    number for each multiplication and each addition, and that times the other factor for each number flushed to zero.
    """

    space: Space
    dim: int
    squares: np.ndarray  # (n,) float32, products of the rows with themselves
    mean_products: np.ndarray | None = None  # (n,) float32, products with the mean row, if that is subtracted
    mean: Vector | None = None

    def possibly_unscored(self) -> np.ndarray:
        """Return the rows that may have no score, (n,) int64: not finite, or with a length that may be zero."""
        return np.flatnonzero(~(self._squared_lengths.low > 0))  # NaN too

    def reaching(
        self, threshold: float, products: np.ndarray, vector: Vector, query: np.ndarray
    ) -> tuple[np.ndarray, Interval]:
        """Return the rows whose upper bound reaches a threshold, (n,) int64, and the bounds of their closeness."""
        high = self._bound(1, slice(None), products, vector, query)
        rows = np.flatnonzero(high >= threshold)
        return rows, Interval(self._bound(-1, rows, products[rows], vector, query), high[rows])

    @cached_property
    def _norms(self) -> np.ndarray:
        """Upper bounds on the norms of the rows as stored, (n,) float64; NaN or infinite if there is none."""
        squares = self.squares.astype(np.float64)
        norms: np.ndarray = np.sqrt(squares + self._error_of_squares(squares))
        return norms

    def _error_of_squares(self, squares: np.ndarray) -> np.ndarray:
        relative = gamma(self.dim)
        return squares * ((1 + relative) / (1 - relative) - 1) + 4 * self.dim * _LEAST

    def _error(self, rows: slice | np.ndarray, vector: Vector) -> np.ndarray:
        """Return the largest errors of products of rows with a vector, (n,) float64.

        A product that overflows has no bound: the norm of its row is not finite either.
        """
        root = float(np.sqrt(self.dim))
        per_norm = gamma(self.dim) * vector.norm + vector.error * (1 + self.dim * _EXACT) + _LEAST * root
        return (
            self._norms[rows] * (per_norm * vector.scale) + _LEAST * (2 * self.dim + root * vector.norm) * vector.scale
        )

    @cached_property
    def _squared_lengths(self) -> Interval:
        """Bounds on the squared norms of the rows, once the mean row is subtracted."""
        squares = self.squares.astype(np.float64)
        error = self._error_of_squares(squares)
        if self.space.mean is not None and self.mean_products is not None and self.mean is not None:
            size = float(np.square(self.space.mean).sum())
            error += 2 * self._error(slice(None), self.mean) + self.dim * _EXACT * (squares + size)
            squares += size - 2 * (self.mean_products.astype(np.float64) * self.mean.scale)
        return Interval(np.maximum(squares - error, 0), squares + error)

    @cached_property
    def _inverse_lengths(self) -> Interval:
        return Interval(1 / np.sqrt(self._squared_lengths.high), 1 / np.sqrt(self._squared_lengths.low))

    def _bound(
        self, sign: Literal[1, -1], rows: slice | np.ndarray, products: np.ndarray, vector: Vector, query: np.ndarray
    ) -> np.ndarray:
        """Return upper (sign 1) or lower (-1) bounds of the closeness of rows, (n,); infinite where there is none."""
        norm, rounding = float(np.linalg.norm(query)), (self.dim + 4) * _EXACT
        error = self._error(rows, vector)
        bounds = products.astype(np.float64) * vector.scale
        if self.space.mean is not None:
            bounds -= float(self.space.mean @ query)
            error += rounding * norm * (self._norms[rows] + np.linalg.norm(self.space.mean))
        bounds += sign * error
        if self.space.metric == "cosine":
            outermost = np.maximum if sign > 0 else np.minimum
            inverse = self._inverse_lengths
            bounds = outermost(bounds * inverse.low[rows], bounds * inverse.high[rows]) / norm + sign * rounding
        elif self.space.metric == "l2":
            low, high = self._squared_lengths.low[rows], self._squared_lengths.high[rows]
            bounds = 2 * bounds - (low if sign > 0 else high) - norm**2 + sign * rounding * (high + norm**2)
        known: np.ndarray = np.where(np.isfinite(bounds), bounds, sign * np.inf)
        return known
