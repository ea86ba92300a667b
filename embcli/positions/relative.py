"""Relative positions of Shaw et al. 2018, section 3.2: a row for each distance.

Attention reads the row. The distance from token i to token j is j - i, clipped to ±k; row k of the
layer (2k + 1, D) is that of distance 0.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from embcli.layer import Layer, RowsOf
from embcli.names import Similarity
from embcli.positions import LARGEST_DISTANCE
from embcli.positions.kind import PositionMatrix, ShownPositions, products
from embcli.wording import counted


def relative(
    layer: Layer,
    columns: np.ndarray,
    length: int,
    token_row: np.ndarray,
    token_id: int,
    metric: Similarity,
) -> ShownPositions:
    """Return the rows of all pairs of T positions, the distances, (T, T), and the rows they pick.

    Similarities are those with a token row, (1, D) float32.
    """
    k = LARGEST_DISTANCE
    rows, dim = layer.shape
    every_position = np.arange(length)
    layer_rows = layer.rows(np.arange(rows))

    def chosen_columns(clipped: np.ndarray) -> np.ndarray:  # (...,) -> (..., columns)
        return np.asarray(layer_rows[clipped + k][..., columns])

    def similarities(others: np.ndarray) -> RowsOf:
        by_distance = products(layer_rows, token_row, metric)[:, 0]  # (2k + 1,)
        return lambda positions: by_distance[_distances(positions, others) + k]

    pair_matrix = PositionMatrix(
        name="position",
        rows=lambda positions: chosen_columns(_distances(positions, every_position)),
        columns=columns,
        middle_shape=(length,),
    )
    distances_in_words = "The distances, clipped" if length > k + 1 else "The distances"
    distance_matrix = PositionMatrix(
        name="distance",
        rows=partial(_distances, others=every_position),  # (n,) -> (n, T)
        columns=every_position,
        dtype="int64",
        heading=f"{distances_in_words}, (T, T) = ({length:,}, {length:,})",
    )
    largest = min(k, length - 1)
    which = "clipped to ±k" if length > k else f"up to ±{largest} here"
    row_matrix = PositionMatrix(
        name="distances",
        rows=chosen_columns,
        columns=columns,
        heading=f"The layer, (2k + 1, D) = ({rows:,}, {dim:,})",
        label="distance",
        row_numbers=np.arange(-largest, largest + 1),
    )
    return ShownPositions(
        name="Relative",
        size=f"D = {counted(dim, 'column')}, k = {k}",
        formula=f"From token i to token j: the row of the distance j - i, {which}.",
        matrices=[pair_matrix, distance_matrix],
        similarities=similarities,
        meaning=f"Equal along each diagonal; beyond k = {k} one value on each side.",
        note="Drawn after a token layer; read inside attention, not added to the token rows.",
        tables=[distance_matrix, row_matrix],
        similar_to=f"token row {token_id} with ",
    )


def _distances(positions: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the clipped distances from positions (n,) to others (m,), (n, m) int64."""
    distances = others[None, :] - positions[:, None]
    return np.asarray(np.clip(distances, -LARGEST_DISTANCE, LARGEST_DISTANCE))
