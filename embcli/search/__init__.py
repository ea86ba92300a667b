"""The rows nearest to a query: scored in float64, and proven to be the nearest by a pass in float32 over all rows.

The pass takes two products a row, with the query and with itself, and tells of each score between which two numbers it
lies. Rows that may be among the first k are read again and scored in float64; no other row can be.

The products are those of the package simsimd where it is installed, of rows as they are stored; otherwise numpy's, of
rows that are widened to float32. With simsimd one look at each row tells of most that they are not near under cosine,
and only the others are multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from embcli.passes import ahead, readers, unwatched
from embcli.search.bounds import Between, Products
from embcli.search.kernel import Kernel, simsimd
from embcli.search.sieve import Sieve

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Layer
    from embcli.passes import Watch
    from embcli.search.space import Space


_SCORES = 1 << 20  # products of a piece
_WIDE = 1 << 18  # values that are scored in float64 at a time
_CANDIDATES = 1 << 20  # of all queries that are held before those are dropped which others have left behind
_ANSWERS = 1 << 20  # that a pass looks for, of all its queries
_QUERIES = 1 << 12  # of a pass
_FIRST = 1 << 19  # values of rows whose products are looked at together, at first
_PIECE = 1 << 26  # and at most


@dataclass(frozen=True)
class Found:
    """The rows nearest to a query, nearest first, those of equal score by ID."""

    ids: np.ndarray  # (n,) int64
    scores: np.ndarray  # (n,) float64
    rescored: int  # how many rows were scored in float64


@dataclass(frozen=True)
class Search:
    """What was found for each query, and which rows have no score."""

    found: list[Found]
    searched: int  # rows, those without a score too
    not_finite: np.ndarray  # (n,) int64, IDs of rows with NaN or infinity in them
    zero: np.ndarray  # (n,) int64, IDs of rows without a direction; under cosine alone


class _Piece(NamedTuple):
    """Rows that are looked at together."""

    ids: np.ndarray  # (n,) int64, of those that may be near
    products: np.ndarray  # (vectors + 1, n) float32, of those
    looked_at: int  # how many rows there are in all


@dataclass
class _Race:
    """The rows that may still be among the k nearest to a query."""

    k: int
    bar: float  # what the k-th row is sure to reach, and no candidate may fail
    excluded: np.ndarray  # IDs that are no answer
    room: int  # for candidates, as far as they can be told from others
    best: np.ndarray = field(default_factory=lambda: np.empty(0))  # the k highest that rows are sure to reach
    ids: list[np.ndarray] = field(default_factory=list)
    lows: list[np.ndarray] = field(default_factory=list)
    highs: list[np.ndarray] = field(default_factory=list)

    def take(self, ids: np.ndarray, closeness: Between) -> None:
        """Take in rows by their IDs."""
        low, high = closeness.low, closeness.high
        if len(self.excluded):
            answers = ~np.isin(ids, self.excluded)
            ids, low, high = ids[answers], low[answers], high[answers]
        reaching = low[low > self.bar]
        self.best = np.concatenate([self.best, reaching])
        if len(self.best) >= self.k:
            self.best = np.partition(self.best, len(self.best) - self.k)[len(self.best) - self.k :]
            self.bar = max(self.bar, float(self.best[0]))
        chosen = np.flatnonzero(high >= self.bar)
        for held, values in ((self.ids, ids), (self.lows, low), (self.highs, high)):
            held.append(values[chosen])
        if sum(map(len, self.ids)) > max(self.room, 4 * self.k):
            self._drop()

    def candidates(self) -> tuple[np.ndarray, Between]:
        """Return the IDs of those left, in order, and between what they lie."""
        self._drop()
        return self.ids[0], Between(self.lows[0], self.highs[0])

    def _drop(self) -> None:
        high = np.concatenate([np.empty(0), *self.highs])
        left = high >= self.bar
        self.highs = [high[left]]
        self.lows = [np.concatenate([np.empty(0), *self.lows])[left]]
        self.ids = [np.concatenate([np.empty(0, np.int64), *self.ids])[left]]


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
    """Return the k rows of a layer nearest to each of some queries, (D,) float64; all finite, under cosine not zero.

    `among` are the rows to search, (n,) int64 ascending, or None for all. `excluded` are for each query the IDs that
    are no answer. `within` is the score that rows must have at least; under l2 at most.
    """
    without = excluded or [np.empty(0, np.int64)] * len(queries)
    step = min(max(_ANSWERS // k, 1), _QUERIES)
    parts = [slice(start, start + step) for start in range(0, len(queries), step)]
    passes = [_searched(layer, queries[each], space, k, among, without[each], within, watch) for each in parts]
    return replace(passes[0], found=[found for each in passes for found in each.found])


def _searched(
    layer: Layer,
    queries: list[np.ndarray],
    space: Space,
    k: int,
    among: np.ndarray | None,
    excluded: list[np.ndarray],
    within: float | None,
    watch: Watch,
) -> Search:
    """Return what one pass finds."""
    bar = -np.inf if within is None else float(space.closeness(np.array([within]))[0])
    races = [_Race(k, bar, each, _CANDIDATES // len(queries)) for each in excluded]
    unsure = [np.empty(0, np.int64)]
    everything = np.arange(layer.shape[0]) if among is None else among
    kernel, parts = _opened(layer, queries if space.mean is None else [*queries, space.mean], among)
    mean = None if space.mean is None else kernel.vectors[-1]
    sieve = _sieve(kernel, space, races[0])
    pieces = ahead([_pieces(kernel, sieve, part) for part in parts])
    for ids, found, _ in watch(pieces, len(everything), _looked_at):
        with np.errstate(all="ignore"):
            products = Products(space, layer.shape[1], found[-1], found[-2] if mean else None, mean)
            unsure.append(ids[products.unsure()])
            for race, vector, query, row in zip(races, kernel.vectors, queries, found, strict=False):
                places, closeness = products.reaching(race.bar, row, vector, query)
                race.take(ids[places], closeness)
    not_finite, zero = _without_score(layer, np.sort(np.concatenate(unsure)), space)
    answers = zip(queries, races, strict=True)
    found_for = [_finished(layer, space, query, race, within, everything, watch) for query, race in answers]
    return Search(found_for, len(everything), not_finite, zero)


def _sieve(kernel: Kernel, space: Space, race: _Race) -> Sieve | None:
    """Return a sieve where there is one: of one vector, under cosine."""
    if space.metric != "cosine" or len(kernel.vectors) > 1 or not kernel.has_cosines:
        return None
    return Sieve(kernel, lambda: race.bar)


def _looked_at(piece: _Piece) -> int:
    return piece.looked_at


def _opened(
    layer: Layer, vectors: list[np.ndarray], among: np.ndarray | None
) -> tuple[Kernel, list[Iterator[tuple[np.ndarray, np.ndarray]]]]:
    """Return the kernel of vectors (D,) float64, and the rows to search in parts; see _parts."""
    parts = _parts(layer, among)
    first = next(parts[0], (np.empty(0, np.int64), np.empty((0, layer.shape[1]), np.float32)))
    parts[0] = chain([first], parts[0])
    return Kernel(vectors, first[1], layer.dtype), parts


def _parts(layer: Layer, among: np.ndarray | None) -> list[Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return the IDs of rows to search, (n,) int64, with the rows, (n, D), in parts that are read side by side."""
    if among is not None:
        return [_rows(layer, among)]
    if simsimd() is None:
        return [_numbered(0, layer.blocks())]
    rows, dim = layer.shape
    return [_numbered(first, windows) for first, windows in layer.segments(readers(rows * dim), rows)]


def _numbered(first: int, windows: Iterator[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for rows in windows:
        yield np.arange(first, first + len(rows)), rows
        first += len(rows)


def _pieces(kernel: Kernel, sieve: Sieve | None, rows: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[_Piece]:
    """Yield the products of many rows at a time, in no order of rows; of few at first, which tell what is near."""
    most = max(_SCORES // (len(kernel.vectors) + 1), 256)
    ids: list[np.ndarray] = []
    found: list[np.ndarray] = []
    held, values = 0, _FIRST
    for numbers, part in rows:
        for start in range(0, len(part), most):
            few = part[start : start + most]
            kept = slice(None) if sieve is None else sieve.kept(few)
            ids.append(numbers[start : start + most][kept])
            found.append(kernel.products(few[kept]))
            held += len(few)
            if held >= most or held * part.shape[1] >= values:
                yield _Piece(np.concatenate(ids), np.concatenate(found, axis=1), held)
                ids, found, held, values = [], [], 0, min(4 * values, _PIECE)
    if held:
        yield _Piece(np.concatenate(ids), np.concatenate(found, axis=1), held)


def _without_score(layer: Layer, unsure: np.ndarray, space: Space) -> tuple[np.ndarray, np.ndarray]:
    """Return which of some rows are not finite, and, under cosine, which are zero, both (n,) int64."""
    not_finite, zero = [unsure[:0]], [unsure[:0]]
    for ids, rows in _rows(layer, unsure):
        finite = np.isfinite(rows).all(axis=1)
        not_finite.append(ids[~finite])
        if space.metric == "cosine":
            wide = rows[finite] if space.mean is None else rows[finite] - space.mean
            zero.append(ids[finite][~wide.any(axis=1)])
    return np.concatenate(not_finite), np.concatenate(zero)


def _finished(
    layer: Layer,
    space: Space,
    query: np.ndarray,
    race: _Race,
    within: float | None,
    everything: np.ndarray,
    watch: Watch,
) -> Found:
    """Return the first k of the candidates by their scores in float64; of all rows where a bound was not kept."""
    ids, closeness = race.candidates()
    scores = _scored(layer, space, query, ids)
    reached = space.closeness(scores)
    kept = (closeness.low <= reached) & (reached <= closeness.high) | np.isnan(scores)
    if not kept.all():
        ids = _all_but(race.excluded, everything)
        scores = _scored(layer, space, query, ids, watch)
    rescored = len(ids)
    good = ~np.isnan(scores)
    if within is not None:
        good &= scores <= within if space.metric == "l2" else scores >= within
    ids, scores = ids[good], scores[good]
    order = np.lexsort((ids, -space.closeness(scores)))[: race.k]
    return Found(ids[order], scores[order], rescored)


def _all_but(excluded: np.ndarray, everything: np.ndarray) -> np.ndarray:
    others: np.ndarray = everything[~np.isin(everything, excluded)]
    return others


def _scored(layer: Layer, space: Space, query: np.ndarray, ids: np.ndarray, watch: Watch = unwatched) -> np.ndarray:
    scores = [space.scores(rows, query) for _, rows in watch(_rows(layer, ids), len(ids), _rows_of)]
    return np.concatenate([np.empty(0), *scores])


def _rows_of(part: tuple[np.ndarray, np.ndarray]) -> int:
    return len(part[0])


def _rows(layer: Layer, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    step = max(_WIDE // layer.shape[1], 1)
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        yield part, layer.rows(part)


def mean_row(layer: Layer, watch: Watch = unwatched) -> np.ndarray:
    """Return the mean of the rows that are finite, (D,) float64; NaN where none is."""
    total, count = np.zeros(layer.shape[1]), 0
    for block in watch(layer.blocks(), layer.shape[0], len):
        with np.errstate(invalid="ignore"):
            part = block.sum(axis=0, dtype=np.float64)
        rows = len(block)
        if not np.isfinite(part).all():
            finite = block[np.isfinite(block).all(axis=1)]
            part, rows = finite.sum(axis=0, dtype=np.float64), len(finite)
        total += part
        count += rows
    return total / count if count else np.full(layer.shape[1], np.nan)
