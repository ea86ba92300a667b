"""How `diff` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Word
from embcli.views.parts import token_column
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.diff import Diff, State

_FEW = 5  # tokens that moved most, and least
_TOLD: dict[State, str] = {
    "equal": "equal in all bits",
    "rounded": "equal but for rounding to the coarser dtype",
    "moved": "moved",
    "base only": "in BASE alone",
    "tuned only": "in TUNED alone",
}


def view(result: Diff, page: Page) -> None:
    """Put on a page how many rows are equal, how far the others moved, and which moved most and least."""
    page.title("Token matrices, row by row")
    for name, shape, dtype in zip(("base", "tuned"), result.shapes, result.dtypes, strict=True):
        run = result.run[name]
        page.line(f"{name.upper():5}  ({shape[0]:,}, {shape[1]:,}) {dtype}: {run['tensors']['token']} of {run['from']}")
    page.line()
    told = _TOLD if len({*result.dtypes}) > 1 else {**_TOLD, "rounded": "equal in value, but not in all bits"}
    counts = {words: result.counts[state] for state, words in told.items() if result.counts[state]}
    page.table([Column("rows", [f"{count:,}" for count in counts.values()]), Column("", [*counts], "left")])
    if result.matching.by == "token":
        page.line("The vocabularies differ: rows are matched by the bytes of their tokens")
    if len(result.moved) > 2 * _FEW:  # which are not all shown
        page.line()
        _put_quantiles(result, page)
    if len(result.moved):
        page.line()
        _put_tokens(result, page)
    for name in ("base", "tuned"):
        for reason in result.run[name]["guesses"].values():
            page.line(f"A guess for {name.upper()}: {reason}")
    page.line(Word("Different", "bad") if result.different else Word("Equal", "good"))


def _put_quantiles(result: Diff, page: Page) -> None:
    """Put the quantiles of what those rows have that moved, as far as it is finite."""
    found = {"1 - cos": result.quantiles(result.turns), "L2 distance": result.quantiles(result.distances)}
    columns = [Column(name, _written(np.array(values), page)) for name, values in found.items() if values]
    if columns:
        page.table([Column(f"of {counted(len(result.moved), 'row')}", [*QUANTILES], "left"), *columns])


def _put_tokens(result: Diff, page: Page) -> None:
    """Put the tokens that moved most, and behind a gap those that moved least."""
    moved = result.moved
    few = moved if len(moved) <= 2 * _FEW else np.concatenate([moved[:_FEW], moved[-_FEW:]])
    base, tuned = result.matching.base[few], result.matching.tuned[few]
    labels = [Column("ID", [str(row) for row in base])]
    if result.matching.by == "token":
        labels.append(Column("in TUNED", [str(row) for row in tuned]))
    if any(each is not None for each in result.encodings):
        labels.append(token_column(result.tokens(few)))
    numbers = {"1 - cos": result.turns[few], "L2 distance": result.distances[few]}
    page.line("Moved most, and least" if len(few) < len(moved) else "Moved, the farthest first")
    page.table(
        [*labels, *(Column(name, _written(values, page)) for name, values in numbers.items())],
        (_FEW,) if len(few) < len(moved) else (),
    )


def _written(values: np.ndarray, page: Page) -> list[str]:
    written = page.numbers([Block("", values[None, :])])
    return [written.write(value) for value in values.tolist()]
