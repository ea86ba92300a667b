"""The lookup: token IDs pick rows of the token matrix, and positions join them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.checks import check_ids, check_length, id_in_words
from embcli.errors import InputError
from embcli.layer import shape_of
from embcli.names import MATRICES
from embcli.options import LookupOptions
from embcli.positions import NO_POSITIONS
from embcli.records import Array, Names, Piece, Records
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.text import parse_ids
from embcli.version import __version__
from embcli.words import counted, naming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Layer, Origin, Source
    from embcli.positions.kind import JoinedPositions
    from embcli.tokens import Tokens

_PIECE = 1 << 18  # values of one matrix that are computed at a time
_WHOLE = 12  # rows of a token layer that a picture shows completely


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup", content="embeddings"):
    """The result of a lookup: (T, D) token rows, joined by (T, D) position rows, are the (T, D) input embeddings.

    The row of a token type comes first: (token + type) + position in float32, which is BERT's own order. Rows are
    computed when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    positions: JoinedPositions
    columns: np.ndarray  # of the token layer, (chosen columns,) int64
    origin: Origin
    options: LookupOptions
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    type_row: np.ndarray | None = None  # (1, D) float32, of the token type; None for no type

    token = MatrixOf()  # (n, D) float32
    position = MatrixOf()  # (n, D) float32, or angles (n, D/2)
    input = MatrixOf()  # (n, D) float32, the answer

    def __len__(self) -> int:
        """Return how many tokens are looked up."""
        return len(self.tokens) if self.only is None else len(self.only)

    @property
    def sum(self) -> str:
        """The order in which rows are added, as a formula."""
        last = self.positions.joined_words(0).sum
        if self.type_row is None:
            return f"token{last}"
        return f"(token + token_type){last}" if last else "token + token_type"

    @property
    def same_bag(self) -> bool:
        """Whether there are two sequences of the same tokens in different orders."""
        if self.tokens.sequences != 2:
            return False
        first, second = np.split(self.tokens.ids, self.tokens.starts[1:2])
        return not np.array_equal(first, second) and np.array_equal(np.sort(first), np.sort(second))

    def index(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these places among those that are looked up, (n,) int64."""
        return places if self.only is None else self.only[places]

    def columns_of(self, name: str) -> np.ndarray:
        """Return the columns of a matrix, (columns,) int64: the chosen ones, or all if they are not columns of D."""
        if name == "position" and self.positions.width != "D":
            return np.arange(self.positions.columns)
        return self.columns

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        rows: dict[str, np.ndarray] = {}
        places = self.tokens.places(index)[1]
        if "token" in names or "input" in names:
            rows["token"] = self.layer.rows(self.tokens.ids[index])
        if "position" in names:
            rows["position"] = self.positions.rows(places)
        if "input" in names:
            typed = rows["token"] if self.type_row is None else rows["token"] + self.type_row
            rows["input"] = self.positions.joined(typed, places)
        return {name: _picked(rows[name], self.columns_of(name)) for name in names}

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named fields and matrices."""
        step = min(max(_PIECE // self.layer.shape[1], 1), 4096)
        for start in range(0, len(self), step):
            index = self.index(np.arange(start, min(start + step, len(self))))
            yield Piece(len(index), self.tokens.fields(index, fields), self.rows(index, matrices))

    def records(self) -> Records:
        """Return the lookup as data: position, ID and token of each row, and its matrices."""
        columns = {name: tuple(self.columns_of(name).tolist()) for name in self.options.matrices}
        encoding, kind = self.tokens.encoding, self.positions
        run: dict[str, Any] = {"embcli": __version__, "encoding": encoding.name if encoding else None}
        run |= {"sequences": self.tokens.sequences, **self.origin.document()}
        if not kind.has_layer:
            run |= {"kind": self.options.position, **kind.document()}
        if self.type_row is not None:
            run |= {"token_type": self.options.token_type, "sum": self.sum}
        return Records(
            run=run,
            unit="tokens",
            rows=len(self),
            fields=self.tokens.field_types,
            pieces=self.pieces,
            matrices={name: Array((len(self), len(each)), columns=each) for name, each in columns.items()},
            columns=columns["input"],
            default="input",
            shown=self.options.show and self.options.shown,
            sequences=self.tokens.sequences,
        )


def _picked(values: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return these columns; all of them, in order, without a copy."""
    whole = len(columns) == values.shape[1] and bool((columns == np.arange(len(columns))).all())
    return values if whole else values[:, columns]


def look_up(tokens: Tokens, source: Source, options: LookupOptions | None = None, special: bool = False) -> Lookup:
    """Return the rows that tokens pick, at their positions; `special` recognises special tokens in `only`.

    Raises InputError for an ID without a row, for a sequence longer than the position layer, for columns out of range,
    for a token type without a row, for a token to trace that does not exist, and for `only` a token that does not
    occur; LayerError for a D that the kind of positions does not take.
    """
    options = options or LookupOptions()
    (vocabulary_size, dim), seeded = shape_of(source, "token"), source.origin.is_seeded
    only = _occurrences(tokens, options, special)
    check_ids(tokens, vocabulary_size, grows=seeded)
    positions = options.positions(dim)
    if positions.has_layer and source.shape("position") is None:
        source.notes.add(positions.missing)
        options = replace(options, position=NO_POSITIONS)
        positions = options.positions(dim)
    if positions.has_layer:
        check_length(tokens, shape_of(source, "position")[0], grows=seeded)
    columns = select(options.columns, dim, "column")
    if options.trace is not None and not 0 <= options.trace < len(tokens):
        there_are = f"there {'is' if len(tokens) == 1 else 'are'} {counted(len(tokens), 'token')}, counted from 0"
        raise InputError(naming(f"{{trace}} {options.trace} is not a token: {there_are}"))
    ids = np.concatenate([tokens.ids, rows_beside(vocabulary_size)]) if options.draw else tokens.ids
    asked = {"token": ids}
    if positions.has_layer:
        asked["position"] = np.arange(tokens.longest)
    if _has_type(source, options):
        asked["token_type"] = np.array([options.token_type])
    layers = source.open(asked)
    positions = replace(positions, opened=layers.get("position"))
    type_row = layers["token_type"].rows(asked["token_type"]) if "token_type" in layers else None
    return Lookup(
        tokens, layers["token"], positions, columns, layers.origin, options, only, type_row, notes=source.notes
    )


def _has_type(source: Source, options: LookupOptions) -> bool:
    """Say whether the row of a token type is added; raises InputError if there is no such row.

    A note tells that a model adds such a row if the options do not.
    """
    types = None if source.origin.is_seeded else source.shape("token_type")
    given = options.token_type
    if given is None:
        if types is not None and "input" in options.shown:
            has = f"this model has {counted(types[0], 'token type')} and adds the row of one to each token row"
            source.notes.add(naming(f"{has}; {{token_type}} 0 adds the first"))
        return False
    if types is None:
        raise InputError(naming(f"{{token_type}} {given} has no row to add: there are no token types here"))
    if not 0 <= given < types[0]:
        there_are = f"there {'is' if types[0] == 1 else 'are'} {counted(types[0], 'token type')}"
        raise InputError(naming(f"{{token_type}} {given} is not a token type: {there_are}, counted from 0"))
    return True


def rows_beside(size: int) -> np.ndarray:
    """Return the rows of a token layer that a picture shows beside those that are picked, (n,) int64."""
    return np.arange(size) if size <= _WHOLE else np.array([0, size - 1])


def _occurrences(tokens: Tokens, options: LookupOptions, special: bool) -> np.ndarray | None:
    """Return where the tokens of `only` or `only_ids` occur, (n,) int64; None if neither is given.

    Raises InputError for a token that does not occur, and if there are none.
    """
    text, ids = options.only, options.only_ids
    if text is None and ids is None:
        return None
    if text is None:
        given, wanted = naming("{only_ids} {ids}", ids=(ids or "")[:40]), parse_ids(ids or "")
    elif tokens.encoding is None:
        raise InputError(naming("{only} {text!r} is a text; IDs without an encoding take {only_ids}", text=text[:40]))
    else:
        given, wanted = naming("{only} {text!r}", text=text[:40]), tokens.encoding.encode(text, special)
    if not len(wanted):
        raise InputError(naming(f"{given.template} has no tokens; give a token that occurs", **given.values))
    occurs = np.zeros(len(tokens), bool)
    for token_id, token in zip(wanted.tolist(), tokens.bytes_of(wanted), strict=True):
        here = tokens.ids == token_id
        if not here.any():
            absent = f"{given.template}: {{token}} does not occur; embcli tokenize shows which tokens do"
            raise InputError(naming(absent, **given.values, token=id_in_words(token_id, token)))
        occurs |= here
    return np.flatnonzero(occurs)
