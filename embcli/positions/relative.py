"""Relative positions of Shaw et al. 2018, section 3.2: a row for each distance, which attention reads.

The distance from token i to token j is j - i, clipped to ±k; row k of the layer (2k + 1, D) is that of distance 0.
"""

from __future__ import annotations

import numpy as np

from embcli.layer import Layer
from embcli.positions.kind import PositionMatrix, Rows, Shown, dot_products

K = 16  # the largest distance with a row of its own


def relative(layer: Layer, columns: np.ndarray, length: int, row: np.ndarray) -> Shown:
    """Return the rows of all pairs of positions, (T, T, D), their distances, (T, T), and the picked rows.

    Dot products are those with a token row, (1, D) float32.
    """
    every, rows, dim = np.arange(length), layer.rows(np.arange(2 * K + 1)), layer.shape[1]
    largest = min(K, length - 1)

    def distances(of: np.ndarray, to: np.ndarray = every) -> np.ndarray:
        return np.asarray(np.clip(to[None, :] - of[:, None], -K, K))

    def picked(at: np.ndarray) -> np.ndarray:
        return np.asarray(rows[at + K][..., columns])

    def products(to: np.ndarray) -> Rows:
        by_distance = dot_products(rows.astype(np.float64), row[0].astype(np.float64))  # (2k + 1,)
        return lambda at: by_distance[distances(at, to) + K]

    clipped = f"The distances, clipped, (T, T) = ({length:,}, {length:,})"
    of_layer = f"The rows that they pick of the layer, (2k + 1, D) = ({2 * K + 1:,}, {dim:,})"
    numbers = np.arange(-largest, largest + 1)
    return Shown(
        f"D = {dim:,} columns, k = {K}",
        "From token i to token j: the row of the distance j - i, clipped to ±k.",
        [
            PositionMatrix(
                "position", lambda at: picked(distances(at)), columns, (length,), heading=None
            ),
            PositionMatrix("distance", distances, every, dtype="int64", heading=clipped),
            PositionMatrix(
                "", picked, columns, heading=of_layer, label="distance", numbers=numbers
            ),
        ],
        products,
        "With this row: equal at equal distances, the same for all distances >= k.",
    )
