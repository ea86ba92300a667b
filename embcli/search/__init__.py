"""Exact search for the rows nearest to a query: a pass in float32 over all rows, then scores in float64.

The pass takes two products per row, with the query and with itself, and bounds each score. Rows that may be among the
first k by these bounds are read again and scored in float64; the bounds rule out every other row.

The package simsimd, if installed, multiplies rows as they are stored; otherwise numpy multiplies rows as float32.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np

from embcli.layer import Layer
from embcli.passes import Watch, ahead, readers, unwatched
from embcli.search.bounds import Bounds, Interval
from embcli.search.kernel import Kernel, simsimd
from embcli.search.space import Space

Rows = tuple[np.ndarray, np.ndarray]  # IDs, (n,) int64, and what belongs to each of them, (n, ...) or (..., n)

_PRODUCTS = 1 << 20  # in a piece
_PIECE = 1 << 23  # values of rows whose products make a piece
_SCORED = 1 << 18  # values scored in float64 at a time
_ANSWERS = 1 << 20  # of all queries of a pass
_QUERIES = 1 << 12  # of a pass


@dataclass(frozen=True)
class Ranking:
    """The rows nearest to a query, nearest first; rows with equal scores are ordered by ID."""

    ids: np.ndarray  # (n,) int64
    scores: np.ndarray  # (n,) float64
    rescored: int  # rows that were scored in float64


@dataclass(frozen=True)
class Search:
    """A ranking for each query, and the rows without a score."""

    rankings: list[Ranking]
    searched: int  # rows, including those without a score
    not_finite: np.ndarray  # (n,) int64, IDs of rows that contain NaN or infinity
    zero: np.ndarray  # (n,) int64, IDs of rows without a direction; only under cosine


class _Candidates:
    """The rows that may still be among the k nearest to a query."""

    def __init__(self, k: int, threshold: float, excluded: np.ndarray) -> None:
        self.k, self.threshold, self.excluded = k, threshold, excluded  # k rows surely reach the threshold, if k came
        self.ids, self.bounds = np.empty(0, np.int64), Interval(np.empty(0), np.empty(0))

    def add(self, ids: np.ndarray, bounds: Interval) -> None:
        """Add rows, and drop all rows that surely have k others before them."""
        if not len(ids):
            return
        allowed = ~np.isin(ids, self.excluded) if len(self.excluded) else slice(None)
        ids = np.concatenate([self.ids, ids[allowed]])
        low = np.concatenate([self.bounds.low, bounds.low[allowed]])
        high = np.concatenate([self.bounds.high, bounds.high[allowed]])
        if len(low) >= self.k:
            self.threshold = max(self.threshold, float(np.partition(low, len(low) - self.k)[len(low) - self.k]))
        left = high >= self.threshold
        self.ids, self.bounds = ids[left], Interval(low[left], high[left])


def nearest(
    layer: Layer,
    queries: list[np.ndarray],
    space: Space,
    k: int,
    among: np.ndarray | None = None,
    excluded: list[np.ndarray] | None = None,
    within: float | None = None,
    watch: Watch = unwatched,
) -> Search:
    """Return the k rows of a layer nearest to each query, (D,) float64; all finite, under cosine not zero.

    `among` are the rows to search, (n,) int64 ascending, or None for all. `excluded` has the IDs that are not allowed
    as answers, for each query. `within` is the lowest score allowed; under l2 the highest.
    """
    excluded = excluded or [np.empty(0, np.int64)] * len(queries)
    step = min(max(_ANSWERS // k, 1), _QUERIES)
    if len(queries) > step:
        parts = [slice(start, start + step) for start in range(0, len(queries), step)]
        passes = [nearest(layer, queries[each], space, k, among, excluded[each], within, watch) for each in parts]
        return replace(passes[0], rankings=[ranking for each in passes for ranking in each.rankings])
    threshold = -np.inf if within is None else float(space.closeness(np.array([within]))[0])
    candidates = [_Candidates(k, threshold, each) for each in excluded]
    everything = np.arange(layer.shape[0]) if among is None else among
    unscored = _compare(layer, queries, space, candidates, among, watch)
    not_finite, zero = _without_score(layer, unscored, space)
    pairs = zip(queries, candidates, strict=True)
    rankings = [_ranked(layer, space, query, each, within, everything, watch) for query, each in pairs]
    return Search(rankings, len(everything), not_finite, zero)


def _compare(
    layer: Layer,
    queries: list[np.ndarray],
    space: Space,
    candidates: list[_Candidates],
    among: np.ndarray | None,
    watch: Watch,
) -> np.ndarray:
    """Add the rows that may be near to the candidates of each query; return rows that may have no score, (n,) int64."""
    parts = _parts(layer, among)
    first = next(parts[0], (np.empty(0, np.int64), np.empty((0, layer.shape[1]), np.float32)))
    kernel = Kernel(queries if space.mean is None else [*queries, space.mean], first[1], layer.dtype)
    parts[0] = chain([first], parts[0])
    mean = None if space.mean is None else kernel.vectors[-1]
    unscored = [np.empty(0, np.int64)]
    total = layer.shape[0] if among is None else len(among)
    for ids, products in watch(ahead([_products(kernel, part) for part in parts]), total, _count):
        with np.errstate(all="ignore"):
            bounds = Bounds(space, layer.shape[1], products[-1], products[-2] if mean else None, mean)
            unscored.append(ids[bounds.possibly_unscored()])
            for each, vector, query, row in zip(candidates, kernel.vectors, queries, products, strict=False):
                places, intervals = bounds.reaching(each.threshold, row, vector, query)
                each.add(ids[places], intervals)
    return np.sort(np.concatenate(unscored))


def _count(part: Rows) -> int:
    return len(part[0])


def _parts(layer: Layer, among: np.ndarray | None) -> list[Iterator[Rows]]:
    """Return the rows to search, (n, D), in parts that can be read in parallel; rows are as stored for simsimd."""
    if among is not None:
        return [_rows(layer, among)]
    if simsimd() is None:
        return [_numbered(0, layer.blocks())]
    rows, dim = layer.shape
    return [_numbered(first, windows) for first, windows in layer.segments(readers(rows * dim), rows)]


def _numbered(first: int, windows: Iterator[np.ndarray]) -> Iterator[Rows]:
    for rows in windows:
        yield np.arange(first, first + len(rows)), rows
        first += len(rows)


def _products(kernel: Kernel, parts: Iterator[Rows]) -> Iterator[Rows]:
    """Yield the products of rows, (vectors + 1, n), in pieces that are worth the calls of numpy that bound them."""
    most = max(_PRODUCTS // (len(kernel.vectors) + 1), 256)
    pending: list[Rows] = []
    count = 0
    for ids, rows in parts:
        for start in range(0, len(rows), most):
            part = slice(start, start + most)
            pending.append((ids[part], kernel.products(rows[part])))
            count += len(pending[-1][0])
            if count >= most or count * rows.shape[1] >= _PIECE:
                yield _joined(pending)
                pending, count = [], 0
    if pending:
        yield _joined(pending)


def _joined(parts: list[Rows]) -> Rows:
    ids, products = zip(*parts, strict=True)
    return np.concatenate(ids), np.concatenate(products, axis=1)


def _without_score(layer: Layer, unscored: np.ndarray, space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some rows are not finite, and, under cosine, which are zero, both (n,) int64."""
    not_finite, zero = [unscored[:0]], [unscored[:0]]
    for ids, rows in _rows(layer, unscored):
        finite = np.isfinite(rows).all(axis=1)
        not_finite.append(ids[~finite])
        if space.metric == "cosine":
            zero.append(ids[finite][~(rows[finite] - (0 if space.mean is None else space.mean)).any(axis=1)])
    return np.concatenate(not_finite), np.concatenate(zero)


def _ranked(
    layer: Layer,
    space: Space,
    query: np.ndarray,
    candidates: _Candidates,
    within: float | None,
    everything: np.ndarray,
    watch: Watch,
) -> Ranking:
    """Return the first k candidates by their scores in float64; the first k of all rows if a bound was wrong."""
    ids, bounds = candidates.ids, candidates.bounds
    scores = _scores(layer, space, query, ids, watch)
    closeness = space.closeness(scores)
    if not ((bounds.low <= closeness) & (closeness <= bounds.high) | np.isnan(scores)).all():
        ids = _allowed(everything, candidates.excluded)
        scores = _scores(layer, space, query, ids, watch)
    chosen = ~np.isnan(scores)
    if within is not None:
        chosen &= scores <= within if space.metric == "l2" else scores >= within
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((ids[order], -space.closeness(scores[order])))][: candidates.k]
    return Ranking(ids[order], scores[order], len(ids))


def _allowed(everything: np.ndarray, excluded: np.ndarray) -> np.ndarray:
    allowed: np.ndarray = everything[~np.isin(everything, excluded)]
    return allowed


def _scores(layer: Layer, space: Space, query: np.ndarray, ids: np.ndarray, watch: Watch) -> np.ndarray:
    scores = [space.scores(rows, query) for _, rows in watch(_rows(layer, ids), len(ids), _count)]
    return np.concatenate([np.empty(0), *scores])


def _rows(layer: Layer, ids: np.ndarray) -> Iterator[Rows]:
    step = max(_SCORED // layer.shape[1], 1)
    for start in range(0, len(ids), step):
        yield ids[start : start + step], layer.rows(ids[start : start + step])


def mean_row(layer: Layer, watch: Watch = unwatched) -> np.ndarray:
    """Return the mean of the finite rows, (D,) float64; NaN if no row is finite."""
    total, count = np.zeros(layer.shape[1]), 0
    for block in watch(layer.blocks(), layer.shape[0], len):
        with np.errstate(invalid="ignore"):
            part, rows = block.sum(axis=0, dtype=np.float64), len(block)
        if not np.isfinite(part).all():
            finite = block[np.isfinite(block).all(axis=1)]
            part, rows = finite.sum(axis=0, dtype=np.float64), len(finite)
        total += part
        count += rows
    return total / count if count else np.full(layer.shape[1], np.nan)
