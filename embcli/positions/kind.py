"""What a kind of positions tells: the layer that it reads, its options, its matrices and its words."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np

from embcli.errors import LayerError
from embcli.layer import Layer

Own = TypeVar("Own", bound="Positions")


@dataclass(frozen=True, eq=False)
class Positions(ABC):
    """A kind of positions; a subclass has a field for each of its options, except for `ids`."""

    options: ClassVar[tuple[str, ...]] = ()  # `ids` names the token row that `positions` applies the kind to
    has_layer: ClassVar[bool] = False  # whether it reads a layer, the source's `position`

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
        """How many columns its matrix has."""
        return self.dim

    def apart(self, columns: np.ndarray) -> int:
        """Return how many kinds of columns are in turn in its rows, of which a picture shows no common mean."""
        return 1

    @classmethod
    def of(cls: type[Own], dim: int, values: Mapping[str, Any]) -> Own:
        """Return positions of this kind with its options among the given values; None stands for a default."""
        return cls(dim, **{name: values[name] for name in cls._fields() if values.get(name) is not None})

    def document(self) -> dict[str, Any]:
        """Return its options for the `run` of a JSON document."""
        return {name: getattr(self, name) for name in self._fields()}

    @classmethod
    def _fields(cls) -> tuple[str, ...]:
        return tuple(name for name in cls.options if name != "ids")


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
    title: str = ""  # of its columns on a page
    beside: tuple[Matrix, ...] = ()  # matrices of the same columns that a page shows beside it

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of a row."""
        return *self.between, len(self.columns)


@dataclass(frozen=True)
class ShownWords:
    """What the page of `positions` says of a kind; its title is the name and the shape."""

    name: str
    shape: str  # of its matrix
    formula: str
    products: str  # what its dot products show
    note: str = ""  # below its matrices


class ShownPositions(Positions):
    """A kind that the verb `positions` shows."""

    is_stored: ClassVar[bool] = False  # whether a checkpoint's position layer contains it
    default_length: ClassVar[int | None] = None  # T, unless it is given; None for the context length

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
    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions; `stored` says whether they come from a checkpoint."""


@dataclass(frozen=True)
class JoinedWords:
    """What the page of `lookup` says of a kind."""

    title: str  # what follows "Input embeddings = token embeddings"
    sum: str  # what follows "token" in the formula of an input embedding
    position: str  # where the rows of its matrix come from; empty if it has no matrix
    input: str  # how an input embedding is made
    bag: str  # what two orders of the same tokens have in common
    matrix: str = "embeddings"  # what the rows of its matrix are
    column: str = "column"  # what a column of its matrix stands for
    width: str = "D"  # how many columns its matrix has, as a formula
    heading: str = ""  # the line above its matrix, if that has other columns than the token rows


class JoinedPositions(Positions):
    """A kind that a lookup can join to token rows."""

    has_matrix: ClassVar[bool] = True
    adds: ClassVar[bool] = False  # whether an input embedding is a token row plus a position row
    has_own_columns: ClassVar[bool] = False  # whether the columns of its matrix are others than those of a token row

    @abstractmethod
    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of its matrix for these positions, (n,) int64 -> (n, columns) float32."""

    @abstractmethod
    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the input embeddings of token rows (n, D) at these positions (n,), (n, D) float32."""

    @abstractmethod
    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words; position 0 has the row `first_position` of its layer."""


class AddedPositions(ShownPositions, JoinedPositions):
    """A kind with a row for each position, (T, D), which is added to the token row."""

    adds = True

    def exact(self, positions: np.ndarray) -> np.ndarray:
        """Return the rows of these positions, (n, D) float64."""
        return self.rows(positions).astype(np.float64)

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows + position rows, (n, D) float32."""
        sums: np.ndarray = token_rows + self.rows(positions)
        return sums

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the position rows."""
        return [Matrix("position", lambda at: self.rows(at)[:, columns], columns, apart=self.apart(columns))]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return a function for the dot products of position rows."""
        others = self.exact(to).T
        return lambda at: dot_products(self.exact(at), others)

    @abstractmethod
    def source_in_words(self, first_position: int) -> str:
        """Say where the position rows come from; position 0 has the row `first_position` of its layer."""

    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words of a lookup."""
        return JoinedWords(
            title=" + position embeddings",
            sum=" + position",
            position=f"position: {self.source_in_words(first_position)}",
            input="input: the token row plus the position row",
            bag="equal token rows, different input embeddings.",
        )


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
