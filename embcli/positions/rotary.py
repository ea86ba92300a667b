"""Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle.

Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i
with 2i + 1, as the paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual
files do.
"""

from __future__ import annotations

import numpy as np

from embcli.names import Pairing, Similarity
from embcli.positions.kind import (
    PositionMatrix,
    ShownPositions,
    frequencies,
    similarities_of,
)
from embcli.wording import counted


def rotary(
    pairs: np.ndarray,
    token_row: np.ndarray,
    token_id: int,
    pairing: Pairing,
    theta: float,
    metric: Similarity,
) -> ShownPositions:
    """Return the angles of the chosen pairs, and their columns of a token row, rotated.

    The pairs are numbers below D/2, (n,) int64; the token row is (1, D) float32.
    """
    dim = token_row.shape[1]
    angle_of_pair = frequencies(dim, theta)
    pair_columns = columns_of_pairs(dim, pairing)[:, pairs]  # (2, n)
    row_columns = pair_columns.ravel()
    if pairing == "interleaved":
        # Both columns of a pair stand side by side, as in the row.
        row_columns = pair_columns.T.ravel()

    def angles(positions: np.ndarray) -> np.ndarray:  # (n,) -> (n, pairs)
        return np.asarray(positions[:, None] * angle_of_pair[pairs], np.float32)

    def vectors(positions: np.ndarray) -> np.ndarray:  # (n,) -> (n, D) float64
        return rotated_rows(token_row, pairing, theta, positions)

    def rows(positions: np.ndarray) -> np.ndarray:  # (n,) -> (n, columns)
        return vectors(positions)[:, row_columns].astype(np.float32)

    first, second = pair_columns[:, 0]
    angles_of_pairs = PositionMatrix(
        name="position",
        rows=angles,
        columns=pairs,
        heading="Angles in radians; one column per pair",
        is_angle=True,
    )
    rotated_row = PositionMatrix(
        name="input",
        rows=rows,
        columns=row_columns,
        heading=f"Row of ID {token_id}, rotated; pair 0: {first}, {second}",
    )
    return ShownPositions(
        name="Rotary",
        size=f"D/2 = {counted(dim // 2, 'angle')}",
        formula=f"Pair i of the columns is rotated by p · {theta:,.12g}^(-2i/D); "
        f"pairs are {pairing}.",
        matrices=[angles_of_pairs, rotated_row],
        similarities=similarities_of(vectors, metric),
        meaning="For given rows they depend only on p - q: equal along each diagonal.\n"
        f"Symmetric here: both sides are the row of token ID {token_id}.",
        note="Models rotate queries and keys, not the embedding; there D is a head's width.",
    )


def columns_of_pairs(dim: int, pairing: Pairing) -> np.ndarray:
    """Return the first and the second column of each pair, (2, D/2) int64."""
    columns = np.arange(dim)
    match pairing:
        case "interleaved":
            return columns.reshape(-1, 2).T
        case "halves":
            return columns.reshape(2, -1)


def rotated_rows(
    row: np.ndarray, pairing: Pairing, theta: float, positions: np.ndarray
) -> np.ndarray:
    """Return a row, (1, D) float32, rotated at these positions, (n, D) float64.

    >>> row = np.array([[1.0, 0.0]])
    >>> rotated_rows(row, "interleaved", 1e4, np.array([0, 1])).round(4).tolist()
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    dim = row.shape[1]
    first, second = columns_of_pairs(dim, pairing)
    angles = positions[:, None] * frequencies(dim, theta)
    cosines = np.cos(angles)
    sines = np.sin(angles)
    rotated = np.empty((len(positions), dim))
    left = row[:, first]
    right = row[:, second]
    with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite
        rotated[:, first] = left * cosines - right * sines
        rotated[:, second] = left * sines + right * cosines
    return rotated
