"""The neighbours of a query: the rows of a matrix nearest to it.

`neighbors` returns a Neighbors, which is plain data. `queries` makes vectors of what the user asks
for, `numerics/search.py` finds the rows, and `page` shows them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, check_choice, whole_number
from embcli.layer import Layer, Origin, shape_of
from embcli.names import METRICS, Metric, TokenLayer
from embcli.numerics.search import Search, nearest
from embcli.opened import Opened, TextOrIds, remark_scaled
from embcli.records import Records, TypedValues, listed, run_of
from embcli.result import Result
from embcli.selection import Selection
from embcli.tokens import chosen_rows, token_text, tokens_of
from embcli.verbs.neighbors.queries import (
    Query,
    queries_of_tokens,
    queries_of_vectors,
    vector_of,
)
from embcli.wording import Sentence


@dataclass(frozen=True, eq=False, kw_only=True)
class Neighbors(Result, verb="neighbors"):
    """The rows nearest to each query; query i has `search.rankings[i]`."""

    metric: Metric
    queries: list[Query]
    vectors: list[np.ndarray]  # (D,) float64 each
    search: Search
    layer: Layer
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
    origin: Origin
    is_map: bool  # whether the page is a map of the neighbours

    @property
    def ids(self) -> np.ndarray:
        """The IDs of the neighbours of all queries, (n,) int64."""
        return np.concatenate([ranking.ids for ranking in self.search.rankings])

    @property
    def scores(self) -> np.ndarray:
        """The scores of the neighbours of all queries, (n,) float64."""
        return np.concatenate([ranking.scores for ranking in self.search.rankings])

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def _records(self) -> Records:
        """Return a row for each neighbour; what holds for the whole search stands in the run."""
        documents = []
        for query, left_out in zip(self.queries, self.search.left_out, strict=True):
            # The rows of the query itself are no answers.
            scores = zip(left_out.ids.tolist(), left_out.scores.tolist(), strict=True)
            document = query.document()
            document["left_out"] = [{"id": row, "score": score} for row, score in scores]
            documents.append(document)
        run = run_of(self.encoding, **self.origin.document())
        run |= {
            "metric": self.metric,
            "queries": documents,
            "searched": self.search.searched,
            "not_finite": len(self.search.not_finite),
            "zero": len(self.search.zero),
        }

        lengths = [len(ranking.ids) for ranking in self.search.rankings]
        ranks = [np.arange(1, length + 1) for length in lengths]
        ids = self.ids
        columns: dict[str, TypedValues] = {
            "query": (int, np.repeat(np.arange(len(lengths)), lengths)),
            "rank": (int, np.concatenate(ranks)),
            "id": (int, ids),
        }
        if self.encoding:
            columns["token"] = (str, [token_text(token) for token in self.tokens(ids)])
        columns["score"] = (float, self.scores)
        return listed(run, "neighbors", **columns)


def neighbors(
    model: Opened,
    text: TextOrIds | None = None,
    *,
    layer: TokenLayer = "token",
    special: bool = False,
    lines: bool = False,
    plus: Sequence[str] = (),
    minus: Sequence[str] = (),
    vector: np.ndarray | None = None,
    metric: Metric = "cosine",
    top: int = 10,
    match: str | None = None,
    rows: Selection | None = None,
    map: bool = False,
) -> Neighbors:
    """Return the rows nearest to the mean row of a text's tokens, or to a vector.

    Queries and neighbours are rows of one layer, the token matrix or the output head. A vector is
    (D,) or (n, D) float32. The result has the first `top` rows by their scores in
    float64; `plus` and `minus` add and subtract the rows of other tokens. With `map`, the page
    shows each query and its neighbours by their first two principal components. Raises InputError
    for queries without a row, and for rows that are not finite or zero.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).neighbors([2], top=2).ids.tolist()
    [0, 1]
    """
    check_choice("layer", layer, get_args(TokenLayer))
    notes = model.notes.begun()
    if layer == "token":
        remark_scaled(notes, model)
    source = model.source
    size, dim = shape_of(source, layer)
    if (text is None) == (vector is None):
        raise InputError(Sentence("give {text} or {vector}, one of them"))
    if text is not None:
        tokens = model.tokens(text, special, lines, notes=notes, has_added=False)
        queries = queries_of_tokens(tokens, plus, minus, size, notes)
    else:
        queries = queries_of_vectors(vector, dim)
        if plus or minus:
            raise InputError(
                Sentence("{plus} and {minus} are for the tokens of a text, not for {vector}")
            )
    check_choice("metric", str(metric), METRICS)
    whole_number("top", top, 1)
    among = chosen_rows(rows, match, size, source.encoding)

    layers = source.open({layer: None}, notes)
    matrix = layers[layer]
    vectors = [vector_of(query, number, matrix, metric) for number, query in enumerate(queries, 1)]
    search = nearest(
        matrix,
        vectors,
        top,
        metric,
        among,
        [query.all_ids for query in queries],
        notes.watch,
    )
    return Neighbors(
        metric=metric,
        queries=queries,
        vectors=vectors,
        search=search,
        layer=matrix,
        encoding=source.encoding,
        origin=layers.origin,
        is_map=map,
        notes=notes,
    )
