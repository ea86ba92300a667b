"""Positions that attention adds to its scores: ALiBi's biases, and the buckets of T5's relative positions."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, final

import numpy as np

from embcli.errors import InputError, LayerError
from embcli.names import DEFAULT_HEADS, MOST_HEADS, SHORT_LENGTH
from embcli.positions.kind import Matrix, ShownPositions, ShownWords

_NOTE = "Blocks add this to the scores of attention; nothing is added to the token rows."


class Biases(ShownPositions):
    """A kind with a row for each distance, which attention adds to its scores; it has no dot products."""

    default_length = SHORT_LENGTH
    dtype: ClassVar[str] = "float32"

    @abstractmethod
    def rows(self, distances: np.ndarray) -> np.ndarray:
        """Return the rows of these distances, (n,) int64 -> (n, columns)."""

    def matrices(self, length: int, columns: np.ndarray, token_id: int, row: np.ndarray) -> list[Matrix]:
        """Return the rows of the distances below T."""
        name = "position" if self.dtype == "float32" else "bucket"
        return [Matrix(name, lambda at: self.rows(at)[:, columns], columns, dtype=self.dtype, label="distance")]

    def products(self, to: np.ndarray, row: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Raise InputError: biases have no dot products."""
        raise InputError(
            "similarity shows dot products, which biases of attention do not have", parameters=("similarity",)
        )


@final
@dataclass(frozen=True, eq=False)
class Alibi(Biases):
    """ALiBi of Press et al. 2022, section 3: each head subtracts its slope times the distance from a score.

    The slopes of H heads, H a power of two, are 2^(-8/H), 2^(-16/H) and so on; for another H the slopes of the next
    smaller power come first, then every other one of the next larger. Raises LayerError for an H out of range.
    """

    options = ("heads",)

    heads: int = DEFAULT_HEADS  # H
    steepest: float = 8.0  # the last slope of a power of two is 2 to minus this

    def __post_init__(self) -> None:
        if not 1 <= self.heads <= MOST_HEADS:
            raise LayerError(f"heads must be from 1 to {MOST_HEADS:,}, not {self.heads:,}", parameters=("heads",))

    @property
    def columns(self) -> int:
        """H, one for each head."""
        return self.heads

    @property
    def slopes(self) -> np.ndarray:
        """The slope of each head, (H,) float64.

        >>> Alibi(4, heads=3).slopes.tolist()
        [0.0625, 0.00390625, 0.25]
        """
        power = 1 << self.heads.bit_length() - 1
        first = 2.0 ** (-self.steepest * np.arange(1, power + 1) / power)
        more = 2.0 ** (-self.steepest * np.arange(1, 2 * (self.heads - power), 2) / (2 * power))
        return np.concatenate([first, more])

    def rows(self, distances: np.ndarray) -> np.ndarray:
        """Return the biases of these distances in each head, (n, H) float32."""
        biases: np.ndarray = 0.0 - distances[:, None] * self.slopes
        return biases.astype(np.float32)

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "ALiBi positions",
            f"T = {length:,} positions, H = {self.heads:,} heads",
            "Row d: what attention adds to the score of a token d positions back, -slope · d; one column per head.",
            "",
            _NOTE,
        )


@final
@dataclass(frozen=True, eq=False)
class Buckets(Biases):
    """The buckets of relative positions of Raffel et al. 2020 (T5), section 2.1: each has a learned bias in each head.

    Half of a direction's buckets are single distances; the others grow with the logarithm up to `furthest`, and the
    last one takes all larger distances.
    """

    options = ("buckets", "furthest")
    dtype = "int64"

    buckets: int = 32
    furthest: int = 128

    @property
    def columns(self) -> int:
        """Three: a token back and ahead in the encoder, and back in the decoder, which looks at no token ahead."""
        return 3

    def rows(self, distances: np.ndarray) -> np.ndarray:
        """Return the buckets of these distances, (n, 3) int64."""
        back = self._of_direction(distances, self.buckets // 2)
        ahead = np.where(distances > 0, back + self.buckets // 2, 0)
        return np.stack([back, ahead, self._of_direction(distances, self.buckets)], axis=1)

    def _of_direction(self, distances: np.ndarray, buckets: int) -> np.ndarray:
        """Return the buckets of distances in one direction, (n,) int64, in float32 as the model computes them."""
        exact = max(buckets // 2, 1)
        ratio = np.log(np.maximum(distances, 1).astype(np.float32) / np.float32(exact))
        scaled = ratio / np.float32(math.log(max(self.furthest / exact, 1 + 1e-6))) * np.float32(buckets - exact)
        large = np.minimum(exact + scaled.astype(np.int64), buckets - 1)
        return np.where(distances < exact, distances, large)

    def shown_words(self, length: int, stored: bool) -> ShownWords:
        """Return the words for T positions."""
        return ShownWords(
            "Relative positions of T5",
            f"T = {length:,} distances, {self.buckets:,} buckets",
            "Row d: the bucket of a token d positions back (column 0) and ahead (1) in the encoder, and back in the "
            "decoder (2).",
            "",
            f"Each bucket has a learned bias in each head. {_NOTE}",
        )
