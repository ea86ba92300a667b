"""How a position becomes a vector, and how that joins a token's row: added, rotating it, or not at all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from embcli.errors import LayerError
from embcli.names import DEFAULT_THETA, Pairing

if TYPE_CHECKING:
    from embcli.layer import Layer


class Positions(Protocol):
    """What a lookup asks of a kind of positions."""

    @property
    def columns(self) -> int | None:
        """How many numbers tell of a position: D, or D/2 angles; None where positions have no matrix."""

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return what tells of these positions, (n,) int64 -> (n, columns) float32."""

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the input embeddings of token rows (n, D) at these positions (n,), (n, D) float32."""


@dataclass(frozen=True, eq=False)
class Learned:
    """Absolute positions as GPT-2 has them: each has a row of a layer of its own, which is added."""

    layer: Layer  # (C, D)

    @property
    def columns(self) -> int:
        """D, as many as the token's row has."""
        return self.layer.shape[1]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float32."""
        return self.layer.rows(positions)

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows + position rows, (n, D) float32."""
        found: np.ndarray = token_rows + self.rows(positions)
        return found


@dataclass(frozen=True, eq=False)
class Sinusoidal:
    """Absolute positions of Vaswani et al. 2017, section 3.5: sines and cosines of ever longer waves, which are added.

    Column 2i is sin(position / 10000^(2i/D)), and column 2i + 1 the cosine of the same; an odd D ends with a sine.
    """

    dim: int  # D

    @property
    def columns(self) -> int:
        """D, as many as the token's row has."""
        return self.dim

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float32."""
        found: np.ndarray = self.exact(positions).astype(np.float32)
        return found

    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float64.

        >>> Sinusoidal(3).exact(np.array([0, 1])).round(4).tolist()
        [[0.0, 1.0, 0.0], [0.8415, 0.5403, 0.0022]]
        """
        angles = _angles(positions, self.dim, DEFAULT_THETA)
        found = np.empty((len(positions), self.dim))
        found[:, 0::2] = np.sin(angles)
        found[:, 1::2] = np.cos(angles[:, : self.dim // 2])
        return found

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows + position rows, (n, D) float32."""
        found: np.ndarray = token_rows + self.rows(positions)
        return found


@dataclass(frozen=True, eq=False)
class Rotary:
    """Rotary positions of Su et al. 2021: pairs of columns are turned by an angle that grows with the position.

    Pair i is turned by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as the
    paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do. Raises LayerError for an
    odd D, and for a theta that is no finite number from 1.
    """

    dim: int  # D
    pairing: Pairing = "interleaved"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise LayerError(f"--dim {self.dim} is odd: rotary positions turn columns two by two, so D must be even")
        if not 1 <= self.theta < math.inf:
            raise LayerError(f"--theta {self.theta:g} is out of range; it must be a finite number from 1")

    @property
    def columns(self) -> int:
        """D/2 angles, one for each pair of columns."""
        return self.dim // 2

    @property
    def pairs(self) -> np.ndarray:
        """The two columns that each pair is made of, (D/2, 2) int64."""
        every = np.arange(self.dim)
        return every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T

    def columns_of(self, pairs: np.ndarray) -> np.ndarray:
        """Return the columns that these pairs are made of, in the order of a row, (2n,) int64."""
        found: np.ndarray = self.pairs[pairs] if self.pairing == "interleaved" else self.pairs[pairs].T
        return found.reshape(-1)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, in radians, (n, D/2) float32."""
        found: np.ndarray = _angles(positions, self.dim, self.theta).astype(np.float32)
        return found

    def exact(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows (n, D), or one for all (1, D), as they are turned at these positions, (n, D) float64.

        >>> Rotary(2).exact(np.array([[1.0, 0.0]]), np.array([0, 1])).round(4).tolist()
        [[1.0, 0.0], [0.5403, 0.8415]]
        """
        angles = _angles(positions, self.dim, self.theta)
        cosines, sines = np.cos(angles), np.sin(angles)
        first, second = self.pairs.T
        found = np.empty((len(positions), self.dim))
        with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite
            found[:, first] = token_rows[:, first] * cosines - token_rows[:, second] * sines
            found[:, second] = token_rows[:, first] * sines + token_rows[:, second] * cosines
        return found

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the token rows, turned, (n, D) float32."""
        found: np.ndarray = self.exact(token_rows, positions).astype(np.float32)
        return found


@dataclass(frozen=True, eq=False)
class NoPositions:
    """No positions: a token has the same input embedding wherever it stands."""

    columns: None = None

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return nothing for each position, (n, 0) float32."""
        return np.empty((len(positions), 0), np.float32)

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the token rows as they are."""
        return token_rows


@dataclass(frozen=True, eq=False)
class Relative:
    """Relative positions of Shaw et al. 2018, section 3.2: a row for each distance, which attention reads.

    What has a row is how far token j stands behind token i, j - i, clipped to ±k; row k is that of distance 0.
    """

    layer: Layer  # (2k + 1, D)

    @property
    def clip(self) -> int:
        """The largest distance that has a row of its own, k."""
        return self.layer.shape[0] // 2

    def every(self) -> np.ndarray:
        """Return the rows of all distances, from -k to k, (2k + 1, D) float32."""
        return self.layer.rows(np.arange(self.layer.shape[0]))

    def distances(self, of: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return the clipped distances of these positions (n,) to those (m,), (n, m) int64."""
        found: np.ndarray = np.clip(to[None, :] - of[:, None], -self.clip, self.clip)
        return found

    def rows(self, of: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return the rows of the distances of these positions (n,) to those (m,), (n, m, D) float32."""
        found: np.ndarray = self.every()[self.distances(of, to) + self.clip]
        return found


def _angles(positions: np.ndarray, dim: int, theta: float) -> np.ndarray:
    """Return position · theta^(-2i/D) for each position and i, (n, D/2 rounded up) float64."""
    found: np.ndarray = positions[:, None] * theta ** (-2 * np.arange((dim + 1) // 2) / dim)
    return found
