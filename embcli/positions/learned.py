"""Learned positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.positions.kind import AddedPositions, Words
from embcli.words import counted


@final
@dataclass(frozen=True, eq=False)
class Learned(AddedPositions):
    """Absolute positions as in GPT-2: each position has a row of a separate layer, (C, D), which is added."""

    has_layer = True

    def rows(self, positions: np.ndarray) -> np.ndarray:
        return self.layer.rows(positions)

    def words(self, length: int, stored: bool) -> Words:
        formula = "A separate layer: row p is added to the token row; training adjusts it."
        products = "Random rows: their dot products mean nothing before training."
        if stored:
            formula = "The model's own position layer, as trained: row p is added to the token row."
            products = "As trained: positions with similar rows have large dot products."
        return Words("Learned positions", f"T = {length:,} positions, D = {self.dim:,} columns", formula, products)

    def source_in_words(self, first_position: int) -> str:
        row = f"p + {first_position}" if first_position else "p"
        return f"row {row} of C = {counted(self.layer.shape[0], 'position')}"
