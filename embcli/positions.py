"""How a position becomes a vector, and how that joins a token's row: added, rotating it, or not at all."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np

    from embcli.weights import Layer


class Positions(Protocol):
    """What a lookup asks of a kind of positions."""

    @property
    def columns(self) -> int | None:
        """How many numbers tell of a position: D, or D/2 angles; None where positions have no matrix."""

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return what tells of these positions, (n,) int64 -> (n, columns) float32."""

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the input embeddings of token rows (n, D) at these positions (n,), (n, D) float32."""


@dataclass(frozen=True)
class Learned:
    """Absolute positions as GPT-2 has them: each has a row of a layer of its own, which is added."""

    layer: Layer  # (C, D)

    @property
    def columns(self) -> int:
        """D, as many as the token's row has."""
        return self.layer.shape[1]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float32."""
        return self.layer.rows(positions)

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows + position rows, (n, D) float32."""
        joined: np.ndarray = token_rows + self.rows(positions)
        return joined
