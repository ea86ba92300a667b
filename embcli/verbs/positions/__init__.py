"""How positions become vectors: the rows, angles or distances of a kind, and its similarities.

`positions` makes a PositionTable, whose matrices are computed when they are asked for. The files of
`embcli.positions` find the kind and compute, and `page` shows it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import get_args

import numpy as np

from embcli.errors import InputError, LayerError, check_choice, check_number, refuse_too_large
from embcli.formats import ContentKind, content_of
from embcli.layer import Layers, Source
from embcli.names import (
    DEFAULT_THETA,
    SHORT_LENGTH,
    Pairing,
    Similarity,
    __version__,
)
from embcli.opened import Opened
from embcli.positions import KINDS, LARGEST_DISTANCE, PositionKind, check_options, kind_named
from embcli.positions.kind import PositionMatrix, ShownPositions
from embcli.positions.learned import learned
from embcli.positions.of_model import ModelPositions, open_layers, positions_of
from embcli.positions.relative import relative
from embcli.positions.rotary import rotary
from embcli.positions.sinusoidal import sinusoidal
from embcli.records import ArraySpec, Document, Records, in_pieces
from embcli.result import MatrixOf, Result
from embcli.seeded_layers.seeded import in_range
from embcli.selection import Selection, select
from embcli.text import parse_ids
from embcli.wording import Sentence


@dataclass(frozen=True, eq=False)
class PositionTable(Result, verb="positions"):
    """The matrices of a kind of positions, for the chosen positions.

    Each matrix is an array under its name.
    """

    model_positions: ModelPositions  # their kind, T and D
    layers: Layers  # those that they need; empty if all is computed
    token_ids: np.ndarray  # (1,) int64: the token whose row the positions are applied to
    pairing: Pairing
    theta: float
    metric: Similarity
    is_similarity: bool  # whether the matrix is that of similarities
    chosen: np.ndarray  # (n,) int64: the positions that have rows here
    columns: np.ndarray  # (columns,) int64: of D, of pairs of D, or positions (similarity)
    _rows_chosen: bool  # whether the user chose them
    _columns_chosen: bool
    is_long: bool  # more positions than a page shows, as nobody chose T or rows

    position = MatrixOf("(n, D) rows, (n, D/2) angles or (n, T, D) rows of distances, float32")
    input = MatrixOf("(n, D) float32, a token row with the positions applied to it")
    distance = MatrixOf("(n, T) int64")
    similarity = MatrixOf("(n, T) float32, dot products or cosines")

    @property
    def content(self) -> ContentKind:
        return content_of(
            "positions",
            {"kind": self.model_positions.kind, "similarity": self.is_similarity},
        )

    @cached_property
    def shown(self) -> ShownPositions:
        """The matrices and similarities of the kind, and the sentences of a page."""
        model_positions = self.model_positions
        layers = self.layers
        columns = np.arange(model_positions.columns) if self.is_similarity else self.columns
        token_id = int(self.token_ids[0])
        token_row = np.empty((1, 0), np.float32)
        if "token" in layers:
            token_row = layers["token"].rows(self.token_ids)
        match model_positions.kind:
            case "learned":
                return learned(layers, columns, self.metric)
            case "sinusoidal":
                return sinusoidal(
                    model_positions.dim, columns, model_positions.model_step, self.metric
                )
            case "relative":
                return relative(
                    layers["position"],
                    columns,
                    model_positions.length,
                    token_row,
                    token_id,
                    self.metric,
                )
            case "rotary":
                return rotary(columns, token_row, token_id, self.pairing, self.theta, self.metric)

    @property
    def matrices(self) -> list[PositionMatrix]:
        if self.is_similarity:
            return [
                PositionMatrix("similarity", self.shown.similarities(self.columns), self.columns)
            ]
        return self.shown.matrices

    def _records(self) -> Records:
        kind = self.model_positions.kind
        count = len(self.chosen)
        named = {matrix.name: matrix for matrix in self.matrices}
        specs = {}
        for name, matrix in named.items():
            shape = (count, *matrix.middle_shape, len(matrix.columns))
            specs[name] = ArraySpec(shape, matrix.dtype)

        run: Document = {"embcli": __version__, "kind": kind}
        if self.layers:
            run |= self.layers.origin.document()
        if kind == "relative":
            run["clip"] = LARGEST_DISTANCE
        if kind == "rotary":
            run |= {"pairing": self.pairing, "theta": self.theta}
        if self.is_similarity:
            run["metric"] = self.metric
        return Records(
            run=run,
            unit="positions",
            rows=count,
            fields={"position": int},
            pieces=in_pieces(
                count,
                max(math.prod(spec.shape[1:]) for spec in specs.values()),
                lambda places, names: dict.fromkeys(names, self.chosen[places]),
                lambda places, names: {
                    name: named[name].rows(self.chosen[places]) for name in names
                },
            ),
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
    length; unless it is given, it is short for relative positions, and a page shows the first ones
    of the others. `similarity` returns their cosines or dot products, (T, T), by `metric`; unless
    it is given, cosines for a checkpoint, and dot products for seeded layers. Raises InputError for
    an option that this kind does not have, and LayerError for an odd D of rotary positions.

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

    # Find the positions, and refuse what they cannot have, before a layer is opened.
    model_positions = positions_of(source, kind, context_length)
    length = model_positions.length
    check_options(model_positions.kind, pairing=pairing, theta=theta, ids=ids)
    token_ids = parse_ids("0" if ids is None else str(ids))
    if len(token_ids) != 1:
        raise InputError(
            "{ids} must be one token ID, not {count}: {given!r}",
            count=len(token_ids),
            given=str(ids)[:40],
        )
    in_range("context_length", length)
    dim = model_positions.dim
    refuse_too_large("a table of positions", (length, dim))
    theta = DEFAULT_THETA if theta is None else theta
    check_number("theta", theta, 1)
    if model_positions.kind == "rotary" and dim % 2:
        raise LayerError(
            "{dim} must be even, not {given:,}: rotary positions rotate pairs", given=dim
        )
    chosen = select(rows, length, "position")
    # The columns of similarities are other positions.
    column_count = length if similarity else model_positions.columns
    chosen_columns = select(columns, column_count, "column")

    layers = open_layers(source, model_positions, token_ids, similarity, notes)
    is_stored = model_positions.kind == "learned" and not source.origin.is_seeded
    has_length = is_stored or context_length is not None
    return PositionTable(
        model_positions=model_positions,
        layers=layers,
        token_ids=token_ids,
        pairing=pairing or "interleaved",
        theta=theta,
        metric=metric,
        is_similarity=similarity,
        chosen=chosen,
        columns=chosen_columns,
        _rows_chosen=rows is not None,
        _columns_chosen=columns is not None,
        is_long=length > SHORT_LENGTH and not has_length and rows is None,
        notes=notes,
    )


def _metric(source: Source, metric: Similarity | None, is_similarity: bool) -> Similarity:
    """Return how similarities are measured: as the user chose, or as suits the rows.

    Rows of a model have lengths of their own, which a dot product would show.
    """
    if metric is None:
        return "dot" if source.origin.is_seeded else "cosine"
    check_choice("metric", metric, get_args(Similarity))
    if not is_similarity:
        raise InputError(Sentence("{metric} goes with {similarity}"))
    return metric
