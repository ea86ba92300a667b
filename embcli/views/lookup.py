"""How `lookup` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Columns, Excerpt
from embcli.positions import Learned, Rotary
from embcli.verbs.lookup import rows_beside
from embcli.views.parts import PickedRows, left_out, put_guesses, token_column, token_labels
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.lookup import Lookup

_MOST_TOKENS = 40
_MOST_TERMS = 40  # lines of a trace
_MOST_PLACES = 4  # that a picked row goes to

_SIGNS = {"token": "token", "position": "+ position", "input": "= input"}
_TITLES = {
    "learned": "Input embeddings = token embeddings + position embeddings",
    "sinusoidal": "Input embeddings = token embeddings + position embeddings",
    "rotary": "Input embeddings = token embeddings, turned by position",
    "none": "Input embeddings = token embeddings",
}
_JOINED = {  # how an input embedding comes about
    "learned": "input: the token row plus the position row",
    "sinusoidal": "input: the token row plus the position row",
    "rotary": "input: the token row, turned. Models turn queries and keys, not this row.",
    "none": "input: the token row as it is, wherever the token stands",
}
_BAGS = {  # what becomes of two sequences of the same tokens
    "learned": "equal token rows, other input embeddings.",
    "sinusoidal": "equal token rows, other input embeddings.",
    "rotary": "equal token rows, other input embeddings.",
    "none": "equal input embeddings, in which the order is lost.",
}


def view(result: Lookup, page: Page) -> None:
    """Put the chosen matrices of a lookup on a page, a band of rows each, and what was asked for on top."""
    if result.wanted.draw:
        _put_picture(result, page)
    rows = Excerpt.most(_MOST_TOKENS, len(result))
    page.title(f"{_title(result)}, {_shape(result)}")
    columns = _put_bands(result, page, rows)
    if "position" in result.wanted.shown and isinstance(result.positions, Rotary):
        _put_angles(result, page, rows)
    for line in _meaning(result):
        page.line(line)
    if result.same_bag:
        page.line("Both sequences are the same bag of tokens in another order:")
        page.line(_BAGS[result.wanted.position])
    missing = left_out(rows.missing(np.arange(len(result)), "row"), columns.missing(result.columns, "column"))
    if missing:
        page.line(f"{missing}; {'--columns picks, ' if columns.left_out else ''}-f npy gives all.")
    put_guesses(page, result.run)
    if result.wanted.trace is not None:
        _put_trace(result, page, result.wanted.trace)


def _title(result: Lookup) -> str:
    show, kind = result.wanted.shown, result.wanted.position
    if show == result.wanted.matrices:
        typed = "= token embeddings" + _plus_type(result)
        return _TITLES[kind].replace("= token embeddings", typed)
    return f"{' and '.join(show).capitalize()} {'angles' if _bands(result) == () else 'embeddings'}"


def _plus_type(result: Lookup) -> str:
    return "" if result.type_row is None else f" + token type {result.wanted.token_type}"


def _shape(result: Lookup) -> str:
    tokens = result.tokens
    d, dim = ("D", result.dim) if _bands(result) else ("D/2", result.dim // 2)
    if result.only is not None:
        return f"{len(result):,} of {counted(len(tokens), 'token')}"
    if not tokens.many:
        return f"(T, {d}) = ({len(tokens):,}, {dim:,})"
    if tokens.sequences and len(tokens) == tokens.sequences * tokens.longest:
        return f"(B, T, {d}) = ({tokens.sequences:,}, {tokens.longest:,}, {dim:,})"
    return f"{counted(tokens.sequences, 'sequence')}, {counted(len(tokens), 'token')}, {d} = {dim:,}"


def _bands(result: Lookup) -> tuple[str, ...]:
    """Return the matrices that have the columns of the token layer, and so a band of rows each in one table."""
    angles = isinstance(result.positions, Rotary)
    return tuple(name for name in result.wanted.shown if not (angles and name == "position"))


def _put_bands(result: Lookup, page: Page, rows: Excerpt) -> Excerpt:
    """Put the bands on the page; return which of their columns it shows."""
    bands = _bands(result)
    if not bands:
        return Excerpt(len(result.columns), 0, len(result.columns))
    index = result.index(rows.places)
    found = result.rows(index, bands)
    gaps = [band * len(index) + gap for band in range(len(bands)) for gap in rows.gaps]
    values = np.concatenate([found[name] for name in bands])
    labels = _labels(result, index, bands, each=page.paper.heat)
    every = result.wanted.columns is not None
    if page.paper.heat:  # the rows of a token are under each other, so that the sum is seen
        order = np.arange(len(values)).reshape(len(bands), -1).T.ravel()
        labels, values = [label.ordered(order) for label in labels], values[order]
        gaps = [len(bands) * gap for gap in rows.gaps]
    return page.grid(labels, [Block("", values)], result.columns, gaps, every=every)


def _labels(result: Lookup, index: np.ndarray, bands: tuple[str, ...], each: bool = False) -> list[Column]:
    """Return what stands beside the rows of each band: its name, the number of the row in its layer, the token.

    The name stands at the first row of a band, or at `each`.
    """
    tokens = result.tokens
    if bands == ("token",) and (result.wanted.draw or result.only is not None):
        return token_labels(tokens, index)
    sequence, position = tokens.places(index)
    words = tokens.bytes_of(tokens.ids[index])
    labels: list[Column] = []
    if len(bands) > 1:
        names = [_SIGNS[name] if bands == result.wanted.matrices else name for name in bands]
        firsts = [name if each or not place else "" for name in names for place in range(len(index))]
        labels.append(Column("", firsts, "left"))
    if tokens.many:
        labels.append(Column("seq", [str(number) for number in sequence] * len(bands)))
    numbers = {"token": tokens.ids[index], "position": position, "input": position}
    header = "row" if len(bands) > 1 else "ID" if bands == ("token",) else "pos"
    labels.append(Column(header, [str(number) for name in bands for number in numbers[name]]))
    if tokens.encoding is not None and bands != ("position",):  # whose row is the same whatever token stands there
        labels.append(token_column([word if name != "position" else None for name in bands for word in words]))
    return labels


def _put_angles(result: Lookup, page: Page, rows: Excerpt) -> None:
    """Put the angles of rotary positions on the page, a column a pair."""
    index, pairs = result.index(rows.places), result.columns_of("position")
    page.line(f"The angles in radians, D/2 = {len(pairs):,}; a column a pair")
    block = Block("", result.rows(index, ("position",))["position"])
    columns = page.grid(_labels(result, index, ("position",)), [block], pairs, rows.gaps)
    missing = left_out(columns.missing(pairs, "pair"))
    if missing:
        page.line(f"{missing}.")


def _meaning(result: Lookup) -> list[str]:
    """Return in words where the rows come from."""
    size, dim = result.layer.shape
    kind, drawn = result.wanted.position, result.wanted.draw
    said = ("rotary", "none") if result.type_row is None else ("rotary",)
    told = {
        "token": "" if drawn else f"token: row ID of the token weight matrix, (V, D) = ({size:,}, {dim:,})",
        "position": _position_in_words(result),
        "input": _JOINED[kind] if kind in said or result.wanted.shown == ("input",) else "",
    }
    typed = [_type_in_words(result)] if result.type_row is not None and "input" in result.wanted.shown else []
    return [*(told[name] for name in result.wanted.shown if told[name]), *typed]


def _type_in_words(result: Lookup) -> str:
    """Return in words which row is added to each token row, and in what order."""
    tensor, (rows, dim) = (result.run[each]["token_type"] for each in ("tensors", "shapes"))
    row = result.wanted.token_type
    return f"token type: row {row} of {tensor}, ({rows:,}, {dim:,}); input = {result.wanted.sum}"


def _position_in_words(result: Lookup) -> str:
    positions = result.positions
    if isinstance(positions, Learned):
        size, dim = positions.layer.shape
        row = f"pos + {result.first_position}" if result.first_position else "pos"
        return f"position: row {row} of the position weight matrix, (C, D) = ({size:,}, {dim:,})"
    if isinstance(positions, Rotary):
        return f"position: pair i turns by pos · {positions.theta:,g}^(-2i/D); pairs are {positions.pairing}"
    return "position: columns 2i, 2i + 1 are sine, cosine of pos / 10000^(2i/D)"


def _put_picture(result: Lookup, page: Page) -> None:
    """Put the token layer on the page with the rows that are picked marked, and where each of them goes."""
    index = result.index(np.arange(len(result)))
    size, dim = result.layer.shape
    picked = PickedRows.of(result.tokens.ids[index], rows_beside(size))
    page.title(f"Each ID picks a row of the token weight matrix, (V, D) = ({size:,}, {dim:,})")
    labels = [Column("ID", [f"{row} →" if mark else "" for row, mark in zip(picked.rows, picked.marks, strict=True)])]
    if result.tokens.encoding is not None:
        words = result.tokens.bytes_of(picked.rows)
        labels.insert(0, token_column([word if mark else None for word, mark in zip(words, picked.marks, strict=True)]))
    labels.append(Column("row", [str(row) for row in picked.rows]))
    values = result.layer.rows(picked.rows)[:, result.columns]
    goals = _goals(result, index, picked, page, labels, values)
    columns = page.grid(labels, [Block("", values)], result.columns, picked.gaps, [goals], picked.tones)
    missing = left_out(picked.missing, columns.missing(result.columns, "column"))
    if missing:
        page.line(f"{missing}.")


def _goals(
    result: Lookup, index: np.ndarray, picked: PickedRows, page: Page, labels: list[Column], values: np.ndarray
) -> Column:
    """Return where each picked row goes, as many places as there is room for beside two columns of numbers."""
    tokens = result.tokens
    one = values[:, :1]
    bare = [label for label in labels if not label.least]
    dots = [Column("…", ["…"] * len(values))] if values.shape[1] > 1 else []
    for most in range(_MOST_PLACES, -1, -1):
        cells = []
        for row, mark in zip(picked.rows.tolist(), picked.marks, strict=True):
            here = index[tokens.ids[index] == row] if mark else index[:0]
            sequence, position = (each.tolist() for each in tokens.places(here))
            places = [f"{s}:{p}" if tokens.many else str(p) for s, p in zip(sequence, position, strict=True)]
            more = [f"{len(places) - most:,} more" if most else f"{len(places):,} in all"] if len(places) > most else []
            cells.append(f"→ {', '.join([*places[:most], *more])}" if mark else "")
        goals = Column("to seq:pos" if tokens.many else "to pos", cells, "left")
        if page.holds_grid([*bare, *dots, goals], [Block("", one)], result.columns[:1]):
            break
    return goals


def _put_trace(result: Lookup, page: Page, place: int) -> None:
    """Put the sum of one token on the page, value by value."""
    page.line()
    page.title(_sum_in_words(result, place))
    terms = Excerpt.most(_MOST_TERMS, len(result.columns))
    page.table(_terms(result, page, place, terms), terms.gaps, ruled=False)
    page.line(f"The sum is one of float32 values; it is shown to {page.paper.precision} decimals.")
    if terms.left_out:
        page.line(f"{left_out(terms.missing(result.columns, 'column'))}; --columns picks.")


def _sum_in_words(result: Lookup, place: int) -> str:
    """Return in words which rows the input row of a token is the sum of."""
    position = result.first_position + int(result.tokens.places(np.array([place]))[1][0])
    typed = f" + type row {result.wanted.token_type}" if result.type_row is not None else ""
    token = f"token row {result.tokens.ids[place]}"
    return f"Trace of token {place}: {token}{typed} + position row {position} = input row {place}"


def _terms(result: Lookup, page: Page, place: int, terms: Excerpt) -> Columns:
    """Return the sum of one token as a table, a line for each of these columns."""
    found = result.rows(np.array([place]))
    if result.type_row is not None:
        found = {"token": found["token"], "type": result.type_row[:, result.columns], **found}
    numbers = page.numbers([Block(name, values) for name, values in found.items()])
    width = max(len("column"), len(str(result.columns.max(initial=0))))
    names = [f"{column:{width}}" for column in result.columns[terms.places]]
    columns: Columns = [Column("column".rjust(width), names, "left", minimum=width + 1)]
    for name, values in found.items():
        sign = {"token": "", "input": "="}.get(name, "+")
        if sign:
            columns.append(Column("", [sign] * len(names)))
        written = [numbers.write(values[0, term]) for term in terms.places]
        columns.append(Column(name, written, minimum=max(numbers.width, len("position"))))
    return columns
