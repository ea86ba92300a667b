"""Which positions are shown: the kind, how many there are, and the layers that they need.

A user can choose the kind and T for seeded layers. A checkpoint has its own: the rows that it
stores, or the formula of its sinusoids.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError, Notes
from embcli.layer import Layers, Source, shape_of
from embcli.names import DEFAULT_CONTEXT_LENGTH
from embcli.positions import DEFAULT_KIND, ROWS, PositionKind
from embcli.recipe import AddPosition
from embcli.text import Sequences, encode_sequences
from embcli.tokens import check_ids


class ModelPositions(NamedTuple):
    """The positions that are shown of a model."""

    kind: PositionKind
    reason: str  # says why a model has this kind; empty if the user chose it
    length: int  # T
    dim: int  # D
    model_step: AddPosition | None = None  # the step of a model that adds sinusoids, if it does

    @property
    def columns(self) -> int:
        """The columns of its first matrix: D, or D/2 for pairs of columns."""
        return self.dim // ROWS[self.kind].columns_per_number


def positions_of(
    source: Source, kind: PositionKind | None, context_length: int | None
) -> ModelPositions:
    """Return the kind that was chosen, or that of the model, with its T and D.

    Raises InputError for a kind that this model does not have.
    """
    recipe = source.recipe
    model_step = None
    if recipe is not None and recipe.position and recipe.position.sinusoid_formula:
        model_step = recipe.position

    reason = ""
    if kind is None:
        kind = DEFAULT_KIND
        reason = _why_default(source)
        if reason and model_step:
            kind = "sinusoidal"
    if source.origin.is_seeded or (kind == "sinusoidal" and model_step):
        if context_length is None:
            context_length = _default_length(source, kind)
        _, dim = shape_of(source, "token")
        return ModelPositions(kind, reason, context_length, dim, model_step)

    if kind != DEFAULT_KIND:
        raise InputError("{kind} {name} is computed, not read from a file", name=kind)
    shape = source.shape("position")
    if shape is None:
        raise InputError(f"this model has no {kind} positions")
    length, dim = shape
    return ModelPositions(kind, reason, length, dim)


def _why_default(source: Source) -> str:
    """Return what a model's files say about its positions; empty if they say nothing.

    Raises InputError if they say that it adds no positions, or if nothing is known of them.
    """
    recipe = source.recipe
    if recipe is None:
        return ""
    if not recipe.is_known:
        if source.shape("position") is None:
            raise InputError(f"which positions a {quoted(recipe.model)} model has is not known")
        return ""
    reason = recipe.positions_in_words
    if recipe.position is None:
        raise InputError(f"{reason}; no position rows are added, so there is nothing to show")
    return reason


def _default_length(source: Source, kind: PositionKind) -> int:
    """Return T for positions that are drawn or computed."""
    length = ROWS[kind].length
    if not length and source.origin.is_seeded:
        length, _ = shape_of(source, "position")
    return length or DEFAULT_CONTEXT_LENGTH


def open_layers(
    source: Source,
    model_positions: ModelPositions,
    token_ids: np.ndarray,
    is_similarity: bool,
    notes: Notes,
) -> Layers:
    """Open the layers that this kind needs; raise InputError for a token ID without a row."""
    row = ROWS[model_positions.kind]
    layers = row.layers
    if is_similarity:
        layers += row.layers_of_similarity
    wanted: dict[str, np.ndarray | None] = {}
    if "token" in layers:
        wanted["token"] = token_ids
        tokens = encode_sequences(Sequences(ids=(token_ids,)), source.encoding)
        check_ids(tokens, shape_of(source, "token")[0])
    if "position" in layers:
        wanted["position"] = None
    return source.resized(row.layer_rows or model_positions.length).open(wanted, notes)
