"""The lookup: token IDs pick rows of the token matrix, and a model's steps make input rows of them.

`lookup` makes a Lookup, which is plain data; its rows are computed when somebody asks for them.
`plan` decides which steps the rows go through, `numerics/steps.py` applies them, and `page` shows
the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from embcli.errors import InputError, Notes, check_choice
from embcli.layer import Layer, Layers, Origin, shape_of
from embcli.names import MATRICES, MatrixName
from embcli.numerics.steps import StepValues, Term, sinusoids
from embcli.opened import Opened, TextOrIds
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, KINDS, NO_POSITIONS, JoinedKind, kind_named
from embcli.positions.kind import Rows
from embcli.positions.sinusoidal import wave_rows
from embcli.recipe import AddType, Project, Recipe, RecipeStep, Scale, in_words
from embcli.records import ArraySpec, Document, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import Selection, select
from embcli.tokens import Tokens, check_ids, check_length
from embcli.verbs.lookup.plan import Plan, check_trace, context_rows, occurrences, plan_of
from embcli.wording import Sentence, counted

__all__ = ["Lookup", "context_rows", "lookup"]


_NOT_HIDDEN = Sentence(
    "the matrix is input, not hidden, which the first block reads; {show} hidden chooses it"
)


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup"):
    """The result of a lookup.

    The (T, D) token rows and what `steps` add to them are the (T, D) input embeddings. Rows are
    computed when they are asked for, so that memory does not grow with the number of tokens.
    """

    tokens: Tokens
    layer: Layer  # (V, D)
    kind: JoinedKind  # the kind of positions
    columns: np.ndarray  # the columns of the token layer, (chosen columns,) int64
    _columns_chosen: bool  # whether the user chose them
    origin: Origin
    steps: tuple[RecipeStep, ...]  # they make an input embedding of a token row
    _step_values: StepValues  # what the steps add
    rest: tuple[RecipeStep, ...]  # from the input embedding to `hidden`; empty if the input is that
    position_source: str  # where position rows come from, in words
    matrices: Names
    show: Names | None  # the matrices that the user chose
    recipe: Recipe | None = None  # None for seeded layers, and if it is unknown or not followed
    only: np.ndarray | None = None  # the tokens that are looked up, (n,) int64; None for all
    trace: int | None = None  # the token whose sum a page writes out
    draw: bool = False

    token = MatrixOf()  # (n, D) float32
    position = MatrixOf()  # (n, D) float32
    input = MatrixOf()  # (n, D) float32, the answer
    hidden = MatrixOf()  # (n, H) float32, what the first block reads, if that is not the input

    @property
    def ids(self) -> np.ndarray:
        """The IDs of the tokens that are looked up, (n,) int64, as torch's layers take them."""
        ids = self.tokens.ids if self.only is None else self.tokens.ids[self.only]
        return ids.astype(np.int64)

    def __len__(self) -> int:
        return len(self.tokens) if self.only is None else len(self.only)

    @property
    def shown(self) -> Names:
        chosen = self.show
        if not chosen:
            chosen = ("token",) if self.draw else self.matrices
        return tuple(name for name in self.matrices if name in chosen)

    def index(self, places: np.ndarray) -> np.ndarray:
        """Return the tokens at these places among those that are looked up, (n,) int64."""
        return places if self.only is None else self.only[places]

    def _columns_of(self, name: str) -> np.ndarray:
        if name == "hidden" and self.recipe and self.recipe.width != self.layer.shape[1]:
            return np.arange(self.recipe.width)
        return self.columns

    def rows(self, index: np.ndarray, names: Names = MATRICES) -> dict[str, np.ndarray]:
        """Return the named matrices for these tokens, each (n, its columns) float32."""
        terms = {term.name: term.values for term in self.terms(index, names)}
        return {name: terms[name] for name in names if name in self.matrices}

    def terms(self, index: np.ndarray, names: Names = MATRICES) -> list[Term]:
        """Return what the names need of these tokens: the terms of their sum, input and hidden."""
        ids = self.tokens.ids[index]
        _, places = self.tokens.places(index)
        rows = self.layer.rows(ids)
        terms = [Term("token", "", rows, ids)]
        if {"position", "input", "hidden"} & {*names}:
            rows, added = self._step_values.apply(self.steps, rows, self._positions[index])
            terms += added
            terms.append(Term("input", "=", rows, places))
        if "hidden" in names and "hidden" in self.matrices:
            terms.append(Term("hidden", "", self._hidden(index, rows), places))
        return [term._replace(values=term.values[:, self._columns_of(term.name)]) for term in terms]

    def _hidden(self, index: np.ndarray, input_rows: np.ndarray) -> np.ndarray:
        """Return what the first block reads at these tokens, (n, D) -> (n, H) float32."""
        if not any(isinstance(step, Project) for step in self.rest):
            hidden, _ = self._step_values.apply(self.rest, input_rows, self._positions[index])
            return hidden

        width = self.recipe.width if self.recipe else 0
        hidden = np.empty((len(index), width), np.float32)
        sequence, place = self.tokens.places(index)
        for number in np.unique(sequence).tolist():
            is_here = sequence == number
            hidden[is_here] = self._hidden_of_sequence(number)[place[is_here]]
        return hidden

    def _hidden_of_sequence(self, number: int) -> np.ndarray:
        """Return what the first block reads of a whole sequence, (t, H), as a projection needs."""
        index = np.arange(self.tokens.starts[number], self.tokens.starts[number + 1])
        rows = self.layer.rows(self.tokens.ids[index])
        steps = (*self.steps, *self.rest)
        hidden, _ = self._step_values.apply(steps, rows, self._positions[index])
        return hidden

    @cached_property
    def _positions(self) -> np.ndarray:
        """The positions of all tokens, (T,) int64; -1 for padding that positions do not count."""
        is_counted = np.ones(len(self.tokens), bool)
        if self.recipe and self.recipe.padding is not None:
            is_counted = self.tokens.ids != self.recipe.padding
        counts = np.concatenate([[0], np.cumsum(is_counted)])  # counted tokens before each place
        starts = self.tokens.starts
        counts_at_start = np.repeat(counts[starts[:-1]], np.diff(starts))
        return np.where(is_counted, counts[:-1] - counts_at_start, -1)

    def records(self) -> Records:
        rows = len(self)
        matrices = {}
        for name in self.matrices:
            columns = tuple(self._columns_of(name).tolist())
            matrices[name] = ArraySpec((rows, len(columns)), columns=columns)
        pieces = in_pieces(
            rows,
            self.layer.shape[1],
            lambda places, names: self.tokens.fields(self.index(places), names),
            lambda places, names: self.rows(self.index(places), names),
        )
        return Records(
            run=self._run(),
            unit="tokens",
            rows=rows,
            fields=self.tokens.field_types,
            pieces=pieces,
            matrices=matrices,
            columns=matrices["input"].columns,
            default="input",
            default_remark=_NOT_HIDDEN if "hidden" in self.matrices else "",
            shown=self.show and self.shown,
            sequences=self.tokens.sequences,
            batch=self.tokens.shape if self.only is None else (),
        )

    def _run(self) -> Document:
        origin = self.origin.document()
        run = run_of(self.tokens.encoding, sequences=self.tokens.sequences, **origin)
        if self.kind != DEFAULT_KIND:
            run["kind"] = self.kind
        for step in (*self.steps, *self.rest):
            if isinstance(step, AddType):
                run["token_type"] = step.row
                run["sum"] = in_words(self.steps)
        if self.recipe is not None:
            run["recipe"] = self.recipe.words
            if self.recipe.part:
                run["part"] = self.recipe.part
        return run


def lookup(
    model: Opened,
    text: TextOrIds,
    *,
    special: bool = False,
    no_added: bool = False,
    lines: bool = False,
    window: bool = False,
    show: tuple[MatrixName, ...] | MatrixName | Literal["all"] | None = None,
    columns: Selection | None = None,
    trace: int | None = None,
    draw: bool = False,
    only: str | None = None,
    position: JoinedKind | None = None,
) -> Lookup:
    """Return the rows that tokens pick, (T, D), their position rows, and their sum, the input.

    IDs of shape (B, T), as a batch has them, give matrices of shape (B, T, D).

    `window` splits longer texts into sequences of C tokens, and `position` says which positions are
    added to the token rows. `show` names the matrices to show and save, by default "all"; `only`
    the tokens, by a text or by IDs (only digits); `trace` the token whose sum is written out.
    Raises InputError for tokens without a row, sequences longer than the position layer, and
    options that do not go together.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).lookup([2, 3]).input.shape
    (2, 3)
    """
    # Read the tokens, and check the names that are chosen.
    source = model.source
    notes = model.notes.begun()
    tokens = model.tokens(text, special, lines, notes=notes, has_added=not no_added)
    if window:
        context_length, _ = shape_of(source, "position")
        tokens = tokens.window(context_length)
    position = kind_named(position)
    hint = ""
    if position in KINDS:
        hint = "Rotary and relative positions are not added to a token row; "
        hint += "embcli positions rotary shows them"
    check_choice("position", position, JOINED_KINDS, hint)
    chosen: Names = (show,) if isinstance(show, str) else show or ()
    if "all" in chosen:
        chosen = ()
    for name in chosen:
        check_choice("show", name, MATRICES)
    asked = chosen
    if draw and not asked:
        asked = ("token",)

    # Plan the sum, and refuse what cannot be looked up, before a layer is opened.
    vocabulary_size, dim = shape_of(source, "token")
    is_seeded = source.origin.is_seeded
    chosen_tokens = None if only is None else occurrences(tokens, only, special)
    check_ids(tokens, vocabulary_size, can_enlarge=is_seeded)
    plan = plan_of(source, position, asked, notes)
    if plan.kind == NO_POSITIONS and "position" in asked:
        raise InputError(Sentence("{position} none has no rows that {show} could name"))
    if plan.needs_position_layer:
        context_length, _ = shape_of(source, "position")
        check_length(tokens, context_length, can_enlarge=is_seeded)
    if trace is not None:
        check_trace(trace, plan, tokens)
    chosen_columns = select(columns, dim, "column")

    # Open the layers for the rows that tokens pick and that a drawing shows.
    wanted = plan.wanted_rows(tokens)
    if draw:
        wanted["token"] = np.concatenate([tokens.ids, context_rows(vocabulary_size)])
    layers = source.open(wanted, notes)
    positions = _position_rows(plan, layers)
    if plan.recipe is not None:
        _remark_differences(plan.recipe, tokens, layers.origin.dtypes["token"], notes)

    return Lookup(
        tokens=tokens,
        layer=layers["token"],
        kind=plan.kind,
        columns=chosen_columns,
        _columns_chosen=columns is not None,
        origin=layers.origin,
        steps=plan.sum,
        rest=plan.rest,
        _step_values=_step_values(plan, layers, positions.rows),
        position_source=positions.source,
        matrices=tuple(_matrices(plan, asked)),
        show=chosen or None,
        recipe=plan.recipe,
        only=chosen_tokens,
        trace=trace,
        draw=draw,
        notes=notes,
    )


def _matrices(plan: Plan, asked: Names) -> Iterator[MatrixName]:
    yield "token"
    if plan.kind != NO_POSITIONS:
        yield "position"
    yield "input"
    if plan.rest or "hidden" in asked:
        yield "hidden"


class _PositionRows(NamedTuple):
    rows: Rows | None  # positions (n,) -> (n, D) float32; None if nothing adds positions
    source: str  # in words


def _position_rows(plan: Plan, layers: Layers) -> _PositionRows:
    dim = layers["token"].shape[1]
    if plan.sinusoid_step:
        source = "the model's own sinusoids, sines in the first half of the columns, then cosines"
        return _PositionRows(partial(sinusoids, plan.sinusoid_step, dim), source)
    if plan.kind == "sinusoidal":
        source = "columns 2i and 2i + 1 are the sine and cosine of p · 10,000^(-2i/D)"
        return _PositionRows(partial(wave_rows, dim), source)
    if not plan.needs_position_layer:
        return _PositionRows(None, "")

    layer = layers["position"]
    first = layers.origin.first_position
    row = f"row p + {first}" if first else "row p"
    return _PositionRows(layer.rows, f"{row} of C = {counted(layer.shape[0], 'position')}")


def _step_values(plan: Plan, layers: Layers, position_rows: Rows | None) -> StepValues:
    token_type = np.empty((0, 0), np.float32)
    if len(plan.token_types):
        token_type = layers["token_type"].rows(plan.token_types)
    tensors: dict[str, np.ndarray] = {}
    tensor = plan.recipe.values if plan.recipe else tensors.__getitem__
    return StepValues(position_rows, token_type, tensor)


def _remark_differences(recipe: Recipe, tokens: Tokens, dtype: str, notes: Notes) -> None:
    """Add notes on what the model does otherwise: a rounded scale, and tokens with quirks."""
    from embcli.files.numbers import rounded_to

    factor = np.array([recipe.scale], np.float32)
    rounded = rounded_to(dtype, factor)
    is_rounded = any(isinstance(step, Scale) and step.is_rounded for step in recipe.steps)
    if is_rounded and dtype.endswith("float16") and rounded != factor:
        in_float32 = f"the scale is {factor[0]:.6g} in float32"
        notes.add(f"{in_float32}; the model in {dtype} rounds it to {rounded[0]:.6g} first")
    for token_id, reason in recipe.quirks:
        if (tokens.ids == token_id).any():
            notes.add(f"ID {token_id}: {reason}")
