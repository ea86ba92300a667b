"""How an encoding arrives at the tokens of a text, merge by merge.

`merges` makes a Merges, which is plain data. `page` shows its steps as a table, or each piece as a
`tree`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from embcli.encodings.merging import Derivation, DerivationStep
from embcli.errors import InputError
from embcli.opened import Opened, TextOrIds
from embcli.records import FieldTypes, Records, TypedValues, listed, run_of
from embcli.result import Result
from embcli.tokens import Tokens, token_text


class StepRow(NamedTuple):
    """A step of a piece."""

    piece: int  # its number, from 0
    number: int  # from 1; 0 for a token that no merge made
    step: DerivationStep


_FIELDS: FieldTypes = {
    "piece": int,
    "step": int,
    "left": str,
    "right": str,
    "rank": int,
    "score": float,
    "id": int,
    "token": str,
}
_KINDS_OF_PRIORITY = ("rank", "score")  # an encoding has the one or the other


@dataclass(frozen=True, eq=False)
class Merges(Result, verb="merges"):
    """The steps by which each piece of a text becomes tokens."""

    tokens: Tokens
    pieces: tuple[Derivation, ...]
    draw: bool  # show each piece as a tree, not the steps as a table

    @property
    def ids(self) -> list[int]:
        """The token IDs at the end, which are the encoding's own."""
        return [token_id for piece in self.pieces for token_id in piece.ids]

    @cached_property
    def symbols(self) -> list[bytes]:
        """The symbols of all pieces, in order: the bytes or characters that are merged first."""
        return [symbol for piece in self.pieces for symbol in piece.symbols]

    @cached_property
    def rows(self) -> list[StepRow]:
        """The steps of all pieces, in order; after those of a piece, its tokens that none made."""
        rows = []
        for place, piece in enumerate(self.pieces):
            rows += [StepRow(place, number, step) for number, step in enumerate(piece.steps, 1)]
            made = {step.token_id for step in piece.steps}
            for token_id in piece.ids:
                if token_id not in made:
                    rows.append(StepRow(place, 0, DerivationStep(b"", token_id)))
        return rows

    @cached_property
    def fields(self) -> dict[str, TypedValues]:
        """The fields of the steps, by name: their type, and the value of each step.

        Only fields that this kind of encoding has are among them.
        """
        rows = []
        for row in self.rows:
            step = row.step
            rows.append(
                {
                    "piece": row.piece,
                    "step": row.number,
                    "left": token_text(step.left),
                    "right": token_text(step.right),
                    "rank": step.rank,
                    "score": step.score,
                    "id": step.token_id,
                    "token": token_text(self.token_of(step)),
                }
            )
        fields = {}
        for name, field_type in _FIELDS.items():
            column = [row[name] for row in rows]
            if name not in _KINDS_OF_PRIORITY or any(value is not None for value in column):
                fields[name] = (field_type, column)
        return fields

    def _records(self) -> Records:
        return listed(run_of(self.tokens.encoding, pieces=len(self.pieces)), "steps", **self.fields)

    def token_of(self, step: DerivationStep) -> bytes | None:
        """Return the token that a step leads to; for an unknown part, the encoding's own token."""
        encoding = self.tokens.encoding
        if step.left is not None or encoding is None or step.token_id is None:
            return step.token
        return encoding.token_bytes(step.token_id)


def merges(model: Opened, text: TextOrIds, *, special: bool = False, draw: bool = True) -> Merges:
    """Return how each piece of a text becomes tokens, merge by merge.

    The page draws a tree of each piece, or with `draw=False` lists the steps with their ranks.
    Raises InputError for an encoding that merges nothing, such as WordPiece and Unigram.

    >>> import embcli
    >>> [step.rank for step in embcli.seeded().merges("some").pieces[0].steps]
    [296, 462, 11246]
    """
    notes = model.notes.begun()
    tokens = model.tokens(text, special, notes=notes, has_added=False)
    reading = tokens.reading
    if reading is None or tokens.texts is None:
        raise InputError("only a text has merges, not its IDs")
    pieces: list[Derivation] = []
    for one_text in tokens.texts:
        pieces += reading.derivations(one_text)
    result = Merges(tokens, tuple(pieces), draw, notes=notes)
    if result.ids != tokens.ids.tolist():
        raise InputError(f"the steps of {reading.encoding.name} lead to other tokens than its own")
    return result
