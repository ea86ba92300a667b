"""How `lookup` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Excerpt
from embcli.views.parts import left_out, put_guesses, token_column
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.lookup import Lookup

_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace


def view(result: Lookup, page: Page) -> None:
    """Put the chosen matrices of a lookup on a page, a band of rows each, and one token's sum where it is asked for."""
    tokens, show = result.tokens, result.show
    rows = Excerpt.most(_MOST_TOKENS, len(tokens))
    found = result.rows(rows.places, show)
    page.title(f"{_title(show)}, {_shape(result)}")
    gaps = [band * len(rows.places) + gap for band in range(len(show)) for gap in rows.gaps]
    block = Block("", np.concatenate([found[name] for name in show]))
    columns = page.grid(_labels(result, rows.places), [block], result.columns, gaps, every=result.chosen)
    for line in _meaning(result):
        page.line(line)
    missing = left_out(rows.missing(np.arange(len(tokens)), "row"), columns.missing(result.columns, "column"))
    if missing:
        page.line(f"{missing}; {'--columns picks, ' if columns.left_out else ''}-f npy gives all.")
    put_guesses(page, result.run)
    if result.trace is not None:
        _put_trace(result, page, result.trace)


def _title(show: tuple[str, ...]) -> str:
    if len(show) == len(_SIGNS):
        return "Input embeddings = token embeddings + position embeddings"
    return f"{' and '.join(show).capitalize()} embeddings"


def _shape(result: Lookup) -> str:
    tokens, dim = result.tokens, result.dim
    if not tokens.many:
        return f"(T, D) = ({len(tokens):,}, {dim:,})"
    if tokens.sequences and len(tokens) == tokens.sequences * tokens.longest:
        return f"(B, T, D) = ({tokens.sequences:,}, {tokens.longest:,}, {dim:,})"
    return f"{counted(tokens.sequences, 'sequence')}, {counted(len(tokens), 'token')}, D = {dim:,}"


_SIGNS = {"token": "token", "position": "+ position", "input": "= input"}


def _labels(result: Lookup, places: np.ndarray) -> list[Column]:
    """Return what stands beside the rows of each band: its name, the number of the row in its layer, the token."""
    tokens, show = result.tokens, result.show
    sequence, position = tokens.places(places)
    words = tokens.bytes_of(tokens.ids[places])
    labels: list[Column] = []
    if len(show) > 1:
        names = [_SIGNS[name] if len(show) == len(_SIGNS) else name for name in show]
        firsts = [name if first else "" for name in names for first in places == places[:1]]
        labels.append(Column("", firsts, "left"))
    if tokens.many:
        labels.append(Column("seq", [str(each) for each in sequence] * len(show)))
    numbers = {"token": tokens.ids[places], "position": position, "input": position}
    header = "row" if len(show) > 1 else "ID" if show == ("token",) else "pos"
    labels.append(Column(header, [str(each) for name in show for each in numbers[name]]))
    if tokens.encoding is not None:  # a position's row is the same whatever token stands there
        labels.append(token_column([word if name != "position" else None for name in show for word in words]))
    return labels


def _meaning(result: Lookup) -> list[str]:
    """Return in words where the rows of the two layers come from."""
    (size, dim), context_length = result.layer.shape, result.context_length
    told = {
        "token": f"token: row ID of the token weight matrix, (V, D) = ({size:,}, {dim:,})",
        "position": f"position: row pos of the position weight matrix, (C, D) = ({context_length:,}, {dim:,})",
        "input": "",
    }
    return [told[name] for name in result.show if told[name]] or ["input: the token row plus the position row"]


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
        page.line(f"{left_out(terms.missing(result.columns, 'column'))}; --columns picks.")
