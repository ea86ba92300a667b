"""What a kind of positions tells: the layer that it reads, its options, its matrices and its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

ONLY_THE_DISTANCE = "They depend only on the distance: equal along each diagonal."


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of positions, whose rows are computed when they are asked for."""

    name: str  # in data; empty for a matrix that only a page shows
    rows: Callable[[np.ndarray], np.ndarray]  # numbers of rows (n,) int64 -> (n, *between, columns)
    columns: np.ndarray  # their numbers, (columns,) int64
    between: tuple[int, ...] = ()  # its dimensions between rows and columns
    dtype: str = "float32"
    heading: str | None = ""  # the line above it on a page; None for a matrix that only data have
    label: str = "pos"  # of the numbers of its rows
    apart: int = 1  # kinds of columns in turn, of which a picture shows no common mean
    numbers: np.ndarray | None = None  # of its rows, (n,) int64; None for those of the chosen positions


@dataclass(frozen=True, eq=False)
class Positions(ABC):
    """A kind of positions; a subclass has a field for each of its options, except for `ids`."""

    options: ClassVar[tuple[str, ...]] = ()  # `ids` names the token row that its dot products are computed with
    needs_row: ClassVar[bool] = False  # whether its matrices are computed with that row, too
    has_layer: ClassVar[bool] = False  # whether it reads a layer, the source's `position`
    default_length: ClassVar[int | None] = None  # T, unless it is given; None for the context length
    note: ClassVar[str] = ""  # below its matrices on a page
    alternates = False  # whether sines and cosines are in turn in its rows

    dim: int  # D
    layer: Any = None  # the Layer that it reads, once it is open
    is_stored: bool = False  # in a checkpoint
    row: Any = None  # of the token that it is applied to, (1, D) float32
    token_id: int = 0

    @property
    def columns(self) -> int:
        return self.dim

    @property
    def size(self) -> str:
        return f"D = {self.dim:,} columns"

    @property
    @abstractmethod
    def sentences(self) -> tuple[str, str]:
        """What its formula is, and what its dot products show."""

    def document(self) -> dict[str, Any]:
        """Return what belongs to the `run` of a JSON document."""
        return {name: getattr(self, name) for name in self.options if name != "ids"}

    def matrices(self, length: int, columns: np.ndarray) -> list[Matrix]:
        """Return the matrices of T positions, of these columns (n,); the first is the default of data formats."""
        apart = in_turn(columns) if self.alternates else 1
        return [Matrix("position", lambda at: self.rows(at)[:, columns], columns, apart=apart)]

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n,) int64 -> (n, columns) float32, which are added, or are angles."""
        raise NotImplementedError

    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return what these positions become, (n, D) float64."""
        return self.rows(positions).astype(np.float64)

    def products(self, to: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function for the dot products of positions (n,) with these (m,), in float64: (n, m) float32."""
        others = self.exact(to).T
        return lambda at: dot_products(self.exact(at), others)


def in_turn(columns: np.ndarray) -> int:
    """Return 2 if even and odd columns are in turn among these numbers, else 1."""
    return 2 if (np.diff(columns) % 2).all() else 1


@np.errstate(invalid="ignore", over="ignore")  # a weight may be infinite, or its product too large for float32
def dot_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of (n, D) and (D, m) float64, (n, m) float32."""
    return np.asarray(left @ right, np.float32)


def frequencies(dim: int, theta: float) -> np.ndarray:
    """Return theta^(-2i/D) for each i, (D/2 rounded up,) float64: the angle of pair i at position 1."""
    return np.asarray(theta ** (-2 * np.arange((dim + 1) // 2) / dim))
