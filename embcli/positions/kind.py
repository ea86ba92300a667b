"""What a kind of positions tells: the layer that it reads, its options, its matrices and its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from embcli.errors import LayerError
from embcli.layer import Layer


@dataclass(frozen=True, eq=False)
class Matrix:
    """A matrix of positions, whose rows are computed when they are asked for."""

    name: str  # in data; empty for a matrix that only a page shows
    rows: Callable[[np.ndarray], np.ndarray]  # numbers of rows (n,) int64 -> (n, *shape)
    columns: np.ndarray  # their numbers, (columns,) int64
    between: tuple[int, ...] = ()  # its dimensions between rows and columns
    dtype: str = "float32"
    heading: str | None = ""  # the line above it on a page; None for a matrix that only data have
    label: str = "pos"  # of the numbers of its rows
    apart: int = 1  # kinds of columns in turn, of which a picture shows no common mean
    numbers: np.ndarray | None = None  # of its rows, (n,) int64; None for those of the chosen positions

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return *self.between, len(self.columns)


@dataclass(frozen=True)
class Words:
    """What the page of `positions` says of a kind; its title is the name and the shape."""

    name: str
    shape: str  # of its matrix
    formula: str
    products: str  # what its dot products show
    note: str = ""  # below its matrices


@dataclass(frozen=True, eq=False)
class Positions(ABC):
    """A kind of positions; a subclass has a field for each of its options, except for `ids`."""

    options: ClassVar[tuple[str, ...]] = ()  # `ids` names the token row that the positions are applied to
    has_layer: ClassVar[bool] = False  # whether it reads a layer, the source's `position`
    default_length: ClassVar[int | None] = None  # T, unless it is given; None for the context length

    dim: int  # D
    opened: Layer | None = None

    @property
    def layer(self) -> Layer:
        """The layer that it reads; raises LayerError if it is not open."""
        if self.opened is None:
            raise LayerError("there is no position layer here")
        return self.opened

    @property
    def columns(self) -> int:
        return self.dim

    def document(self) -> dict[str, Any]:
        """Return its options for the `run` of a JSON document."""
        return {name: getattr(self, name) for name in self.options if name != "ids"}

    def layer_rows(self, length: int) -> int:
        """Return how many rows its layer has for T positions."""
        return length

    def needs_row(self, similarity: bool) -> bool:
        """Say whether its matrices, or its dot products, are computed with a token row."""
        return "ids" in self.options

    @abstractmethod
    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the matrices of T positions, with the chosen `columns` (n,); the first is the default of data formats.

        `row` (1, D) float32 is the token row that the positions are applied to, that of `token_id`.
        """

    @abstractmethod
    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function for the dot products of positions (n,) with others, `to` (m,): (n, m) float32.

        They are summed in float64; `row` (1, D) float32 is the token row that the positions are applied to.
        """

    @abstractmethod
    def words(self, length: int, stored: bool) -> Words:
        """Return the words for T positions; `stored` says whether they come from a checkpoint."""


class AddedPositions(Positions):
    """A kind with a row for each position, (T, D), which is added to the token row."""

    @abstractmethod
    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n,) int64 -> (n, D) float32."""

    @abstractmethod
    def source_in_words(self, first_position: int) -> str:
        """Say where the position rows come from; position 0 has the row `first_position` of its layer."""

    def apart(self, columns: np.ndarray) -> int:
        """Return how many kinds of columns are in turn in its rows, of which a picture shows no common mean."""
        return 1

    def exact(self, positions: np.ndarray) -> np.ndarray:
        return self.rows(positions).astype(np.float64)

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        return [Matrix("position", lambda at: self.rows(at)[:, columns], columns, apart=self.apart(columns))]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        others = self.exact(to).T
        return lambda at: dot_products(self.exact(at), others)


def in_turn(columns: np.ndarray) -> int:
    """Return 2 if even and odd columns are in turn among these numbers, else 1."""
    return 2 if (np.diff(columns) % 2).all() else 1


def dot_products(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the product of (n, D) and (D, m) float64, (n, m) float32."""
    with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite, or its product too large for float32
        products: np.ndarray = (left @ right).astype(np.float32)
    return products


def frequencies(dim: int, theta: float) -> np.ndarray:
    """Return theta^(-2i/D) for each i, (D/2 rounded up,) float64: the angle of pair i at position 1."""
    rates: np.ndarray = theta ** (-2 * np.arange((dim + 1) // 2) / dim)
    return rates
