"""The passes of an audit over a token matrix: running sums in float64, without rows that contain NaN or infinity."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256

import numpy as np

from embcli.layer import Layer
from embcli.names import Unused
from embcli.passes import Watch
from embcli.statistics import Covariance, iso_score, mean_cosine, norms_of, squares

_PRODUCTS = 1 << 37  # multiplications of rows with an output head
_LEAST_SAMPLE = 64  # rows
_ROUNDING = 2.0**-52  # of a length, for each value of a row
_NO_TOKEN = ("padding", "gap")


@dataclass(frozen=True)
class Indicators:
    """How far each row is from the rows of unused tokens, (V,) float64 each; lower means less trained.

    These are indicators of Land and Bartolo 2024, "Fishing for Magikarp: Automatically Detecting Under-trained Tokens
    in Large Language Models", for the token matrix, tied or not; their published code uses the output head. With u the
    mean of the unused rows, `cosine` is 1 - cos(row, u), `centred` the same after subtracting the mean of all rows from
    both, and `without_first` the same after subtracting their first principal component. NaN for a row without a
    direction.
    """

    cosine: np.ndarray
    centred: np.ndarray
    without_first: np.ndarray


class FirstPass:
    """Norms and digests of the rows, and sums for the second pass.

    Sums are over rows that stand for tokens, except `unused_sum`, which is over the rows of unused tokens.
    """

    def __init__(self, size: int, dim: int, unused: dict[int, Unused]) -> None:
        self.norms = np.full(size, np.nan)
        self.digests: list[bytes] = []  # of the bits of each row
        self.covariance = Covariance(dim)
        self.unit_sum = np.zeros(dim)
        self.unused_sum = np.zeros(dim)
        self.of_token, self.of_unused = np.ones(size, bool), np.zeros(size, bool)
        self.of_unused[[*unused]] = True
        self.of_token[[row for row, why in unused.items() if why in _NO_TOKEN]] = False

    @property
    def measured(self) -> np.ndarray:
        """Which rows stand for tokens and are finite, (V,) bool."""
        measured: np.ndarray = self.of_token & np.isfinite(self.norms)
        return measured

    @property
    def mean_cosine(self) -> float | None:
        """The mean cosine of all pairs of rows."""
        return mean_cosine(self.unit_sum, int(np.count_nonzero(self.norms[self.measured])))

    def add(self, block: np.ndarray) -> None:
        """Add the next rows, (n, D) float32."""
        part = slice(len(self.digests), len(self.digests) + len(block))
        self.digests += [sha256(row.data).digest() for row in block]
        exact, finite, norms = _finite(block)
        self.norms[part][finite] = norms
        self.unused_sum += exact[self.of_unused[part][finite]].sum(axis=0)
        of_token = self.of_token[part][finite]
        exact, norms = (exact, norms) if of_token.all() else (exact[of_token], norms[of_token])
        self.covariance.add(exact)
        self.unit_sum += np.divide(1.0, norms, out=np.zeros_like(norms), where=norms > 0) @ exact


class SecondPass:
    """Indicators and cosines that need the mean row and the first principal component of the first pass."""

    def __init__(self, first: FirstPass) -> None:
        covariance = first.covariance.matrix()
        self.iso_score = iso_score(covariance)
        self._first, self._mean = first, first.covariance.mean()
        self._unit_sum, self._directed, self._seen = np.zeros_like(self._mean), 0, 0
        self._indicators = np.full((3, len(first.norms)), np.nan)
        self.unused_distances = np.full(len(first.norms), np.nan)  # 1 - cos of unused rows to the mean of the others
        self._unused_length = float(np.sqrt(first.unused_sum @ first.unused_sum))
        self._component: np.ndarray | None = None
        if first.unused_sum.any():
            self._component = np.linalg.eigh(covariance)[1][:, -1]
            unused = first.unused_sum / np.count_nonzero(np.isfinite(first.norms[first.of_unused]))
            without = unused - (unused @ self._component) * self._component
            length = np.sqrt(squares(unused[None]))
            self._directions = [_units(row[None], length)[0] for row in (unused, unused - self._mean, without)]

    @property
    def indicators(self) -> Indicators | None:
        """The indicators of under-trained tokens; None if no row is known to be unused."""
        return Indicators(*self._indicators) if self._component is not None else None

    @property
    def mean_cosine(self) -> float | None:
        """The mean cosine of all pairs of rows, less the mean row."""
        return mean_cosine(self._unit_sum, self._directed)

    def add(self, block: np.ndarray) -> None:
        """Add the next rows, (n, D) float32."""
        part = slice(self._seen, self._seen + len(block))
        self._seen += len(block)
        exact, finite, norms = _finite(block)
        units = _units(exact, norms)
        if self._component is not None:
            self._indicators[0, part][finite] = _one_minus_cosine(units, self._directions[0])
            without = exact - np.outer(exact @ self._component, self._component)
            self._indicators[2, part][finite] = _one_minus_cosine(_units(without, norms), self._directions[2])
            own = finite & self._first.of_unused[part]
            others = self._first.unused_sum - exact[own[finite]]
            units_of_others = _units(others, np.full(len(others), self._unused_length))
            self.unused_distances[part][own] = _one_minus_cosine(units[own[finite]], units_of_others)
        exact -= self._mean
        units = _units(exact, norms)
        if self._component is not None:
            self._indicators[1, part][finite] = _one_minus_cosine(units, self._directions[1])
        directed = units[self._first.of_token[part][finite] & ~np.isnan(units[:, 0])]
        self._unit_sum += directed.sum(axis=0)
        self._directed += len(directed)


def _finite(block: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the finite rows of a block, (m, D) float64, which of its rows they are, (n,) bool, and their norms."""
    exact = block.astype(np.float64)
    norms = norms_of(exact)
    finite = np.isfinite(norms)
    exact = exact if finite.all() else exact[finite]
    return exact, finite, norms[finite]


def _units(rows: np.ndarray, before: np.ndarray) -> np.ndarray:
    """Return rows, (n, D), scaled to length 1; NaN if only rounding is left of their earlier lengths, (n,)."""
    lengths = np.sqrt(squares(rows))
    directed = lengths > rows.shape[1] * _ROUNDING * before
    units: np.ndarray = rows / np.where(directed, lengths, np.nan)[:, None]
    return units


def _one_minus_cosine(units: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return 1 - cos of unit rows, (n, D), to one unit row, (D,), or to one each, (n, D)."""
    cosines: np.ndarray = np.einsum("ij,ij->i", units, np.broadcast_to(other, units.shape))
    return 1 - cosines.clip(-1, 1)


def sampled(used: np.ndarray, size: int, dim: int) -> np.ndarray:
    """Return an even sample of the used rows that a head of `size` rows can be multiplied with in seconds."""
    most = max(_PRODUCTS // (size * dim), _LEAST_SAMPLE)
    return used if len(used) <= most else used[np.arange(most) * len(used) // most]


def wins(layer: Layer, head: Layer, rows: np.ndarray, watch: Watch) -> int:
    """Return for how many rows, (n,) int64, the largest product with the output head is that of the same ID."""
    hidden = layer.rows(rows).astype(np.float64)  # (n, D)
    best, own = np.full(len(rows), -np.inf), np.full(len(rows), np.nan)
    seen = 0
    for block in watch(head.blocks(), head.shape[0], len):
        logits = hidden @ block.T.astype(np.float64)  # (n, rows of the head)
        inside = (rows >= seen) & (rows < seen + len(block))
        own[inside] = logits[inside, rows[inside] - seen]
        best = np.fmax(best, np.fmax.reduce(logits, axis=1))
        seen += len(block)
    return int(np.count_nonzero(own >= best))
