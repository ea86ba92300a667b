"""What a lookup will do: which steps make its rows, and which tokens it is about.

`lookup` asks these functions before it opens the layers. They look at the tokens and at what the
source says about its model, never at a row, and raise InputError for options that cannot be met.
"""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError, Notes, RangeError, WrongTypeError, whole_number
from embcli.layer import Source
from embcli.positions import DEFAULT_KIND, NO_POSITIONS, JoinedKind
from embcli.recipe import AddPosition, AddType, Recipe, Steps, in_words
from embcli.records import Names
from embcli.text import parse_ids
from embcli.tokens import Tokens, hint_at_token, id_in_words
from embcli.wording import Sentence, counted


class Plan(NamedTuple):
    """The steps of a lookup, from a token row to what the first block of a model reads."""

    kind: JoinedKind  # the kind of positions in the input embeddings
    input_steps: Steps  # they make an input embedding of a token row
    hidden_steps: Steps = ()  # they make `hidden` of the input embedding
    recipe: Recipe | None = None  # None unless the lookup follows the model's own recipe

    def matrices(self, asked: Names) -> Names:
        """Return the names of the matrices that a lookup has, if the user asks for these.

        Raises InputError for a matrix that it does not have.
        """
        names = ["token", "input"]
        if self.kind != NO_POSITIONS:
            names.insert(1, "position")
        if self.hidden_steps or "hidden" in asked:
            names.append("hidden")
        for name in asked:
            if name not in names:
                raise InputError(
                    "{position} {kind} has no rows that {show} {name} could mean",
                    kind=self.kind,
                    name=name,
                )
        return tuple(names)

    def wanted_rows(self, tokens: Tokens) -> dict[str, np.ndarray]:
        """Return the rows that the tokens need of each layer, (n,) integers by the layer's name."""
        wanted = {"token": tokens.ids}
        steps = (*self.input_steps, *self.hidden_steps)
        if _kind_of(steps) == DEFAULT_KIND:
            wanted["position"] = np.arange(tokens.longest)
        for step in steps:
            if isinstance(step, AddType):
                wanted["token_type"] = np.array([step.row])
        return wanted


# What is added to the rows of a model without a recipe.
_STEPS_OF_KIND = {
    "learned": (AddPosition(),),
    "sinusoidal": (AddPosition(sinusoid_formula="paper"),),
    "none": (),
}


def plan_of(source: Source, position: JoinedKind | None, matrices: Names, notes: Notes) -> Plan:
    """Return the plan for the positions and the matrices that the user asks for.

    Notes say what the source leaves open. Raises InputError for `hidden` if nothing says how this
    model makes it, or if the user asks for other positions than the model's.
    """
    is_default = position in (None, DEFAULT_KIND)
    if source.origin.is_seeded:
        kind = position or DEFAULT_KIND
        return Plan(kind, _STEPS_OF_KIND[kind])
    if matrices == ("token",) and is_default:
        return Plan(NO_POSITIONS, ())  # Token rows are the same whatever the recipe says.

    # What the model itself adds to its token rows, according to its files.
    recipe = source.recipe
    steps = _stored_steps(source) if recipe is None else recipe.steps
    _remark_guesses(source, steps, is_default, notes)
    if recipe is not None and recipe.is_known:
        model_kind = _kind_of(recipe.input_steps)
        if position in (None, model_kind, _kind_of(steps)):
            return Plan(model_kind, recipe.input_steps, recipe.hidden_steps, recipe)
    if "hidden" in matrices:
        raise InputError(Sentence(_why_no_hidden(recipe)))
    if recipe is None and is_default:
        return Plan(_kind_of(steps), steps)
    return _plan_of_kind(source, position or NO_POSITIONS)


def _why_no_hidden(recipe: Recipe | None) -> str:
    if recipe is None or not recipe.is_known:
        return "{show} hidden, what the first block reads, is not known for this model"
    return (
        "{show} hidden, what the first block reads, follows the positions of the model; "
        "leave out {position}"
    )


def _plan_of_kind(source: Source, kind: JoinedKind) -> Plan:
    """Return the plan for positions that the user chose, or for none if the file has no layer."""
    if kind == DEFAULT_KIND and source.shape("position") is None:
        kind = NO_POSITIONS
    return Plan(kind, _STEPS_OF_KIND[kind])


def _stored_steps(source: Source) -> Steps:
    """Return the steps of a model without a recipe: they add the layers that it has."""
    positions = _plan_of_kind(source, DEFAULT_KIND).input_steps
    if source.shape("token_type") is None:
        return positions
    return AddType(), *positions


def _remark_guesses(source: Source, steps: Steps, is_default: bool, notes: Notes) -> None:
    """Add notes on what no file says, and by default one if the model adds no positions."""
    recipe = source.recipe
    if recipe is None and source.orphan_norm:
        notes.add(
            f"no file says how the model applies {quoted(source.orphan_norm)}: "
            "these rows are before it"
        )
    if not is_default:
        return
    if recipe is None and AddType() in steps:
        notes.add(
            "no file says so, but a model with token types adds the row of one: here that of type 0"
        )
    elif _kind_of(steps) == NO_POSITIONS:
        notes.add(_why_no_positions(recipe))


def _kind_of(steps: Steps) -> JoinedKind:
    """Return the kind of the positions that steps add."""
    for step in steps:
        if isinstance(step, AddPosition):
            return "sinusoidal" if step.sinusoid_formula else "learned"
    return NO_POSITIONS


def _why_no_positions(recipe: Recipe | None) -> str:
    if recipe is None:
        return (
            "no file says what the model adds to the token rows: the input rows are the token rows"
        )
    if recipe.is_known:
        blocks = f"; {recipe.blocks}" if recipe.blocks else ""
        return f"this model adds no position rows{blocks}: the input rows are the " + in_words(
            recipe.input_steps
        ).replace("token", "token rows", 1)
    reason = f": {recipe.unknown}" if recipe.unknown else ""
    return (
        f"what a {quoted(recipe.model)} model adds to the token rows is not known{reason}; "
        "the input rows are the token rows"
    )


def check_trace(trace: int, plan: Plan, tokens: Tokens) -> None:
    """Raise InputError if there is no sum to write out, or no such token."""
    if not (plan.input_steps or plan.hidden_steps):
        raise InputError("{trace} writes out a sum; {position} {kind} adds nothing", kind=plan.kind)
    if not 0 <= whole_number("trace", trace) < len(tokens):
        wrong = "{trace} {given} is not one of {tokens}, counted from 0"
        raise RangeError(wrong, given=trace, tokens=counted(len(tokens), "token"))


_IDS = re.compile(r"[0-9]+(,[0-9]+)*")


def occurrences(tokens: Tokens, text: str) -> np.ndarray:
    """Return where the tokens of a text, or of IDs (only digits), occur, (n,) int64.

    Raises InputError for a token that does not occur.
    """
    if not isinstance(text, str):
        raise WrongTypeError(
            "{only} must be a text such as 'Paris' or '345', not {given}", given=str(text)[:40]
        )
    reading = tokens.reading
    is_ids = _IDS.fullmatch(text) is not None
    if is_ids:
        wanted = parse_ids(text)
    elif reading is not None:
        wanted = reading.ids(text)
    else:
        raise InputError(
            "{only} {given!r} is a text; IDs without an encoding take an ID", given=text
        )
    if not len(wanted):
        raise InputError("{only} {given!r} has no tokens; give a token that occurs", given=text)

    missing = wanted[~np.isin(wanted, tokens.ids)]
    if len(missing):
        absent = (
            f"{id_in_words(int(missing[0]), tokens.bytes_of(missing)[0])} does not occur; "
            "embcli tokenize shows which tokens do"
        )
        if is_ids and reading is not None:
            absent += "; digits are an ID, with a space before them a text"
        raise InputError(
            "{only} {given!r}: {absent}",
            hint_at_token(text, tokens.bytes_of(tokens.ids)),
            given=text,
            absent=absent,
        )
    return np.flatnonzero(np.isin(tokens.ids, wanted))


_SMALL_VOCABULARY = 12  # rows of a token layer that a drawing shows completely


def context_rows(vocabulary_size: int) -> np.ndarray:
    """Return the rows that a drawing shows beside those that are picked, (n,) int64."""
    if vocabulary_size <= _SMALL_VOCABULARY:
        return np.arange(vocabulary_size)
    return np.array([0, vocabulary_size - 1])
