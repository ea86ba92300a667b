"""How `weights` and `lookup` look."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from rich.text import Text

from embcli.errors import InputError
from embcli.page.grid import Half, Label, Numbers, Shown, left_out, print_grid
from embcli.tokens import Tokens, shown
from embcli.weights import counted, in_bytes

if TYPE_CHECKING:
    from embcli.verbs.lookup import Lookup
    from embcli.verbs.weights import Matrix
    from embcli.page.terminal import Page

_MOST_ROWS = 200  # of those that were chosen
_FEW_ROWS = 10  # of a whole matrix
_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace


def weights(result: Matrix, page: Page, chosen: bool) -> None:
    """Put a weight matrix on a page; `chosen` says that the user named the rows."""
    rows = Shown.most(_MOST_ROWS if chosen else _FEW_ROWS, len(result.ids))
    ids = result.ids[rows.places]
    labels = [Label("pos" if result.layer.name == "position" else "ID", [str(row) for row in ids])]
    if result.encoding is not None:
        labels.append(Label("token", [shown(token) for token in result.tokens(ids)], "left", shortens=True))
    values = result.rows(ids)
    size, dim = result.layer.shape
    page.print(Text(f"{result.layer.name.capitalize()} weight matrix, {_shape(result)}", "bold"))
    columns = print_grid(page, labels, [Half("", values)], result.columns, rows)
    page.print()
    summary = result.summary
    number = Numbers([Half("", np.array([[summary.minimum, summary.maximum]], np.float32))], page.precision)
    seed = f"seed {result.run['seed']}, " if "seed" in result.run else ""
    page.print(f"{seed}{counted(size * dim, 'parameter')} (float32), {in_bytes(4 * size * dim)}")
    page.print(
        f"mean {number.write(summary.mean)}, standard deviation {number.write(summary.std)}, "
        f"minimum {number.write(summary.minimum)}, maximum {number.write(summary.maximum)}"
    )
    _print_left_out(page, rows, result.ids, columns, result.columns, picks=True)


def _shape(result: Matrix) -> str:
    size, dim = result.layer.shape
    name = "V" if result.layer.name == "token" else "C"
    return f"({name}, D) = ({size:,}, {dim:,}): {_rows_are(result)}"


def _rows_are(result: Matrix) -> str:
    return "a row a token ID" if result.layer.name == "token" else "a row a position"


def lookup(result: Lookup, page: Page, show: tuple[str, ...], trace: int | None) -> None:
    """Put the chosen matrices of a lookup on a page, and the sum of one token where it is asked for."""
    tokens, dim = result.tokens, result.dim
    rows = Shown.most(_MOST_TOKENS, len(tokens))
    found = result.rows(rows.places)
    labels = token_labels(tokens, rows.places)
    columns = Shown(0, 0, 0)
    for name in show:
        page.print(Text(_title(name, len(tokens), dim), "bold"))
        page.print(_caption(result, name))
        columns = print_grid(page, labels, [Half("", found[name])], result.columns, rows)
        page.print()
    t, d = f"{len(tokens):,}", f"{dim:,}"
    page.print(f"input = token + position: (T, D) + (T, D) = (T, D), here ({t}, {d}) + ({t}, {d}) = ({t}, {d})")
    _print_left_out(page, rows, np.arange(len(tokens)), columns, result.columns, picks=False)
    if trace is not None:
        _print_trace(result, page, trace)


def token_labels(tokens: Tokens, places: np.ndarray) -> list[Label]:
    """Return the labels of a row a token: sequence (where there are many), position, token, ID."""
    sequence, position = tokens.places(places)
    ids = tokens.ids[places]
    labels = [Label("seq", [str(each) for each in sequence])] if tokens.many else []
    labels.append(Label("pos", [str(each) for each in position]))
    if tokens.encoding is not None:
        labels.append(Label("token", [shown(token) for token in tokens.bytes_of(ids)], "left", shortens=True))
    return [*labels, Label("ID", [str(each) for each in ids])]


def _title(name: str, length: int, dim: int) -> str:
    titles = {"token": "Token embeddings", "position": "Position embeddings", "input": "Input embeddings"}
    return f"{titles[name]}, (T, D) = ({length:,}, {dim:,})"


def _caption(result: Lookup, name: str) -> str:
    size, dim = result.weights["token"].shape
    context_length = result.weights["position"].shape[0]
    return {
        "token": f"Each line is row ID of the token weight matrix (V, D) = ({size:,}, {dim:,}).",
        "position": f"Each line is row pos of the position weight matrix (C, D) = ({context_length:,}, {dim:,}).",
        "input": "Each line is the token row plus the position row: what the model reads.",
    }[name]


def _print_left_out(
    page: Page, rows: Shown, row_numbers: np.ndarray, columns: Shown, column_numbers: np.ndarray, picks: bool
) -> None:
    """Say what is not shown, and how to see it; `picks` says that the command can pick rows."""
    parts, options = [left_out(rows, row_numbers, "row"), left_out(columns, column_numbers, "column")], []
    options += ["--rows"] * (picks and rows.left_out > 0) + ["--columns"] * (columns.left_out > 0)
    if any(parts):
        pick = f"{' and '.join(options)} {'picks' if len(options) == 1 else 'pick'}; " if options else ""
        page.print(f"Left out: {' and '.join(filter(None, parts))}. {pick}-f csv, json, npy give everything.")


def _print_trace(result: Lookup, page: Page, place: int) -> None:
    """Put the sum of one token on the page, value by value; raises InputError for a token that is not there."""
    if not 0 <= place < len(result.tokens):
        there_are = f"there {'is' if len(result.tokens) == 1 else 'are'} {counted(len(result.tokens), 'token')}"
        raise InputError(f"--trace {place} names no token: {there_are}, counted from 0")
    index = np.array([place])
    found = result.rows(index)
    token_id, position = int(result.tokens.ids[place]), int(result.tokens.places(index)[1][0])
    page.print()
    page.print(
        Text(f"Trace of token {place}: token row {token_id} + position row {position} = input row {place}", "bold")
    )
    halves = [Half(name, found[name]) for name in ("token", "position", "input")]
    numbers = Numbers(halves, page.precision)
    terms = Shown.most(_MOST_TERMS, len(result.columns))
    width = max(len("column"), len(str(result.columns.max(initial=0))))
    cell = max(numbers.width, len("position"))
    page.print(f"{'column':>{width}}  {'token':>{cell}}   {'position':>{cell}}   {'input':>{cell}}")
    for line, column in enumerate(terms.places.tolist()):
        if terms.left_out and line == terms.head:
            page.print(f"{'⋮':>{width}}")
        token, position_value, total = (numbers.write(half.values[0, column]) for half in halves)
        page.print(f"{result.columns[column]:>{width}}  {token:>{cell}} + {position_value:>{cell}} = {total:>{cell}}")
    page.print(f"The sum is one of float32 values; it is shown to {page.precision} decimals.")
    if terms.left_out:
        page.print(f"Left out: {left_out(terms, result.columns, 'column')}; --columns picks.")
