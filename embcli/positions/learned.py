"""Learned positions, as in GPT-2: each position has a row of a separate layer, (C, D).

The row is added to the token row. A seeded layer is drawn after the token layer.
"""

from __future__ import annotations

import numpy as np

from embcli.layer import Layer
from embcli.positions.kind import PositionMatrix, ShownPositions, products_of


def learned(layer: Layer, columns: np.ndarray, is_stored: bool) -> ShownPositions:
    """Return the rows of a position layer, which is seeded, or stored by a model."""
    formula = (
        "A separate layer, drawn after the token layer: row p is added to the token row; "
        "training adjusts it."
    )
    meaning = "Random rows: their dot products mean nothing before training."
    if is_stored:
        formula = "The model's own position layer, as trained: row p is added to the token row."
        meaning = "As trained: positions with similar rows have large dot products."

    def chosen_columns(positions: np.ndarray) -> np.ndarray:
        return layer.rows(positions)[:, columns]

    def vectors(positions: np.ndarray) -> np.ndarray:
        return layer.rows(positions).astype(np.float64)

    return ShownPositions(
        size=f"D = {layer.shape[1]:,} columns",
        formula=formula,
        matrices=[PositionMatrix("position", chosen_columns, columns)],
        products=products_of(vectors),
        meaning=meaning,
    )
