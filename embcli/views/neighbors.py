"""How `neighbors` looks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.page import Block, Column, Columns, Excerpt, Word
from embcli.tokens import shown
from embcli.views.parts import bar, left_out, put_guesses, token_column
from embcli.words import counted

if TYPE_CHECKING:
    from embcli.page import NumberFormat, Page
    from embcli.search import Found
    from embcli.verbs.neighbors import Neighbors, Query, Shares

_MOST_QUERIES = 20
_MOST_ROWS = 200  # neighbours of a query
_MOST_TERMS = 8  # tokens of a query that are named
_GAP = 2  # cells between columns
_BAR = 12  # cells of the longest bar

_METRICS = {"cosine": "cosine", "dot": "dot product", "l2": "L2 distance"}


def view(result: Neighbors, page: Page) -> None:
    """Put the neighbours of each query on a page, what their scores are made of, and which rows have none."""
    queries = Excerpt.most(_MOST_QUERIES, len(result.queries))
    for number in queries.places.tolist():
        if number:
            page.line()
        _put_query(result, number, page)
    _put_words(result, page)
    if queries.left_out:
        missing = queries.missing(np.arange(1, len(result.queries) + 1), "query", "queries")
        page.line(f"{left_out(missing)}; -f ndjson gives all.")
    put_guesses(page, result.run)


def _put_query(result: Neighbors, number: int, page: Page) -> None:
    query, found = result.queries[number], result.search.found[number]
    page.title(f"Nearest to {_in_words(result, query, number)} by {_METRICS[result.wanted.metric]}{_space(result)}")
    if len(query.ids) > 1:
        page.line(f"The query is the mean of {len(query.ids):,} rows.")
    if not len(found.ids):
        page.line("There is no such row.")
        return
    rows = Excerpt.most(_MOST_ROWS, len(found.ids))
    written = page.numbers([Block("", found.scores[:, None])])
    columns = _labels(result, found, rows, written)
    if page.paper.heat:
        _put_heat(result, number, rows, columns, page)
    if result.wanted.why:
        _put_shares(columns, result.shares(number), rows, page)
    elif not page.paper.heat:
        page.table([*columns, Column("", _bars(found, rows), "left")], rows.gaps)
    if rows.left_out:
        missing = rows.missing(np.arange(1, len(found.ids) + 1), "rank")
        page.line(f"{left_out(missing)}; -f ndjson gives all.")


def _labels(result: Neighbors, found: Found, rows: Excerpt, written: NumberFormat) -> list[Column]:
    ids = found.ids[rows.places]
    tokens = [token_column(result.tokens(ids))] if result.encoding is not None else []
    return [
        Column("rank", [str(place + 1) for place in rows.places]),
        *tokens,
        Column("ID", [str(each) for each in ids]),
        Column("score", [written.write(score) for score in found.scores[rows.places]]),
    ]


def _bars(found: Found, rows: Excerpt) -> list[str | Word]:
    """Return a bar for each score, the longer the larger; a score of 0 or below has none."""
    largest = max(float(found.scores.max()), 0.0)
    scores = found.scores[rows.places].tolist()
    return [Word(bar(score / largest, _BAR) if score > 0 else "", "embedding") for score in scores]


def _put_heat(result: Neighbors, number: int, rows: Excerpt, labels: list[Column], page: Page) -> None:
    """Put the rows on the page as colours, that of the query above those that are near to it."""
    labels = [replace(label, cells=["query" if label.header == "rank" else "", *label.cells]) for label in labels]
    values = np.concatenate([result.vectors[number][None], result.rows(result.search.found[number].ids[rows.places])])
    numbers = np.arange(values.shape[1])
    page.grid(labels, [Block("", values.astype(np.float32))], numbers, [gap + 1 for gap in rows.gaps])


def _put_shares(labels: list[Column], shares: Shares, rows: Excerpt, page: Page) -> None:
    """Put the parts of each score on the page, and the columns that add most to it."""
    told = shares.columns.shape[1]
    parts = {"mean row": shares.mean, f"{counted(told, 'column')}": shares.told, "rest": shares.rest}
    written = page.numbers([Block("", np.stack([*parts.values()], axis=1))])
    names = [", ".join(map(str, each)) for each in shares.columns[rows.places].tolist()]
    sums: Columns = [*labels]
    for sign, (name, values) in zip(("=", "+", "+"), parts.items(), strict=True):
        sums.append(Column("", [sign] * len(names)))
        sums.append(Column(name, [written.write(value) for value in values[rows.places]]))
    whole: Columns = [*sums, Column("those columns", names, "left")]
    if page.holds(whole):
        page.table(whole, rows.gaps)
    else:
        page.table(sums, rows.gaps)
        page.line()
        room = page.width - labels[0].width - _GAP
        page.table([labels[0], Column("those columns", [_whole(each, room) for each in names], "left")], rows.gaps)


def _whole(numbers: str, room: int) -> str:
    """Return as many of some numbers between commas as there is room for, and dots for the others."""
    if len(numbers) <= room:
        return numbers
    return f"{numbers[: numbers.rindex(',', 0, room - 2)]}, …"


def _in_words(result: Neighbors, query: Query, number: int) -> str:
    """Return what a query is: its tokens and their IDs."""
    if query.given is not None:
        return f"vector {number + 1:,}"
    added = "".join(f" + {_terms(result, ids)}" for ids in query.plus)
    taken = "".join(f" - {_terms(result, ids)}" for ids in query.minus)
    return f"{_terms(result, query.ids)}{taken}{added}"


def _terms(result: Neighbors, ids: np.ndarray) -> str:
    few = ids[:_MOST_TERMS]
    tokens = [shown(token) for token in result.tokens(few)]
    words = [f"{token} ({each})" if token else f"ID {each}" for token, each in zip(tokens, few.tolist(), strict=True)]
    more = [f"{len(ids) - len(few):,} more"] if len(ids) > len(few) else []
    return ", ".join([*words, *more])


def _space(result: Neighbors) -> str:
    return ", the mean row taken away" if result.wanted.center else ""


def _put_words(result: Neighbors, page: Page) -> None:
    """Say how many rows were searched, how many scores that took in float64, and which rows have none."""
    search, size = result.search, result.layer.shape[0]
    page.line()
    of_all = f" of {size:,}" if search.searched < size else ""
    rescored = max((each.rescored for each in search.found), default=0)
    prove = "proves" if rescored == 1 else "prove"
    scores = counted(rescored, "score")
    page.line(f"Searched {counted(search.searched, 'row')}{of_all}; {scores} in float64 {prove} the first.")
    zero = (
        "no direction once the mean row is taken away" if result.wanted.center else "zeros alone, and so no direction"
    )
    for ids, what in ((search.not_finite, "NaN or infinity"), (search.zero, zero)):
        if len(ids):
            few = ", ".join(map(str, ids[:_MOST_TERMS].tolist())) + (", …" if len(ids) > _MOST_TERMS else "")
            page.line(f"Left out: {counted(len(ids), 'row')} with {what}: {few}")
