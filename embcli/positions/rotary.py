"""Rotary positions."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.errors import LayerError
from embcli.names import DEFAULT_THETA, Pairing
from embcli.positions.kind import Matrix, Positions, Words, dot_products, frequencies, in_turn


@final
@dataclass(frozen=True, eq=False)
class Rotary(Positions):
    """Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle that grows with the position.

    Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as
    the paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do. Raises LayerError for
    an odd D and for a theta that is not a finite number from 1.
    """

    options = ("pairing", "theta", "ids")

    pairing: Pairing = "interleaved"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise LayerError(f"dim must be even, not {self.dim:,}: rotary positions rotate pairs", parameters=("dim",))
        if not 1 <= self.theta < math.inf:
            raise LayerError(f"theta must be a finite number from 1, not {self.theta:g}", parameters=("theta",))

    @property
    def columns(self) -> int:
        """D/2 angles, one for each pair of columns."""
        return self.dim // 2

    @property
    def pairs(self) -> np.ndarray:
        """The two columns of each pair, (D/2, 2) int64."""
        every = np.arange(self.dim)
        return every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, in radians, (n, D/2) float32."""
        angles: np.ndarray = (positions[:, None] * frequencies(self.dim, self.theta)).astype(np.float32)
        return angles

    def exact(self, row: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return a row (1, D) float32, rotated at these positions, (n, D) float64.

        >>> Rotary(2).exact(np.array([[1.0, 0.0]]), np.array([0, 1])).round(4).tolist()
        [[1.0, 0.0], [0.5403, 0.8415]]
        """
        first, second = self.pairs.T
        radians = positions[:, None] * frequencies(self.dim, self.theta)
        cosines, sines = np.cos(radians), np.sin(radians)
        rotated = np.empty((len(positions), self.dim))
        with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite
            rotated[:, first] = row[:, first] * cosines - row[:, second] * sines
            rotated[:, second] = row[:, first] * sines + row[:, second] * cosines
        return rotated

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the angles of the chosen pairs, and their columns of the rotated token row."""
        is_interleaved, pairs = self.pairing == "interleaved", self.pairs[columns]
        rotated = (pairs if is_interleaved else pairs.T).reshape(-1)  # in the order of a row
        what = f"The row of token ID {token_id}, rotated: columns {pairs[0, 0]} and {pairs[0, 1]} are a pair"
        angles, apart = "The angles in radians; one column per pair", in_turn(rotated) if is_interleaved else 1
        return [
            Matrix("position", lambda at: self.rows(at)[:, columns], columns, heading=angles),
            Matrix(
                "input",
                lambda at: self.exact(row, at)[:, rotated].astype(np.float32),
                rotated,
                heading=what,
                apart=apart,
            ),
        ]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        others = self.exact(row, to).T
        return lambda at: dot_products(self.exact(row, at), others)

    def words(self, length: int, stored: bool) -> Words:
        return Words(
            "Rotary positions",
            f"T = {length:,} positions, D/2 = {self.columns:,} angles",
            f"Pair i of the columns is rotated by p · {self.theta:,.12g}^(-2i/D); pairs are {self.pairing}.",
            "They depend only on the distance: equal along each diagonal.",
            "Models rotate queries and keys like this, not the embedding.",
        )
