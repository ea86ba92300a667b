"""Statistics of the rows of a matrix in float64: norms and their order, directions, covariance, equal rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.errors import InputError
from embcli.layer import Layer, Meter, Summary
from embcli.memory import free
from embcli.passes import Watch, unwatched
from embcli.words import QUANTILES

AT = tuple(QUANTILES.values())
_PENDING, _LEAST_ROWS = 1 << 18, 1 << 10  # values, and rows, that are worth a matrix product
_ROUNDING = 2.0**-50  # of a column's mean; different float32 values differ by far more
_SAME = 1e-6  # a relative difference that is rounding
_MATRICES = 5  # of (D, D) float64 in memory at a time


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
    return np.sqrt(np.where(np.isfinite(lengths), lengths, np.nan))  # no square of a float32 is too large


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """Return the quantiles at AT of the finite numbers, (n,); empty if there are none."""
    finite = values[np.isfinite(values)]
    return tuple(np.quantile(finite, AT).tolist()) if len(finite) else ()


def histogram(values: np.ndarray, bins: int) -> tuple[int, ...]:
    """Return how many numbers, (n,), are in each of `bins` equal parts of their range; empty for no numbers.

    The largest is in the last bin. `numpy.histogram` refuses a range that is too narrow for its numbers.

    >>> histogram(np.array([0.0, 1.0, 2.0, 4.0]), 2)
    (2, 2)
    """
    if not len(values):
        return ()
    edges = np.linspace(values.min(), values.max(), bins + 1)
    places = np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)
    return tuple(np.bincount(places, minlength=bins).tolist())


def fences(values: np.ndarray) -> tuple[float, float] | None:
    """Return Tukey's outer fences of the logarithms of positive numbers, (n,), as numbers; None for no numbers.

    They are 3 interquartile ranges beyond the quartiles; numbers beyond them are "far out" (Tukey 1977, "Exploratory
    Data Analysis"). Logarithms make a number that is 50 times too small as far out as one that is 50 times too large;
    without them a fence can be below 0. Numbers that differ only by rounding are not told apart.

    >>> low, high = fences(np.array([1.0, 2.0, 2.0, 4.0, 4.0]))
    >>> round(low, 3), round(high, 3)
    (0.25, 32.0)
    """
    if not len(values):
        return None
    first, third = np.quantile(np.log(values), (0.25, 0.75))
    beyond = 3 * (third - first) + _SAME
    return float(np.exp(first - beyond)), float(np.exp(third + beyond))


def mean_cosine(unit_sum: np.ndarray, count: int) -> float | None:
    """Return the mean cosine of all pairs of `count` unit rows from their sum, (D,); None for fewer than two.

    The squared length of the sum is the sum of the squared lengths, 1 each, plus twice the cosine of each pair.

    >>> mean_cosine(np.array([1.0, 1.0]), 2)
    0.0
    """
    return float((unit_sum @ unit_sum - count) / (count * (count - 1))) if count > 1 else None


def iso_score(covariance: np.ndarray) -> float | None:
    """Return how evenly the variance is spread, from the covariance, (D, D): 1 for all directions, 0 for only one.

    This is IsoScore of Rudman et al. 2022, "IsoScore: Measuring the Uniformity of Embedding Space Utilization". Its
    steps simplify to (p - 1) / (D - 1) with p = (sum of eigenvalues)^2 / (sum of their squares), the squared trace
    divided by the squared Frobenius norm. None if nothing varies, and for D = 1.

    >>> iso_score(np.eye(3)), iso_score(np.diag([1.0, 0.0, 0.0]))
    (1.0, 0.0)
    """
    dim, total = len(covariance), float(np.square(covariance).sum())
    if dim == 1 or not total > 0:
        return None
    score = (np.trace(covariance) ** 2 / total - 1) / (dim - 1)
    return float(np.clip(score, 0, 1))  # rounding can exceed the range


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1, (n,) float64; equal values share the mean of their ranks.

    >>> ranks(np.array([30, 10, 10])).tolist()
    [3.0, 1.5, 1.5]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(first, len(values)))
    result = np.empty(len(values))
    result[order] = np.repeat(first + (sizes + 1) / 2, sizes)
    return result


def rank_correlation(values: np.ndarray, others: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two lists of numbers, (n,) each; None if one of them does not vary."""
    if len(values) < 2:
        return None
    left, right = (each - each.mean() for each in (ranks(values), ranks(others)))
    scale = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right / scale) if scale else None


class Covariance:
    """The mean and the covariance of rows that arrive in blocks; sums start near the mean to keep all digits."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._origin = np.zeros(dim)
        self._sum = np.zeros(dim)  # of the rows minus the origin
        self._products = np.zeros((dim, dim))
        self._pending: list[np.ndarray] = []

    def add(self, rows: np.ndarray) -> None:
        """Add rows, (n, D) float64, which stay as they are."""
        self._pending.append(rows)
        if sum(map(len, self._pending)) >= max(_PENDING // len(self._sum), _LEAST_ROWS):
            self._multiply()

    def _multiply(self) -> None:
        rows = np.concatenate([*self._pending, self._products[:0]])
        if not self.count and len(rows):
            self._origin = rows.mean(axis=0)
        rows -= self._origin
        self._sum += rows.sum(axis=0)
        self._products += rows.T @ rows
        self.count += len(rows)
        self._pending = []

    def mean(self) -> np.ndarray:
        """Return the mean row, (D,)."""
        self._multiply()
        return self._origin + self._sum / max(self.count, 1)

    def matrix(self) -> np.ndarray:
        """Return the covariance, (D, D), divided by n - 1; a column that varies only by rounding has none."""
        self._multiply()
        matrix = np.outer(self._sum, self._sum / max(self.count, 1))
        np.subtract(self._products, matrix, out=matrix)
        matrix /= max(self.count - 1, 1)
        constant = np.diagonal(matrix) <= np.square(_ROUNDING * self._origin)
        matrix[constant], matrix[:, constant] = 0, 0
        return matrix


def refuse_covariance(dim: int, cure: str, *parameters: str) -> None:
    """Raise InputError if the covariance of `dim` columns and its eigenvectors do not fit into memory."""
    if _MATRICES * 8 * dim**2 > free():
        raise InputError(f"the covariance of {dim:,} columns does not fit into memory; {cure}", parameters=parameters)


def equal_rows(digests: list[bytes], among: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the groups of bit-identical rows among the IDs `among`, (n,), in order.

    >>> equal_rows([b"a", b"b", b"a", b"b"], np.array([0, 1, 2]))
    ((0, 2),)
    """
    groups: dict[bytes, list[int]] = {}
    for row in among.tolist():
        groups.setdefault(digests[row], []).append(row)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)


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
    norms = np.empty(layer.shape[0])

    def add(meter: Meter, first: int, block: np.ndarray) -> None:
        exact = block.astype(np.float64)
        norms[first : first + len(block)] = part = norms_of(exact)
        meter.take(block, float(exact.sum()), float(np.square(part).sum()))

    return NormOrder(norms, sum(layer.sums(Meter, add, watch), Meter()).summary())
