"""Learned positions, as in GPT-2: each position has a row of a separate layer, (C, D).

The row is added to the token row. A seeded layer is drawn after the token layer.
"""

from __future__ import annotations

import numpy as np

from embcli.layer import Layers
from embcli.names import Similarity
from embcli.positions.kind import ShownPositions, added_rows


def learned(layers: Layers, columns: np.ndarray, metric: Similarity) -> ShownPositions:
    """Return the rows of a position layer, which is seeded, or stored by a model."""
    layer = layers["position"]
    formula = "A separate layer, drawn after the token layer: row p is added to the token row."
    meaning = "Random rows: their similarities mean nothing before training."
    if not layers.origin.is_seeded:
        formula = "The model's own position layer: row p is added to the token row."
        match metric:
            case "cosine":
                meaning = (
                    "As in the file: rows that point in similar directions have a cosine near 1."
                )
            case "dot":
                meaning = "As in the file: a dot product is large for long rows that point alike."
    return added_rows(
        "Learned", layer.rows, layer.shape[1], columns, metric, formula, meaning
    )._replace(letter="C")
