"""Exact search for the rows nearest to a query, in float64 and block by block.

`neighbors` calls `nearest`, which reads the rows of a layer in blocks. Each row is summed by
itself, so that equal rows have equal scores wherever they are; the scores decide, ties by ID.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer
from embcli.names import METRICS, Metric
from embcli.numerics.statistics import numbered_blocks


class Ranking(NamedTuple):
    """The rows nearest to a query, nearest first; rows with equal scores are ordered by ID."""

    ids: np.ndarray  # (n,) int64
    scores: np.ndarray  # (n,) float64


class Search(NamedTuple):
    """A ranking for each query, and the rows without a score."""

    rankings: list[Ranking]
    left_out: list[Ranking]  # for each query, the rows that were not allowed as answers
    searched: int  # rows, including those without a score
    not_finite: np.ndarray  # (n,) int64, IDs of rows that contain NaN or infinity
    zero: np.ndarray  # (n,) int64, IDs of rows without a direction; only under cosine


def nearest(
    layer: Layer,
    queries: list[np.ndarray],
    k: int,
    metric: Metric,
    among: np.ndarray | None,
    excluded: list[np.ndarray],
    watch: Watch = unwatched,
) -> Search:
    """Return the k rows of a layer nearest to each query, (D,) float64.

    The queries are finite, and under cosine not zero. `among` are the rows to search, (n,) int64
    ascending, or None for all. `excluded` has the IDs that are not allowed as answers, for each
    query; they are ranked apart.
    """
    empty = Ranking(np.empty(0, np.int64), np.empty(0))
    rankings = [empty] * len(queries)
    left_out = [empty] * len(queries)
    not_finite = [empty.ids]
    zero = [empty.ids]
    searched = layer.shape[0] if among is None else len(among)
    for ids, block in numbered_blocks(layer, watch, among):
        with np.errstate(invalid="ignore"):  # non-finite rows are found below
            rows = block.astype(np.float64)
            squared_lengths = np.square(rows).sum(axis=1)
        has_score = np.isfinite(squared_lengths)
        not_finite.append(ids[~has_score])
        if metric == "cosine":
            zero.append(ids[squared_lengths == 0])
            has_score &= squared_lengths > 0
        ids = ids[has_score]
        rows = rows[has_score]
        squared_lengths = squared_lengths[has_score]

        for number, query in enumerate(queries):
            scored = Ranking(ids, _scores(rows, squared_lengths, query, metric))
            is_excluded = np.isin(ids, excluded[number])
            rankings[number] = _merged(rankings[number], scored, ~is_excluded, metric, k)
            left_out[number] = _merged(left_out[number], scored, is_excluded, metric)
    return Search(rankings, left_out, searched, np.concatenate(not_finite), np.concatenate(zero))


def _merged(
    before: Ranking, scored: Ranking, chosen: np.ndarray, metric: Metric, k: int | None = None
) -> Ranking:
    """Return the first k of ranked rows and of the chosen ones of other rows, (n,) bool; or all."""
    ids = np.concatenate([before.ids, scored.ids[chosen]])
    scores = np.concatenate([before.scores, scored.scores[chosen]])
    distances = scores if METRICS[metric].is_distance else -scores
    order = np.lexsort((ids, distances))[:k]
    return Ranking(ids[order], scores[order])


def _scores(
    rows: np.ndarray, squared_lengths: np.ndarray, query: np.ndarray, metric: Metric
) -> np.ndarray:
    """Return the score of each row, (n,) float64; each row is summed by itself."""
    match metric:
        case "l2":
            return np.asarray(np.linalg.norm(rows - query, axis=1))
        case "dot" | "cosine":
            products: np.ndarray = (rows * query).sum(axis=1)
            if metric == "cosine":
                lengths = np.sqrt(squared_lengths * np.square(query).sum())
                products = (products / lengths).clip(-1, 1)
            return products
