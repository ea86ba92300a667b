"""How `lookup` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Excerpt
from embcli.views.parts import left_out, token_labels

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.lookup import Lookup

_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace


def view(result: Lookup, page: Page) -> None:
    """Put the chosen matrices of a lookup on a page, and the sum of one token where it is asked for."""
    tokens, dim = result.tokens, result.dim
    rows = Excerpt.most(_MOST_TOKENS, len(tokens))
    found = result.rows(rows.places)
    labels = token_labels(tokens, rows.places)
    columns = Excerpt(0, 0, 0)
    for name in result.show:
        page.title(_title(name, len(tokens), dim))
        page.line(_caption(result, name))
        columns = page.grid(labels, [Block("", found[name])], result.columns, rows.gaps)
        page.line()
    t, d = f"{len(tokens):,}", f"{dim:,}"
    page.line(f"input = token + position: (T, D) + (T, D) = (T, D), here ({t}, {d}) + ({t}, {d}) = ({t}, {d})")
    missing = left_out(rows.missing(np.arange(len(tokens)), "row"), columns.missing(result.columns, "column"))
    if missing:
        pick = "--columns picks; " if columns.left_out else ""
        page.line(f"{missing} {pick}-f csv, json, npy give everything.")
    if result.trace is not None:
        _put_trace(result, page, result.trace)


def _title(name: str, length: int, dim: int) -> str:
    titles = {"token": "Token embeddings", "position": "Position embeddings", "input": "Input embeddings"}
    return f"{titles[name]}, (T, D) = ({length:,}, {dim:,})"


def _caption(result: Lookup, name: str) -> str:
    (size, dim), context_length = result.layer.shape, result.context_length
    return {
        "token": f"Each line is row ID of the token weight matrix (V, D) = ({size:,}, {dim:,}).",
        "position": f"Each line is row pos of the position weight matrix (C, D) = ({context_length:,}, {dim:,}).",
        "input": "Each line is the token row plus the position row: what the model reads.",
    }[name]


def _put_trace(result: Lookup, page: Page, place: int) -> None:
    """Put the sum of one token on the page, value by value."""
    index = np.array([place])
    found = result.rows(index)
    token_id, position = int(result.tokens.ids[place]), int(result.tokens.places(index)[1][0])
    page.line()
    page.title(f"Trace of token {place}: token row {token_id} + position row {position} = input row {place}")
    numbers = page.numbers([Block(name, values) for name, values in found.items()])
    terms = Excerpt.most(_MOST_TERMS, len(result.columns))
    written = {name: [numbers.write(values[0, term]) for term in terms.places] for name, values in found.items()}
    names = result.columns[terms.places]
    width = max(len("column"), len(str(result.columns.max(initial=0))))
    cells = max(numbers.width, len("position"))
    page.table(
        [
            Column("column".rjust(width), [f"{column:{width}}" for column in names], "left", minimum=width + 1),
            Column("token", written["token"], minimum=cells),
            Column("", ["+"] * len(terms.places)),
            Column("position", written["position"], minimum=cells),
            Column("", ["="] * len(terms.places)),
            Column("input", written["input"], minimum=cells),
        ],
        terms.gaps,
        ruled=False,
    )
    page.line(f"The sum is one of float32 values; it is shown to {page.paper.precision} decimals.")
    if terms.left_out:
        page.line(f"{left_out(terms.missing(result.columns, 'column'))[:-1]}; --columns picks.")
