"""Learned positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.positions.kind import Positions
from embcli.words import counted


@final
@dataclass(frozen=True, eq=False)
class Learned(Positions):
    """Absolute positions as in GPT-2: each position has a row of a separate layer, (C, D), which is added."""

    has_layer = True

    def rows(self, positions: np.ndarray) -> np.ndarray:
        return np.asarray(self.layer.rows(positions))

    @property
    def sentences(self) -> tuple[str, str]:
        if self.is_stored:
            formula = "The model's own position layer, as trained: row p is added to the token row."
            return formula, "As trained: positions with similar rows have large dot products."
        formula = "A separate layer: row p is added to the token row; training adjusts it."
        return formula, "Random rows: their dot products mean nothing before training."

    def source_in_words(self, first_position: int) -> str:
        row = f"p + {first_position}" if first_position else "p"
        return f"row {row} of C = {counted(self.layer.shape[0], 'position')}"
