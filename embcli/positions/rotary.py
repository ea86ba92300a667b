"""Rotary positions, and both of their pairings side by side."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from embcli.errors import LayerError
from embcli.hints import hint
from embcli.names import DEFAULT_THETA, PAIRINGS, Pairing, ShownPairing
from embcli.positions.kind import (
    JoinedPositions,
    JoinedWords,
    Matrix,
    ShownPositions,
    ShownWords,
    dot_products,
    frequencies,
    in_turn,
)
from embcli.recipe import Rotation

_BESIDE = 3  # positions of the products on a page


@final
@dataclass(frozen=True, eq=False)
class Rotary(ShownPositions, JoinedPositions):
    """Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle that grows with the position.

    Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as
    the paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do. A real model rotates
    the first R columns of each head; a token row is rotated as if it were heads side by side, and columns after the
    last whole head stay as they are. Raises LayerError for an odd D, for a theta that is not a finite number from 1,
    and for a head of more than D columns.
    """

    options = ("pairing", "theta", "ids")
    has_own_columns = True

    pairing: Pairing = "interleaved"
    theta: float = DEFAULT_THETA
    rotation: Rotation | None = None  # of a real model; None rotates the row as one head

    def __post_init__(self) -> None:
        if self.rotation is not None:
            if self.head > self.dim:
                what = f"a head of this model has {self.head:,} columns, more than a token row, which has {self.dim:,}"
                raise LayerError(f"{what}: it cannot be rotated")
            return
        if self.dim % 2:
            raise LayerError(f"dim must be even, not {self.dim:,}: rotary positions rotate pairs", parameters=("dim",))
        if not 1 <= self.theta < math.inf:
            raise LayerError(f"theta must be a finite number from 1, not {self.theta:g}", parameters=("theta",))

    @property
    def columns(self) -> int:
        """R/2 angles, one for each pair of columns of a head."""
        return len(self.rates)

    @property
    def head(self) -> int:
        """The columns of a head."""
        return self.rotation.head if self.rotation else self.dim

    @property
    def rates(self) -> np.ndarray:
        """The angle of each pair at position 1, (R/2,) float64."""
        return np.array(self.rotation.rates) if self.rotation else frequencies(self.dim, self.theta)

    def apart(self, columns: np.ndarray) -> int:
        """Return 2 for a rotated row whose pairs are interleaved."""
        return in_turn(columns) if self.pairing == "interleaved" else 1

    @property
    def pairs(self) -> np.ndarray:
        """The two columns of each pair, those of the first head first, (heads x R/2, 2) int64."""
        every = np.arange(2 * self.columns)
        pairs = every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T
        heads = np.arange(self.dim // self.head)[:, None, None] * self.head
        joined: np.ndarray = (heads + pairs).reshape(-1, 2)
        return joined

    def columns_of(self, pairs: np.ndarray) -> np.ndarray:
        """Return the columns of these pairs, in the order of a row, (2n,) int64."""
        columns: np.ndarray = self.pairs[pairs] if self.pairing == "interleaved" else self.pairs[pairs].T
        return columns.reshape(-1)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, in radians, (n, R/2) float32."""
        angles: np.ndarray = (positions[:, None] * self.rates).astype(np.float32)
        return angles

    def exact(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows (n, D), or one for all (1, D), rotated at these positions, (n, D) float64.

        >>> Rotary(2).exact(np.array([[1.0, 0.0]]), np.array([0, 1])).round(4).tolist()
        [[1.0, 0.0], [0.5403, 0.8415]]
        """
        first, second = self.pairs.T
        radians = np.tile(positions[:, None] * self.rates, len(first) // self.columns)  # the same in each head
        factor = self.rotation.attention if self.rotation else 1.0
        cosines, sines = factor * np.cos(radians), factor * np.sin(radians)
        rotated = np.repeat(token_rows, len(positions) // len(token_rows), axis=0).astype(np.float64)
        with np.errstate(invalid="ignore", over="ignore"):  # a weight may be infinite
            rotated[:, first] = token_rows[:, first] * cosines - token_rows[:, second] * sines
            rotated[:, second] = token_rows[:, first] * sines + token_rows[:, second] * cosines
        return rotated

    def joined(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return the rotated token rows, (n, D) float32."""
        return self.exact(token_rows, positions).astype(np.float32)

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the angles of the chosen pairs, and their columns of the rotated token row."""
        rotated = self.columns_of(columns)
        first, second = self.pairs[columns[0]]
        what = f"The row of token ID {token_id}, rotated: columns {first} and {second} are a pair"
        angle_heading = "The angles in radians; one column per pair"
        return [
            Matrix("position", lambda at: self.rows(at)[:, columns], columns, heading=angle_heading),
            Matrix(
                "input",
                lambda at: self.joined(row, at)[:, rotated],
                rotated,
                heading=what,
                apart=self.apart(rotated),
            ),
        ]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what computes the dot products of the token row, rotated at one position, with it at another."""
        others = self.exact(row, to).T
        return lambda at: dot_products(self.exact(row, at), others)

    def document(self) -> dict[str, Any]:
        """Return its options, and what a model says, for the `run` of a JSON document."""
        options = super().document()
        if self.rotation is None:
            return options
        said = {"scaling": self.rotation.scaling or None, "layers": self.rotation.layers or None}
        sizes = {"head_columns": self.head, "rotated_columns": 2 * self.columns}
        return {**options, **sizes, **said, "attention_factor": self.rotation.attention}

    @property
    def _size(self) -> str:
        """The number of angles as a formula."""
        return "R/2" if self.rotation else "D/2"

    @property
    def _formula(self) -> str:
        """What a model does, or what becomes of pair i."""
        pairs = f"pairs are {self.pairing}"
        if self.rotation is None:
            return f"is rotated by p · {self.theta:,.12g}^(-2i/D); {pairs}"
        own, rotated = self.rotation, 2 * self.columns
        columns = f"{f'{rotated:,} of ' if rotated < self.head else ''}the {self.head:,} columns of each head"
        layers = f" in layers of {own.layers}" if own.layers else ""
        scaling = f", {own.scaling}" if own.scaling else ""
        factor = f"; cosines and sines are multiplied by {own.attention:.6g}" if own.attention != 1 else ""
        return f"rotates {columns}{layers}: pair i by p · {own.theta:,.12g}^(-2i/{rotated}){scaling}{factor}; {pairs}"

    @property
    def _note(self) -> str:
        """Where models rotate like this, and how other layers do."""
        other = self.rotation.other if self.rotation else None
        if other is None:
            return "Models rotate queries and keys like this in every layer, not the embedding."
        how = hint("theta", theta=f"{other.theta:.12g}") if other.theta != self.theta else "with another scaling"
        return f"Layers of {other.layers} rotate by theta {other.theta:,.12g}: {how}."

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Rotary positions",
            f"T = {length:,} positions, {self._size} = {self.columns:,} angles",
            f"{'This model' if self.rotation else 'Pair i of the columns'} {self._formula}.",
            "They depend only on the distance: equal along each diagonal.",
            self._note,
        )

    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words of a lookup."""
        of_a_head = " of a head" if self.rotation else ""
        return JoinedWords(
            title=", rotated by position",
            sum=" turned",
            position=f"position: {'the model' if self.rotation else 'pair i'} {self._formula}",
            input="input: the rotated token row. Models rotate queries and keys, not this row.",
            bag="equal token rows, different input embeddings.",
            matrix="angles",
            column="pair",
            width=self._size,
            heading=f"The angles in radians, {self._size} = {self.columns:,}; one column per pair{of_a_head}",
        )


@final
@dataclass(frozen=True, eq=False)
class BothPairings(ShownPositions):
    """Rotary positions in both pairings, of one row whose columns are in the order of each.

    Pair i is columns 2i and 2i + 1 of the interleaved row, and columns i and i + D/2 of the other: the products are
    equal, the columns are not. Raises LayerError as Rotary does.
    """

    options = ("pairing", "theta", "ids")

    pairing: ShownPairing = "both"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        self.kinds()

    def kinds(self) -> tuple[Rotary, Rotary]:
        """Return the kind that interleaves, and the other."""
        interleaved, halves = (Rotary(self.dim, pairing=name, theta=self.theta) for name in PAIRINGS)
        return interleaved, halves

    def in_halves(self, row: np.ndarray) -> np.ndarray:
        """Return a row (1, D) with its even columns first, which makes pairs of halves of those that alternate."""
        interleaved, halves = self.kinds()
        reordered = np.empty_like(row)
        reordered[:, halves.pairs] = row[:, interleaved.pairs]
        return reordered

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the rotated row in both pairings, and for a page some of its products with itself."""
        to = np.arange(min(length, _BESIDE))
        both: list[Matrix] = []
        products: list[Matrix] = []
        for name, kind, own in zip(PAIRINGS, self.kinds(), (row, self.in_halves(row)), strict=True):
            both.append(self._rotated(name, kind, own, columns))
            products.append(Matrix("", kind.products(to, own), to, title=name))
        interleaved, halves = both
        what = f"The columns differ: halves stores the row of token ID {token_id} as 0 2 4 … 1 3 5 …"
        one, at = to[-1:], to[:1]
        wrong = float(self.kinds()[1].products(at, row)(one)[0, 0])
        equal = f"The products q · k are equal; if not reordered, halves has {wrong:.4f} for {one[0]} and 0"
        return [
            replace(interleaved, heading=what, beside=(halves,)),
            halves,
            replace(products[0], heading=equal, beside=(products[1],)),
        ]

    @staticmethod
    def _rotated(name: str, kind: Rotary, row: np.ndarray, columns: np.ndarray) -> Matrix:
        """Return a rotated row at each position, which a page shows under its name."""
        apart = kind.apart(columns)
        return Matrix(name, lambda at: kind.joined(row, at)[:, columns], columns, heading=None, apart=apart, title=name)

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Return what computes the dot products of the rotated row, which both pairings have in common."""
        return self.kinds()[0].products(to, row)

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Both pairings of rotary positions",
            f"T = {length:,} positions, D = {self.dim:,} columns",
            "interleaved rotates columns 2i and 2i + 1 together, halves i and i + D/2.",
            "They depend only on the distance, and are the same in both pairings.",
            f"Both rotate pair i by p · {self.theta:,g}^(-2i/D).",
        )


def model_rotary(rotation: Rotation, dim: int, pairing: Pairing | None) -> Rotary:
    """Return the positions of a model, with another pairing if one is given."""
    return Rotary(dim, pairing=pairing or rotation.pairing, theta=rotation.theta, rotation=rotation)
