"""How positions become vectors: the rows, angles or distances of a kind, and its dot products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar

import numpy as np

import embcli
from embcli.checks import check_ids
from embcli.errors import InputError, LayerError
from embcli.layer import shape_of
from embcli.names import DEFAULT_CONTEXT_LENGTH, DEFAULT_DIM, Pairing
from embcli.positions import DEFAULT_KIND, Kind, check_options, shown_kind
from embcli.positions.kind import Matrix, ShownPositions
from embcli.records import Array, Names, Piece, Records
from embcli.result import Result, matrix_of
from embcli.selection import select
from embcli.text import parse_ids
from embcli.tokens import Tokens
from embcli.weights.seeded import refuse_too_large
from embcli.words import naming

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Origin, Source

_PIECE = 1 << 18  # values that are computed at a time


@dataclass(frozen=True)
class PositionOptions:
    """The options of `positions`, checked before a number is drawn.

    Raises InputError for an option that the kind does not have, and LayerError for numbers that are out of range.
    """

    kind: Kind = DEFAULT_KIND
    context_length: int = DEFAULT_CONTEXT_LENGTH  # T
    dim: int = DEFAULT_DIM  # D
    clip: int | None = None
    pairing: Pairing | None = None
    theta: float | None = None
    ids: str | None = None  # the token whose row the positions are applied to
    similarity: bool = False
    rows: str | None = None  # positions, as in `0:5,100`
    columns: str | None = None  # of D, of the pairs of D, or of similarity the other positions

    def __post_init__(self) -> None:
        check_options(self.kind, vars(self))
        if self.context_length < 1:
            raise LayerError(naming("{context_length} must be at least 1, not {given:,}", given=self.context_length))
        refuse_too_large("a table of positions", (self.context_length, self.dim))
        self.positions()
        self.token_id()

    @property
    def layer_rows(self) -> int:
        """How many rows the source's position layer must have."""
        return self.positions().layer_rows(self.context_length)

    def positions(self) -> ShownPositions:
        """Return the positions; their layer is not open."""
        return shown_kind(self.kind).of(self.dim, vars(self))

    def token_id(self) -> int:
        """Return the ID of the token whose row the positions are applied to."""
        ids = parse_ids("0" if self.ids is None else self.ids)
        if len(ids) != 1:
            given = {"given": str(self.ids)[:40], "count": len(ids)}
            raise InputError(naming("{ids} must be one token ID, not {count}: {given!r}", **given))
        return int(ids[0])


@dataclass(frozen=True, eq=False)
class PositionTable(Result):
    """The matrices of a kind of positions, for the chosen positions; each is an array under its name."""

    verb: ClassVar[str] = "positions"

    options: PositionOptions
    kind: ShownPositions
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # of D, of pairs of D, or positions (similarity), (columns,) int64
    matrices: list[Matrix]
    origin: Origin | None  # of the layers; None for positions that are only computed

    position = matrix_of("position")  # (n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32
    input = matrix_of("input")  # (n, D) float32, a token row with the positions applied to it
    distance = matrix_of("distance")  # (n, T) int64
    similarity = matrix_of("similarity")  # (n, T) float32, dot products

    def means(self, per: int) -> np.ndarray:
        """Return the means of the dot products of `per` positions with as many others, (bins, bins) float64.

        The last bins of rows and of columns contain fewer products.
        """
        rows, columns = np.arange(0, len(self.chosen), per), np.arange(0, len(self.columns), per)
        counts = np.diff(np.append(columns, len(self.columns)))
        means = np.empty((len(rows), len(columns)))
        for place, start in enumerate(rows.tolist()):
            values = self.matrices[0].rows(self.chosen[start : start + per]).astype(np.float64)
            means[place] = np.add.reduceat(values.mean(axis=0), columns) / counts
        return means

    def records(self) -> Records:
        """Return the matrices as data, with one row per position."""
        named = {each.name: each for each in self.matrices if each.name}
        step = max(_PIECE // max(*(int(np.prod(each.shape)) for each in named.values()), 1), 1)

        def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
            for start in range(0, len(self.chosen), step):
                places = self.chosen[start : start + step]
                values = {name: named[name].rows(places) for name in matrices}
                yield Piece(len(places), dict.fromkeys(fields, places), values)

        origin = self.origin.document() if self.origin else {}
        return Records(
            run={"embcli": embcli.__version__, "kind": self.options.kind, **origin, **self.kind.document()},
            unit="positions",
            rows=len(self.chosen),
            fields={"position": int},
            pieces=pieces,
            matrices={name: Array((len(self.chosen), *each.shape), each.dtype) for name, each in named.items()},
            columns=tuple(self.columns.tolist()),
            default=next(iter(named)),
        )


def stored_shape(source: Source, kind: Kind) -> tuple[int, int]:
    """Return C and D of the position layer of a checkpoint; raises InputError for a kind that is not stored there."""
    if not shown_kind(kind).is_stored:
        raise InputError(naming("{kind} {given} is computed, not read from a file", given=kind))
    shape = source.shape("position")
    if shape is None:
        raise InputError(naming(f"this model has no {kind} positions; {{position_tensor}} names them if there are any"))
    return shape


def positions(source: Source, options: PositionOptions) -> PositionTable:
    """Return the matrices of positions; the source's position layer has `options.layer_rows` rows.

    Raises InputError for rows and columns that are out of range, and for an ID without a row.
    """
    kind, length, token_id = options.positions(), options.context_length, options.token_id()
    chosen = select(options.rows, length, "position")
    columns = select(options.columns, length if options.similarity else kind.columns, "column")
    asked: dict[str, np.ndarray | None] = {}
    if kind.needs_row(options.similarity):
        asked["token"] = ids = np.array([token_id])
        check_ids(Tokens(ids, np.array([0, 1]), source.encoding), shape_of(source, "token")[0])
    if kind.has_layer:
        asked["position"] = None
    layers = source.open(asked) if asked else {}
    kind = replace(kind, opened=layers.get("position"))
    row = layers["token"].rows(np.array([token_id])) if "token" in layers else np.empty((0, 0), np.float32)
    if options.similarity:
        matrices = [Matrix("similarity", kind.products(columns, row), columns)]
    else:
        matrices = kind.matrices(length, columns, token_id, row)
    origin = source.origin if layers else None
    return PositionTable(options, kind, chosen, columns, matrices, origin, notes=source.notes)
