"""The lookup: token IDs pick rows of the token matrix, and a model's steps make input rows of them.

`lookup` makes a Lookup, which is plain data; its rows are computed when somebody asks for them.
`plan` decides which steps the rows go through, `numerics/steps.py` applies them, and `page` shows
the result.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from embcli.errors import Notes, check_choice, check_choices
from embcli.layer import Layers, shape_of
from embcli.names import MATRICES, MatrixName
from embcli.numerics.steps import Term, apply
from embcli.opened import Opened, TextOrIds
from embcli.positions import DEFAULT_KIND, JOINED_KINDS, KINDS, JoinedKind, kind_named
from embcli.recipe import AddType, Project, Recipe, Scale, in_words
from embcli.records import ArraySpec, Document, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import Selection, select
from embcli.tokens import Tokens, check_ids, check_length
from embcli.verbs.lookup.plan import Plan, check_trace, context_rows, occurrences, plan_of
from embcli.wording import Sentence

_NOT_HIDDEN = (
    "the matrix is input, not hidden, which the first block reads; {show} hidden chooses it"
)


@dataclass(frozen=True, eq=False)
class Lookup(Result, verb="lookup"):
    """The result of a lookup.

    The (T, D) token rows and what the plan's steps add to them are the (T, D) input embeddings.
    Rows are computed when they are asked for, so that memory does not grow with the number of
    tokens.
    """

    tokens: Tokens
    plan: Plan
    layers: Layers  # those that the plan needs; `token` is (V, D)
    columns: np.ndarray  # the columns of the token layer, (chosen columns,) int64
    _columns_chosen: bool  # whether the user chose them
    chosen: np.ndarray  # the tokens that are looked up, (n,) int64: all, or some
    matrices: Names
    shown: Names  # those on a page
    _matrices_chosen: bool  # whether the user chose them
    trace: int | None  # the token whose sum a page writes out
    draw: bool

    token = MatrixOf("Token rows, (T, D), or (B, T, D) of a batch, float32")
    position = MatrixOf("Position rows, (T, D) or (B, T, D) float32")
    input = MatrixOf("Input embeddings, (T, D) or (B, T, D) float32: token + position")
    hidden = MatrixOf("What the first block reads, (T, H) float32, if that is not the input")

    @property
    def ids(self) -> np.ndarray:
        """The IDs of the tokens that are looked up, (n,) int64, as torch's layers take them."""
        return np.asarray(self.tokens.ids[self.chosen], np.int64)

    def _columns_of(self, name: str) -> np.ndarray:
        """Return the columns of a matrix that are shown, (columns,) int64."""
        recipe = self.plan.recipe
        if name == "hidden" and recipe and recipe.width != self.layers["token"].shape[1]:
            return np.arange(recipe.width)
        return self.columns

    def rows(self, index: np.ndarray, names: Names) -> dict[str, np.ndarray]:
        """Return at least the named matrices for these tokens, each (n, its columns) float32."""
        return {term.name: term.values for term in self.terms_of_sum(index, names)}

    def terms_of_sum(self, index: np.ndarray, names: Names) -> list[Term]:
        """Return the terms of the sum of these tokens, and its results, `input` and `hidden`.

        Only those that the named matrices, of this lookup, need are computed.
        """
        plan = self.plan
        ids = self.tokens.ids[index]
        _, places = self.tokens.places(index)
        rows = self.layers["token"].rows(ids)
        terms = [Term("token", "", rows, ids)]
        if names != ("token",):
            rows, added = apply(
                plan.input_steps, rows, self._positions[index], self.layers, plan.recipe
            )
            terms += added
            terms.append(Term("input", "=", rows, places))
        if "hidden" in names:
            terms.append(Term("hidden", "", self._hidden(index, rows), places))
        if not self._columns_chosen:
            return terms
        return [term._replace(values=term.values[:, self._columns_of(term.name)]) for term in terms]

    def _hidden(self, index: np.ndarray, input_rows: np.ndarray) -> np.ndarray:
        """Return what the first block reads at these tokens, (n, D) -> (n, H) float32."""
        plan = self.plan
        if plan.recipe is None or Project not in map(type, plan.hidden_steps):
            hidden, _ = apply(
                plan.hidden_steps, input_rows, self._positions[index], self.layers, plan.recipe
            )
            return hidden

        # A projection needs the rows of whole sequences.
        hidden = np.empty((len(index), plan.recipe.width), np.float32)
        sequence, place = self.tokens.places(index)
        for number in np.unique(sequence).tolist():
            whole = np.arange(self.tokens.starts[number], self.tokens.starts[number + 1])
            rows = self.layers["token"].rows(self.tokens.ids[whole])
            projected, _ = apply(
                plan.recipe.steps, rows, self._positions[whole], self.layers, plan.recipe
            )
            is_here = sequence == number
            hidden[is_here] = projected[place[is_here]]
        return hidden

    @cached_property
    def _positions(self) -> np.ndarray:
        """The positions of all tokens, (T,) int64; -1 for padding that positions do not count."""
        is_counted = np.ones(len(self.tokens), bool)
        recipe = self.plan.recipe
        if recipe is not None and recipe.padding is not None:
            is_counted = self.tokens.ids != recipe.padding
        counts = np.concatenate([[0], np.cumsum(is_counted)])  # counted tokens before each place
        starts = self.tokens.starts
        return np.where(
            is_counted, counts[:-1] - np.repeat(counts[starts[:-1]], np.diff(starts)), -1
        )

    def _records(self) -> Records:
        rows = len(self.chosen)
        matrices = {}
        for name in self.matrices:
            columns = tuple(self._columns_of(name).tolist())
            matrices[name] = ArraySpec((rows, len(columns)), columns=columns)
        return Records(
            run=self._run(),
            unit="tokens",
            rows=rows,
            fields=self.tokens.field_types,
            pieces=in_pieces(
                rows,
                self.layers["token"].shape[1],
                lambda places, names: self.tokens.fields(self.chosen[places], names),
                lambda places, names: self.rows(self.chosen[places], names),
            ),
            matrices=matrices,
            columns=matrices["input"].columns,
            default="input",
            default_remark=Sentence(_NOT_HIDDEN) if "hidden" in self.matrices else "",
            shown=self.shown if self._matrices_chosen else None,
            sequences=self.tokens.sequences,
            batch=self.tokens.shape if rows == len(self.tokens) else (),
        )

    def _run(self) -> Document:
        plan = self.plan
        run = run_of(
            self.tokens.encoding,
            sequences=self.tokens.sequences,
            **self.layers.origin.document(),
        )
        if plan.kind != DEFAULT_KIND:
            run["kind"] = plan.kind
        for step in (*plan.input_steps, *plan.hidden_steps):
            if isinstance(step, AddType):
                run["token_type"] = step.row
                run["sum"] = in_words(plan.input_steps)
        if plan.recipe is not None:
            run["recipe"] = plan.recipe.words
            if plan.recipe.part:
                run["part"] = plan.recipe.part
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
    position = _joined_kind(position)
    asked = check_choices("show", show or (), (*MATRICES, "all"))
    if "all" in asked:
        asked = ()
    if draw and not asked:
        asked = ("token",)

    # Plan the sum, and refuse what cannot be looked up, before a layer is opened.
    vocabulary_size, dim = shape_of(source, "token")
    is_seeded = source.origin.is_seeded
    chosen = np.arange(len(tokens)) if only is None else occurrences(tokens, only)
    check_ids(tokens, vocabulary_size, can_enlarge=is_seeded)
    plan = plan_of(source, position, asked, notes)
    matrices = plan.matrices(asked)
    wanted = plan.wanted_rows(tokens)
    if "position" in wanted:
        context_length, _ = shape_of(source, "position")
        check_length(tokens, context_length, can_enlarge=is_seeded)
    if trace is not None:
        check_trace(trace, plan, tokens)
    chosen_columns = select(columns, dim, "column")

    # Open the layers for the rows that tokens pick and that a drawing shows.
    if draw:
        wanted["token"] = np.concatenate([tokens.ids, context_rows(vocabulary_size)])
    layers = source.open(wanted, notes)
    if plan.recipe is not None:
        _remark_differences(plan.recipe, layers.origin.dtypes["token"], notes)
    return Lookup(
        tokens=tokens,
        plan=plan,
        layers=layers,
        columns=chosen_columns,
        _columns_chosen=columns is not None,
        chosen=chosen,
        matrices=matrices,
        shown=tuple(name for name in matrices if name in asked) or matrices,
        _matrices_chosen=bool(show),
        trace=trace,
        draw=draw,
        notes=notes,
    )


def _joined_kind(name: str | None) -> JoinedKind | None:
    """Return the kind of positions with this name; raises InputError for one that is not added."""
    kind: JoinedKind | None = kind_named(name)
    hint = ""
    if kind in KINDS:
        hint = f"The kind {kind} is not added to token rows; embcli positions {kind} shows it"
    if kind not in JOINED_KINDS:
        check_choice("position", name, JOINED_KINDS, hint)
    return kind


def _remark_differences(recipe: Recipe, dtype: str, notes: Notes) -> None:
    """Add notes on what the model does otherwise: a rounded scale, and what no step repeats."""
    from embcli.files.numbers import rounded_to

    factor = np.array([recipe.scale], np.float32)
    rounded = rounded_to(dtype, factor)
    is_rounded = any(isinstance(step, Scale) and step.is_rounded for step in recipe.steps)
    if is_rounded and dtype.endswith("float16") and rounded != factor:
        notes.add(
            f"the scale is {factor[0]:.6g} in float32; the model in {dtype} rounds it to "
            f"{rounded[0]:.6g} first"
        )
    if recipe.remark:
        notes.add(recipe.remark)
