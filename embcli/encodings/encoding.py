"""The interface of encodings, and of the steps by which a text becomes tokens."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from embcli.errors import InputError

if TYPE_CHECKING:
    import numpy as np


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

    @classmethod
    def in_order(cls, steps: list[Step]) -> Derivation:
        """Return the tokens of a piece from left to right, which no merge made."""
        ids = tuple(step.token_id for step in steps if step.token_id is not None)
        return cls((b"".join(step.token for step in steps),), tuple(steps), ids, merges=False)

    @cached_property
    def rows(self) -> list[tuple[int, Step]]:
        """The steps with their numbers from 1; before them, as step 0, the tokens that no merge made."""
        made = {step.token_id for step in self.steps}
        untouched = [(0, Step(b"", token_id)) for token_id in self.ids if token_id not in made]
        return [*untouched, *enumerate(self.steps, 1)]


class Encoding(ABC):
    """What embcli needs of an encoding, from any source; a dialect inherits the defaults that fit it."""

    name: str  # of the encoding, the model or the file
    splits: bool = True  # whether it can split a text
    around: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # IDs that a model reads before and after each text

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """V: IDs are from 0 to V - 1, though some of them may have no token."""

    @abstractmethod
    def encode(self, text: str, special: bool = False) -> np.ndarray:
        """Return the token IDs of a text, (T,) uint32; special tokens are plain text unless `special`."""

    @abstractmethod
    def token_bytes(self, token_id: int) -> bytes | None:
        """Return the bytes of one token, or None if the encoding has no such token."""

    def entry(self, token_id: int) -> bytes | None:
        """Return a token as the vocabulary spells it: its bytes, but `##s` for WordPiece, not `s`."""
        return self.token_bytes(token_id)

    def spans(self, text: str, special: bool = False) -> np.ndarray | None:
        """Return the first and the end character of each token of a text, (T, 2); None if their bytes are the text."""
        return None

    def decode(self, ids: np.ndarray) -> bytes:
        return b"".join(self.token_bytes(token_id) or b"" for token_id in ids.tolist())

    def derivations(self, text: str, special: bool = False) -> Iterator[Derivation]:
        """Yield how each piece of a text becomes tokens; raises InputError if the encoding cannot tell."""
        raise InputError(f"{self.name} does not tell how it splits a text")
