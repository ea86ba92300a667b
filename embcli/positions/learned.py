"""Learned positions, as in GPT-2: each position has a row of a separate layer, (C, D), which is added."""

from __future__ import annotations

import numpy as np

from embcli.layer import Layer
from embcli.positions.kind import PositionMatrix, Shown, products_of


def learned(layer: Layer, columns: np.ndarray, is_stored: bool) -> Shown:
    formula = "A separate layer, drawn after the token layer: row p is added to the token row; training adjusts it."
    meaning = "Random rows: their dot products mean nothing before training."
    if is_stored:
        formula = "The model's own position layer, as trained: row p is added to the token row."
        meaning = "As trained: positions with similar rows have large dot products."
    matrix = PositionMatrix("position", lambda at: layer.rows(at)[:, columns], columns)
    products = products_of(lambda at: layer.rows(at).astype(np.float64))
    return Shown(f"D = {layer.shape[1]:,} columns", formula, [matrix], products, meaning)
