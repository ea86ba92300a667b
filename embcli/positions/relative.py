"""Relative positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from embcli.names import SHORT_LENGTH
from embcli.positions.kind import Matrix, Positions, dot_products

K = 16  # the largest distance with a row of its own


@final
@dataclass(frozen=True, eq=False)
class Relative(Positions):
    """Relative positions of Shaw et al. 2018, section 3.2: a row for each distance, which attention reads.

    The distance from token i to token j is j - i, clipped to ±k; row k of the layer (2k + 1, D) is that of distance 0.
    """

    options = ("ids",)
    has_layer = True
    default_length = SHORT_LENGTH  # distances belong to a T, not to a layer

    def document(self) -> dict[str, Any]:
        return {"clip": K}

    @property
    def size(self) -> str:
        return f"D = {self.dim:,} columns, k = {K}"

    @property
    def sentences(self) -> tuple[str, str]:
        formula = "From token i to token j: the row of the distance j - i, clipped to ±k."
        return formula, "With this row: equal at equal distances, the same for all distances >= k."

    def distances(self, of: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return the clipped distances of these positions (n,) to those (m,), (n, m) int64."""
        return np.asarray(np.clip(to[None, :] - of[:, None], -K, K))

    def matrices(self, length: int, columns: np.ndarray) -> list[Matrix]:
        """Return the rows of all pairs of positions, (T, T, D), their distances, (T, T), and the picked rows."""
        every, largest, layer = np.arange(length), min(K, length - 1), self.layer.rows(np.arange(2 * K + 1))
        clipped = f"The distances, clipped, (T, T) = ({length:,}, {length:,})"
        picked = f"The rows that they pick of the layer, (2k + 1, D) = ({2 * K + 1:,}, {self.dim:,})"

        def rows(distances: np.ndarray) -> np.ndarray:
            return np.asarray(layer[distances + K][..., columns])

        numbers = np.arange(-largest, largest + 1)
        return [
            Matrix("position", lambda at: rows(self.distances(at, every)), columns, (length,), heading=None),
            Matrix("distance", lambda at: self.distances(at, every), every, dtype="int64", heading=clipped),
            Matrix("", rows, columns, heading=picked, label="distance", numbers=numbers),
        ]

    def products(self, to: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        layer = self.layer.rows(np.arange(2 * K + 1)).astype(np.float64)
        by_distance = dot_products(layer, self.row[0].astype(np.float64))  # (2k + 1,)
        return lambda at: by_distance[self.distances(at, to) + K]
