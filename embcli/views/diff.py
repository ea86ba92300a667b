"""How `diff` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Word
from embcli.views.parts import origin_in_words, token_column
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.diff import Diff, State

_NAMES = ("base", "tuned")
_EXTREMES = 5  # tokens that changed most, and least
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
    if len(result.moved) > 2 * _EXTREMES:  # not all of them are shown
        page.line()
        _put_quantiles(result, page)
    if len(result.moved):
        page.line()
        _put_tokens(result, page)
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
    moved = result.moved
    shown = moved if len(moved) <= 2 * _EXTREMES else np.concatenate([moved[:_EXTREMES], moved[-_EXTREMES:]])
    base, tuned = result.matching.base[shown], result.matching.tuned[shown]
    labels = [Column("ID", [str(row) for row in base])]
    if result.matching.by == "token":
        labels.append(Column("in TUNED", [str(row) for row in tuned]))
    if any(each is not None for each in result.encodings):
        labels.append(token_column(result.tokens(shown)))
    numbers = {"1 - cos": result.cosine_distances[shown], "L2 distance": result.distances[shown]}
    page.line("Changed most, and least" if len(shown) < len(moved) else "Changed most")
    page.table(
        [*labels, *(Column(name, _written(values, page)) for name, values in numbers.items())],
        (_EXTREMES,) if len(shown) < len(moved) else (),
    )


def _written(values: np.ndarray, page: Page) -> list[str]:
    write = page.numbers([Block("", values[None, :])]).write
    return [write(value) for value in values.tolist()]
