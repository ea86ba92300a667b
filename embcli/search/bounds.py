"""Between what the scores of rows lie, told from products in float32."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from embcli.search.kernel import Vector
    from embcli.search.space import Space

_UNIT = 2.0**-23  # twice float32's unit roundoff: ARM's products of bfloat16 are rounded to odd
_LEAST = 2.0**-126  # below which a float32 may be flushed to zero
_EXACT = 2.0**-50  # a few roundings of float64
_SINGLE = 2.0**-20  # of any part of a sum in float32: four roundings of it, and that of its factor


def gamma(dim: int) -> float:
    """Return how much a product of vectors of so many numbers can be off, for each unit of the product of their norms.

    Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1: it is, in whatever order it is added up,
    at most D u / (1 - D u), with u the unit roundoff, where nothing overflows or underflows.
    """
    unit = (dim + 8) * _UNIT  # and some for sums of lanes
    return unit / (1 - unit) if unit < 0.5 else np.inf


@dataclass(frozen=True)
class Between:
    """For numbers of rows the least and the most that each can be, both (n,) float64."""

    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class Products:
    """What the products of some rows tell: which have a score, and between what their closeness to a query lies.

    A product is at most `gamma` times the product of the norms off. What underflows adds at most the least normal
    number for each product and each sum, and as much times the other number for each that is flushed.
    """

    space: Space
    dim: int
    squares: np.ndarray  # (n,) float32, of the rows with themselves
    with_mean: np.ndarray | None = None  # (n,) float32, where a mean row is taken away
    mean: Vector | None = None

    def unsure(self) -> np.ndarray:
        """Return which rows may be without a score, (n,) int64: they are not finite, or of no length to be sure of."""
        if self._plain:
            return np.empty(0, np.int64)
        return np.flatnonzero(~(self._lengths.low > 0))  # NaN too

    def reaching(
        self, bar: float, products: np.ndarray, vector: Vector, query: np.ndarray
    ) -> tuple[np.ndarray, Between]:
        """Return all rows that may be as close to a query as `bar`, (n,) int64, and between what they lie.

        There may be others among them.
        """
        line = self._line(bar, vector, query) if self._plain else None
        if line is None:
            return np.arange(len(products)), self._closeness(products, vector, query)
        places = np.flatnonzero(line.reached(self._roots, products))
        few = replace(self, squares=self.squares[places])
        return places, few._closeness(products[places], vector, query)

    @cached_property
    def _gamma(self) -> float:
        return gamma(self.dim)

    @property
    def _most(self) -> float:
        """How many times a squared norm can be what its product tells."""
        return (1 + self._gamma) / (1 - self._gamma)

    @property
    def _flushed(self) -> float:
        """How much can be missing from a squared norm."""
        return 4 * self.dim * _LEAST

    @cached_property
    def _plain(self) -> bool:
        """Whether all rows are finite and have a length, so that a line tells of them."""
        if self.space.mean is not None or not self._most < 2 or not len(self.squares):
            return False
        return bool(self.squares.min() * (2 - self._most) > self._flushed and np.isfinite(self.squares.max()))

    @cached_property
    def _roots(self) -> np.ndarray:
        roots: np.ndarray = np.sqrt(self.squares)
        return roots

    @cached_property
    def _norms(self) -> np.ndarray:
        """Return the most that the norm of each row can be, (n,) float64; not finite where that is not known."""
        most: np.ndarray = np.sqrt(self._with_error(self.squares.astype(np.float64)))
        return most

    def _with_error(self, squares: np.ndarray) -> np.ndarray:
        return squares * self._most + self._flushed

    def _error(self, vector: Vector) -> tuple[float, float]:
        """Return how much products with a vector can be off, in its scale: for each unit of a row's norm, and besides.

        Nothing is known of products that overflow: then the norm is not finite either.
        """
        root = float(np.sqrt(self.dim))
        each = self._gamma * vector.norm + vector.error * (1 + self.dim * _EXACT) + _LEAST * root
        return each, _LEAST * (2 * self.dim + root * vector.norm)

    def _product(self, products: np.ndarray, vector: Vector) -> tuple[np.ndarray, np.ndarray]:
        """Return the products of rows with a vector, and how much they can be off, both (n,) float64."""
        each, besides = self._error(vector)
        return products * vector.scale, (each * self._norms + besides) * vector.scale

    @cached_property
    def _lengths(self) -> Between:
        """Return between what the squared norms of the rows lie, once the mean is taken away."""
        squares = self.squares.astype(np.float64)
        error = self._with_error(squares) - squares
        if self.space.mean is not None and self.with_mean is not None and self.mean is not None:
            product, off = self._product(self.with_mean.astype(np.float64), self.mean)
            size = float(np.square(self.space.mean).sum())
            error = error + 2 * off + self.dim * _EXACT * (squares + size)
            squares = squares - 2 * product + size
        return Between(np.maximum(squares - error, 0), squares + error)

    def _closeness(self, products: np.ndarray, vector: Vector, query: np.ndarray) -> Between:
        """Return between what the closeness of rows to a query lies; anything where that is not known."""
        product, error = self._product(products.astype(np.float64), vector)
        norm = float(np.sqrt(np.square(query).sum()))
        rounding = self.dim * _EXACT
        if self.space.mean is not None:
            product = product - float(self.space.mean @ query)
            error = error + rounding * norm * (self._norms + np.linalg.norm(self.space.mean))
        least, most = product - error, product + error
        if self.space.metric == "cosine":
            near, far = np.sqrt(self._lengths.low) * norm, np.sqrt(self._lengths.high) * norm
            least = least / np.where(least < 0, near, far) - rounding
            most = most / np.where(most < 0, far, near) + rounding
        elif self.space.metric == "l2":
            slack = rounding * (self._lengths.high + norm * norm)
            least = 2 * least - self._lengths.high - norm * norm - slack
            most = 2 * most - self._lengths.low - norm * norm + slack
        known = np.isfinite(least) & np.isfinite(most)
        return Between(np.where(known, least, -np.inf), np.where(known, most, np.inf))

    def _line(self, bar: float, vector: Vector, query: np.ndarray) -> _Line | None:
        """Return a line below which no row is whose closeness may reach `bar`; None where there is none.

        It is what `_closeness` says is the most, for each unit of the vector's scale: with r the root of the squared
        norm that the product tells, the norm is at most sqrt(most) r + thin, at least sqrt(2 - most) r - thin.
        """
        each, besides = self._error(vector)
        thin, norm = float(np.sqrt(self._flushed)), float(np.sqrt(np.square(query).sum()))
        rounding = self.dim * _EXACT
        slope, bend, start = each * float(np.sqrt(self._most)), 0.0, -besides - each * thin
        if self.space.metric == "dot":
            start += bar / vector.scale
        elif self.space.metric == "cosine":
            least = (bar - rounding) * norm / vector.scale
            if least <= 0:
                return None
            slope -= least * float(np.sqrt(2 - self._most))
            start -= least * thin
        else:
            bend = -(2 - self._most - rounding * self._most) / (2 * vector.scale)
            above = bar + norm * norm * (1 - rounding) - self._flushed * (1 + rounding)
            start += (above - _EXACT * (abs(bar) + norm * norm)) / (2 * vector.scale)
        slope += _SINGLE * (abs(slope) + vector.norm)  # products are at most about r times the vector's norm
        found = _Line(*np.array([start - _SINGLE * abs(start) - 16 * _LEAST, slope, bend * (1 - _SINGLE)], np.float32))
        return found if all(map(np.isfinite, (found.start, found.slope, found.bend))) else None


@dataclass(frozen=True)
class _Line:
    """A bound for products p of rows: p + slope r + bend r^2 >= start, in float32, r the roots of their squares."""

    start: np.float32
    slope: np.float32
    bend: np.float32

    def reached(self, roots: np.ndarray, products: np.ndarray) -> np.ndarray:
        """Return which products reach it, (n,) bool."""
        sums = roots * self.bend
        sums += self.slope
        sums *= roots
        sums += products
        reached: np.ndarray = sums >= self.start
        return reached
