"""How `diff` looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.hints import hint
from embcli.page import Block, Column, Excerpt, Word
from embcli.tokens import tokens_of
from embcli.views.parts import origin_in_words, put_left_out, token_column
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.diff import Diff, State

_NAMES = ("base", "tuned")
_STATES: dict[State, str] = {
    "equal": "bit-identical",
    "rounded": "equal except for rounding to the coarser dtype",
    "moved": "changed",
    "base only": "only in BASE",
    "tuned only": "only in TUNED",
}


def view(result: Diff, page: Page) -> None:
    """Put on a page how many rows are equal, how far the others moved, and which changed most and least."""
    page.title("Token matrices, row by row")
    for name, origin, shape, dtype in zip(_NAMES, result.origins, result.shapes, result.dtypes, strict=True):
        tensor = origin_in_words(origin, "token")
        where = tensor if origin.path is None else f"{tensor} of {origin.path}"
        page.line(f"{name.upper():5}  ({shape[0]:,}, {shape[1]:,}) {dtype}: {where}")
    page.line()
    states = _STATES if len({*result.dtypes}) > 1 else {**_STATES, "rounded": "equal in value, with different bits"}
    counts = {words: result.counts[state] for state, words in states.items() if result.counts[state]}
    page.table([Column("rows", [f"{count:,}" for count in counts.values()]), Column("", [*counts], "left")])
    if result.matching.by == "token":
        page.line("The vocabularies differ: rows match by the bytes of their tokens")
    if len(result.moved) > 2 * result.top:  # not all of them are shown
        page.line()
        _put_quantiles(result, page)
    if len(result.moved):
        page.line()
        _put_tokens(result, page)
    _put_rows_without_partner(result, page)
    for name, origin in zip(_NAMES, result.origins, strict=True):
        for reason in origin.guesses.values():
            page.line(f"A guess for {name.upper()}: {reason}")
    page.line(Word("Different", "bad") if result.different else Word("Equal", "good"))


def _put_quantiles(result: Diff, page: Page) -> None:
    """Put the quantiles of the finite distances of the rows that moved on a page."""
    numbers = {"1 - cos": result.cosine_distances, "L2 distance": result.distances}
    quantiles = {name: result.quantiles(values) for name, values in numbers.items()}
    columns = [Column(name, _written(np.array(values), page)) for name, values in quantiles.items() if values]
    if columns:
        page.table([Column(f"of {counted(len(result.moved), 'row')}", [*QUANTILES], "left"), *columns])


def _put_tokens(result: Diff, page: Page) -> None:
    """Put the tokens that changed most on a page, and after a gap those that changed least."""
    moved, top = result.moved, result.top
    shown = Excerpt(len(moved), 0, len(moved)) if len(moved) <= 2 * top else Excerpt(top, top, len(moved))
    pairs = moved[shown.places]
    labels = [Column("ID", [str(row) for row in result.matching.base[pairs]])]
    if result.matching.by == "token":
        labels.append(Column("in TUNED", [str(row) for row in result.matching.tuned[pairs]]))
    if any(each is not None for each in result.encodings):
        labels.append(token_column(result.tokens(pairs)))
    numbers = {"1 - cos": result.cosine_distances[pairs], "L2 distance": result.distances[pairs]}
    page.line("Changed most, and least" if shown.left_out else "Changed most")
    page.table([*labels, *(Column(name, _written(values, page)) for name, values in numbers.items())], shown.gaps)
    explained = hint("meaning", word=result.verb)
    page.line(f"1 - cos: how far a row turned; L2: how far it moved; {explained}")
    put_left_out(
        page, shown.missing(np.arange(1, len(moved) + 1), "changed row"), how=hint("top", count=-(-len(moved) // 2))
    )


def _put_rows_without_partner(result: Diff, page: Page) -> None:
    """Put the first rows of each matrix that the other lacks on a page, with their tokens; side by side if they fit."""
    rows = {"BASE": result.matching.base_only, "TUNED": result.matching.tuned_only}
    most = max(map(len, rows.values()))
    tables: list[list[Column]] = []
    missing = []
    for (name, ids), encoding in zip(rows.items(), result.encodings, strict=True):
        shown = Excerpt(min(result.top, len(ids)), 0, len(ids))
        if len(ids):
            labels = [token_column(tokens_of(ids[shown.places], encoding))] if encoding else []
            tables.append([Column(f"only in {name}", [*map(str, ids[shown.places])]), *labels])
        missing += [f"{shown.missing(ids, 'row')} of {name}"] if shown.left_out else []
    beside = [_filled(column, min(result.top, most)) for columns in tables for column in columns]
    for columns in [beside] if tables and page.holds([*beside]) else tables:
        page.line()
        page.table([*columns])
    put_left_out(page, *missing, how=hint("top", count=most))


def _filled(column: Column, count: int) -> Column:
    """Return a column with so many cells, the last of which are blank."""
    return replace(column, cells=[*column.cells, *[""] * (count - len(column.cells))])


def _written(values: np.ndarray, page: Page) -> list[str]:
    write = page.numbers([Block("", values[None, :])]).write
    return [write(value) for value in values.tolist()]
