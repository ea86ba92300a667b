"""Exact search for the rows nearest to a query, in float64 and block by block.

`neighbors` calls `nearest`, which reads the rows of a layer in blocks. A matrix product tells which
rows of a block may be among the first k, by a margin far above its rounding. These are scored row
by row, so that equal rows have equal scores wherever they are; the scores decide, ties by ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer
from embcli.names import DISTANCES, Metric
from embcli.numerics.statistics import numbered_blocks, squares

_BLOCK_VALUES = 1 << 18
_QUERIES_PER_PASS = 1 << 10


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
    searched = layer.shape[0] if among is None else len(among)
    rankings: list[Ranking] = []
    not_finite = np.empty(0, np.int64)
    zero = np.empty(0, np.int64)
    for start in range(0, len(queries), _QUERIES_PER_PASS):
        part = slice(start, start + _QUERIES_PER_PASS)
        pairs = zip(queries[part], excluded[part], strict=True)
        top_rows = [_TopRows(k, metric, query, ids) for query, ids in pairs]
        blocks = watch(_blocks(layer, among), searched, lambda block: len(block[0]))
        # Each pass finds the same rows without a score.
        not_finite, zero = _add_blocks(top_rows, blocks, metric)
        rankings += [rows.ranking() for rows in top_rows]
    left_out = []
    for query, ids in zip(queries, excluded, strict=True):
        left_out.append(_ranking_of(layer, query, metric, _searched_ids(ids, among)))
    return Search(rankings, left_out, searched, not_finite, zero)


def _searched_ids(ids: np.ndarray, among: np.ndarray | None) -> np.ndarray:
    """Return those of some IDs that are searched, (n,) int64 ascending."""
    return np.unique(ids) if among is None else np.intersect1d(ids, among)


def _ranking_of(layer: Layer, query: np.ndarray, metric: Metric, ids: np.ndarray) -> Ranking:
    """Return the ranking of these rows alone; rows without a score have no rank."""
    no_ids = np.empty(0, np.int64)
    if not len(ids):
        return Ranking(no_ids, np.empty(0))
    top_rows = _TopRows(len(ids), metric, query, no_ids)
    _add_blocks([top_rows], _blocks(layer, ids), metric)
    return top_rows.ranking()


def _blocks(layer: Layer, among: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to search, (n, D) float32, after their IDs, (n,) int64."""
    if among is None:
        yield from numbered_blocks(layer)
        return
    layer.load()
    step = max(_BLOCK_VALUES // layer.shape[1], 1)
    for ids in np.split(among, range(step, len(among), step)):
        yield ids, layer.rows(ids)


def _add_blocks(
    top_rows: list[_TopRows], blocks: Iterable[tuple[np.ndarray, np.ndarray]], metric: Metric
) -> tuple[np.ndarray, np.ndarray]:
    """Add the rows that may be among the first k; return the IDs of the rows without a score.

    These are the rows that are not finite and, under cosine, the zero rows, (n,) int64 each.
    """
    vectors = np.stack([rows.query for rows in top_rows], axis=1)  # (D, queries)
    thresholds = np.full(len(top_rows), -np.inf)
    not_finite = [np.empty(0, np.int64)]
    zero = [np.empty(0, np.int64)]
    for ids, block in blocks:
        with np.errstate(invalid="ignore"):  # non-finite rows are found below
            rows = block.astype(np.float64)
            squared_lengths = squares(rows)
        has_score = np.isfinite(squared_lengths)
        not_finite.append(ids[~has_score])
        if metric == "cosine":
            zero.append(ids[squared_lengths == 0])
            has_score &= squared_lengths > 0
        if not has_score.all():
            ids = ids[has_score]
            rows = rows[has_score]
            squared_lengths = squared_lengths[has_score]

        upper_bounds = _upper_bounds(rows, squared_lengths[:, None], vectors, metric)
        may_be_first = upper_bounds >= thresholds
        for number in np.flatnonzero(may_be_first.any(axis=0)).tolist():
            chosen = may_be_first[:, number]
            top_rows[number].add(ids[chosen], rows[chosen])
            thresholds[number] = top_rows[number].threshold
    return np.concatenate(not_finite), np.concatenate(zero)


def _upper_bounds(
    rows: np.ndarray, squared_lengths: np.ndarray, vectors: np.ndarray, metric: Metric
) -> np.ndarray:
    """Return how near rows, (n, D), are at most to vectors, (D, queries): larger for nearer.

    `squared_lengths` are those of the rows, (n, 1). The bound is a cosine, a dot product, or under
    l2 minus a squared distance; it exceeds what the matrix product gives by more than its rounding.
    """
    margin = 1e-9  # a share of the product of two lengths
    products = rows @ vectors
    squared_lengths_of_vectors = np.square(vectors).sum(axis=0)
    match metric:
        case "cosine":
            nearness = products / np.sqrt(squared_lengths * squared_lengths_of_vectors)
            rounding = margin
        case "dot":
            nearness = products
            rounding = margin * np.sqrt(squared_lengths * squared_lengths_of_vectors)
        case "l2":
            nearness = 2 * products - squared_lengths - squared_lengths_of_vectors
            rounding = margin * (squared_lengths + squared_lengths_of_vectors)
    upper_bounds: np.ndarray = nearness + rounding
    return upper_bounds


class _TopRows:
    """The k nearest rows to a query, among the rows that were added.

    Rows are added block by block; each time k rows have come, all but the first k are forgotten.
    """

    def __init__(self, k: int, metric: Metric, query: np.ndarray, excluded: np.ndarray) -> None:
        self.query = query
        self.threshold = -np.inf  # the nearness that the upper bound of a row must reach
        self._k = k
        self._metric = metric
        self._excluded = excluded
        self._ids = [np.empty(0, np.int64)]
        self._scores = [np.empty(0)]
        self._added = 0  # rows since the last ranking

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Score rows, (n, D) float64, and keep those that are not excluded."""
        is_allowed = ~np.isin(ids, self._excluded)
        self._ids.append(ids[is_allowed])
        self._scores.append(self._score(rows[is_allowed]))
        self._added += len(ids)
        if self._added >= self._k:
            self.ranking()

    def _score(self, rows: np.ndarray) -> np.ndarray:
        """Return the score of each row, (n,) float64; each row is summed by itself."""
        scores: np.ndarray
        match self._metric:
            case "cosine":
                products = (rows * self.query).sum(axis=1)
                squared_lengths = np.square(rows).sum(axis=1)
                cosines = products / np.sqrt(squared_lengths * np.square(self.query).sum())
                scores = cosines.clip(-1, 1)
            case "dot":
                scores = (rows * self.query).sum(axis=1)
            case "l2":
                scores = np.sqrt(np.square(rows - self.query).sum(axis=1))
        return scores

    def ranking(self) -> Ranking:
        """Return the first k rows, and forget the others."""
        ids = np.concatenate(self._ids)
        scores = np.concatenate(self._scores)
        distances = scores if self._metric in DISTANCES else -scores
        order = np.lexsort((ids, distances))[: self._k]
        ranking = Ranking(ids[order], scores[order])

        self._ids = [ranking.ids]
        self._scores = [ranking.scores]
        self._added = 0
        if len(order) == self._k:
            self.threshold = self._nearness(float(ranking.scores[-1]))
        return ranking

    def _nearness(self, score: float) -> float:
        """Return the nearness with a score, in the unit of _upper_bounds."""
        match self._metric:
            case "cosine" | "dot":
                return score
            case "l2":
                return -(score**2)
