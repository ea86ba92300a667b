"""Sinusoidal positions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.names import DEFAULT_THETA
from embcli.positions.kind import ONLY_THE_DISTANCE, Positions, frequencies


@final
@dataclass(frozen=True, eq=False)
class Sinusoidal(Positions):
    """Absolute positions of Vaswani et al. 2017, section 3.5: sines and cosines of ever longer waves, which are added.

    Column 2i is sin(position / 10000^(2i/D)), and column 2i + 1 the cosine of the same; an odd D ends with a sine.
    Models with another formula have the sines in the first half of the columns, then the cosines.
    """

    formula: Callable[[np.ndarray], np.ndarray] | None = None  # a model's formula: positions (n,) -> (n, D) float32

    @property
    def alternates(self) -> bool:  # type: ignore[override]
        return self.formula is None

    def rows(self, positions: np.ndarray) -> np.ndarray:
        return self.formula(positions) if self.formula else self.exact(positions).astype(np.float32)

    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float64.

        >>> Sinusoidal(3).exact(np.array([0, 1])).round(4).tolist()
        [[0.0, 1.0, 0.0], [0.8415, 0.5403, 0.0022]]
        """
        if self.formula:
            return self.formula(positions).astype(np.float64)
        radians = positions[:, None] * frequencies(self.dim, DEFAULT_THETA)
        waves = np.empty((len(positions), self.dim))
        waves[:, 0::2] = np.sin(radians)
        waves[:, 1::2] = np.cos(radians[:, : self.dim // 2])
        return waves

    @property
    def sentences(self) -> tuple[str, str]:
        if self.formula:
            halves = "sines in the first half of the columns, cosines in the second"
            return f"The model's own formula: {halves}; rows are added.", ONLY_THE_DISTANCE
        odd = "D is odd: the last sine has no cosine, so diagonals are only nearly equal."
        formula = "Columns 2i and 2i + 1: sine and cosine of p / 10000^(2i/D); rows are added."
        return formula, odd if self.dim % 2 else ONLY_THE_DISTANCE

    def source_in_words(self, first_position: int) -> str:
        if self.formula:
            return "the model's own sinusoids, sines in the first half of the columns, then cosines"
        return "columns 2i and 2i + 1 are the sine and cosine of p / 10000^(2i/D)"
