"""The page of neighbours: a table of ranks, tokens, scores and bars for each query, and remarks."""

from __future__ import annotations

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.style import Style
from rich.text import Text

from embcli.names import METRICS
from embcli.page import (
    Label,
    medium_of,
    omission,
    omitted,
    ruled,
    safe_text,
    title,
    written,
)
from embcli.page.labels import origin_lines, row_names, token_label
from embcli.page.medium import Medium
from embcli.selection import Excerpt
from embcli.tokens import shown
from embcli.verbs.neighbors import Neighbors
from embcli.wording import counted, first_of

_MOST_QUERIES = 20
_MOST_NEIGHBORS = 200  # the page shows no more per query
_MOST_IDS = 8  # that a sentence names
# 20 cells of a line, in which the longest bar is 1 wide; HTML has other letters, and the style.
_BAR = (
    '<svg viewBox="0 0 1 24" width="240.8" height="24" preserveAspectRatio="none" '
    'style="max-width: 20ch; max-height: 1em; vertical-align: text-bottom">'
    '<path fill="#0087d7" d="M0 6h{:.4f}v12H0z"/></svg>'
)


def page(neighbors: Neighbors, console: Console, options: ConsoleOptions) -> RenderResult:
    queries = Excerpt.ends(_MOST_QUERIES, len(neighbors.queries))
    for number in queries.places.tolist():
        yield from _query_part(neighbors, number, medium_of(console))
        yield ""

    search = neighbors.search
    size = neighbors.layer.shape[0]
    rows = counted(search.searched, "row")
    if search.searched < size:
        rows += f" of {size:,}"
    yield safe_text(f"Searched {rows}; a query's own tokens are left out.")
    kinds = {
        "with NaN or infinity": search.not_finite,
        "of zeros, without a direction": search.zero,
    }
    for kind, ids in kinds.items():
        if len(ids):
            yield safe_text(
                f"Not ranked: {counted(len(ids), 'row')} {kind}: "
                f"{first_of(map(str, ids), _MOST_IDS)}"
            )

    yield from omitted(omission(queries, "query number", first=1))
    yield from origin_lines(neighbors.origin, "; similarities mean nothing")


def _query_part(neighbors: Neighbors, number: int, medium: Medium) -> RenderResult:
    query = neighbors.queries[number]
    yield title(
        f"Nearest to {_query_in_words(neighbors, number)} by {METRICS[neighbors.metric].words}"
    )
    if len(query.ids) > 1:
        yield safe_text(f"The query is the mean of {len(query.ids):,} rows.")
    if neighbors.metric == "cosine" and (query.plus or query.minus):
        yield safe_text("Each term is scaled to length 1 first.")

    if not len(neighbors.search.rankings[number].ids):
        yield safe_text("No other rows.")
    elif neighbors.is_map:
        yield from _map(neighbors, number)
    else:
        yield from _ranks(neighbors, number, medium)


def _map(neighbors: Neighbors, number: int) -> RenderResult:
    from embcli.page.map import Map

    ids = neighbors.search.rankings[number].ids
    query = _query_in_words(neighbors, number)
    name = query if len(query) <= 24 else "query"  # on a map
    labels = [safe_text(name, "strong"), *row_names(ids, neighbors.encoding)]
    # The query, and its neighbours: (1 + n, D) float64.
    vectors = np.concatenate([neighbors.vectors[number][None], neighbors.layer.rows(ids)])
    if neighbors.metric == "cosine":
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    yield Map(vectors, labels, 4 if neighbors.style.bare else 10)
    if neighbors.metric == "cosine":
        yield safe_text("Each row is scaled to length 1 first, as by cosine.")


def _ranks(neighbors: Neighbors, number: int, medium: Medium) -> RenderResult:
    ranking = neighbors.search.rankings[number]
    excerpt = Excerpt.ends(_MOST_NEIGHBORS, len(ranking.ids))
    ids = ranking.ids[excerpt.places]
    scores = ranking.scores[excerpt.places]
    labels = [Label("rank", excerpt.places + 1)]
    if neighbors.encoding is not None:
        labels.append(token_label(neighbors.tokens(ids)))
    labels.append(Label("ID", ids))
    is_distance = METRICS[neighbors.metric].is_distance
    labels.append(
        Label("distance" if is_distance else "score", written(scores, neighbors.style.precision))
    )
    if neighbors.metric == "cosine":
        labels.append(_bars(scores, medium))
    yield ruled(labels, gaps=excerpt.gaps)
    yield from omitted(omission(excerpt, "rank", first=1))


def _query_in_words(neighbors: Neighbors, number: int) -> str:
    query = neighbors.queries[number]
    if query.vector is not None:
        return f"vector {number + 1:,}"
    text = _term_in_words(neighbors, query.ids)
    for ids in query.minus:
        text += f" - {_term_in_words(neighbors, ids)}"
    for ids in query.plus:
        text += f" + {_term_in_words(neighbors, ids)}"
    return text


def _term_in_words(neighbors: Neighbors, ids: np.ndarray) -> str:
    shown_ids = ids[: _MOST_IDS + 1]
    names = []
    for row, token in zip(shown_ids.tolist(), neighbors.tokens(shown_ids), strict=True):
        text = shown(token)
        names.append(f"{text} ({row})" if text else f"ID {row}")
    return first_of(names, _MOST_IDS)


def _bars(scores: np.ndarray, medium: Medium) -> Label:
    """Return a bar for each cosine, longer for nearer; the header shows the ends of the scale.

    Bars are exact in a picture; elsewhere in halves of a cell, and half as high as a line, so that
    they are apart.
    """
    longest = 20  # cells
    bars = []
    for score in scores.clip(0, 1).tolist():
        whole, half = divmod(round(score * longest * 2), 2)
        bar = safe_text("▄" * whole + "▖" * half, "accent")
        if medium.shows_svg:
            bar = Text(" " * longest, Style.from_meta({"svg": _BAR.format(score)}))
        bars.append(bar)
    return Label("0" + "1".rjust(longest - 1), bars, "left")
