"""The rows nearest to a query: scored in float64, and proven to be the nearest by a pass in float32 over all rows.

The pass takes two products a row, with the query and with itself, and tells of each score between which two numbers it
lies. Rows that may be among the first k are read again and scored in float64; no other row can be.

The products are those of the package simsimd where it is installed, of rows as they are stored; otherwise numpy's, of
rows that are widened to float32.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from embcli.files.numbers import rounded_to
from embcli.weights.passes import cores

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embcli.names import Metric
    from embcli.weights import Layer

    Watch = Callable[[Iterable[Any], int, Callable[[Any], int]], Iterator[Any]]

Item = TypeVar("Item")


def unwatched(items: Iterable[Any], total: int, size: Callable[[Any], int]) -> Iterator[Any]:
    """Tell nobody how far a pass is."""
    return iter(items)


_UNIT = 2.0**-23  # twice float32's unit roundoff: ARM's products of bfloat16 are rounded to odd
_LEAST = 2.0**-126  # below which a float32 may be flushed to zero
_EXACT = 2.0**-50  # a few roundings of float64
_SCORES = 1 << 20  # products of a piece
_WIDE = 1 << 18  # values that are scored in float64 at a time
_CANDIDATES = 1 << 20  # of all queries that are held before those are dropped which others have left behind
_ANSWERS = 1 << 20  # that a pass looks for, of all its queries
_QUERIES = 1 << 12  # of a pass
_PIECE = 1 << 25  # values of rows whose products are looked at together
_SHARED = 1 << 21  # values of a matrix for which threads are started
_THREADS = 4  # at most: two of them are nearly as fast as memory


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
    """Products of rows with vectors and with themselves, in float32, by simsimd or else by numpy.

    The vectors are rounded to the numbers of `like`, which are rows as the products take them.
    """

    def __init__(self, vectors: list[np.ndarray], like: np.ndarray, dtype: str) -> None:
        self._dot, self._dtype = _simsimd_dot(), dtype
        self.vectors = [self._vector(vector, like) for vector in vectors]

    def _vector(self, wide: np.ndarray, like: np.ndarray) -> _Vector:
        """Return a vector (D,) float64 in the numbers of some rows."""
        largest = float(np.abs(wide).max())
        scale = 2.0 ** np.floor(np.log2(largest)) if largest else 1.0
        kept = (wide / scale).astype(np.float32)
        if like.dtype != np.float32:
            kept = rounded_to(self._dtype, kept)
        values = kept if like.dtype == np.float32 else _bits(kept, self._dtype)
        exact = kept.astype(np.float64)
        return _Vector(values, scale, float(np.linalg.norm(exact)), float(np.linalg.norm(wide / scale - exact)))

    def products(self, rows: np.ndarray) -> np.ndarray:
        """Return the products of rows (n, D) with the vectors, in the last row with themselves, (vectors + 1, n)."""
        found = np.empty((len(self.vectors) + 1, len(rows)), np.float32)
        (self._by_numpy if self._dot is None else self._by_simsimd)(rows, found)
        return found

    def _by_simsimd(self, rows: np.ndarray, found: np.ndarray) -> None:
        # Without its `out`: with it simsimd 6.5 returns None without counting the reference, and Python ends.
        dot, kind = self._dot, "f32" if rows.dtype == np.float32 else _SHORT[self._dtype]
        assert dot is not None  # noqa: S101 - for the type checker
        for vector, place in zip(self.vectors, found, strict=False):
            place[:] = dot(vector.values, rows, kind, out_dtype="f32")
        found[-1] = dot(rows, rows, kind, out_dtype="f32")

    def _by_numpy(self, rows: np.ndarray, found: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(np.stack([vector.values for vector in self.vectors]), rows.T, out=found[:-1])
            np.einsum("ij,ij->i", rows, rows, out=found[-1])


_SHORT = {"bfloat16": "bf16", "float16": "f16"}


def _bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 numbers that 16 bits hold as those, uint16."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


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
        error = (self._gamma * vector.norm + vector.error * (1 + self.dim * _EXACT)) * norms + flushed
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
    vectors, pieces = _multiplied(layer, queries if space.mean is None else [*queries, space.mean], among)
    for ids, found in watch(pieces, len(everything), _rows_of):
        with np.errstate(all="ignore"):
            products = _Products(space, found[-1], layer.shape[1])
            lengths = products.lengths(found[-2], None if space.mean is None else vectors[-1])
            known = lengths.low > 0  # which NaN is not
            unsure.append(ids[~known])
            for race, vector, query, row in zip(races, vectors, queries, found, strict=False):
                race.take(ids, products.closeness(lengths, row, vector, query))
    not_finite, zero = _without_score(layer, np.sort(np.concatenate(unsure)), space)
    answers = zip(queries, races, strict=True)
    found_for = [_finished(layer, space, query, race, within, everything, watch) for query, race in answers]
    return Search(found_for, len(everything), not_finite, zero)


def _rows_of(piece: tuple[np.ndarray, np.ndarray]) -> int:
    ids, _ = piece
    return len(ids)


def _multiplied(
    layer: Layer, vectors: list[np.ndarray], among: np.ndarray | None
) -> tuple[list[_Vector], Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return vectors (D,) float64 as they are multiplied, and the products with them of all rows, or of some.

    Those come in pieces, in no order: the IDs of rows, (n,) int64, and their products, (vectors + 1, n).
    """
    parts = _parts(layer, among)
    first = next(parts[0], (np.empty(0, np.int64), np.empty((0, layer.shape[1]), np.float32)))
    kernel = Kernel(vectors, first[1], layer.dtype)
    parts[0] = chain([first], parts[0])
    return kernel.vectors, _ahead([_pieces(kernel, part) for part in parts])


def _parts(layer: Layer, among: np.ndarray | None) -> list[Iterator[tuple[np.ndarray, np.ndarray]]]:
    """Return the IDs of rows to search, (n,) int64, with the rows, (n, D), in parts that are read side by side."""
    if among is not None:
        return [_rows(layer, among)]
    if _simsimd_dot() is None:
        return [_numbered(0, layer.blocks())]
    threads = min(cores(), _THREADS) if layer.shape[0] * layer.shape[1] >= _SHARED else 1
    return [_numbered(first, windows) for first, windows in layer.stretches(threads)]


def _numbered(first: int, windows: Iterator[np.ndarray]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    for rows in windows:
        yield np.arange(first, first + len(rows)), rows
        first += len(rows)


def _pieces(kernel: Kernel, rows: Iterator[tuple[np.ndarray, np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield the IDs of many rows at a time, and their products."""
    most = max(_SCORES // (len(kernel.vectors) + 1), 256)
    ids: list[np.ndarray] = []
    found: list[np.ndarray] = []
    held = 0
    for numbers, part in rows:
        for start in range(0, len(part), most):
            ids.append(numbers[start : start + most])
            found.append(kernel.products(part[start : start + most]))
            held += len(ids[-1])
            if held >= most or held * part.shape[1] >= _PIECE:
                yield np.concatenate(ids), np.concatenate(found, axis=1)
                ids, found, held = [], [], 0
    if held:
        yield np.concatenate(ids), np.concatenate(found, axis=1)


def _ahead(parts: list[Iterator[Item]]) -> Iterator[Item]:
    """Yield what parts yield, of several each one ahead in a thread of its own."""
    if len(parts) == 1:
        yield from parts[0]
        return
    with ThreadPoolExecutor(len(parts)) as pool:
        waiting = [(part, pool.submit(next, part, None)) for part in parts]
        while waiting:
            part, coming = waiting.pop(0)
            found = coming.result()
            if found is not None:
                waiting.append((part, pool.submit(next, part, None)))
                yield found


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
