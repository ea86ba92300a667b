"""Exact search for the rows nearest to a query, in float64 and block by block.

`neighbors` calls `nearest`, which reads the rows of a layer in blocks. Each row is summed by
itself, so that equal rows have equal scores wherever they are; the scores decide, ties by ID.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer
from embcli.names import METRICS, Metric
from embcli.numerics.statistics import NumberedBlock, numbered_blocks

_BLOCK_VALUES = 1 << 18
_NO_IDS = np.empty(0, np.int64)


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
    blocks = watch(_blocks(layer, among), searched, lambda block: len(block[0]))
    rankings, not_finite, zero = _ranked(blocks, queries, k, metric, excluded)
    left_out = []
    for query, ids in zip(queries, excluded, strict=True):
        left_out_ids = np.unique(ids) if among is None else np.intersect1d(ids, among)
        left_out_blocks = _blocks(layer, left_out_ids)
        (ranking,), _, _ = _ranked(left_out_blocks, [query], len(left_out_ids), metric, [_NO_IDS])
        left_out.append(ranking)
    return Search(rankings, left_out, searched, not_finite, zero)


def _blocks(layer: Layer, among: np.ndarray | None) -> Iterator[NumberedBlock]:
    """Yield the rows to search after their IDs."""
    if among is None:
        yield from numbered_blocks(layer)
        return
    layer.load()
    step = max(_BLOCK_VALUES // layer.shape[1], 1)
    for ids in np.split(among, range(step, len(among), step)):
        yield ids, layer.rows(ids)


def _ranked(
    blocks: Iterable[NumberedBlock],
    queries: list[np.ndarray],
    k: int,
    metric: Metric,
    excluded: list[np.ndarray],
) -> tuple[list[Ranking], np.ndarray, np.ndarray]:
    """Return the first k rows of blocks for each query, and the IDs of the rows without a score.

    The latter are not finite, or zero under cosine, (n,) int64 each.
    """
    rankings = [Ranking(_NO_IDS, np.empty(0)) for _ in queries]
    not_finite = [_NO_IDS]
    zero = [_NO_IDS]
    for ids, block in blocks:
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
            is_allowed = ~np.isin(ids, excluded[number])
            scores = _scores(rows, squared_lengths, query, metric)[is_allowed]
            before = rankings[number]
            all_ids = np.concatenate([before.ids, ids[is_allowed]])
            all_scores = np.concatenate([before.scores, scores])
            distances = all_scores if METRICS[metric].is_distance else -all_scores
            order = np.lexsort((all_ids, distances))[:k]
            rankings[number] = Ranking(all_ids[order], all_scores[order])
    return rankings, np.concatenate(not_finite), np.concatenate(zero)


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
