"""A lookup without positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from embcli.positions.kind import JoinedPositions, JoinedWords


@final
@dataclass(frozen=True, eq=False)
class NoPositions(JoinedPositions):
    """No positions: a token has the same input embedding at every position."""

    has_matrix = False

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return an empty row for each position, (n, 0) float32."""
        return np.empty((len(positions), 0), np.float32)

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the token rows themselves."""
        return token_rows

    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words of a lookup."""
        return JoinedWords(
            title="",
            sum="",
            position="",
            input="input: the token row, the same at every position",
            bag="equal input embeddings: the order is lost.",
        )
