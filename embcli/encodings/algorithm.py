"""The interface of what splits a text into tokens of a vocabulary, step by step, and the memory that makes it fast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TypeVar

import numpy as np

LONGEST_CACHED, MOST_CACHED = 64, 1 << 18  # characters of a piece whose tokens are cached, and pieces
NO_TOKEN = -1  # in place of an ID, for a part of a piece that the vocabulary cannot spell

Parts = list[tuple[int, int]]  # IDs, and how many bytes of the piece each of them spells
_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Step:
    """A token that comes of a piece: of two merged neighbours, or of the piece itself."""

    token: bytes
    token_id: int | None  # None if the vocabulary has no such token
    left: bytes | None = None  # the two neighbours that were merged
    right: bytes | None = None
    rank: int | None = None  # of the merge
    score: float | None = None  # of the token


@dataclass(frozen=True)
class Derivation:
    """The steps of a piece: its symbols, what each step makes of them, and the tokens at the end."""

    symbols: tuple[bytes, ...]  # bytes or characters, in order
    steps: tuple[Step, ...]
    ids: tuple[int, ...]
    merges: bool = True  # whether steps are merges; otherwise they are the tokens from left to right

    @cached_property
    def rows(self) -> list[tuple[int, Step]]:
        """The steps with their numbers from 1; before them, as step 0, the tokens that no merge made."""
        made = {step.token_id for step in self.steps}
        untouched = [(0, Step(b"", token_id)) for token_id in self.ids if token_id not in made]
        return [*untouched, *enumerate(self.steps, 1)]

    @classmethod
    def in_order(cls, piece: bytes, steps: Sequence[Step]) -> Derivation:
        """Return the tokens of a piece from left to right, which no merge made."""
        ids = tuple(step.token_id for step in steps if step.token_id is not None)
        return cls((piece,), tuple(steps), ids, merges=False)


class Algorithm(ABC):
    """Splits a text into tokens."""

    @abstractmethod
    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order, as the vocabulary spells them; no token crosses their edges."""

    @abstractmethod
    def parts_of(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the tokens of a text in order, as in `Parts`."""

    def ids(self, text: str) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32."""
        return np.fromiter((token_id for token_id, _ in self.parts_of(text) if token_id != NO_TOKEN), np.uint32)

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the first byte and the end of each token of a text in the pieces, joined."""
        place = 0
        for token_id, length in self.parts_of(text):
            if token_id != NO_TOKEN:
                yield place, place + length
            place += length

    @abstractmethod
    def derivations(self, text: str) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens."""

    def origins(self, text: str) -> Iterable[tuple[int, int]] | None:
        """Return the span in the text of each character of the pieces, joined; None if they are the text's own."""
        return None


class PieceByPiece(Algorithm):
    """The tokens of a piece depend on nothing around it."""

    def __init__(self) -> None:
        self._parts: dict[str, Parts] = Cache(self.parts)
        self._ids: dict[str, tuple[int, ...]] = Cache(self.ids_of)

    @abstractmethod
    def parts(self, piece: str) -> Parts:
        """Return the tokens of a piece in order."""

    @abstractmethod
    def derivation(self, piece: str) -> Derivation:
        """Return how a piece becomes tokens."""

    def derivations(self, text: str) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens."""
        return map(self.derivation, self.pieces(text))

    def ids(self, text: str) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; a fifth faster than from the parts."""
        return np.fromiter(chain.from_iterable(map(self._ids.__getitem__, self.pieces(text))), np.uint32)

    def parts_of(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the tokens of a text in order, as in `Parts`."""
        return chain.from_iterable(map(self._parts.__getitem__, self.pieces(text)))

    def ids_of(self, piece: str) -> tuple[int, ...]:
        """Return the token IDs of a piece in order."""
        return tuple(token_id for token_id, _ in self.parts(piece) if token_id != NO_TOKEN)


class Cache(dict[str, _Value]):
    """What a function returns for pieces; that of short ones is kept."""

    def __init__(self, function: Callable[[str], _Value]) -> None:
        self._function = function

    def __missing__(self, piece: str) -> _Value:
        value = self._function(piece)
        if len(piece) <= LONGEST_CACHED and len(self) < MOST_CACHED:
            self[piece] = value
        return value
