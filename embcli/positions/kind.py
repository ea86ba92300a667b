"""What the kinds of positions have in common: their matrices, sentences for a page, dot products.

Matrices are computed when their rows are asked for, so that many positions cost nothing until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Rows = Callable[[np.ndarray], np.ndarray]  # row numbers (n,) int64 -> rows (n, ..., columns)
ONLY_THE_DISTANCE = "They depend only on the distance: equal along each diagonal."


class PositionMatrix(NamedTuple):
    """A matrix of positions; its rows are computed when they are asked for."""

    name: str  # its name in data; empty for a matrix that only a page shows
    rows: Rows
    columns: np.ndarray  # (columns,) int64: their numbers
    middle_shape: tuple[int, ...] = ()  # the dimensions between rows and columns
    dtype: str = "float32"
    heading: str | None = ""  # the line above it on a page; None if only data has it
    label: str = "pos"  # what the row numbers are
    column_period: int = 1  # kinds of columns that alternate, such as sines and cosines
    row_numbers: np.ndarray | None = None  # (n,) int64; None for the chosen positions


class ShownPositions(NamedTuple):
    """What is shown of a kind of positions; data formats take the first matrix by default."""

    size: str  # how long a row is, in words
    formula: str
    matrices: list[PositionMatrix]
    # The dot products with other positions, (m,) -> positions (n,) -> (n, m) float32.
    products: Callable[[np.ndarray], Rows]
    meaning: str  # what the dot products mean
    note: str = ""  # a line below the matrices


def in_turn(columns: np.ndarray) -> int:
    """Return the period of columns with these numbers: 2 if even and odd ones alternate, else 1."""
    return 2 if (np.diff(columns) % 2).all() else 1


def products_of(vectors: Rows) -> Callable[[np.ndarray], Rows]:
    """Return the dot products of positions that have vectors, (n, D) float64."""

    def products(others: np.ndarray) -> Rows:
        other_vectors = vectors(others).T
        return lambda positions: dot_products(vectors(positions), other_vectors)

    return products


def dot_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of (n, D) and (D, m) float64, (n, m) float32."""
    # A weight may be infinite, and a product may be too large for float32.
    with np.errstate(invalid="ignore", over="ignore"):
        return np.asarray(left @ right, np.float32)


def frequencies(dim: int, theta: float) -> np.ndarray:
    """Return theta^(-2i/D) for each pair i, (D/2 rounded up,) float64.

    It is the angle of pair i at position 1.
    """
    pairs = np.arange((dim + 1) // 2)
    return theta ** (-2 * pairs / dim)
