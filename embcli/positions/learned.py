"""Learned positions, as in GPT-2: each position has a row of a separate layer, (C, D).

The row is added to the token row. A seeded layer is drawn after the token layer.
"""

from __future__ import annotations

import numpy as np

from embcli.layer import Layer
from embcli.names import Similarity
from embcli.positions.kind import PositionMatrix, ShownPositions, similarities_of


def learned(
    layer: Layer, columns: np.ndarray, is_stored: bool, metric: Similarity
) -> ShownPositions:
    """Return the rows of a position layer, which is seeded, or stored by a model."""
    formula = "A separate layer, drawn after the token layer: row p is added to the token row."
    meaning = "Random rows: their similarities mean nothing before training."
    if is_stored:
        formula = "The model's own position layer: row p is added to the token row."
        meaning = "As in the file: rows that point in similar directions have a cosine near 1."
        if metric == "dot":
            meaning = "As in the file: a dot product is large for similar rows, and for long ones."

    def chosen_columns(positions: np.ndarray) -> np.ndarray:
        return layer.rows(positions)[:, columns]

    def vectors(positions: np.ndarray) -> np.ndarray:
        return layer.rows(positions).astype(np.float64)

    dim = layer.shape[1]
    position = PositionMatrix("position", chosen_columns, columns)
    similarities = similarities_of(vectors, metric)
    return ShownPositions(
        size=f"D = {dim:,} columns",
        formula=formula,
        matrices=[position],
        similarities=similarities,
        meaning=meaning,
    )
