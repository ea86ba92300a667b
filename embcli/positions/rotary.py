"""Rotary positions."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, final

import numpy as np

from embcli.errors import LayerError
from embcli.hints import hint
from embcli.names import DEFAULT_THETA, Pairing
from embcli.positions.kind import (
    JoinedPositions,
    JoinedWords,
    Matrix,
    ShownPositions,
    ShownWords,
    angles,
    dot_products,
    in_turn,
)
from embcli.words import naming

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.recipe import Rotation


@dataclass(frozen=True, eq=False)
class Rotary(ShownPositions, JoinedPositions):
    """Rotary positions of Su et al. 2021: pairs of columns are rotated by an angle that grows with the position.

    Pair i is rotated by position · theta^(-2i/D). Models pair columns in two ways: `interleaved`, 2i with 2i + 1, as
    the paper and GPT-J do, and `halves`, i with i + D/2, as GPT-NeoX and Llama's usual files do. Raises LayerError for
    an odd D, and for a theta that is not a finite number from 1.
    """

    options = ("pairing", "theta", "ids")
    width = "D/2"

    pairing: Pairing = "interleaved"
    theta: float = DEFAULT_THETA

    def __post_init__(self) -> None:
        if self.dim % 2:
            raise LayerError(naming("{dim} must be even, not {given:,}: rotary positions rotate pairs", given=self.dim))
        if not 1 <= self.theta < math.inf:
            raise LayerError(naming("{theta} must be a finite number from 1, not {given:g}", given=self.theta))

    @property
    def columns(self) -> int:
        """D/2 angles, one for each pair of columns."""
        return self.dim // 2

    @property
    def attention(self) -> float:
        """What cosines and sines are multiplied by."""
        return 1.0

    def apart(self, columns: np.ndarray) -> int:
        """Return 2 for a rotated row whose pairs are interleaved."""
        return in_turn(columns) if self.pairing == "interleaved" else 1

    @property
    def pairs(self) -> np.ndarray:
        """The two columns of each pair, (D/2, 2) int64."""
        every = np.arange(self.dim)
        return every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T

    def columns_of(self, pairs: np.ndarray) -> np.ndarray:
        """Return the columns of these pairs, in the order of a row, (2n,) int64."""
        columns: np.ndarray = self.pairs[pairs] if self.pairing == "interleaved" else self.pairs[pairs].T
        return columns.reshape(-1)

    def rows(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, in radians, (n, D/2) float32."""
        return self.radians(positions).astype(np.float32)

    def radians(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, (n, D/2) float64."""
        return angles(positions, self.dim, self.theta)

    def exact(self, token_rows: np.ndarray, positions: np.ndarray) -> np.ndarray:
        """Return token rows (n, D), or one for all (1, D), rotated at these positions, (n, D) float64.

        >>> Rotary(2).exact(np.array([[1.0, 0.0]]), np.array([0, 1])).round(4).tolist()
        [[1.0, 0.0], [0.5403, 0.8415]]
        """
        first, second = self.pairs.T
        radians = np.tile(self.radians(positions), len(first) // self.columns)  # the same in each head
        cosines, sines = np.cos(radians) * self.attention, np.sin(radians) * self.attention
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

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Rotary positions",
            f"T = {length:,} positions, D/2 = {self.columns:,} angles",
            f"Pair i of the columns is rotated by p · {self.theta:,.12g}^(-2i/D); pairs are {self.pairing}.",
            "They depend only on the distance: equal along each diagonal.",
            "Models rotate queries and keys like this in every layer, not the embedding.",
        )

    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words of a lookup."""
        return JoinedWords(
            title=", rotated by position",
            sum=" turned",
            position=f"position: pair i is rotated by p · {self.theta:,.12g}^(-2i/D); pairs are {self.pairing}",
            input="input: the rotated token row. Models rotate queries and keys, not this row.",
            bag="equal token rows, different input embeddings.",
            matrix="angles",
            column="pair",
            heading=f"The angles in radians, D/2 = {self.columns:,}; one column per pair",
        )


@final
@dataclass(frozen=True, eq=False)
class OwnRotary(Rotary):
    """The rotary positions of a real model, which rotate the columns of each head alike, perhaps not all of them.

    A token row is rotated as if it were heads side by side; columns after the last whole head stay as they are.
    """

    width = "R/2"

    rotation: Rotation | None = None

    def __post_init__(self) -> None:
        if self.own.head > self.dim:
            what = f"a head of this model has {self.own.head:,} columns, more than a token row, which has {self.dim:,}"
            raise LayerError(f"{what}: it cannot be rotated")

    @property
    def own(self) -> Rotation:
        """What the model says; raises LayerError if it says nothing."""
        if self.rotation is None:
            raise LayerError("this model says nothing of rotary positions")
        return self.rotation

    @property
    def columns(self) -> int:
        """R/2 angles, one for each pair of columns of a head."""
        return len(self.own.rates)

    @property
    def attention(self) -> float:
        """What the model multiplies cosines and sines by; some scalings do."""
        return self.own.attention

    @property
    def pairs(self) -> np.ndarray:
        """The two columns of each pair, those of the first head first, (heads x R/2, 2) int64."""
        every = np.arange(2 * self.columns)
        pairs = every.reshape(-1, 2) if self.pairing == "interleaved" else every.reshape(2, -1).T
        heads = np.arange(self.dim // self.own.head)[:, None, None] * self.own.head
        joined: np.ndarray = (heads + pairs).reshape(-1, 2)
        return joined

    def radians(self, positions: np.ndarray) -> np.ndarray:
        """Return the angles of these positions, (n, R/2) float64."""
        radians: np.ndarray = positions[:, None] * np.array(self.own.rates)
        return radians

    def document(self) -> dict[str, Any]:
        """Return its options and what the model says for the `run` of a JSON document."""
        return {
            **super().document(),
            "head_columns": self.own.head,
            "rotated_columns": 2 * self.columns,
            "scaling": self.own.scaling or None,
            "attention_factor": self.own.attention,
            "layers": self.own.layers or None,
        }

    @property
    def _said(self) -> str:
        rotated, scaling = 2 * self.columns, f", {self.own.scaling}" if self.own.scaling else ""
        share = f"{rotated:,} of " if rotated < self.own.head else ""
        columns = f"{share}the {self.own.head:,} columns of each head"
        layers = f" in layers of {self.own.layers}" if self.own.layers else ""
        factor = f"; cosines and sines are multiplied by {self.attention:.6g}" if self.attention != 1 else ""
        angle = f"pair i by p · {self.theta:,.12g}^(-2i/{rotated}){scaling}{factor}"
        return f"{columns}{layers}: {angle}; pairs are {self.pairing}"

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        words, shape = super().shown_words(length, stored), f"T = {length:,} positions, R/2 = {self.columns:,} angles"
        note, other = words.note, self.own.other
        if other is not None:
            how = hint("theta", theta=f"{other.theta:.12g}") if other.theta != self.theta else "with another scaling"
            note = f"Layers of {other.layers} rotate by theta {other.theta:,.12g}: {how}."
        return replace(words, shape=shape, formula=f"This model rotates {self._said}.", note=note)

    def joined_words(self, first_position: int) -> JoinedWords:
        """Return the words of a lookup."""
        words = super().joined_words(first_position)
        heading = f"The angles in radians, R/2 = {self.columns:,}; one column per pair of a head"
        return replace(words, position=f"position: the model rotates {self._said}", heading=heading)


def own_rotary(rotation: Rotation, dim: int, pairing: Pairing | None) -> OwnRotary:
    """Return the positions of a model, with another pairing if one is given."""
    return OwnRotary(dim, pairing=pairing or rotation.pairing, theta=rotation.theta, rotation=rotation)
