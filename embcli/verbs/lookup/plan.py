"""What a lookup will do: which steps make its rows, and which tokens it is about.

`lookup` asks these functions before it opens the layers. They look at the tokens and at what the
source says about its model, never at a row, and raise InputError for options that cannot be met.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError, Notes, whole_number
from embcli.layer import Source
from embcli.positions import DEFAULT_KIND, NO_POSITIONS, JoinedKind
from embcli.recipe import AddPosition, AddType, Recipe, RecipeStep, in_words
from embcli.records import Names
from embcli.text import parse_ids
from embcli.tokens import Tokens, hint_at_token, id_in_words
from embcli.wording import Sentence, counted


@dataclass(frozen=True)
class Plan:
    """The steps of a lookup, from a token row to what the first block of a model reads."""

    kind: JoinedKind  # the kind of positions
    sum: tuple[RecipeStep, ...]  # they make an input embedding of a token row
    rest: tuple[RecipeStep, ...] = ()  # they make `hidden` of the input embedding
    recipe: Recipe | None = None  # None unless the lookup follows the model's own recipe

    @property
    def steps(self) -> tuple[RecipeStep, ...]:
        return (*self.sum, *self.rest)

    @property
    def token_types(self) -> np.ndarray:
        """The rows of token types that the steps add, (n,) int64."""
        rows = [step.row for step in self.steps if isinstance(step, AddType)]
        return np.array(rows, np.int64)

    @property
    def sinusoid_step(self) -> AddPosition | None:
        """The step that adds the model's own sinusoids, whose formula differs from the paper's."""
        step = self.recipe.position if self.recipe else None
        return step if step and step.sinusoid_formula else None

    @property
    def needs_position_layer(self) -> bool:
        if self.kind == "sinusoidal" or self.sinusoid_step:
            return False
        has_step = any(isinstance(step, AddPosition) for step in self.steps)
        return has_step or self.kind == DEFAULT_KIND

    def wanted_rows(self, tokens: Tokens) -> dict[str, np.ndarray]:
        """Return the rows that the tokens need of each layer, (n,) integers by the layer's name."""
        wanted = {"token": tokens.ids}
        if self.needs_position_layer:
            wanted["position"] = np.arange(tokens.longest)
        if len(self.token_types):
            wanted["token_type"] = self.token_types
        return wanted


def plan_of(source: Source, position: JoinedKind | None, matrices: Names, notes: Notes) -> Plan:
    """Return the plan for the positions and the matrices that the user asks for.

    Notes say what the source leaves open. Raises InputError for `hidden` if nothing says how this
    model makes it, or if the user asks for other positions than the model's.
    """
    is_default = position in (None, DEFAULT_KIND)
    is_seeded = source.origin.is_seeded
    if matrices == ("token",) and is_default:
        # Token rows are the same whatever the recipe says.
        if is_seeded:
            return Plan(DEFAULT_KIND, (AddPosition(),))
        return Plan(NO_POSITIONS, ())

    model = _ModelSum.of(source)
    recipe = model.recipe
    if recipe is None and source.orphan_norm:
        norm = quoted(source.orphan_norm)
        notes.add(f"no file says how the model applies {norm}: these rows are before it")
    if is_default:
        _remark_additions(model, notes)

    if recipe is not None and recipe.is_known and model.has(position):
        return Plan(model.kind, recipe.sum, recipe.rest, recipe)
    if "hidden" in matrices and not is_seeded:
        raise InputError(_why_no_hidden(recipe))

    kind = position or model.kind
    if position == DEFAULT_KIND and not model.has_position_layer:
        kind = NO_POSITIONS
    steps: list[RecipeStep] = []
    if is_default and model.has_types:
        steps.append(AddType())
    if kind != NO_POSITIONS:
        steps.append(AddPosition())
    return Plan(kind, tuple(steps))


@dataclass(frozen=True)
class _ModelSum:
    """The sum that a model itself makes of its token rows, according to its files."""

    recipe: Recipe | None  # None if nothing names the type of the model
    has_position_layer: bool
    has_types: bool  # whether there are token types, and no recipe says how they are used

    @classmethod
    def of(cls, source: Source) -> _ModelSum:
        recipe = source.recipe
        has_position_layer = source.shape("position") is not None
        has_types = False
        if recipe is None and not source.origin.is_seeded:
            has_types = source.shape("token_type") is not None
        return cls(recipe, has_position_layer, has_types)

    @property
    def kind(self) -> JoinedKind:
        """The kind of the positions in the input embeddings."""
        if self.recipe is None:
            return DEFAULT_KIND if self.has_position_layer else NO_POSITIONS
        step = self.recipe.position
        if step is None or step not in self.recipe.sum:
            return NO_POSITIONS
        return "sinusoidal" if step.sinusoid_formula else DEFAULT_KIND

    def has(self, position: JoinedKind | None) -> bool:
        """Return whether the model's positions are of this kind; None stands for any."""
        if position in (None, self.kind):
            return True
        # Position rows that are added after a projection are learned, too.
        step = self.recipe.position if self.recipe else None
        return position == DEFAULT_KIND and step is not None and not step.sinusoid_formula


def _remark_additions(model: _ModelSum, notes: Notes) -> None:
    """Add a note if a token type is added that no file asks for, or if no positions are added."""
    has_step = model.recipe is not None and model.recipe.position is not None
    if model.has_types:
        notes.add(
            "no file says so, but a model with token types adds the row of one: here that of type 0"
        )
    elif model.kind == NO_POSITIONS and not has_step:
        notes.add(_why_no_positions(model.recipe))


def _why_no_positions(recipe: Recipe | None) -> str:
    if recipe is None:
        return (
            "no file says what the model adds to the token rows: the input rows are the token rows"
        )
    if recipe.is_known:
        blocks = f"; {recipe.blocks}" if recipe.blocks else ""
        rows = in_words(recipe.sum).replace("token", "token rows", 1)
        return f"this model adds no position rows{blocks}: the input rows are the {rows}"
    model = quoted(recipe.model)
    reason = f": {recipe.unknown}" if recipe.unknown else ""
    return (
        f"what a {model} model adds to the token rows is not known{reason}; "
        "the input rows are the token rows"
    )


def _why_no_hidden(recipe: Recipe | None) -> Sentence:
    if recipe is not None and recipe.is_known:
        return Sentence(
            "{show} hidden, what the first block reads, follows the positions of the model; "
            "leave out {position}"
        )
    return Sentence("{show} hidden, what the first block reads, is not known for this model")


def check_trace(trace: int, plan: Plan, tokens: Tokens) -> None:
    """Raise InputError if there is no sum to write out, or no such token."""
    if not plan.steps:
        wrong = "{trace} writes out a sum; {position} {kind} adds nothing"
        raise InputError(Sentence(wrong, kind=plan.kind))
    if not 0 <= whole_number("trace", trace) < len(tokens):
        wrong = "{trace} {given} is not one of {tokens}, counted from 0"
        raise InputError(Sentence(wrong, given=trace, tokens=counted(len(tokens), "token")))


_IDS = re.compile(r"[0-9]+(,[0-9]+)*")


def occurrences(tokens: Tokens, text: str, special: bool) -> np.ndarray:
    """Return where the tokens of a text, or of IDs (only digits), occur, (n,) int64.

    Raises InputError for a token that does not occur.
    """
    if not isinstance(text, str):
        wrong = "{only} must be a text such as 'Paris' or '345', not {given}"
        raise InputError(Sentence(wrong, given=str(text)[:40]))
    short_text = text[:40]
    encoding = tokens.encoding
    is_ids = _IDS.fullmatch(text) is not None
    if is_ids:
        wanted = parse_ids(text)
    elif encoding is not None:
        wanted = encoding.encode(text, special)
    else:
        wrong = "{only} {given!r} is a text; IDs without an encoding take an ID"
        raise InputError(Sentence(wrong, given=short_text))
    if not len(wanted):
        wrong = "{only} {given!r} has no tokens; give a token that occurs"
        raise InputError(Sentence(wrong, given=short_text))

    is_wanted = np.zeros(len(tokens), bool)
    for token_id, token in zip(wanted.tolist(), tokens.bytes_of(wanted), strict=True):
        is_here = tokens.ids == token_id
        if not is_here.any():
            absent = f"{id_in_words(token_id, token)} does not occur"
            absent += "; embcli tokenize shows which tokens do"
            if is_ids and encoding is not None:
                absent += "; digits are an ID, with a space before them a text"
            raise InputError(
                Sentence("{only} {given!r}: {absent}", given=short_text, absent=absent),
                hint_at_token(text, tokens.bytes_of(tokens.ids)),
            )
        is_wanted |= is_here
    return np.flatnonzero(is_wanted)


_SMALL_VOCABULARY = 12  # rows of a token layer that a drawing shows completely


def context_rows(vocabulary_size: int) -> np.ndarray:
    """Return the rows that a drawing shows beside those that are picked, (n,) int64."""
    if vocabulary_size <= _SMALL_VOCABULARY:
        return np.arange(vocabulary_size)
    return np.array([0, vocabulary_size - 1])
