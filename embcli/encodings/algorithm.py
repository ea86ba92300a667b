"""The interface of what splits a text into tokens of a vocabulary, and the memory that makes it fast."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from embcli.encodings.derivation import Derivation

LONGEST_KEPT, MOST_KEPT = 64, 1 << 18  # characters of a piece whose tokens are kept, and pieces
NO_TOKEN = -1  # in place of an ID, for a part of a piece that the vocabulary cannot spell

Parts = list[tuple[int, int]]  # IDs, and how many bytes of the piece each of them spells
_Value = TypeVar("_Value")


class Algorithm(ABC):
    """Splits a text into tokens."""

    @abstractmethod
    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order, as the vocabulary spells them; no token crosses their edges."""

    @abstractmethod
    def ids(self, text: str) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32."""

    @abstractmethod
    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the first byte and the end of each token of a text in the pieces, joined."""

    @abstractmethod
    def derivations(self, text: str) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens."""

    def origins(self, text: str) -> Iterable[tuple[int, int]] | None:
        """Return the span in the text of each character of the pieces, joined; None if they are the text's own."""
        return None


class PieceByPiece(Algorithm):
    """The tokens of a piece depend on nothing around it."""

    def __init__(self) -> None:
        self._parts: dict[str, Parts] = Kept(self.parts)
        self._ids: dict[str, tuple[int, ...]] = Kept(self._ids_of)

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
        """Return the token IDs of a text, (T,) uint32."""
        return np.fromiter(chain.from_iterable(map(self._ids.__getitem__, self.pieces(text))), np.uint32)

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the first byte and the end of each token of a text in the pieces, joined."""
        place = 0
        for piece in self.pieces(text):
            for token_id, length in self._parts[piece]:
                if token_id != NO_TOKEN:
                    yield place, place + length
                place += length

    def _ids_of(self, piece: str) -> tuple[int, ...]:
        return tuple(token_id for token_id, _ in self.parts(piece) if token_id != NO_TOKEN)


class Kept(dict[str, _Value]):
    """What a function returns for pieces; that of short ones is kept."""

    def __init__(self, function: Callable[[str], _Value]) -> None:
        self._function = function

    def __missing__(self, piece: str) -> _Value:
        value = self._function(piece)
        if len(piece) <= LONGEST_KEPT and len(self) < MOST_KEPT:
            self[piece] = value
        return value
