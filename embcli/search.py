"""The rows nearest to a query: scored in float64, and proven to be the nearest by a pass in float32 over all rows.

The pass takes two products a row, with the query and with itself, and tells of each score between which two numbers it
lies. Rows that may be among the first k are read again and scored in float64; no other row can be.

The products are those of the package simsimd where it is installed, of rows as they are stored, at the speed of memory;
otherwise numpy's, of rows that are widened to float32.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embcli.names import Metric
    from embcli.weights import Layer

    Watch = Callable[[Iterable[Any], int, Callable[[Any], int]], Iterator[Any]]

_UNIT = 2.0**-23  # twice float32's unit roundoff: ARM's products of bfloat16 are rounded to odd
_LEAST = 2.0**-126  # below which a float32 may be flushed to zero
_EXACT = 2.0**-50  # a few roundings of float64
_BLOCK = 1 << 21  # bytes whose two products are taken one after the other: they stay in the processor's cache
_SCORES = 1 << 22  # products that are held at a time
_WIDE = 1 << 18  # values that are scored in float64 at a time
_CANDIDATES = 1 << 16  # that are held before those are dropped which others have left behind
_SHARED = 1 << 21  # values of a window for which threads are started
_THREADS = 4  # at most: two of them are as fast as memory


@dataclass(frozen=True)
class Space:
    """What near means: by which metric, and whether the mean row is taken away from all rows first."""

    metric: Metric
    mean: np.ndarray | None = None  # (D,) float64; queries are without it already

    def scores(self, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Return the scores of rows (n, D) with a query (D,), (n,) float64; NaN where a row has none.

        Equal rows have equal scores, wherever they stand: each row is summed by itself.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            wide = rows.astype(np.float64)
            if self.mean is not None:
                wide -= self.mean
            terms = np.square(wide - query) if self.metric == "l2" else wide * query
            found: np.ndarray = terms.sum(axis=1)
            if self.metric == "l2":
                found = np.sqrt(found)
            elif self.metric == "cosine":
                found = np.clip(found / np.sqrt(np.square(wide).sum(axis=1) * np.square(query).sum()), -1, 1)
        found[~np.isfinite(found)] = np.nan
        return found

    def closeness(self, scores: np.ndarray) -> np.ndarray:
        """Return numbers that are larger for rows which are nearer: the scores, but of l2 their negative squares."""
        return -np.square(scores) if self.metric == "l2" else scores


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


@dataclass(frozen=True)
class _Vector:
    """A vector as a kernel takes it: rounded `values`, which times `scale` are the vector but for `error`."""

    values: np.ndarray  # (D,) float32, or bits as uint16
    scale: float  # a power of two, so that no product with the values overflows before those of rows do
    norm: float  # of the values
    error: float  # norm of what the rounding took away, in the scale of the values


class Kernel:
    """Products of rows with vectors and with themselves, in float32, by simsimd or else by numpy."""

    def __init__(self, layer: Layer) -> None:
        self._layer = layer
        self._dot = _simsimd_dot()

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) each, as the products take them."""
        return self._layer.blocks() if self._dot is None else self._layer.windows()

    def vector(self, wide: np.ndarray, like: np.ndarray) -> _Vector:
        """Return a vector (D,) float64 in the numbers of some rows."""
        largest = float(np.abs(wide).max())
        scale = 2.0 ** np.floor(np.log2(largest)) if largest else 1.0
        values = _rounded(wide / scale, like, self._layer.dtype)
        kept = _widened(values, self._layer.dtype).astype(np.float64)
        return _Vector(values, scale, float(np.linalg.norm(kept)), float(np.linalg.norm(wide / scale - kept)))

    def products(self, rows: np.ndarray, vectors: list[_Vector], pool: ThreadPoolExecutor) -> np.ndarray:
        """Return the products of rows (n, D) with vectors, and with themselves in the last row, (vectors + 1, n)."""
        found = np.empty((len(vectors) + 1, len(rows)), np.float32)
        step = max(_BLOCK // (rows.shape[1] * rows.itemsize), 1)
        work = self._by_numpy if self._dot is None else self._by_simsimd

        def part(start: int, stop: int) -> None:
            for first in range(start, stop, step):
                last = min(first + step, stop)
                work(rows[first:last], vectors, found[:, first:last])

        threads = _threads() if rows.size >= _SHARED else 1
        edges = [len(rows) * place // threads for place in range(threads + 1)]
        with np.errstate(over="ignore", invalid="ignore"):
            waiting = [pool.submit(part, *edges[place : place + 2]) for place in range(1, threads)]
            part(*edges[:2])
            for each in waiting:
                each.result()
        return found

    def _by_simsimd(self, rows: np.ndarray, vectors: list[_Vector], found: np.ndarray) -> None:
        # Without its `out`: with it simsimd 6.5 returns None without counting the reference, and Python ends.
        dot, kind = self._dot, "f32" if rows.dtype == np.float32 else _SHORT[self._layer.dtype]
        assert dot is not None  # noqa: S101 - for the type checker
        for vector, place in zip(vectors, found, strict=False):
            place[:] = dot(vector.values, rows, kind, out_dtype="f32")
        found[-1] = dot(rows, rows, kind, out_dtype="f32")

    def _by_numpy(self, rows: np.ndarray, vectors: list[_Vector], found: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(np.stack([vector.values for vector in vectors]), rows.T, out=found[:-1])
            np.einsum("ij,ij->i", rows, rows, out=found[-1])


_SHORT = {"bfloat16": "bf16", "float16": "f16"}


def _simsimd_dot() -> Callable[..., Any] | None:
    """Return simsimd's product; None where it is not installed."""
    try:
        import simsimd
    except ImportError:
        return None
    for capability in ("sapphire", "sve_f16"):  # which add up in 16 bits
        simsimd.disable_capability(capability)
    dot: Callable[..., Any] = simsimd.dot
    return dot


def _threads() -> int:
    try:
        return min(len(os.sched_getaffinity(0)), _THREADS)
    except AttributeError:  # not on every system
        return min(os.cpu_count() or 1, _THREADS)


def _rounded(wide: np.ndarray, like: np.ndarray, dtype: str) -> np.ndarray:
    """Return numbers (D,) float64 in the numbers of some rows: float32, or bits of 16-bit ones."""
    if like.dtype == np.float32:
        return wide.astype(np.float32)
    if dtype == "float16":
        return wide.astype(np.float16).view(np.uint16)
    bits = wide.astype(np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def _widened(values: np.ndarray, dtype: str) -> np.ndarray:
    if values.dtype == np.float32:
        return values
    if dtype == "float16":
        return values.view(np.float16).astype(np.float32)
    return (values.astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class Between:
    """For numbers of rows the least and the most that each can be, both (n,) float64."""

    low: np.ndarray
    high: np.ndarray


@dataclass(frozen=True)
class _Products:
    """What the products of some rows tell: their squared norms, and between what their products with vectors lie.

    Higham 2002, "Accuracy and stability of numerical algorithms", section 3.1: a product of vectors of D numbers is, in
    whatever order it is added up, at most gamma |x|·|y| off, gamma = D u / (1 - D u) with u the unit roundoff, where
    nothing overflows or underflows. |x|·|y| is at most the product of their norms. What underflows adds at most the
    least normal number for each product and each sum, and as much times the other number for each that is flushed.
    """

    space: Space
    squares: np.ndarray  # (n,) float32, of the rows with themselves
    dim: int

    @property
    def _gamma(self) -> float:
        unit = (self.dim + 8) * _UNIT  # and some for sums of lanes
        return unit / (1 - unit) if unit < 0.5 else np.inf

    @cached_property
    def _norms(self) -> np.ndarray:
        """Return the most that the norm of each row can be, (n,) float64; not finite where that is not known."""
        most: np.ndarray = np.sqrt(self._with_error(self.squares.astype(np.float64)))
        return most

    def _with_error(self, squares: np.ndarray) -> np.ndarray:
        found: np.ndarray = squares * (1 + self._gamma) / (1 - self._gamma) + 4 * self.dim * _LEAST
        return found

    def _product(self, products: np.ndarray, vector: _Vector) -> tuple[np.ndarray, np.ndarray]:
        """Return the products of rows with a vector, and how much they can be off, both (n,) float64."""
        norms = self._norms
        flushed = _LEAST * (2 * self.dim + np.sqrt(self.dim) * (norms + vector.norm))
        error = (self._gamma * vector.norm + vector.error * (1 + _EXACT)) * norms + flushed
        return products * vector.scale, error * vector.scale

    def lengths(self, with_mean: np.ndarray | None, mean: _Vector | None) -> Between:
        """Return between what the squared norms of the rows lie, once the mean is taken away."""
        squares = self.squares.astype(np.float64)
        error = self._with_error(squares) - squares
        if self.space.mean is not None and with_mean is not None and mean is not None:
            product, off = self._product(with_mean.astype(np.float64), mean)
            size = float(np.square(self.space.mean).sum())
            error = error + 2 * off + self.dim * _EXACT * (squares + size)
            squares = squares - 2 * product + size
        return Between(np.maximum(squares - error, 0), squares + error)

    def closeness(self, lengths: Between, products: np.ndarray, vector: _Vector, query: np.ndarray) -> Between:
        """Return between what the closeness of rows to a query lies; anything where that is not known."""
        product, error = self._product(products.astype(np.float64), vector)
        norm = float(np.sqrt(np.square(query).sum()))
        rounding = self.dim * _EXACT
        if self.space.mean is not None:
            product = product - float(self.space.mean @ query)
            error = error + rounding * norm * (self._norms + np.linalg.norm(self.space.mean))
        least, most = product - error, product + error
        if self.space.metric == "cosine":
            near, far = np.sqrt(lengths.low) * norm, np.sqrt(lengths.high) * norm
            least = least / np.where(least < 0, near, far) - rounding
            most = most / np.where(most < 0, far, near) + rounding
        elif self.space.metric == "l2":
            slack = rounding * (lengths.high + norm * norm)
            least = 2 * least - lengths.high - norm * norm - slack
            most = 2 * most - lengths.low - norm * norm + slack
        known = np.isfinite(least) & np.isfinite(most)
        return Between(np.where(known, least, -np.inf), np.where(known, most, np.inf))


@dataclass
class _Race:
    """The rows that may still be among the k nearest to a query."""

    k: int
    bar: float  # what the k-th row is sure to reach, and no candidate may fail
    excluded: np.ndarray  # IDs that are no answer
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
        if sum(map(len, self.ids)) > max(_CANDIDATES, 4 * self.k):
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
    watch: Watch = lambda items, *_: iter(items),
) -> Search:
    """Return the k rows of a layer nearest to each of some queries, (D,) float64; all finite, under cosine not zero.

    `among` are the rows to search, (n,) int64 ascending, or None for all. `excluded` are for each query the IDs that
    are no answer. `within` is the score that rows must have at least; under l2 at most.
    """
    bar = -np.inf if within is None else float(space.closeness(np.array([within]))[0])
    races = [_Race(k, bar, each) for each in excluded or [np.empty(0, np.int64)] * len(queries)]
    kernel, unsure = Kernel(layer), []
    vectors: list[_Vector] = []
    mean: _Vector | None = None
    everything = np.arange(layer.shape[0]) if among is None else among
    pieces = _pieces(layer, kernel, among, len(queries))
    with ThreadPoolExecutor(max(_threads() - 1, 1)) as pool:
        for ids, rows in watch(pieces, len(everything), lambda piece: len(piece[0])):
            if not vectors:
                vectors = [kernel.vector(query, rows) for query in queries]
                mean = None if space.mean is None else kernel.vector(space.mean, rows)
            with np.errstate(all="ignore"):
                found = kernel.products(rows, [*vectors, *([] if mean is None else [mean])], pool)
                products = _Products(space, found[-1], layer.shape[1])
                lengths = products.lengths(found[-2], mean)
                known = lengths.low > 0  # which NaN is not
                unsure.append(ids[~known])
                for race, vector, query, row in zip(races, vectors, queries, found, strict=False):
                    race.take(ids, products.closeness(lengths, row, vector, query))
    not_finite, zero = _without_score(layer, np.concatenate([np.empty(0, np.int64), *unsure]), space)
    answers = zip(queries, races, strict=True)
    found_for = [_finished(layer, space, query, race, within, everything) for query, race in answers]
    return Search(found_for, len(everything), not_finite, zero)


def _pieces(
    layer: Layer, kernel: Kernel, among: np.ndarray | None, queries: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the IDs of rows to search, (n,) int64, and the rows, (n, D), so few that their products can be held."""
    most = max(_SCORES // (queries + 2), 256)
    if among is not None:
        step = min(max(_WIDE // layer.shape[1], 1), most)
        for start in range(0, len(among), step):
            ids = among[start : start + step]
            yield ids, layer.rows(ids)
        return
    first = 0
    for rows in kernel.blocks():
        for start in range(0, len(rows), most):
            part = rows[start : start + most]
            yield np.arange(first + start, first + start + len(part)), part
            del part
        first += len(rows)
        del rows


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
    layer: Layer, space: Space, query: np.ndarray, race: _Race, within: float | None, everything: np.ndarray
) -> Found:
    """Return the first k of the candidates by their scores in float64; of all rows where a bound was not kept."""
    ids, closeness = race.candidates()
    scores = _scored(layer, space, query, ids)
    reached = space.closeness(scores)
    kept = (closeness.low <= reached) & (reached <= closeness.high) | np.isnan(scores)
    if not kept.all():
        ids = _all_but(race.excluded, everything)
        scores = _scored(layer, space, query, ids)
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


def _scored(layer: Layer, space: Space, query: np.ndarray, ids: np.ndarray) -> np.ndarray:
    scores = [space.scores(rows, query) for _, rows in _rows(layer, ids)]
    return np.concatenate([np.empty(0), *scores])


def _rows(layer: Layer, ids: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    step = max(_WIDE // layer.shape[1], 1)
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        yield part, layer.rows(part)


def mean_row(layer: Layer, watch: Watch = lambda items, *_: iter(items)) -> np.ndarray:
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
