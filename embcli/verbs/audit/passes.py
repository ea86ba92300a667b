"""The passes of an audit over a token matrix: sums that stream, in float64; rows with NaN or infinity are left out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embcli.weights.statistics import Covariance, digests, inverse, iso_score, mean_cosine, squares

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from embcli.names import Unused
    from embcli.weights import Layer

    Watch = Callable[[Iterable[np.ndarray], int], Iterable[np.ndarray]]

_PRODUCTS = 1 << 37  # multiply-adds of rows with an output head
_LEAST_SAMPLE = 64  # rows
_NO_TOKEN = ("padding", "gap")


@dataclass(frozen=True)
class Indicators:
    """How far each row is from those of unused tokens, (V,) float64 each: the lower, the less it was trained.

    These are indicators of Land and Bartolo 2024, "Fishing for Magikarp: Automatically Detecting Under-trained Tokens
    in Large Language Models", as the code published with it has them. With u the mean of the unused rows, `cosine` is
    1 - cos(row, u); `centred` is that after the mean of all rows is taken from both, and `without_first` that after
    their part along the first principal component is. NaN where a row has no direction.
    """

    cosine: np.ndarray
    centred: np.ndarray
    without_first: np.ndarray


class FirstPass:
    """What one look at each row gives: norms and digests, and the sums that the next pass takes.

    Sums are over rows that stand for tokens, but `unused_sum`, which is over those of tokens that are not used.
    """

    def __init__(self, size: int, dim: int, unused: dict[int, Unused]) -> None:
        self.norms = np.full(size, np.nan)
        self.digests: list[bytes] = []
        self.covariance = Covariance(dim)
        self.unit_sum = np.zeros(dim)
        self.unused_sum = np.zeros(dim)
        self.of_token, self.of_unused = np.ones(size, bool), np.zeros(size, bool)
        self.of_unused[[*unused]] = True
        self.of_token[[row for row, why in unused.items() if why in _NO_TOKEN]] = False

    @property
    def measured(self) -> np.ndarray:
        """Which rows stand for tokens and are finite, (V,) bool."""
        found: np.ndarray = self.of_token & np.isfinite(self.norms)
        return found

    @property
    def mean_cosine(self) -> float | None:
        """The mean cosine of all pairs of rows."""
        return mean_cosine(self.unit_sum, int(np.count_nonzero(self.norms[self.measured])))

    def add(self, block: np.ndarray) -> None:
        """Take in the next rows, (n, D) float32."""
        part = slice(len(self.digests), len(self.digests) + len(block))
        self.digests += digests(block)
        wide, finite, norms = _finite(block)
        self.norms[part][finite] = norms
        self.unused_sum += wide[self.of_unused[part][finite]].sum(axis=0)
        told = self.of_token[part][finite]
        wide, norms = (wide, norms) if told.all() else (wide[told], norms[told])
        self.covariance.add(wide)
        self.unit_sum += inverse(norms) @ wide


class SecondPass:
    """What takes the mean row and the first principal component, which the first pass gave."""

    def __init__(self, first: FirstPass) -> None:
        covariance = first.covariance.matrix()
        self.iso_score = iso_score(covariance)
        self.known = bool(first.unused_sum.any())
        self._first, self._mean, self._unused = first, first.covariance.mean, first.unused_sum
        self._component = np.linalg.eigh(covariance)[1][:, -1] if self.known else None
        self._unused_mean = first.unused_sum / max(int(np.isfinite(first.norms[first.of_unused]).sum()), 1)
        self._unit_sum, self._directed, self._seen = np.zeros_like(self._mean), 0, 0
        self._found = np.full((3, len(first.norms)), np.nan)

    @property
    def indicators(self) -> Indicators | None:
        """The indicators of hardly trained tokens; None where no row is known as unused."""
        return Indicators(*self._found) if self.known else None

    @property
    def mean_cosine(self) -> float | None:
        """The mean cosine of all pairs of rows from which the mean row is taken."""
        return mean_cosine(self._unit_sum, self._directed)

    def add(self, block: np.ndarray) -> None:
        """Take in the next rows, (n, D) float32."""
        part = slice(self._seen, self._seen + len(block))
        self._seen += len(block)
        wide, finite, norms = _finite(block)
        if self._component is not None:
            along, unused = wide @ self._component, self._unused_mean
            unused_along = unused @ self._component
            rest = unused - unused_along * self._component
            self._found[0, part][finite] = 1 - _cosines(wide @ unused, norms, unused)
            left = np.sqrt(np.maximum(norms**2 - along**2, 0))
            self._found[2, part][finite] = 1 - _cosines(wide @ unused - along * unused_along, left, rest)
        wide -= self._mean
        norms = np.sqrt(squares(wide))
        if self.known:
            unused = self._unused_mean - self._mean
            self._found[1, part][finite] = 1 - _cosines(wide @ unused, norms, unused)
        weights = inverse(norms) * self._first.of_token[part][finite]
        self._unit_sum += weights @ wide
        self._directed += int(np.count_nonzero(weights))


def _finite(block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the finite rows of a block, (m, D) float64, which of its rows they are, (n,) bool, and their norms."""
    wide = block.astype(np.float64)
    with np.errstate(invalid="ignore"):
        lengths = squares(wide)
    finite = np.isfinite(lengths)  # no square of a float32 is too large
    wide = wide if finite.all() else wide[finite]
    return wide, finite, np.sqrt(lengths[finite])


def _cosines(products: np.ndarray, norms: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return the cosines of rows with another one, by their products and norms, (n,); NaN where there is none."""
    with np.errstate(invalid="ignore", divide="ignore"):
        found: np.ndarray = products / (norms * np.sqrt(other @ other))
    return np.where(np.isfinite(found), found, np.nan)


def sampled(used: np.ndarray, size: int, dim: int) -> np.ndarray:
    """Return so many of the used rows, evenly spread, as a head of `size` rows can be multiplied with in seconds."""
    most = max(_PRODUCTS // (size * dim), _LEAST_SAMPLE)
    return used if len(used) <= most else used[np.arange(most) * len(used) // most]


def wins(layer: Layer, head: Layer, rows: np.ndarray, watch: Watch) -> int:
    """Return for how many rows, (n,) int64, of a token matrix the product with the head's same row is the largest."""
    hidden = layer.rows(rows).astype(np.float64)  # (n, D)
    best, own = np.full(len(rows), -np.inf), np.full(len(rows), np.nan)
    seen = 0
    for block in watch(head.blocks(), head.shape[0]):
        logits = hidden @ block.T.astype(np.float64)  # (n, rows of the head)
        inside = (rows >= seen) & (rows < seen + len(block))
        own[inside] = logits[inside, rows[inside] - seen]
        best = np.fmax(best, np.fmax.reduce(logits, axis=1))
        seen += len(block)
    return int(np.count_nonzero(own >= best))
