"""How positions become vectors: the rows, angles or distances of a kind, and its dot products."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from embcli.binary import shortened
from embcli.errors import InputError, refuse_too_large
from embcli.layer import Origin, Source, shape_of
from embcli.names import DEFAULT_CONTEXT_LENGTH, SHORT_LENGTH, __version__
from embcli.options import PositionOptions
from embcli.positions import DEFAULT_KIND, Kind, kind_of
from embcli.positions.kind import Matrix, Positions
from embcli.positions.sinusoidal import Sinusoidal
from embcli.records import Array, Records, in_pieces
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.tokens import Tokens, check_ids
from embcli.verbs.hidden import sinusoids
from embcli.weights.seeded import check_size

_PIECE = 1 << 18  # values that are computed at a time


@dataclass(frozen=True, eq=False)
class PositionTable(Result, verb="positions", content="embeddings"):
    """The matrices of a kind of positions, for the chosen positions; each is an array under its name."""

    options: PositionOptions
    length: int  # T
    kind: Positions
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # of D, of pairs of D, or positions (similarity), (columns,) int64
    matrices: list[Matrix]
    origin: Origin | None  # of the layers; None for positions that are only computed
    is_long: bool = False  # more positions than a page shows, as nobody chose T or rows
    reason: str = ""  # why these are the positions of a model, if nobody chose the kind

    position = MatrixOf()  # (n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32
    input = MatrixOf()  # (n, D) float32, a token row with the positions applied to it
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
    kind = options.positions(dim)
    if isinstance(kind, Sinusoidal) and (waves := source.recipe and source.recipe.position):
        kind = replace(kind, formula=partial(sinusoids, waves, dim))
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
    origin, is_stored = layers.origin if layers else None, name == DEFAULT_KIND and not source.origin.is_seeded
    is_long = context_length is None and options.rows is None and not is_stored and length > SHORT_LENGTH
    return PositionTable(options, length, kind, chosen, columns, matrices, origin, is_long, reason, notes=source.notes)


def _kind_of_model(source: Source) -> tuple[Kind, str]:
    """Return the kind of positions that a model adds, and why; raises InputError for one that adds none."""
    recipe = None if source.origin.is_seeded else source.recipe
    if recipe is None:
        return DEFAULT_KIND, ""
    if not recipe.is_known:
        if source.shape("position") is None:
            raise InputError(f"which positions a {shortened(recipe.model)} model has is not known")
        return DEFAULT_KIND, ""
    if recipe.position is None:
        raise InputError(f"{recipe.positions_in_words}; no position rows are added, so there is nothing to show")
    return "sinusoidal" if recipe.position.waves else "learned", recipe.positions_in_words


def _length_and_dim(source: Source, kind: Kind, context_length: int | None) -> tuple[int, int]:
    """Return T and D; raises InputError for a kind that a checkpoint does not contain."""
    default = kind_of(kind).default_length
    if source.origin.is_seeded:
        stored, dim = shape_of(source, "position")
        return default or stored if context_length is None else context_length, dim
    waves = source.recipe.position.waves if source.recipe and source.recipe.position else ""
    if kind == "sinusoidal" and waves:
        length = DEFAULT_CONTEXT_LENGTH if context_length is None else context_length
        return length, shape_of(source, "token")[1]
    if kind != DEFAULT_KIND:
        raise InputError(f"kind {kind} is computed, not read from a file", parameters=("kind",))
    shape = source.shape("position")
    if shape is None:
        raise InputError(f"this model has no {kind} positions")
    return shape
