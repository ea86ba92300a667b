"""Exact search for the rows nearest to a query, in float64 and block by block.

A matrix product tells which rows of a block may be among the first k, by a margin far above its rounding. These are
scored row by row, so that equal rows have equal scores wherever they are; the scores decide, ties by ID.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer
from embcli.names import Metric
from embcli.numerics.statistics import numbered_blocks, squares

_BLOCK = 1 << 18  # values of a block
_QUERIES = 1 << 10  # of a pass
_MARGIN = 1e-9  # of a product of two rows' lengths


class Ranking(NamedTuple):
    """The rows nearest to a query, nearest first; rows with equal scores are ordered by ID."""

    ids: np.ndarray  # (n,) int64
    scores: np.ndarray  # (n,) float64


class Search(NamedTuple):
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
        self.threshold = -np.inf  # the nearness of the k-th row, larger for nearer rows

    def add(self, ids: np.ndarray, rows: np.ndarray) -> None:
        """Score rows, (n, D) float64; each is summed by itself."""
        allowed = ~np.isin(ids, self._excluded)
        rows = rows[allowed]
        if self._metric == "l2":
            found = np.sqrt(np.square(rows - self._query).sum(axis=1))
        else:
            found = (rows * self._query).sum(axis=1)
        if self._metric == "cosine":
            found /= np.sqrt(np.square(rows).sum(axis=1) * np.square(self._query).sum())
            np.clip(found, -1, 1, out=found)
        self._ids.append(ids[allowed])
        self._scores.append(found)
        self._pending += len(ids)
        if self._pending >= self._k:
            self.ranking()

    def ranking(self) -> Ranking:
        """Return the first k rows, and forget the others."""
        ids, found = np.concatenate(self._ids), np.concatenate(self._scores)
        nearness = -found if self._metric == "l2" else found
        order = np.lexsort((ids, -nearness))[: self._k]
        self._ids, self._scores, self._pending = [ids[order]], [found[order]], 0
        if len(order) == self._k:
            last = float(found[order[-1]])
            self.threshold = -(last**2) if self._metric == "l2" else last
        return Ranking(ids[order], found[order])


def nearest(
    layer: Layer,
    queries: list[np.ndarray],
    k: int,
    metric: Metric,
    among: np.ndarray | None,
    excluded: list[np.ndarray],
    watch: Watch = unwatched,
) -> Search:
    """Return the k rows of a layer nearest to each query, (D,) float64; all finite, under cosine not zero.

    `among` are the rows to search, (n,) int64 ascending, or None for all. `excluded` has the IDs that are not allowed
    as answers, for each query.
    """
    searched = layer.shape[0] if among is None else len(among)
    not_finite, zero = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    rankings: list[Ranking] = []
    for first in range(0, len(queries), _QUERIES):
        some = slice(first, first + _QUERIES)
        best = [_Best(k, metric, *each) for each in zip(queries[some], excluded[some], strict=True)]
        vectors = np.stack(queries[some], axis=1)
        thresholds = np.full(len(best), -np.inf)
        del not_finite[1:], zero[1:]  # each pass finds the same ones
        if among is None:
            blocks = numbered_blocks(layer)
        else:
            parts = np.split(among, range(0, len(among), max(_BLOCK // layer.shape[1], 1))[1:])
            blocks = ((ids, layer.rows(ids)) for ids in parts)
        for ids, block in watch(blocks, searched, lambda each: len(each[0])):
            with np.errstate(invalid="ignore"):  # NaN
                rows = block.astype(np.float64)
                sizes = squares(rows)
            usable = np.isfinite(sizes)
            not_finite.append(ids[~usable])
            if metric == "cosine":
                zero.append(ids[sizes == 0])
                usable &= sizes > 0
            if not usable.all():
                ids, rows, sizes = ids[usable], rows[usable], sizes[usable]
            nearness, scale = _nearness(rows, sizes[:, None], vectors, metric)
            may_be = nearness + _MARGIN * scale >= thresholds
            for number in np.flatnonzero(may_be.any(axis=0)).tolist():
                chosen = may_be[:, number]
                best[number].add(ids[chosen], rows[chosen])
                thresholds[number] = best[number].threshold
        rankings += [each.ranking() for each in best]
    return Search(rankings, searched, np.concatenate(not_finite), np.concatenate(zero))


def _nearness(
    rows: np.ndarray, sizes: np.ndarray, vectors: np.ndarray, metric: Metric
) -> tuple[np.ndarray, np.ndarray | float]:
    """Return how near rows, (n, D), are to vectors, (D, queries), larger for nearer, and the scale of its rounding.

    `sizes` are the squared lengths of the rows, (n, 1). Under l2 the nearness is minus the squared distance.
    """
    products = rows @ vectors
    lengths = np.square(vectors).sum(axis=0)
    if metric == "l2":
        return 2 * products - sizes - lengths, sizes + lengths
    scale = np.sqrt(sizes * lengths)
    if metric == "dot":
        return products, scale
    return products / scale, 1.0
