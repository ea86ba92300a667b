"""The lookup: token IDs pick rows of the token matrix, and positions join them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

import embcli
from embcli.errors import InputError
from embcli.layer import shape_of
from embcli.names import DEFAULT_THETA, MATRICES, PAGES, Format, Joined, Pairing
from embcli.positions import Learned, NoPositions, Positions, Rotary, Sinusoidal
from embcli.records import Array, Names, Piece, Records, refuse_too_many
from embcli.safe import note
from embcli.selection import select
from embcli.text import parse_ids
from embcli.tokens import Tokens, token_text
from embcli.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Layer, Source

_PIECE = 1 << 18  # values of one matrix that are worked on at a time
_SMALL = 12  # rows of a token layer that is drawn whole


@dataclass(frozen=True, eq=False)
class Wanted:
    """Which matrices of a lookup are wanted, of which positions, and what a page is to hold on top.

    Raises InputError for options that do not go together.
    """

    show: Names | None = None  # None for all that there are; on a picture, the token rows
    columns: str | None = None  # as in `0:8,255`
    trace: int | None = None  # the token whose sum is to be spelled out
    draw: bool = False
    position: Joined = "learned"
    pairing: Pairing | None = None  # this and theta of rotary positions
    theta: float | None = None
    token_type: int | None = None  # whose row is added to each token row

    def __post_init__(self) -> None:
        kind = self.position
        for option, value in (("--pairing", self.pairing), ("--theta", self.theta)):
            if value is not None and kind != "rotary":
                raise InputError(f"{option} {value} has no place with --position {kind}; it goes with rotary")
        if self.show is not None and not {*self.show} <= {*self.matrices}:
            raise InputError("--show position has nothing to show: --position none has no position matrix")
        if self.trace is not None and kind in ("rotary", "none"):
            raise InputError(f"--trace spells out a sum, and --position {kind} adds nothing to the token rows")
        if self.columns is not None and kind == "rotary" and self.show == ("position",):
            raise InputError("--columns chooses columns of token and input; the angles that rotary has are shown whole")

    @property
    def matrices(self) -> Names:
        """The matrices that there are."""
        return tuple(name for name in MATRICES if name != "position" or self.position != "none")

    @property
    def sum(self) -> str:
        """In which order rows are added up."""
        token = "token" if self.token_type is None else "token + token_type"
        if self.position == "none":
            return token
        token = f"({token})" if self.token_type is not None else token
        return f"{token} turned" if self.position == "rotary" else f"{token} + position"

    @property
    def shown(self) -> Names:
        """The matrices whose rows a page holds."""
        return self.show or (("token",) if self.draw else self.matrices)

    def needs(self) -> dict[str, tuple[Format, ...]]:
        """Return which options were given that only some formats have a place for, and these formats."""
        given = {"--trace": self.trace is not None, "--draw": self.draw}
        return {option: PAGES for option, wanted in given.items() if wanted}

    def positions(self, dim: int) -> Sinusoidal | Rotary | NoPositions | None:
        """Return the positions of token rows (n, D), where they need no layer; raises LayerError for an odd D."""
        if self.position == "rotary":
            return Rotary(dim, self.pairing or "interleaved", DEFAULT_THETA if self.theta is None else self.theta)
        return {"learned": None, "sinusoidal": Sinusoidal(dim), "none": NoPositions()}[self.position]


@dataclass(frozen=True, eq=False)
class Lookup:
    """The result of a lookup: (T, D) token rows, joined by (T, D) position rows, are the (T, D) input embeddings.

    Where a token type is wanted, its row comes first: (token + type) + position in float32, which is BERT's own order.
    The rows are gathered when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: Positions
    columns: np.ndarray  # of the token layer, (chosen columns,) int64
    run: dict[str, Any]
    wanted: Wanted
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    type_row: np.ndarray | None = None  # (1, D) float32, of the token type; None for no type

    def __len__(self) -> int:
        """Return how many tokens are looked up."""
        return len(self.tokens) if self.only is None else len(self.only)

    @property
    def dim(self) -> int:
        """D, also where only some columns are chosen."""
        return self.layer.shape[1]

    @property
    def first_position(self) -> int:
        """The row of the position matrix that position 0 picks."""
        first: int = self.run.get("first_position", 0)
        return first

    @property
    def same_bag(self) -> bool:
        """Whether there are two sequences of the same tokens, in another order."""
        if self.tokens.sequences != 2:
            return False
        first, second = np.split(self.tokens.ids, self.tokens.starts[1:2])
        return not np.array_equal(first, second) and np.array_equal(np.sort(first), np.sort(second))

    def index(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these places among those that are looked up, (n,) int64."""
        return places if self.only is None else self.only[places]

    def columns_of(self, name: str) -> np.ndarray:
        """Return the columns of a matrix, (columns,) int64: those that were chosen, but of angles all."""
        if name == "position" and self.positions.columns != self.dim:
            return np.arange(self.positions.columns or 0)
        return self.columns

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        found: dict[str, np.ndarray] = {}
        places = self.tokens.places(index)[1]
        if "token" in names or "input" in names:
            found["token"] = self.layer.rows(self.tokens.ids[index])
        if "position" in names:
            found["position"] = self.positions.rows(places)
        if "input" in names:
            typed = found["token"] if self.type_row is None else found["token"] + self.type_row
            found["input"] = self.positions.joined(typed, places)
        return {name: _picked(found[name], self.columns_of(name)) for name in names}

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named fields and matrices."""
        step = min(max(_PIECE // self.dim, 1), 4096)
        for start in range(0, len(self), step):
            index = self.index(np.arange(start, min(start + step, len(self))))
            yield Piece(len(index), self.tokens.fields(index, fields), self.rows(index, matrices))

    def records(self) -> Records:
        """Return the lookup as data: position, ID and token of each row, and its matrices."""
        columns = {name: tuple(self.columns_of(name).tolist()) for name in self.wanted.matrices}
        return Records(
            run=self.run,
            unit="tokens",
            rows=len(self),
            fields=self.tokens.field_types,
            pieces=self.pieces,
            matrices={name: Array((len(self), len(each)), columns=each) for name, each in columns.items()},
            columns=columns["input"],
            default="input",
            sequences=self.tokens.sequences,
        )


def _picked(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return these columns; all of them, in order, without a copy."""
    whole = len(columns) == values.shape[1] and bool((columns == np.arange(len(columns))).all())
    return values if whole else values[:, columns]


def look_up(
    tokens: Tokens,
    source: Source,
    wanted: Wanted = Wanted(),
    only: np.ndarray | None = None,
    room: int | None = None,
) -> Lookup:
    """Return the rows that tokens pick, at their positions; `only` are the tokens that are looked up, (n,) int64.

    Raises InputError for an ID that the token layer has no row for, for a sequence longer than the position layer, for
    columns out of range, for a token type without a row, and for a token to trace that is not there; LayerError for an
    odd D that is to be turned in pairs; OutputError for more numbers than there is room for.
    """
    (vocabulary_size, dim), seeded = shape_of(source, "token"), "from" not in source.run
    check_ids(tokens, vocabulary_size, grows=seeded)
    if wanted.position == "learned" and source.shape("position") is None:
        note("this model has no learned positions: the input rows are the token rows; --position rotary turns them")
        wanted = replace(wanted, position="none")
    positions = wanted.positions(dim)
    if positions is None:
        _check_length(tokens, shape_of(source, "position")[0], grows=seeded)
    chosen = select(wanted.columns, dim, "column")
    _check_trace(tokens, wanted.trace)
    refuse_too_many((len(tokens) if only is None else len(only)) * len(chosen), room)
    ids = np.concatenate([tokens.ids, rows_beside(vocabulary_size)]) if wanted.draw else tokens.ids
    asked = {"token": ids, "position": np.arange(tokens.longest)}
    typed = {"token_type": np.array([wanted.token_type])} if _has_type(source, wanted) else {}
    layers = source.open({**(asked if positions is None else {"token": ids}), **typed})
    type_row = layers["token_type"].rows(typed["token_type"]) if typed else None
    run = {
        "embcli": embcli.__version__,
        "encoding": tokens.encoding.name if tokens.encoding else None,
        "sequences": tokens.sequences,
        **source.run,
        **_run(wanted, positions),
    }
    joined = positions or Learned(layers["position"])
    return Lookup(tokens, layers["token"], joined, chosen, run, wanted, only, type_row)


def _has_type(source: Source, wanted: Wanted) -> bool:
    """Say whether a row of a token type is to be added; raises InputError where there is no such row.

    A model whose token types nobody asks for reads more than is shown, which is noted.
    """
    types = None if "from" not in source.run else source.shape("token_type")
    if wanted.token_type is None:
        if types is not None and "input" in wanted.shown:
            has = f"this model has {counted(types[0], 'token type')}, and adds the row of one to each token row, too"
            note(f"{has}; --token-type 0 adds the first")
        return False
    if types is None:
        raise InputError(f"--token-type {wanted.token_type} has no row to add: there are no token types here")
    if not 0 <= wanted.token_type < types[0]:
        there_are = f"there {'is' if types[0] == 1 else 'are'} {counted(types[0], 'token type')}"
        raise InputError(f"--token-type {wanted.token_type} names no token type: {there_are}, counted from 0")
    return True


def _run(wanted: Wanted, positions: Positions | None) -> dict[str, Any]:
    """Return what there is to say of positions that are not those of a layer, and of a token type."""
    typed = {"token_type": wanted.token_type, "sum": wanted.sum} if wanted.token_type is not None else {}
    if positions is None:
        return typed
    turned = {"pairing": positions.pairing, "theta": positions.theta} if isinstance(positions, Rotary) else {}
    return {"kind": wanted.position, **turned, **typed}


def _check_length(tokens: Tokens, context_length: int, grows: bool) -> None:
    """Raise InputError for a sequence of more tokens than positions; it says how a seeded layer gets more of them."""
    if tokens.longest > context_length:
        longer = f"--context-length {tokens.longest} for one sequence, or " if grows else ""
        raise InputError(
            f"{tokens.longest:,} tokens are more than the context length of {context_length:,}: "
            f"pass {longer}--window for several of {context_length:,}"
        )


def _check_trace(tokens: Tokens, trace: int | None) -> None:
    if trace is not None and not 0 <= trace < len(tokens):
        there_are = f"there {'is' if len(tokens) == 1 else 'are'} {counted(len(tokens), 'token')}"
        raise InputError(f"--trace {trace} names no token: {there_are}, counted from 0")


def rows_beside(size: int) -> np.ndarray:
    """Return the rows of a token layer that a picture shows beside those that are picked, (n,) int64."""
    return np.arange(size) if size <= _SMALL else np.array([0, size - 1])


def occurrences(tokens: Tokens, text: str | None, ids: str | None, special: bool = False) -> np.ndarray | None:
    """Return where the tokens of a text, or these IDs, occur, (n,) int64; None where neither is given.

    Raises InputError for a token that does not occur, and where there is none to look for.
    """
    if text is not None and ids is not None:
        raise InputError("--only and --only-ids stand for the same tokens; give one of them")
    if text is None and ids is None:
        return None
    if text is not None and tokens.encoding is None:
        raise InputError(f"--only {text[:40]!r} is a text, and these IDs are not those of an encoding; use --only-ids")
    option = f"--only-ids {(ids or '')[:40]}" if text is None else f"--only {text[:40]!r}"
    found = parse_ids(ids or "") if text is None or tokens.encoding is None else tokens.encoding.encode(text, special)
    if not len(found):
        raise InputError(f"{option} names no token; name one that occurs")
    occur = np.zeros(len(tokens), bool)
    for token_id, token in zip(found.tolist(), tokens.bytes_of(found), strict=True):
        here = tokens.ids == token_id
        if not here.any():
            what = f"ID {token_id}" if token is None else f"ID {token_id} ({token_text(token)!r})"
            raise InputError(f"{option}: {what} does not occur; embcli tokenize shows which tokens do")
        occur |= here
    return np.flatnonzero(occur)


def check_ids(tokens: Tokens, vocabulary_size: int, grows: bool = True) -> None:
    """Raise InputError for the first ID that a layer of V rows has no row for; it says how a seeded one grows."""
    wrong = np.flatnonzero((tokens.ids < 0) | (tokens.ids >= vocabulary_size))
    if not len(wrong):
        return
    place = int(wrong[0])
    token_id = int(tokens.ids[place])
    token = token_text(tokens.encoding.token_bytes(token_id)) if tokens.encoding else None
    what = f"ID {token_id}" if token is None else f"ID {token_id} ({token!r})"
    raise InputError(
        f"{what} at position {place:,} has no row: the token layer has V = {vocabulary_size:,} rows, "
        f"for IDs from 0 to {vocabulary_size - 1}" + f"; pass --vocab {int(tokens.ids.max()) + 1} or more" * grows
    )
