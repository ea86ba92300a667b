"""Exact search for the rows nearest to a query, in float64 and block by block.

A matrix product in float64 tells which rows of a block may be among the first k. These are scored one by one, so that
equal rows have equal scores wherever they are; the scores decide, ties by ID.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer
from embcli.names import Metric

_BLOCK = 1 << 18  # values of a block
_QUERIES = 1 << 10  # of a pass
_ROUNDING = 2.0**-50  # of each addition in a product, and some more


@dataclass(frozen=True)
class Ranking:
    """The rows nearest to a query, nearest first; rows with equal scores are ordered by ID."""

    ids: np.ndarray  # (n,) int64
    scores: np.ndarray  # (n,) float64


@dataclass(frozen=True)
class Search:
    """A ranking for each query, and the rows without a score."""

    rankings: list[Ranking]
    searched: int  # rows, including those without a score
    not_finite: np.ndarray  # (n,) int64, IDs of rows that contain NaN or infinity
    zero: np.ndarray  # (n,) int64, IDs of rows without a direction; only under cosine


class _Best:
    """The first k rows of those seen so far, and rows that may come before them."""

    def __init__(self, k: int, metric: Metric, query: np.ndarray, excluded: np.ndarray) -> None:
        self._k, self._metric, self._query, self._excluded = k, metric, query, excluded
        self._ids, self._scores = [np.empty(0, np.int64)], [np.empty(0)]
        self._pending = 0
        self.threshold = -np.inf  # the closeness of the k-th row

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Score rows, (n, D) float64."""
        allowed = ~np.isin(ids, self._excluded)
        self._ids.append(ids[allowed])
        self._scores.append(scores(rows[allowed], self._query, self._metric))
        self._pending += len(ids)
        if self._pending >= self._k:
            self.ranking()

    def ranking(self) -> Ranking:
        """Return the first k rows, and forget the others."""
        ids, found = np.concatenate(self._ids), np.concatenate(self._scores)
        order = np.lexsort((ids, -_closeness(found, self._metric)))[: self._k]
        self._ids, self._scores, self._pending = [ids[order]], [found[order]], 0
        if len(order) == self._k:
            self.threshold = _closeness(found[order[-1:]], self._metric)[0]
        return Ranking(ids[order], found[order])


def scores(rows: np.ndarray, query: np.ndarray, metric: Metric) -> np.ndarray:
    """Return the scores of finite rows, (n, D) float64, with a query (D,); each row is summed by itself."""
    if metric == "l2":
        return np.asarray(np.sqrt(np.square(rows - query).sum(axis=1)))
    products: np.ndarray = (rows * query).sum(axis=1)
    if metric == "dot":
        return products
    cosines: np.ndarray = products / np.sqrt(np.square(rows).sum(axis=1) * np.square(query).sum())
    return np.clip(cosines, -1, 1, out=cosines)


def _closeness(found: np.ndarray, metric: Metric) -> np.ndarray:
    """Return numbers that are larger for nearer rows."""
    return -found if metric == "l2" else found


def nearest(
    layer: Layer,
    queries: list[np.ndarray],
    k: int,
    metric: Metric = "cosine",
    among: np.ndarray | None = None,
    excluded: list[np.ndarray] | None = None,
    watch: Watch = unwatched,
) -> Search:
    """Return the k rows of a layer nearest to each query, (D,) float64; all finite, under cosine not zero.

    `among` are the rows to search, (n,) int64 ascending, or None for all. `excluded` has the IDs that are not allowed
    as answers, for each query.
    """
    excluded = excluded or [np.empty(0, np.int64)] * len(queries)
    searched = layer.shape[0] if among is None else len(among)
    not_finite, zero = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rankings: list[Ranking] = []
    for first in range(0, len(queries), _QUERIES):
        some = slice(first, first + _QUERIES)
        best = [_Best(k, metric, *each) for each in zip(queries[some], excluded[some], strict=True)]
        vectors = np.stack(queries[some], axis=1)
        lengths = np.square(vectors).sum(axis=0)
        thresholds = np.full(len(best), -np.inf)
        del not_finite[1:], zero[1:]  # each pass finds the same ones
        for ids, block in watch(_blocks(layer, among), searched, lambda each: len(each[0])):
            with np.errstate(invalid="ignore"):  # NaN
                rows = block.astype(np.float64)
                squares = np.matmul(rows[:, None, :], rows[:, :, None])[:, 0, 0]
            finite, scored = np.isfinite(squares), squares > 0
            not_finite.append(ids[~finite])
            usable = finite & scored if metric == "cosine" else finite
            if metric == "cosine":
                zero.append(ids[~scored & finite])
            if not usable.all():
                ids, rows, squares = ids[usable], rows[usable], squares[usable]
            may_be = _upper(rows @ vectors, squares[:, None], lengths, metric, rows.shape[1]) >= thresholds
            for number in np.flatnonzero(may_be.any(axis=0)).tolist():
                chosen = may_be[:, number]
                best[number].add(ids[chosen], rows[chosen])
                thresholds[number] = best[number].threshold
        rankings += [each.ranking() for each in best]
    return Search(rankings, searched, np.concatenate(not_finite), np.concatenate(zero))


def _upper(products: np.ndarray, squares: np.ndarray, lengths: np.ndarray, metric: Metric, dim: int) -> np.ndarray:
    """Return the closeness of rows to queries, (n, queries), and as much more as rounding can hide."""
    slack = dim * _ROUNDING
    if metric == "l2":
        distances = (squares + lengths) * (1 - slack) - 2 * products
        return np.asarray(-np.sqrt(np.maximum(distances, 0)) * (1 - slack))
    sizes = np.sqrt(squares * lengths)
    return np.asarray(products / sizes + slack if metric == "cosine" else products + slack * sizes)


def _blocks(layer: Layer, among: np.ndarray | None) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the rows to search, (n, D) float32, with their IDs."""
    if among is None:
        first = 0
        for rows in layer.blocks():
            yield np.arange(first, first + len(rows)), rows
            first += len(rows)
    else:
        step = max(_BLOCK // layer.shape[1], 1)
        for start in range(0, len(among), step):
            yield among[start : start + step], layer.rows(among[start : start + step])
