"""How `neighbors` looks."""

import math
from dataclasses import replace

import numpy as np

from embcli.hints import hint
from embcli.oldpage import Block, Column, Excerpt, NumberFormat, Page, Word
from embcli.search import Ranking
from embcli.tokens import shown
from embcli.verbs.neighbors import Neighbors, Query
from embcli.views.parts import bar, put_left_out, put_origin, token_column
from embcli.words import counted

_MOST_QUERIES = 20
_MOST_ROWS = 200  # neighbours of a query
_MOST_TERMS = 8  # tokens of a query that are named
_BAR = 12  # cells of the longest bar

_METRICS = {"cosine": "cosine", "dot": "dot product", "l2": "L2 distance"}


def view(result: Neighbors, page: Page) -> None:
    """Put the neighbours of each query on a page, and the rows without a score."""
    queries = Excerpt.ends(_MOST_QUERIES, len(result.queries))
    for number in queries.places.tolist():
        if number:
            page.line()
        _put_query(result, number, page)
    _put_search(result, page)
    missing = queries.missing("query", np.arange(1, len(result.queries) + 1), "queries")
    put_left_out(page, missing, how=hint("ndjson"))
    put_origin(page, result.origin)


def _put_query(result: Neighbors, number: int, page: Page) -> None:
    query, ranking = result.queries[number], result.search.rankings[number]
    page.title(f"Nearest to {_in_words(result, query, number)} by {_METRICS[result.nearness.metric]}")
    if len(query.ids) > 1:
        page.line(f"The query is the mean of {len(query.ids):,} rows.")
    if not len(ranking.ids):
        page.line("No other rows.")
        return
    rows = Excerpt.ends(_MOST_ROWS, len(ranking.ids))
    numbers = page.numbers(ranking.scores)
    columns = _labels(result, ranking, rows, numbers)
    if page.paper.heat:
        _put_heat(result, number, rows, columns, page)
    else:
        page.table([*columns, _bars(result, number, rows)], rows.gaps)
    put_left_out(page, rows.missing("rank", np.arange(1, len(ranking.ids) + 1)), how=hint("ndjson"))


def _labels(result: Neighbors, ranking: Ranking, rows: Excerpt, numbers: NumberFormat) -> list[Column]:
    ids = ranking.ids[rows.places]
    score = "distance" if result.nearness.metric == "l2" else "score"
    tokens = [token_column(result.tokens(ids))] if result.encoding is not None else []
    return [
        Column("rank", rows.places + 1),
        *tokens,
        Column("ID", ids),
        Column(score, [numbers.write(each) for each in ranking.scores[rows.places]]),
    ]


def _bars(result: Neighbors, number: int, rows: Excerpt) -> Column:
    """Return a bar for each score on the scale of its metric, whose ends are the header: the longer, the nearer.

    A full bar is the score of the query itself, and no bar that of a perpendicular row as long as it, or of a row that
    is farther. The product with a longer row can exceed the query's own: then the largest one has the full bar.
    """
    scores, square = result.search.rankings[number].scores, float(np.square(result.vectors[number]).sum())
    ends = {"cosine": (0.0, 1.0), "dot": (0.0, max(square, float(scores.max()))), "l2": (math.sqrt(2 * square), 0.0)}
    nothing, full = ends[result.nearness.metric]
    shares = (scores[rows.places] - nothing) / ((full - nothing) or -1)  # a query of zeros has no scale
    low, high = (f"{end:.3g}" for end in (nothing, full))
    bars = [Word(bar(share, _BAR) if share > 0 else "", "embedding") for share in shares.tolist()]
    return Column(f"{low}{high:>{_BAR - len(low)}}", bars, "left", minimum=_BAR)


def _put_heat(result: Neighbors, number: int, rows: Excerpt, labels: list[Column], page: Page) -> None:
    """Put the rows on the page as a heat map, with the query above its neighbours."""
    labels = [replace(label, cells=["query" if label.header == "rank" else "", *label.cells]) for label in labels]
    neighbors = result.layer.rows(result.search.rankings[number].ids[rows.places])
    values = np.concatenate([result.vectors[number][None], neighbors])
    numbers = np.arange(values.shape[1])
    page.grid(labels, [Block("", values.astype(np.float32))], numbers, [gap + 1 for gap in rows.gaps])


def _in_words(result: Neighbors, query: Query, number: int) -> str:
    """Return the tokens and IDs of a query."""
    if query.vector is not None:
        return f"vector {number + 1:,}"
    added = "".join(f" + {_terms(result, ids)}" for ids in query.plus)
    subtracted = "".join(f" - {_terms(result, ids)}" for ids in query.minus)
    return f"{_terms(result, query.ids)}{subtracted}{added}"


def _terms(result: Neighbors, ids: np.ndarray) -> str:
    first = ids[:_MOST_TERMS]
    tokens = [shown(token) for token in result.tokens(first)]
    words = [f"{token} ({each})" if token else f"ID {each}" for token, each in zip(tokens, first.tolist(), strict=True)]
    more = [f"{len(ids) - len(first):,} more"] if len(ids) > len(first) else []
    return ", ".join([*words, *more])


def _put_search(result: Neighbors, page: Page) -> None:
    """Say how many rows were searched, and which have no score."""
    search, size = result.search, result.layer.shape[0]
    page.line()
    of_all = f" of {size:,}" if search.searched < size else ""
    page.line(f"Searched {counted(search.searched, 'row')}{of_all}.")
    for ids, what in ((search.not_finite, "with NaN or infinity"), (search.zero, "of zeros, without a direction")):
        if len(ids):
            first = ", ".join(map(str, ids[:_MOST_TERMS].tolist())) + (", …" if len(ids) > _MOST_TERMS else "")
            page.line(f"Left out: {counted(len(ids), 'row')} {what}: {first}")
