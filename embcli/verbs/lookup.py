"""The lookup: token IDs pick rows of the token matrix, positions rows of the position matrix, and both are added."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError
from embcli.records import Piece, Records
from embcli.selection import select
from embcli.tokens import Tokens, token_text
from embcli.weights import Source, Weights

if TYPE_CHECKING:
    from collections.abc import Iterator

MATRICES = ("token", "position", "input")
_PIECE = 1 << 18  # values of one matrix that are worked on at a time


@dataclass(frozen=True)
class Lookup:
    """The result of a lookup: (T, D) token rows + (T, D) position rows = (T, D) input embeddings.

    The rows are gathered when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    weights: Weights
    columns: np.ndarray  # (chosen columns,) int64
    run: dict[str, Any]

    @property
    def dim(self) -> int:
        """D, also where only some columns are chosen."""
        return self.weights["token"].shape[1]

    def rows(self, index: np.ndarray, names: tuple[str, ...] = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, chosen columns) float32; input = token + position."""
        found: dict[str, np.ndarray] = {}
        if "token" in names or "input" in names:
            found["token"] = self.weights["token"].rows(self.tokens.ids[index])
        if "position" in names or "input" in names:
            found["position"] = self.weights["position"].rows(self.tokens.places(index)[1])
        if "input" in names:
            found["input"] = found["token"] + found["position"]
        whole = len(self.columns) == self.dim and bool((self.columns == np.arange(self.dim)).all())
        return {name: found[name] if whole else found[name][:, self.columns] for name in names}

    def pieces(self, names: tuple[str, ...]) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named matrices."""
        step = min(max(_PIECE // self.dim, 1), 4096)
        for start in range(0, len(self.tokens), step):
            index = np.arange(start, min(start + step, len(self.tokens)))
            yield Piece(len(index), partial(self.tokens.fields, index), self.rows(index, names))

    def records(self) -> Records:
        """Return the lookup as data: position, ID and token of each row, and the three matrices."""
        shape = len(self.tokens), len(self.columns)
        return Records(
            run=self.run,
            unit="tokens",
            rows=len(self.tokens),
            fields=self.tokens.field_names,
            matrices=dict.fromkeys(MATRICES, shape),
            pieces=self.pieces,
            columns=tuple(self.columns.tolist()),
            default="input",
        )


def look_up(tokens: Tokens, source: Source, columns: str | None = None) -> Lookup:
    """Return the rows that tokens pick, at their positions; `columns` chooses columns as in `0:8,255`.

    Raises InputError for an ID that the token layer has no row for, for a sequence longer than the position layer, and
    for columns out of range.
    """
    vocabulary_size, dim = source.shape("token")
    context_length, _ = source.shape("position")
    check_ids(tokens, vocabulary_size)
    if tokens.longest > context_length:
        raise InputError(
            f"{tokens.longest:,} tokens are more than the context length of {context_length:,}: "
            f"pass --context-length {tokens.longest} for one sequence, or --window for several of {context_length:,}"
        )
    chosen = select(columns, dim, "column")
    weights = source.open(("token", "position"))
    layers = {
        "token": weights["token"].pin(tokens.ids),
        "position": weights["position"].pin(np.arange(tokens.longest)),
    }
    run = {"encoding": tokens.encoding.name if tokens.encoding else None, **weights.run}
    return Lookup(tokens, Weights(layers, weights.run), chosen, run)


def check_ids(tokens: Tokens, vocabulary_size: int) -> None:
    """Raise InputError for the first ID that a layer of V rows has no row for."""
    wrong = np.flatnonzero((tokens.ids < 0) | (tokens.ids >= vocabulary_size))
    if not len(wrong):
        return
    place = int(wrong[0])
    token_id = int(tokens.ids[place])
    token = token_text(tokens.encoding.token_bytes(token_id)) if tokens.encoding else None
    what = f"ID {token_id}" if token is None else f"ID {token_id} ({token!r})"
    raise InputError(
        f"{what} at position {place:,} has no row: the token layer has V = {vocabulary_size:,} rows, "
        f"for IDs from 0 to {vocabulary_size - 1}; pass --vocab {int(tokens.ids.max()) + 1} or more"
    )
