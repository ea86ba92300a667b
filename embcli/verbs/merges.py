"""How an encoding arrives at the tokens of a text: the merges of each piece, or its longest or best tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from embcli.encodings.encoding import Derivation, Step
from embcli.errors import InputError
from embcli.records import Names, Piece, Records, run_of
from embcli.result import Result
from embcli.tokens import Tokens, token_text

_TYPES: dict[str, type] = {"step": int, "left": str, "right": str, "rank": int, "score": float, "id": int, "token": str}
_PIECE = 1 << 12  # pieces of a text


@dataclass(frozen=True, eq=False)
class Merges(Result, verb="merges", content="list"):
    """The steps of each piece of a text."""

    tokens: Tokens
    pieces: tuple[Derivation, ...]
    draw: bool = False  # show each piece as a tree

    @property
    def ids(self) -> list[int]:
        """The token IDs at the end, which are the encoding's own."""
        return [token_id for piece in self.pieces for token_id in piece.ids]

    @property
    def fields(self) -> dict[str, type]:
        """The fields of a row by name, those that this kind of encoding has."""
        used = {"step", "id", "token"}
        for piece in self.pieces:
            used |= {"left", "right"} if piece.merges else set()
            used |= {name for step in piece.steps for name in ("rank", "score") if getattr(step, name) is not None}
        return {"piece": int, **{name: kind for name, kind in _TYPES.items() if name in used}}

    def records(self) -> Records:
        """Return a row for each step of each piece."""
        run = run_of(self.tokens.encoding, pieces=len(self.pieces))
        return Records(run, "steps", sum(len(piece.rows) for piece in self.pieces), self.fields, self._pieces)

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        for start in range(0, len(self.pieces), _PIECE):
            rows = [
                self._row(number, step, each)
                for number, piece in enumerate(self.pieces[start : start + _PIECE], start)
                for step, each in piece.rows
            ]
            yield Piece(len(rows), {name: [row[name] for row in rows] for name in fields})

    def _row(self, piece: int, number: int, step: Step) -> dict[str, Any]:
        """Return a step as a row; tokens are texts as everywhere."""
        return {
            "piece": piece,
            "step": number,
            "left": token_text(step.left),
            "right": token_text(step.right),
            "rank": step.rank,
            "score": step.score,
            "id": step.token_id,
            "token": token_text(self.spelled(step)),
        }

    def spelled(self, step: Step) -> bytes | None:
        """Return the bytes of the token that a step makes."""
        if step.left is not None or self.tokens.encoding is None or step.token_id is None:
            return step.token
        return self.tokens.encoding.token_bytes(step.token_id)  # of a part that is unknown, not that part


def merges(tokens: Tokens, texts: tuple[str, ...], special: bool = False, draw: bool = False) -> Merges:
    """Return the steps from the pieces of texts to their tokens.

    Raises InputError for IDs, for an encoding that does not tell its steps, and for steps that lead to other tokens.
    """
    if tokens.encoding is None or not tokens.from_text:
        raise InputError("only a text has merges, not its IDs")
    pieces = tuple(piece for text in texts for piece in tokens.encoding.derivations(text, special))
    derived = [token_id for piece in pieces for token_id in piece.ids]
    own = tokens.ids.tolist()
    if derived != own:
        place = next((k for k, pair in enumerate(zip(derived, own, strict=False)) if pair[0] != pair[1]), len(derived))
        raise InputError(
            f"the steps of {tokens.encoding.name} lead to other tokens than its own, from token {place:,} on"
        )
    return Merges(tokens, pieces, draw)
