"""Rotary positions."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.errors import LayerError
from embcli.names import DEFAULT_THETA, Pairing
from embcli.positions.kind import ONLY_THE_DISTANCE, Matrix, Positions, frequencies, in_turn


@final
@dataclass(frozen=True, eq=False)
class Rotary(Positions):
    """Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle that grows with the position.

    Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as
    the paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do. Raises LayerError for
    an odd D and for a theta that is not a finite number from 1.
    """

    options = ("pairing", "theta", "ids")
    needs_row = True
    note = "Models rotate queries and keys like this, not the embedding."

    pairing: Pairing = "interleaved"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise LayerError(f"dim must be even, not {self.dim:,}: rotary positions rotate pairs", parameters=("dim",))
        if not 1 <= self.theta < math.inf:
            raise LayerError(f"theta must be a finite number from 1, not {self.theta:g}", parameters=("theta",))

    @property
    def columns(self) -> int:
        return self.dim // 2

    @property
    def size(self) -> str:
        return f"D/2 = {self.columns:,} angles"

    @property
    def sentences(self) -> tuple[str, str]:
        pairs = f"pairs are {self.pairing}"
        return f"Pair i of the columns is rotated by p · {self.theta:,.12g}^(-2i/D); {pairs}.", ONLY_THE_DISTANCE

    @property
    def pairs(self) -> np.ndarray:
        """The two columns of each pair, (D/2, 2) int64."""
        every = np.arange(self.dim)
        return every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T

    def angles(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, in radians, (n, D/2) float64."""
        return np.asarray(positions[:, None] * frequencies(self.dim, self.theta))

    def rows(self, positions: np.ndarray) -> np.ndarray:
        return self.angles(positions).astype(np.float32)

    @np.errstate(invalid="ignore", over="ignore")  # a weight may be infinite
    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return the token row, rotated at these positions, (n, D) float64.

        >>> Rotary(2, row=np.array([[1.0, 0.0]])).exact(np.array([0, 1])).round(4).tolist()
        [[1.0, 0.0], [0.5403, 0.8415]]
        """
        first, second = self.pairs.T
        cosines, sines = np.cos(self.angles(positions)), np.sin(self.angles(positions))
        rotated = np.empty((len(positions), self.dim))
        rotated[:, first] = self.row[:, first] * cosines - self.row[:, second] * sines
        rotated[:, second] = self.row[:, first] * sines + self.row[:, second] * cosines
        return rotated

    def matrices(self, length: int, columns: np.ndarray) -> list[Matrix]:
        """Return the angles of the chosen pairs, and their columns of the rotated token row."""
        is_interleaved, pairs = self.pairing == "interleaved", self.pairs[columns]
        rotated = (pairs if is_interleaved else pairs.T).reshape(-1)  # in the order of a row
        what = f"The row of token ID {self.token_id}, rotated: columns {pairs[0, 0]} and {pairs[0, 1]} are a pair"
        angles, apart = "The angles in radians; one column per pair", in_turn(rotated) if is_interleaved else 1

        def rows(positions: np.ndarray) -> np.ndarray:
            return self.exact(positions)[:, rotated].astype(np.float32)

        return [
            Matrix("position", lambda at: self.rows(at)[:, columns], columns, heading=angles),
            Matrix("input", rows, rotated, heading=what, apart=apart),
        ]
