"""How positions become vectors: the rows, angles or distances of a kind, and its similarities.

`positions` makes a PositionTable, whose matrices are computed when they are asked for. `choice`
finds the kind, T and D, the files of `embcli.positions` compute, and `page` shows it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import get_args

import numpy as np

from embcli.errors import InputError, check_choice, check_number, refuse_too_large
from embcli.formats import ContentKind, content_of
from embcli.layer import Layers, Origin, Source
from embcli.names import (
    DEFAULT_THETA,
    SHORT_LENGTH,
    Pairing,
    Similarity,
    __version__,
)
from embcli.opened import Opened
from embcli.positions import KINDS, PositionKind, check_options, kind_named
from embcli.positions.kind import PositionMatrix, ShownPositions
from embcli.positions.learned import learned
from embcli.positions.relative import LARGEST_DISTANCE, relative
from embcli.positions.rotary import check_rotation, rotary
from embcli.positions.sinusoidal import sinusoidal
from embcli.records import ArraySpec, Columns, Document, Names, Records, in_pieces
from embcli.result import MatrixOf, Result
from embcli.seeded_layers.seeded import check_size
from embcli.selection import Selection, select
from embcli.text import parse_ids
from embcli.verbs.positions.choice import choose, open_layers
from embcli.wording import Sentence

__all__ = ["PositionTable", "positions"]


@dataclass(frozen=True, eq=False)
class PositionTable(Result, verb="positions"):
    """The matrices of a kind of positions, for the chosen positions.

    Each matrix is an array under its name.
    """

    kind: PositionKind
    shown: Callable[[], ShownPositions]
    options: Document  # the options of the kind, as data has them
    token_id: int  # the token whose row the positions are applied to
    length: int  # T, or C of a layer
    chosen: np.ndarray  # (n,) int64, positions
    columns: np.ndarray  # (columns,) int64: of D, of pairs of D, or positions (similarity)
    similarity_metric: Similarity | None  # None unless the matrix is that of similarities
    origin: Origin | None  # where the layers come from; None if all is computed
    _rows_chosen: bool  # whether the user chose them
    _columns_chosen: bool
    is_long: bool = False  # more positions than a page shows, as nobody chose T or rows
    reason: str = ""  # says why a model has this kind; empty if the user chose it

    position = MatrixOf()  # (n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32
    input = MatrixOf()  # (n, D) float32, a token row with the positions applied to it
    distance = MatrixOf()  # (n, T) int64
    similarity = MatrixOf()  # (n, T) float32, dot products or cosines

    @property
    def content(self) -> ContentKind:
        return content_of("positions", {"kind": self.kind, "similarity": self.is_similarity})

    @property
    def is_similarity(self) -> bool:
        return self.similarity_metric is not None

    @property
    def matrices(self) -> list[PositionMatrix]:
        shown = self.shown()
        if self.is_similarity:
            return [PositionMatrix("similarity", shown.similarities(self.columns), self.columns)]
        return shown.matrices

    def records(self) -> Records:
        named = {matrix.name: matrix for matrix in self.matrices if matrix.name}
        specs = {}
        widths = []
        for name, matrix in named.items():
            row_shape = (*matrix.middle_shape, len(matrix.columns))
            specs[name] = ArraySpec((len(self.chosen), *row_shape), matrix.dtype)
            widths.append(int(np.prod(row_shape)))

        def fields(index: np.ndarray, names: Names) -> Columns:
            return dict.fromkeys(names, self.chosen[index])

        def arrays(index: np.ndarray, names: Names) -> Columns:
            return {name: named[name].rows(self.chosen[index]) for name in names}

        origin = self.origin.document() if self.origin else {}
        return Records(
            run={"embcli": __version__, "kind": self.kind, **origin, **self.options},
            unit="positions",
            rows=len(self.chosen),
            fields={"position": int},
            pieces=in_pieces(len(self.chosen), max(widths), fields, arrays),
            matrices=specs,
            columns=tuple(self.columns.tolist()),
            default=next(iter(named)),
        )


def positions(
    model: Opened,
    kind: PositionKind | None = None,
    *,
    context_length: int | None = None,
    pairing: Pairing | None = None,
    theta: float | None = None,
    ids: str | int | None = None,
    similarity: bool = False,
    metric: Similarity | None = None,
    rows: Selection | None = None,
    columns: Selection | None = None,
) -> PositionTable:
    """Return what positions become: rows (T, D), rotary angles, or relative distances.

    Unless `kind` is given, it is the model's own; of seeded layers, learned. T is the context
    length, of relative positions 16; unless it is given, a page shows positions 0 to 15.
    `similarity` returns their cosines or dot products, (T, T), by `metric`; unless it is given,
    cosines for a checkpoint, and dot products for seeded layers. Raises InputError for an option
    that this kind does not have, and LayerError for an odd D of rotary positions.

    >>> import embcli
    >>> table = embcli.seeded(dim=4).positions("sinusoidal", context_length=2)
    >>> table.position.round(4).astype(str).tolist()
    [['0.0', '1.0', '0.0', '1.0'], ['0.8415', '0.5403', '0.01', '1.0']]
    """
    source = model.source
    notes = model.notes.begun()
    kind = kind_named(kind)
    check_choice("kind", kind, KINDS)
    check_choice("pairing", pairing, get_args(Pairing))
    metric = _metric(source, metric, similarity)

    choice = choose(source, kind, context_length)
    length = choice.length
    dim = choice.dim
    check_options(choice.kind, pairing=pairing, theta=theta, ids=ids)
    token_ids = _one_id(ids)
    check_size("context_length", length)
    refuse_too_large("a table of positions", (length, dim))
    pairing = pairing or "interleaved"
    theta = DEFAULT_THETA if theta is None else theta
    check_number("theta", theta)
    if choice.kind == "rotary":
        check_rotation(dim, theta)

    chosen_rows = select(rows, length, "position")
    if similarity:
        chosen_columns = select(columns, length, "column")  # other positions
        vector_columns = np.arange(choice.columns)
    else:
        chosen_columns = select(columns, choice.columns, "column")
        vector_columns = chosen_columns
    layers = open_layers(source, choice, token_ids, similarity, notes)
    token_row = _token_row(layers, token_ids)
    token_id = int(token_ids[0])

    is_stored = False
    options: Document = {}
    shown: Callable[[], ShownPositions]
    match choice.kind:
        case "learned":
            is_stored = not source.origin.is_seeded
            shown = partial(learned, layers["position"], vector_columns, is_stored, metric)
        case "sinusoidal":
            model_step = source.recipe.position if source.recipe else None
            shown = partial(sinusoidal, dim, vector_columns, model_step, metric)
        case "relative":
            options = {"clip": LARGEST_DISTANCE}
            layer = layers["position"]
            shown = partial(relative, layer, vector_columns, length, token_row, metric)
        case "rotary":
            options = {"pairing": pairing, "theta": theta}
            shown = partial(rotary, vector_columns, token_row, token_id, pairing, theta, metric)
    if similarity:
        options["metric"] = metric

    has_length = is_stored or context_length is not None
    is_long = length > SHORT_LENGTH and not has_length and rows is None
    return PositionTable(
        kind=choice.kind,
        shown=shown,
        options=options,
        token_id=token_id,
        length=length,
        chosen=chosen_rows,
        columns=chosen_columns,
        similarity_metric=metric if similarity else None,
        origin=layers.origin if layers else None,
        _rows_chosen=rows is not None,
        _columns_chosen=columns is not None,
        is_long=is_long,
        reason=choice.reason,
        notes=notes,
    )


def _metric(source: Source, metric: Similarity | None, is_similarity: bool) -> Similarity:
    """Return how similarities are measured: as the user chose, or as suits the rows.

    Rows of a model have lengths of their own, which a dot product would show.
    """
    check_choice("metric", metric, get_args(Similarity))
    if metric is not None and not is_similarity:
        raise InputError(Sentence("{metric} goes with {similarity}"))
    if metric is not None:
        return metric
    return "dot" if source.origin.is_seeded else "cosine"


def _one_id(ids: str | int | None) -> np.ndarray:
    """Return the ID of the token row that positions are applied to, (1,) int64; by default 0."""
    if ids is None:
        ids = "0"
    token_ids = parse_ids(str(ids))
    if len(token_ids) != 1:
        wrong = "{ids} must be one token ID, not {count}: {given!r}"
        raise InputError(Sentence(wrong, count=len(token_ids), given=str(ids)[:40]))
    return token_ids


def _token_row(layers: Layers, token_ids: np.ndarray) -> np.ndarray:
    """Return the row, (1, D) float32; it is empty, (1, 0), for a kind that needs none."""
    if "token" not in layers:
        return np.empty((1, 0), np.float32)
    return layers["token"].rows(token_ids)
