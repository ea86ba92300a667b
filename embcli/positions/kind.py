"""What the kinds of positions have in common: their matrices, sentences for a page, similarities.

Matrices are computed when their rows are asked for, so that many positions cost nothing until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from embcli.layer import RowsOf
from embcli.names import Shape, Similarity
from embcli.wording import counted


class PositionMatrix(NamedTuple):
    """A matrix of positions; its rows are computed when they are asked for."""

    name: str
    rows: RowsOf
    columns: np.ndarray  # (columns,) int64: their numbers
    middle_shape: Shape = ()  # the dimensions between rows and columns
    dtype: str = "float32"
    heading: str = ""  # the line above it on a page
    label: str = "pos"  # what the row numbers are
    is_angle: bool = False  # whether colours show cosines: numbers that differ by 2 pi are equal
    row_numbers: np.ndarray = np.empty(0, np.int64)  # (n,); empty for the chosen positions


class ShownPositions(NamedTuple):
    """What is shown of a kind of positions; data formats take the first matrix by default."""

    name: str  # as a heading begins with it
    size: str  # how long a row is, in words
    formula: str
    matrices: list[PositionMatrix]
    # The similarities with other positions, (m,) -> positions (n,) -> (n, m) float32.
    similarities: Callable[[np.ndarray], RowsOf]
    meaning: str  # what the similarities mean, in lines
    note: str = ""  # a line below the matrices
    tables: Sequence[PositionMatrix] = ()  # those of a page, if it has others
    letter: str = "T"  # how many positions there are: C if a layer says it
    similar_to: str = ""  # what the similarities are with, if that is no position


def added_rows(
    name: str,
    rows: RowsOf,
    dim: int,
    columns: np.ndarray,
    metric: Similarity,
    formula: str,
    meaning: str,
) -> ShownPositions:
    """Return positions whose rows, (n, D), are added to token rows."""

    def chosen_columns(positions: np.ndarray) -> np.ndarray:  # (n,) -> (n, columns)
        return rows(positions)[:, columns].astype(np.float32)

    return ShownPositions(
        name=name,
        size=f"D = {counted(dim, 'column')}",
        formula=formula,
        matrices=[PositionMatrix("position", chosen_columns, columns)],
        similarities=similarities_of(rows, metric),
        meaning=meaning,
    )


def similarities_of(vectors: RowsOf, metric: Similarity) -> Callable[[np.ndarray], RowsOf]:
    """Return the similarities of positions that have vectors, (n, D)."""

    def similarities(others: np.ndarray) -> RowsOf:
        other_vectors = vectors(others)
        return lambda positions: products(vectors(positions), other_vectors, metric)

    return similarities


def products(left: np.ndarray, right: np.ndarray, metric: Similarity) -> np.ndarray:
    """Return the dot products, or cosines, of (n, D) and (m, D) in float64: (n, m) float32.

    A cosine with a row of zeros is NaN.
    """
    left = left.astype(np.float64)
    right = right.astype(np.float64)
    # A weight may be infinite, and a product may be too large for float32.
    with np.errstate(invalid="ignore", over="ignore"):
        match metric:
            case "dot":
                pass
            case "cosine":
                left = left / np.linalg.norm(left, axis=1, keepdims=True)
                right = right / np.linalg.norm(right, axis=1, keepdims=True)
        return np.asarray(left @ right.T, np.float32)


def frequencies(dim: int, theta: float) -> np.ndarray:
    """Return theta^(-2i/D) for each pair i, (D/2 rounded up,) float64.

    It is the angle of pair i at position 1.
    """
    return theta ** (-2 * np.arange((dim + 1) // 2) / dim)
