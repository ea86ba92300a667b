"""How an encoding arrives at the tokens of a piece of text, step by step."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property


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
