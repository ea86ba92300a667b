"""Statistics of the rows of a matrix: norms, ranks, directions, equal rows; streaming, in float64."""

from __future__ import annotations

from hashlib import sha256

import numpy as np

from embcli.errors import InputError
from embcli.memory import free
from embcli.words import QUANTILES

AT = tuple(QUANTILES.values())
_PENDING, _LEAST_ROWS = 1 << 18, 1 << 10  # values and rows of a block for one matrix product
_ROUNDING = 2.0**-50  # of a column's mean: float32 values that differ do so by far more
_MATRICES = 5  # of (D, D) float64 in memory at a time


def squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared length of each row, (n, D) float64 -> (n,)."""
    lengths: np.ndarray = np.einsum("ij,ij->i", rows, rows)
    return lengths


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """Return the quantiles at AT of the finite numbers in (n,); an empty tuple if there are none."""
    finite = values[np.isfinite(values)]
    return tuple(np.quantile(finite, AT).tolist()) if len(finite) else ()


def histogram(values: np.ndarray, bins: int) -> tuple[int, ...]:
    """Return how many numbers of (n,) are in each of `bins` equal parts of their range; an empty tuple for no numbers.

    The largest is in the last part. `numpy.histogram` refuses ranges that are too narrow for their numbers.

    >>> histogram(np.array([0.0, 1.0, 2.0, 4.0]), 2)
    (2, 2)
    """
    if not len(values):
        return ()
    edges = np.linspace(values.min(), values.max(), bins + 1)
    places = np.minimum(np.searchsorted(edges, values, side="right") - 1, bins - 1)
    return tuple(np.bincount(places, minlength=bins).tolist())


def inverse(values: np.ndarray) -> np.ndarray:
    """Return 1 / value, and 0 for 0, (n,) float64."""
    inverses: np.ndarray = np.divide(1.0, values, out=np.zeros_like(values), where=values > 0)
    return inverses


def mean_cosine(unit_sum: np.ndarray, count: int) -> float | None:
    """Return the mean cosine of all pairs of `count` unit rows from their sum, (D,); None for fewer than two rows.

    The square of the sum is the square of each row, 1, plus twice the cosine of each pair.

    >>> mean_cosine(np.array([1.0, 1.0]), 2)
    0.0
    """
    return float((unit_sum @ unit_sum - count) / (count * (count - 1))) if count > 1 else None


def iso_score(covariance: np.ndarray) -> float | None:
    """Return how evenly the variance is spread, from the covariance, (D, D): 1 over all directions, 0 in one.

    This is IsoScore of Rudman et al. 2022, "IsoScore: Measuring the Uniformity of Embedding Space Utilization". Its
    steps come to (p - 1) / (D - 1) with p = (sum of eigenvalues)^2 / (sum of their squares), which are
    the squared trace and the squared Frobenius norm. None if nothing varies, and for D = 1.

    >>> iso_score(np.eye(3)), iso_score(np.diag([1.0, 0.0, 0.0]))
    (1.0, 0.0)
    """
    dim, total = len(covariance), float(np.square(covariance).sum())
    if dim == 1 or not total > 0:
        return None
    score = (np.trace(covariance) ** 2 / total - 1) / (dim - 1)
    return float(np.clip(score, 0, 1))  # rounding can leave the range


def ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, from 1, (n,) float64; equal values have the mean of their ranks.

    >>> ranks(np.array([30, 10, 10])).tolist()
    [3.0, 1.5, 1.5]
    """
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    sizes = np.diff(np.append(first, len(values)))
    ranked = np.empty(len(values))
    ranked[order] = np.repeat(first + (sizes + 1) / 2, sizes)
    return ranked


def rank_correlation(values: np.ndarray, others: np.ndarray) -> float | None:
    """Return Spearman's rank correlation of two lists of numbers, (n,) each; None if one of them is constant."""
    if len(values) < 2:
        return None
    left, right = (each - each.mean() for each in (ranks(values), ranks(others)))
    scale = float(np.sqrt((left @ left) * (right @ right)))
    return float(left @ right / scale) if scale else None


class Covariance:
    """The mean and the covariance of rows that come in blocks; sums are taken from near the mean, to lose no digits."""

    def __init__(self, dim: int) -> None:
        self.count = 0
        self._origin = np.zeros(dim)
        self._sum = np.zeros(dim)  # of the rows less the origin
        self._products = np.zeros((dim, dim))
        self._pending = np.empty((max(_PENDING // dim, _LEAST_ROWS), dim))
        self._held = 0

    def add(self, rows: np.ndarray) -> None:
        """Add rows, (n, D) float64."""
        while len(rows):
            part = rows[: len(self._pending) - self._held]
            self._pending[self._held : self._held + len(part)] = part
            self._held += len(part)
            rows = rows[len(part) :]
            if self._held == len(self._pending):
                self._multiply()

    def _multiply(self) -> None:
        held = self._pending[: self._held]
        if not self.count and self._held:
            self._origin = held.mean(axis=0)
        held -= self._origin
        self._sum += held.sum(axis=0)
        self._products += held.T @ held
        self.count += self._held
        self._held = 0

    def mean(self) -> np.ndarray:
        """Return the mean row, (D,)."""
        self._multiply()
        return self._origin + self._sum / max(self.count, 1)

    def matrix(self) -> np.ndarray:
        """Return the covariance, (D, D), over n - 1; columns that vary only by rounding count as constant."""
        self._multiply()
        covariance = np.outer(self._sum, self._sum / max(self.count, 1))
        np.subtract(self._products, covariance, out=covariance)
        covariance /= max(self.count - 1, 1)
        constant = np.diagonal(covariance) <= np.square(_ROUNDING * self._origin)
        covariance[constant], covariance[:, constant] = 0, 0
        return covariance


def refuse_covariance(dim: int, cure: str) -> None:
    """Raise InputError if the covariance of `dim` columns and its eigenvectors do not fit into memory."""
    if _MATRICES * 8 * dim**2 > free():
        raise InputError(f"the covariance of {dim:,} columns does not fit into memory; {cure}")


def digests(rows: np.ndarray) -> list[bytes]:
    """Return the SHA-256 of each row, (n, D) float32: equal for rows that are bit-identical."""
    return [sha256(row.data).digest() for row in rows]


def equal_rows(digests: list[bytes], among: np.ndarray) -> tuple[tuple[int, ...], ...]:
    """Return the groups of bit-identical rows among the IDs `among`, (n,), in order.

    >>> equal_rows([b"a", b"b", b"a", b"b"], np.array([0, 1, 2]))
    ((0, 2),)
    """
    groups: dict[bytes, list[int]] = {}
    for row in among.tolist():
        groups.setdefault(digests[row], []).append(row)
    return tuple(tuple(group) for group in groups.values() if len(group) > 1)
