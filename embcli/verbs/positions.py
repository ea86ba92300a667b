"""How positions become vectors: the rows, angles or distances of a kind, and its dot products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from embcli.binary import shortened
from embcli.errors import InputError
from embcli.layer import Origin, Source, shape_of
from embcli.names import DEFAULT_CONTEXT_LENGTH, SHORT_LENGTH
from embcli.options import PositionOptions
from embcli.positions import DEFAULT_KIND, Kind, shown_kind
from embcli.positions.kind import Matrix, ShownPositions
from embcli.records import Array, Records, in_pieces
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.tokens import Tokens, check_ids
from embcli.verbs.hidden import own_positions
from embcli.version import __version__
from embcli.weights.seeded import check_size, refuse_too_large

_PIECE = 1 << 18  # values that are computed at a time


@dataclass(frozen=True, eq=False)
class PositionTable(Result, verb="positions", content="embeddings"):
    """The matrices of a kind of positions, for the chosen positions; each is an array under its name."""

    options: PositionOptions
    length: int  # T
    kind: ShownPositions
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # of D, of pairs of D, or positions (similarity), (columns,) int64
    matrices: list[Matrix]
    origin: Origin | None  # of the layers; None for positions that are only computed
    is_long: bool = False  # more positions than a page shows, as nobody chose T or rows
    reason: str = ""  # why these are the positions of a model, if nobody chose the kind

    bucket = MatrixOf()  # (n, 3) int64, of T5
    position = MatrixOf()  # (n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32
    input = MatrixOf()  # (n, D) float32, a token row with the positions applied to it
    interleaved = MatrixOf()  # (n, D) float32, a token row rotated in this pairing, if both are shown
    halves = MatrixOf()  # (n, D) float32, the same row, its columns reordered
    distance = MatrixOf()  # (n, T) int64
    similarity = MatrixOf()  # (n, T) float32, dot products

    @property
    def for_page(self) -> PositionTable:
        """The positions that a page shows: the first of them if nobody chose T or rows."""
        if not self.is_long:
            return self
        count, matrices = SHORT_LENGTH, self.matrices
        if self.options.similarity and self.options.columns is None:
            (every,) = matrices
            matrices = [replace(every, rows=lambda at: every.rows(at)[:, :count], columns=every.columns[:count])]
        return replace(self, length=count, chosen=self.chosen[:count], matrices=matrices)

    def records(self) -> Records:
        """Return the matrices as data, with one row per position."""
        named = {each.name: each for each in self.matrices if each.name}
        step = max(_PIECE // max(*(int(np.prod(each.shape)) for each in named.values()), 1), 1)

        origin = self.origin.document() if self.origin else {}
        return Records(
            run={"embcli": __version__, "kind": self.options.kind, **origin, **self.kind.document()},
            unit="positions",
            rows=len(self.chosen),
            fields={"position": int},
            pieces=in_pieces(
                len(self.chosen),
                step,
                lambda index, names: dict.fromkeys(names, self.chosen[index]),
                lambda index, names: {name: named[name].rows(self.chosen[index]) for name in names},
            ),
            matrices={name: Array((len(self.chosen), *each.shape), each.dtype) for name, each in named.items()},
            columns=tuple(self.columns.tolist()),
            default=next(iter(named)),
        )


def _kind_of_model(source: Source) -> tuple[Kind, str]:
    """Return the kind of positions that a model has, and why; raises InputError for one that no kind shows."""
    recipe = None if source.origin.is_seeded else source.recipe
    if recipe is None:
        return DEFAULT_KIND, ""
    if not recipe.is_known:
        if source.shape("position") is None:
            raise InputError(f"which positions a {shortened(recipe.model)} model has is not known")
        return DEFAULT_KIND, ""
    inside: dict[str, Kind | None] = {"rotary": "rotary", "alibi": "alibi", "relative": "t5" if recipe.biases else None}
    added: Kind = "sinusoidal" if recipe.waves else "learned"
    kind = added if recipe.has_positions else inside.get(recipe.inside)
    reason = "; ".join(filter(None, (recipe.positions_in_words, recipe.caveat)))
    if kind is None:
        raise InputError(
            f"{reason}, {'which embcli does not show' if recipe.inside else 'so there is nothing to show'}"
        )
    return kind, reason


def _positions_of_model(
    source: Source, kind: Kind, options: PositionOptions, length: int, dim: int
) -> ShownPositions | None:
    """Return the positions of this kind that the blocks of a model compute, or that it adds by a formula.

    None for others. Raises InputError for biases that the model does not have.
    """
    if source.origin.is_seeded or options.pairing == "both":
        return None
    if kind not in ("alibi", "t5"):
        return own_positions(source, kind, options.theta, options.pairing, length)
    recipe = source.recipe
    biases: dict[str, Any] = dict(recipe.biases) if recipe else {}
    if ("heads" if kind == "alibi" else "buckets") not in biases:
        raise InputError(f"kind {kind}: this model has no such positions", parameters=("kind",))
    if options.heads not in (None, biases.get("heads")):
        raise InputError(
            f"heads must be {biases['heads']:,} of this model, not {options.heads:,}", parameters=("heads",)
        )
    return replace(options.positions(dim), **biases)


def positions(source: Source, options: PositionOptions, context_length: int | None = None) -> PositionTable:
    """Return the matrices of T positions; unless T is given, it is the kind's own, or the length of the source's layer.

    Unless a kind is given, it is that of the model. Without a T a page shows the first positions only.

    Raises InputError for rows and columns that are out of range, for an ID without a row, and for a kind that a
    checkpoint does not contain; LayerError for sizes that are out of range.
    """
    name, reason = (options.kind, "") if options.kind is not None else _kind_of_model(source)
    options, token_id = replace(options, kind=name), options.token_id()
    length, dim = _length_and_dim(source, name, context_length)
    check_size("context_length", length)
    refuse_too_large("a table of positions", (length, dim))
    kind = _positions_of_model(source, name, options, length, dim) or options.positions(dim)
    source = source.resized(kind.layer_rows(length))
    chosen = select(options.rows, length, "position")
    columns = select(options.columns, length if options.similarity else kind.columns, "column")
    asked: dict[str, np.ndarray | None] = {}
    if kind.needs_row(options.similarity):
        asked["token"] = ids = np.array([token_id])
        check_ids(Tokens(ids, np.array([0, 1]), source.encoding), shape_of(source, "token")[0])
    if kind.has_layer:
        asked["position"] = None
    layers = source.open(asked)
    kind = replace(kind, opened=layers.get("position"))
    row = layers["token"].rows(np.array([token_id])) if "token" in layers else np.empty((0, 0), np.float32)
    if options.similarity:
        matrices = [Matrix("similarity", kind.products(columns, row), columns)]
    else:
        matrices = kind.matrices(length, columns, token_id, row)
    origin = layers.origin if layers else None
    is_chosen = (
        context_length is not None or options.rows is not None or (kind.is_stored and not source.origin.is_seeded)
    )
    is_long = not is_chosen and length > SHORT_LENGTH
    return PositionTable(options, length, kind, chosen, columns, matrices, origin, is_long, reason, notes=source.notes)


def _length_and_dim(source: Source, kind: Kind, context_length: int | None) -> tuple[int, int]:
    """Return T and D; raises InputError for a kind that a checkpoint does not contain."""
    default = shown_kind(kind).default_length
    if source.origin.is_seeded:
        stored, dim = shape_of(source, "position")
        return default or stored if context_length is None else context_length, dim
    if kind not in ("alibi", "t5") and own_positions(source, kind, None, None, 0) is None:
        if not shown_kind(kind).is_stored:
            raise InputError(f"kind {kind} is computed, not read from a file", parameters=("kind",))
        shape = source.shape("position")
        if shape is None:
            raise InputError(f"this model has no {kind} positions")
        return shape
    length = default or DEFAULT_CONTEXT_LENGTH if context_length is None else context_length
    return length, shape_of(source, "token")[1]
