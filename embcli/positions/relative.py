"""Relative positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.errors import LayerError
from embcli.names import DEFAULT_CLIP, SHORT_LENGTH
from embcli.positions.kind import Matrix, ShownPositions, ShownWords, dot_products


@final
@dataclass(frozen=True, eq=False)
class Relative(ShownPositions):
    """Relative positions of Shaw et al. 2018, section 3.2: a row for each distance, which attention reads.

    The distance from token i to token j is j - i, clipped to ±k; row k of the layer (2k + 1, D) is that of distance 0.
    Raises LayerError for a negative k.
    """

    options = ("clip", "ids")
    has_layer = True
    default_length = SHORT_LENGTH  # distances belong to a T, not to a layer

    clip: int = DEFAULT_CLIP  # k, the largest distance with a row of its own

    def __post_init__(self) -> None:
        if self.clip < 0:
            raise LayerError(f"clip must be at least 0, not {self.clip:,}", parameters=("clip",))

    def layer_rows(self, length: int) -> int:
        """Return 2k + 1, whatever the length."""
        return 2 * self.clip + 1

    def needs_row(self, similarity: bool) -> bool:
        """Say whether dot products are computed: those with a token row."""
        return similarity

    def distance_rows(self) -> np.ndarray:
        """Return the rows of all distances, from -k to k, (2k + 1, D) float32."""
        return self.layer.rows(np.arange(2 * self.clip + 1))

    def distances(self, of: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return the clipped distances of these positions (n,) to those (m,), (n, m) int64."""
        clipped: np.ndarray = np.clip(to[None, :] - of[:, None], -self.clip, self.clip)
        return clipped

    def rows(self, of: np.ndarray, to: np.ndarray) -> np.ndarray:
        """Return the rows of the distances of these positions (n,) to those (m,), (n, m, D) float32."""
        rows: np.ndarray = self.distance_rows()[self.distances(of, to) + self.clip]
        return rows

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the rows of all pairs of positions, (T, T, D), their distances, (T, T), and the layer."""
        every = np.arange(length)
        return [
            Matrix("position", lambda at: self.rows(at, every)[..., columns], columns, (length,), heading=None),
            Matrix(
                "distance",
                lambda at: self.distances(at, every),
                every,
                dtype="int64",
                heading=f"The distances, clipped, (T, T) = ({length:,}, {length:,})",
            ),
            Matrix(
                "",
                lambda distances: self.distance_rows()[distances + self.clip][:, columns],
                columns,
                heading=f"The rows that they pick, (2k + 1, D) = ({2 * self.clip + 1:,}, {self.dim:,})",
                label="distance",
                numbers=np.arange(-self.clip, self.clip + 1),
            ),
        ]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what computes the dot products of the token row with the rows of distances."""
        by_distance = dot_products(self.distance_rows().astype(np.float64), row[0].astype(np.float64))  # (2k + 1,)
        return lambda at: by_distance[self.distances(at, to) + self.clip]

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Relative positions",
            f"T = {length:,} positions, D = {self.dim:,} columns, k = {self.clip:,}",
            "From token i to token j: the row of the distance j - i, clipped to ±k.",
            "With this row: equal at equal distances, the same for all distances >= k.",
        )
