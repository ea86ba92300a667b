"""What the kinds of positions have in common: a matrix of theirs, what a page shows of them, dot products."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

Rows = Callable[[np.ndarray], np.ndarray]  # numbers of rows (n,) int64 -> (n, *between, columns)
ONLY_THE_DISTANCE = "They depend only on the distance: equal along each diagonal."


class PositionMatrix(NamedTuple):
    """A matrix of positions, whose rows are computed when they are asked for."""

    name: str  # in data; empty for a matrix that only a page shows
    rows: Rows
    columns: np.ndarray  # their numbers, (columns,) int64
    between: tuple[int, ...] = ()  # its dimensions between rows and columns
    dtype: str = "float32"
    heading: str | None = ""  # the line above it on a page; None for a matrix that only data have
    label: str = "pos"  # of the numbers of its rows
    column_period: int = 1  # kinds of columns in turn, of which a picture shows no common mean
    numbers: np.ndarray | None = (
        None  # of its rows, (n,) int64; None for those of the chosen positions
    )


class Shown(NamedTuple):
    """What a kind shows; the first of its matrices is the default of data formats."""

    size: str  # of a row
    formula: str
    matrices: list[PositionMatrix]
    products: Callable[
        [np.ndarray], Rows
    ]  # dot products of these positions (m,) with others, (n,) -> (n, m) float32
    meaning: str  # of its dot products
    note: str = ""  # below its matrices


def in_turn(columns: np.ndarray) -> int:
    """Return 2 if even and odd columns are in turn among these numbers, else 1."""
    return 2 if (np.diff(columns) % 2).all() else 1


def products_of(vectors: Rows) -> Callable[[np.ndarray], Rows]:
    """Return the dot products of positions that become vectors, (n, D) float64."""

    def products(to: np.ndarray) -> Rows:
        others = vectors(to).T
        return lambda at: dot_products(vectors(at), others)

    return products


@np.errstate(
    invalid="ignore", over="ignore"
)  # a weight may be infinite, or its product too large for float32
def dot_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of (n, D) and (D, m) float64, (n, m) float32."""
    return np.asarray(left @ right, np.float32)


def frequencies(dim: int, theta: float) -> np.ndarray:
    """Return theta^(-2i/D) for each i, (D/2 rounded up,) float64: the angle of pair i at position 1."""
    return theta ** (-2 * np.arange((dim + 1) // 2) / dim)
