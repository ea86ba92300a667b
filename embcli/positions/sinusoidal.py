"""Sinusoidal positions of Vaswani et al. 2017, section 3.5: sines and cosines of ever longer waves.

Column 2i is sin(position · 10,000^(-2i/D)), and column 2i + 1 the cosine of the same; an odd D ends
with a sine. The rows are added to token rows. Models with another formula have the sines in the
first half of the columns, then the cosines.
"""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from embcli.layer import RowsOf
from embcli.names import DEFAULT_THETA, Similarity
from embcli.positions.kind import (
    PositionMatrix,
    ShownPositions,
    added_rows,
    frequencies,
)
from embcli.recipe import AddPosition
from embcli.seeded_layers.build import load_torch


def sinusoidal(
    dim: int, columns: np.ndarray, model_step: AddPosition | None, metric: Similarity
) -> ShownPositions:
    """Return sinusoids by the paper's formula, or by that of a model's step, if one is given."""
    formula = "Columns 2i, 2i + 1: sine, cosine of p · 10,000^(-2i/D); added to the token row."
    meaning = "They depend only on the distance: equal along each diagonal."
    note = "Rounded from float64: cos(0.01) is 1.0000; torch's float32 prints 0.9999."
    rows: RowsOf = partial(waves, dim)
    if model_step is not None:
        rows = partial(sinusoids, model_step, dim)
        formula = (
            "The model's own formula: sines in the first half of the columns, "
            "cosines in the second; added to the token row."
        )
        note = ""
    elif dim % 2:
        meaning = "D is odd: the last sine has no cosine, so the diagonals are not equal."

    # A page rounds the numbers of the formula once, data have them in float32.
    table = PositionMatrix("position", lambda positions: rows(positions)[:, columns], columns)
    return added_rows("Sinusoidal", rows, dim, columns, metric, formula, meaning)._replace(
        tables=[table], note=note
    )


def waves(dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the rows of these positions, (n,) int64 -> (n, D) float64.

    >>> waves(3, np.array([0, 1])).round(4).tolist()
    [[0.0, 1.0, 0.0], [0.8415, 0.5403, 0.0022]]
    """
    radians = positions[:, None] * frequencies(dim, DEFAULT_THETA)
    rows = np.empty((len(positions), dim))
    rows[:, 0::2] = np.sin(radians)
    rows[:, 1::2] = np.cos(radians[:, : dim // 2])
    return rows


def sinusoids(step: AddPosition, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the rows that a step adds at positions, (n,) -> (n, D) float32.

    A row of a model has the sines in its first half and the cosines in its second. That of padding
    is zero.
    """
    match step.sinusoid_formula:
        case "" | "paper":
            return waves(dim, positions).astype(np.float32)
        case "sines, cosines in float64":
            pairs = np.arange(dim) // 2
            angles = positions[:, None] / np.power(10000, 2 * pairs / dim)  # as Marian has it
            halves = [np.sin(angles[:, 0::2]), np.cos(angles[:, 1::2])]
            return np.concatenate(halves, axis=1).astype(np.float32)
        case "sines, cosines":
            return _sinusoids_in_torch(step, dim, positions)


def _sinusoids_in_torch(step: AddPosition, dim: int, positions: np.ndarray) -> np.ndarray:
    """Return the rows of fairseq's formula, (n,) -> (n, D) float32."""
    load_torch()
    import torch

    shifted = np.maximum(positions + step.position_offset, 0)
    column = torch.from_numpy(shifted).float()[:, None]  # (n, 1)
    half = dim // 2
    exponents = torch.arange(half, dtype=torch.int64).float()
    rates = torch.exp(exponents * -(math.log(10000) / (half - 1)))
    angles = column * rates
    halves = torch.cat([torch.sin(angles), torch.cos(angles)], dim=1)
    odd_column = (0, dim % 2)  # an odd D ends with a zero
    rows = torch.nn.functional.pad(halves, odd_column).numpy()
    rows[shifted == step.padding_id] = 0
    return rows
