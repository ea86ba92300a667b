"""The lookup: token IDs pick rows of the token matrix, and positions join them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

import embcli
from embcli.errors import InputError
from embcli.names import MATRICES, PAGES, Format
from embcli.positions import Learned, Positions
from embcli.records import Array, Names, Piece, Records, refuse_too_many
from embcli.selection import select
from embcli.tokens import Tokens, token_text
from embcli.weights import shape_of
from embcli.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.weights import Layer, Source

_PIECE = 1 << 18  # values of one matrix that are worked on at a time


@dataclass(frozen=True)
class Lookup:
    """The result of a lookup: (T, D) token rows, joined by (T, D) position rows, are the (T, D) input embeddings.

    The rows are gathered when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: Positions
    context_length: int  # C
    columns: np.ndarray  # (chosen columns,) int64
    run: dict[str, Any]
    show: tuple[str, ...] = MATRICES
    chosen: bool = False  # the columns, by the user
    trace: int | None = None  # the token whose sum is to be spelled out

    @property
    def dim(self) -> int:
        """D, also where only some columns are chosen."""
        return self.layer.shape[1]

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, chosen columns) float32."""
        found: dict[str, np.ndarray] = {}
        places = self.tokens.places(index)[1]
        if "token" in names or "input" in names:
            found["token"] = self.layer.rows(self.tokens.ids[index])
        if "position" in names:
            found["position"] = self.positions.rows(places)
        if "input" in names:
            found["input"] = self.positions.joined(found["token"], places)
        whole = len(self.columns) == self.dim and bool((self.columns == np.arange(self.dim)).all())
        return {name: found[name] if whole else found[name][:, self.columns] for name in names}

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named fields and matrices."""
        step = min(max(_PIECE // self.dim, 1), 4096)
        for start in range(0, len(self.tokens), step):
            index = np.arange(start, min(start + step, len(self.tokens)))
            yield Piece(len(index), self.tokens.fields(index, fields), self.rows(index, matrices))

    def records(self) -> Records:
        """Return the lookup as data: position, ID and token of each row, and the three matrices."""
        shape = len(self.tokens), len(self.columns)
        return Records(
            run=self.run,
            unit="tokens",
            rows=len(self.tokens),
            fields=self.tokens.field_names,
            pieces=self.pieces,
            matrices={name: Array(shape) for name in MATRICES},
            columns=tuple(self.columns.tolist()),
            default="input",
            sequences=self.tokens.sequences,
        )


def needs(trace: int | None) -> dict[str, tuple[Format, ...]]:
    """Return which options were given that only some formats have a place for, and these formats."""
    return {} if trace is None else {"--trace": PAGES}


def look_up(
    tokens: Tokens,
    source: Source,
    columns: str | None = None,
    show: tuple[str, ...] | None = None,
    trace: int | None = None,
    room: int | None = None,
) -> Lookup:
    """Return the rows that tokens pick, at their positions; `columns` chooses columns as in `0:8,255`.

    Raises InputError for an ID that the token layer has no row for, for a sequence longer than the position layer, for
    columns out of range, and for a token to trace that is not there; OutputError for more numbers than there is room
    for.
    """
    (vocabulary_size, dim), (context_length, _) = shape_of(source, "token"), shape_of(source, "position")
    check_ids(tokens, vocabulary_size)
    if tokens.longest > context_length:
        raise InputError(
            f"{tokens.longest:,} tokens are more than the context length of {context_length:,}: "
            f"pass --context-length {tokens.longest} for one sequence, or --window for several of {context_length:,}"
        )
    chosen = select(columns, dim, "column")
    if trace is not None and not 0 <= trace < len(tokens):
        there_are = f"there {'is' if len(tokens) == 1 else 'are'} {counted(len(tokens), 'token')}"
        raise InputError(f"--trace {trace} names no token: {there_are}, counted from 0")
    refuse_too_many(len(tokens) * len(chosen), room)
    layers = source.open({"token": tokens.ids, "position": np.arange(tokens.longest)})
    run = {
        "embcli": embcli.__version__,
        "encoding": tokens.encoding.name if tokens.encoding else None,
        "sequences": tokens.sequences,
        **source.run,
    }
    positions = Learned(layers["position"])
    show = show or MATRICES
    return Lookup(tokens, layers["token"], positions, context_length, chosen, run, show, columns is not None, trace)


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
