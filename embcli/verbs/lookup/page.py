"""The page of a lookup: perhaps a drawing of the picked rows, a table of the terms, and words.

Below the table the page says where the rows come from, and writes out the sum of one token if that
is asked for. Rows are computed here for the tokens that a page shows, not for all.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from embcli.numerics.steps import Term
from embcli.page import (
    Flow,
    Label,
    Matrix,
    Note,
    NumberFormat,
    Values,
    medium_of,
    omission,
    omitted,
    rows_that_fit,
    ruled,
    safe_text,
    title,
)
from embcli.page.labels import (
    legend_of_tokens,
    origin_lines,
    picked_rows,
    token_label,
    token_labels,
)
from embcli.recipe import AddType, in_words
from embcli.selection import Excerpt
from embcli.verbs.lookup import Lookup
from embcli.verbs.lookup.plan import context_rows
from embcli.wording import counted

_MOST_TOKENS = 40  # a table in a file or a pipe shows no more
_MOST_STRIPS = 42  # of a heat map there
_FEW_TOKENS = 6  # above a trace
_FEWEST_TOKENS = 2  # any table shows these
_LINES_AROUND_TERMS = 6  # a title, columns, a rule; what is left out, or a colour bar
_LINES_AROUND_STRIPS = 15  # of a page on a terminal
_ROUNDED = "sums are made before numbers are rounded"
_MOST_TRACED = 40  # columns of a trace
_STYLES_OF_RESULTS = {
    "input": "strong",
    "hidden": "strong",
}  # results stand out from the terms above them
_DRAWN_CELLS = 48  # of a drawing beside the positions: labels and a number


def page(lookup: Lookup, console: Console, options: ConsoleOptions) -> RenderResult:
    if not len(lookup.chosen):
        yield safe_text("Nothing to look up: there are no tokens.")
        return
    width = options.max_width
    remarks = list(_lines_of_remarks(lookup, width))
    text = " ".join(lookup.tokens.texts or ())
    if not text.isascii():
        remarks += legend_of_tokens(text=text)
    is_rounded = lookup.plan.input_steps and _shows_sum(lookup) and not lookup.style.heat
    notes = list(origin_lines(lookup.layers.origin, f"; {_ROUNDED}" if is_rounded else ""))
    other_lines = None
    if medium_of(console).is_slide and not lookup.draw:
        other_lines = len(remarks) + len(notes)
    table = _table(lookup, _layout(lookup, options, other_lines))
    if lookup.draw:
        yield Flow([list(_drawing(lookup, width)), list(table)])  # type: ignore[arg-type]
        if not lookup.style.bare:
            yield ""
    else:
        yield from table
    yield from remarks
    if lookup.trace is not None:
        yield from _trace(lookup, lookup.trace, width)
    yield from notes


# --- the table of terms ---


class _Layout(NamedTuple):
    """How many tokens a table shows, and how their lines stand."""

    tokens: int
    is_spaced: bool  # whether there is a blank line between the lines of two tokens
    shares_lines: bool = False  # whether the terms of a token share a line of colours


def _layout(lookup: Lookup, options: ConsoleOptions, other_lines: int | None) -> _Layout:
    """Return the layout of a table; on a slide, the other lines of the page are known."""
    lines = len(lookup.shown)  # lines per token
    shares_lines = False
    if other_lines is None:
        rows = rows_that_fit(options, (lines + 1) * _MOST_TOKENS)
        if lookup.style.heat:
            rows = rows_that_fit(options, _MOST_STRIPS, _LINES_AROUND_STRIPS)
        if lookup.trace is not None and lookup.style.bare:
            rows = min(rows, _FEW_TOKENS)
    else:
        rows = options.max_height - _LINES_AROUND_TERMS
        if not lookup.style.bare:
            rows -= 1 + other_lines
        shares_lines = lookup.style.heat and lines * len(lookup.chosen) > rows
        if shares_lines:
            lines = 1
        if lines * len(lookup.chosen) > rows:
            rows -= 3  # dots, and what is left out
        if lookup.trace is not None:  # whose lines need the room
            rows = 0
    is_spaced = not shares_lines and (lines + 1) * len(lookup.chosen) <= rows + 1
    return _Layout(max(rows // lines, _FEWEST_TOKENS), is_spaced, shares_lines)


def _table(lookup: Lookup, layout: _Layout) -> RenderResult:
    """Yield the terms of some tokens, or the matrices that the user chose, below a title."""
    excerpt = Excerpt.ends(layout.tokens, len(lookup.chosen))
    yield title(_title(lookup))

    terms, hidden = _shown_terms(lookup, excerpt)
    if terms:
        matrix = _matrix(lookup, terms, excerpt, layout.is_spaced, every=lookup._columns_chosen)
        if layout.shares_lines and len(terms) > 1:
            places = lookup.chosen[excerpt.places]
            labels = [label.spread(len(terms)) for label in token_labels(lookup.tokens, places)]
            names = [_name_of(lookup, term) for term in terms]
            matrix = replace(matrix, labels=labels, names=names, most_lines=len(places))
        yield matrix
    if hidden:
        if terms and lookup.style.heat:
            yield ""
        yield title(
            "What the first block reads: "
            f"H = {counted(len(lookup._columns_of('hidden')), 'column')}"
        )
        yield _matrix(lookup, hidden, excerpt, layout.is_spaced, every=False)


def _shown_terms(lookup: Lookup, excerpt: Excerpt) -> tuple[list[Term], list[Term]]:
    """Return the terms of the first table, and `hidden` if it has a table of its own.

    It has one if it has other columns, or a scale of colours.
    """
    is_hidden_apart = len(lookup._columns_of("hidden")) != len(lookup.columns)
    if lookup.style.heat and lookup.shown != ("hidden",):
        is_hidden_apart = True
    terms = []
    hidden = []
    for term in lookup.terms_of_sum(lookup.chosen[excerpt.places], lookup.shown):
        is_same_as_token = term.name == "input" and not lookup.plan.input_steps
        is_shown = not is_same_as_token if _shows_sum(lookup) else term.name in lookup.shown
        if term.name == "hidden" and is_hidden_apart:
            hidden.append(term)
        elif is_shown:
            terms.append(term)
    return terms, hidden


def _shows_sum(lookup: Lookup) -> bool:
    """Return whether the table shows each term of the sum, not only the matrices with names."""
    return lookup.shown == lookup.matrices


def _title(lookup: Lookup) -> str:
    """Return what is shown, and of how many tokens."""
    what = f"{' and '.join(lookup.shown).capitalize()} embeddings"
    if _shows_sum(lookup):
        formula = in_words(lookup.plan.input_steps).replace("sinusoidal ", "")
        what = f"Input embeddings = {formula} embeddings"
        if not lookup.plan.input_steps:
            what = "Input embeddings, input = token"

    tokens = lookup.tokens
    count = counted(len(tokens), "token")
    sequences = counted(tokens.sequences, "sequence")
    if len(lookup.chosen) < len(tokens):
        size = f"{len(lookup.chosen):,} of {count}"
    elif not tokens.many:
        size = f"T = {count}"
    elif tokens.sequences and len(tokens) == tokens.sequences * tokens.longest:
        size = f"B = {sequences}, T = {counted(tokens.longest, 'token')}"
    else:
        size = f"{sequences}, {count}"
    return f"{what}: {size}, D = {counted(lookup.layers['token'].shape[1], 'column')}"


def _matrix(
    lookup: Lookup, terms: list[Term], excerpt: Excerpt, is_spaced: bool, every: bool
) -> Matrix:
    """Return terms with the same columns as a table, with a line for each term of each token."""
    index = lookup.chosen[excerpt.places]
    columns = lookup._columns_of(terms[0].name)
    rows = np.stack([term.values for term in terms], axis=1)  # (tokens, terms, columns)
    lines = len(terms)
    row_styles = []
    sections = range(0)
    if lines > 1:
        row_styles = [_STYLES_OF_RESULTS.get(term.name, "term") for term in terms]
        if is_spaced:
            sections = range(0, lines * len(index), lines)
    return Matrix(
        _labels_of_terms(lookup, index, terms),
        [Values(rows.reshape(-1, len(columns)))],
        columns,
        [len(terms) * gap for gap in excerpt.gaps],
        **lookup.style.of_numbers,
        every=every,
        sections=sections,
        row_styles=row_styles * len(index),
        rows_left_out=omission(excerpt, "token", lookup.chosen),
        rows_parameter="only",
        has_notes=not (lookup.draw or lookup.style.bare),
    )


def _labels_of_terms(lookup: Lookup, index: np.ndarray, terms: list[Term]) -> list[Label]:
    """Return the labels of the lines of terms; only the first line of a token names the token."""
    tokens = lookup.tokens
    if len(terms) == 1:
        return token_labels(tokens, index)
    labels = []
    for label in token_labels(tokens, index):
        if label.header in ("seq", "token"):
            labels.append(label.spread(len(terms)))

    names = []
    for term in terms:
        style = _STYLES_OF_RESULTS.get(term.name, "dim")
        names.append(safe_text(_name_of(lookup, term), style))
    labels.append(Label("", names * len(index), "left"))

    numbers = []
    for place in range(len(index)):
        for term in terms:
            numbers.append("" if term.numbers is None else term.numbers[place])
    labels.append(Label("row", numbers))
    return labels


def _name_of(lookup: Lookup, term: Term) -> str:
    """Return the name of a term, in a sum with its sign."""
    return f"{term.sign} {term.name}".lstrip() if _shows_sum(lookup) else term.name


# --- where the rows come from ---


def _lines_of_remarks(lookup: Lookup, width: int) -> Iterator[Text]:
    remarks = list(_remarks(lookup))
    line = safe_text("; ".join(remarks), "dim")
    if line.cell_len > width:
        for remark in remarks:
            yield safe_text(remark, "dim")
    elif remarks:
        yield line


def _remarks(lookup: Lookup) -> Iterator[str]:
    """Yield where the rows come from, unless the title says it."""
    shown = lookup.shown
    origin = lookup.layers.origin
    recipe = lookup.plan.recipe
    if "token" in shown and not lookup.draw:
        tensor = f"tensor {origin.tensors['token']}, " if origin.is_custom_tensor else ""
        size = counted(lookup.layers["token"].shape[0], "row")
        yield f"token: row ID of {tensor}V = {size}"
    if "position" in shown:
        rows = "columns 2i and 2i + 1 are the sine and cosine of p · 10,000^(-2i/D)"
        if recipe is not None:
            rows = "the model's own sinusoids, sines in the first half of the columns, then cosines"
        if "position" in lookup.layers:
            first = origin.first_position
            row = f"row p + {first}" if first else "row p"
            size = counted(lookup.layers["position"].shape[0], "position")
            rows = f"{row} of C = {size}"
        yield f"position: {rows}"
    if "input" in shown:
        yield from _remarks_on_input(lookup)

    if recipe is None:
        return
    if "hidden" in shown:
        yield f"hidden: {recipe.words}; the first block of this {recipe.model} model reads it"
        if "input" in shown:
            yield "A file of one matrix (npy, csv) has input, not hidden, unless show names hidden."
    if recipe.part is not None:
        yield f"part: {recipe.part}"


def _remarks_on_input(lookup: Lookup) -> Iterator[str]:
    steps = lookup.plan.input_steps
    formula = in_words(steps)
    types = [step for step in steps if isinstance(step, AddType)]
    if types:
        origin = lookup.layers.origin
        height, width = origin.shapes["token_type"]
        yield (
            f"token type: row {types[0].row} of {origin.tensors['token_type']}, "
            f"({height:,}, {width:,}); input = {formula}"
        )
    elif not steps:
        yield "input: the token row, the same at every position"
    elif not _shows_sum(lookup):
        yield f"input: {formula}"
    elif not lookup.layers.origin.is_seeded:
        yield f"input: {_ROUNDED}"


# --- the drawing ---


def _drawing(lookup: Lookup, width: int) -> RenderResult:
    """Yield the token layer with the picked rows marked, and the positions where they go."""
    tokens = lookup.tokens
    vocabulary_size, dim = lookup.layers["token"].shape
    size = f"V = {counted(vocabulary_size, 'row')}, D = {counted(dim, 'column')}"
    yield title(f"Each ID picks a row: {size}")

    index = lookup.chosen
    ids = tokens.ids[index]
    picked = picked_rows(ids, context_rows(vocabulary_size))
    values = lookup.layers["token"].rows(picked.rows)[:, lookup.columns]
    names = tokens.bytes_of(picked.rows)
    room = max(width - _DRAWN_CELLS, len("→ …"))
    arrows = []
    goals = []
    for number, row in enumerate(picked.rows.tolist()):
        sequence, position = tokens.places(index[ids == row])
        places = [str(place) for place in position]
        if tokens.many:
            places = [f"{line}:{place}" for line, place in zip(sequence, position, strict=True)]
        if not places:
            names[number] = None
        arrows.append(f"{row} →" if places else "")
        # A position takes a cell or more, so that others have no room.
        goal = f"→ {', '.join(places[:room])}" if places else ""
        goals.append(textwrap.shorten(goal, room, placeholder=" …"))

    labels = [Label("ID", arrows), Label("row", picked.rows)]
    if tokens.encoding is not None:
        labels.insert(0, token_label(names))
    yield Matrix(
        labels,
        [Values(values)],
        lookup.columns,
        picked.gaps,
        [Label("to seq:pos" if tokens.many else "to pos", goals, "left")],
        lookup.style.precision,
        row_styles=picked.row_styles,
        heat=lookup.style.heat,
        column="",  # the table below names columns
    )
    yield from omitted(picked.missing)


# --- the trace ---


def _trace(lookup: Lookup, place: int, width: int) -> RenderResult:
    """Yield the sum of one token, value by value."""
    excerpt = Excerpt.ends(_MOST_TRACED, len(lookup.columns))
    terms = lookup.terms_of_sum(np.array([place]), ("input",))

    formula = ""
    for term in terms[:-1]:
        if term.sign:
            formula += f" {term.sign}"
        formula += f" {term.name}"
        if term.numbers is not None:
            row = int(term.numbers[0])
            if term.name == "position":
                row += lookup.layers.origin.first_position
            formula += f" row {row}"
    yield ""
    yield title(f"Trace of token {place}:{formula} = input row {place}")
    yield from _lines_of_terms(lookup, terms, excerpt, width)
    yield Note(
        f"Rounded to {lookup.style.precision} decimals: the last digit of a sum may differ by one."
    )
    yield from omitted(omission(excerpt, "column", lookup.columns), parameters=("columns",))


def _lines_of_terms(
    lookup: Lookup, terms: Sequence[Term], columns: Excerpt, width: int
) -> Iterator[Table]:
    """Yield the terms of one token as tables, a line for each column, with signs before them."""
    number = Label("column", lookup.columns[columns.places])
    values = []
    for term in terms:
        row = term.values
        if term.factor is not None:  # of a scale, a sum shows the factor
            row = np.full_like(row, term.factor)
        values.append(row)
    numbers = NumberFormat(values, lookup.style.precision)
    cell = max(numbers.width, len("position"))
    most_terms = max((width - number.width) // (cell + 3), 1)  # a sign takes three cells
    for start in range(0, len(terms), most_terms):
        stop = start + most_terms
        labels = [number]
        for term, row in zip(terms[start:stop], values[start:stop], strict=True):
            if term.sign:
                labels.append(Label("", [term.sign] * len(columns.places)))
            cells = [numbers.write(value) for value in row[0, columns.places]]
            labels.append(Label(term.name, cells))
        yield ruled(labels, gaps=columns.gaps, has_rule=False)
