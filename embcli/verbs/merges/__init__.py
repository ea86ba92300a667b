"""How an encoding arrives at the tokens of a text: by merges, or by its longest or best tokens.

`merges` makes a Merges, which is plain data. `page` shows its steps as a table, or each piece as a
line or as a `tree`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from embcli.encodings.merging import Derivation, DerivationStep
from embcli.errors import InputError
from embcli.opened import Opened, TextOrIds
from embcli.records import Document, Records, listed, run_of
from embcli.result import Result
from embcli.tokens import Tokens, token_text

# The fields of a row; some encodings have no merges, and a merge has a rank or a score.
_FIELD_TYPES: dict[str, type] = {
    "piece": int,
    "step": int,
    "left": str,
    "right": str,
    "rank": int,
    "score": float,
    "id": int,
    "token": str,
}


class StepRow(NamedTuple):
    """A step of a piece."""

    piece: int  # its number, from 0
    number: int  # from 1; 0 for a token that no merge made
    step: DerivationStep


def step_rows(pieces: Iterable[Derivation]) -> list[StepRow]:
    """Return the steps of all pieces, in order."""
    rows = []
    for piece_number, piece in enumerate(pieces):
        rows += [StepRow(piece_number, number, step) for number, step in piece.rows]
    return rows


@dataclass(frozen=True, eq=False)
class Merges(Result, verb="merges"):
    """The steps by which each piece of a text becomes tokens."""

    tokens: Tokens
    pieces: tuple[Derivation, ...]
    draw: bool = True  # show each piece as a tree, not the steps as a table

    @property
    def ids(self) -> list[int]:
        """The token IDs at the end, which are the encoding's own."""
        return [token_id for piece in self.pieces for token_id in piece.ids]

    @property
    def has_merges(self) -> bool:
        """Whether this kind of encoding joins parts of a piece."""
        return any(piece.merges for piece in self.pieces)

    @property
    def fields(self) -> dict[str, type]:
        """The type of each field of a row, by name: of those that this kind of encoding has."""
        steps = [step for piece in self.pieces for step in piece.steps]
        used = {"piece", "step", "id", "token"}
        if self.has_merges:
            used |= {"left", "right"}
        if any(step.rank is not None for step in steps):
            used.add("rank")
        if any(step.score is not None for step in steps):
            used.add("score")
        return {name: kind for name, kind in _FIELD_TYPES.items() if name in used}

    def records(self) -> Records:
        rows = [self._values(row) for row in step_rows(self.pieces)]
        columns = {}
        for name, kind in self.fields.items():
            columns[name] = (kind, [row[name] for row in rows])
        run = run_of(self.tokens.encoding, pieces=len(self.pieces))
        return listed(run, "steps", **columns)

    def _values(self, row: StepRow) -> Document:
        """Return the values of all fields, also of those that this kind of encoding lacks."""
        step = row.step
        return {
            "piece": row.piece,
            "step": row.number,
            "left": token_text(step.left),
            "right": token_text(step.right),
            "rank": step.rank,
            "score": step.score,
            "id": step.token_id,
            "token": token_text(self.token_of(step)),
        }

    def token_of(self, step: DerivationStep) -> bytes | None:
        """Return the token that a step leads to; for an unknown part, the encoding's own token."""
        encoding = self.tokens.encoding
        if step.left is not None or encoding is None or step.token_id is None:
            return step.token
        return encoding.token_bytes(step.token_id)


def merges(model: Opened, text: TextOrIds, *, special: bool = False, draw: bool = True) -> Merges:
    """Return how each piece of a text becomes tokens: merge by merge, or as the encoding does it.

    The page draws a tree of each piece, or with `draw=False` lists the steps with their ranks.
    Raises InputError for an encoding that does not tell.

    >>> import embcli
    >>> [step.rank for step in embcli.seeded().merges("some").pieces[0].steps]
    [296, 462, 11246]
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes, has_added=False)
    encoding = tokens.encoding
    if encoding is None or tokens.texts is None:
        raise InputError("only a text has merges, not its IDs")
    pieces: list[Derivation] = []
    for one_text in tokens.texts:
        pieces += encoding.derivations(one_text, tokens.special)
    result = Merges(tokens, tuple(pieces), draw, notes=notes)
    if result.ids != tokens.ids.tolist():
        raise InputError(f"the steps of {encoding.name} lead to other tokens than its own")
    return result
