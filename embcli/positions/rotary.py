"""Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle that grows with the position.

Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as the
paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from embcli.errors import LayerError
from embcli.names import Pairing
from embcli.positions.kind import (
    ONLY_THE_DISTANCE,
    PositionMatrix,
    Shown,
    frequencies,
    in_turn,
    products_of,
)
from embcli.wording import Sentence


def check(dim: int, theta: float) -> None:
    """Raise LayerError for an odd D and for a theta that is not a finite number from 1."""
    if dim % 2:
        raise LayerError(
            Sentence("{dim} must be even, not {given:,}: rotary positions rotate pairs", given=dim)
        )
    if not 1 <= theta < math.inf:
        raise LayerError(
            Sentence("{theta} must be a finite number from 1, not {given:g}", given=theta)
        )


def rotary(
    columns: np.ndarray, row: np.ndarray, token_id: int, pairing: Pairing, theta: float
) -> Shown:
    """Return the angles of the chosen pairs, and their columns of a token row (1, D) float32, rotated."""
    half, is_interleaved = row.shape[1] // 2, pairing == "interleaved"
    pairs = pairs_of(row.shape[1], pairing)[:, columns].T
    rotated = (pairs if is_interleaved else pairs.T).reshape(-1)  # in the order of a row
    what = f"The row of token ID {token_id}, rotated: columns {pairs[0, 0]} and {pairs[0, 1]} are a pair"
    exact = partial(turned, row, pairing, theta)

    def angles(at: np.ndarray) -> np.ndarray:
        return np.asarray(at[:, None] * frequencies(2 * half, theta)[columns], np.float32)

    def rows(at: np.ndarray) -> np.ndarray:
        return exact(at)[:, rotated].astype(np.float32)

    return Shown(
        f"D/2 = {half:,} angles",
        f"Pair i of the columns is rotated by p · {theta:,.12g}^(-2i/D); pairs are {pairing}.",
        [
            PositionMatrix(
                "position", angles, columns, heading="The angles in radians; one column per pair"
            ),
            PositionMatrix(
                "input",
                rows,
                rotated,
                heading=what,
                column_period=in_turn(rotated) if is_interleaved else 1,
            ),
        ],
        products_of(exact),
        ONLY_THE_DISTANCE,
        "Models rotate queries and keys like this, not the embedding.",
    )


def pairs_of(dim: int, pairing: Pairing) -> np.ndarray:
    """Return the first and the second column of each pair, (2, D/2) int64."""
    return (
        np.arange(dim).reshape(-1, 2).T
        if pairing == "interleaved"
        else np.arange(dim).reshape(2, -1)
    )


@np.errstate(invalid="ignore", over="ignore")  # a weight may be infinite
def turned(row: np.ndarray, pairing: Pairing, theta: float, positions: np.ndarray) -> np.ndarray:
    """Return a row (1, D) float32, rotated at these positions, (n, D) float64.

    >>> turned(np.array([[1.0, 0.0]]), "interleaved", 1e4, np.array([0, 1])).round(4).tolist()
    [[1.0, 0.0], [0.5403, 0.8415]]
    """
    first, second = pairs_of(row.shape[1], pairing)
    angles = positions[:, None] * frequencies(row.shape[1], theta)
    cosines, sines = np.cos(angles), np.sin(angles)
    rotated = np.empty((len(positions), row.shape[1]))
    rotated[:, first] = row[:, first] * cosines - row[:, second] * sines
    rotated[:, second] = row[:, first] * sines + row[:, second] * cosines
    return rotated
