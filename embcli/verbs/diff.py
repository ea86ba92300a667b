"""Which rows of two checkpoints' token matrices are equal, which moved and how far, matched by their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

import embcli
from embcli.errors import InputError
from embcli.files.numbers import held_by_float32, rounded_to, steps
from embcli.layer import shape_of
from embcli.passes import ahead, readers, unwatched
from embcli.records import FieldType, Names, Piece, Records, refuse_too_many
from embcli.tokens import token_text, tokens_of
from embcli.weights.statistics import AT, quantiles, squares

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.encodings import Encoding
    from embcli.files.checkpoint import Checkpoint
    from embcli.layer import Layer
    from embcli.passes import Watch


State = Literal["equal", "rounded", "moved", "base only", "tuned only"]
STATES: tuple[State, ...] = get_args(State)
_EQUAL, _ROUNDED, _MOVED = range(3)  # the places of a pair's states
_BLOCK = 1 << 17  # values that are worked on at a time: they stay in the processor's cache
_JOINED = 1 << 22  # values of rows that differ which are looked at together
_TOLD = 1 << 27  # values of all rows, after which it is told how far they are
_STORED = 1 << 22  # values that are read as they are stored
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes of a value in windows that are as stored
_PIECE = 4096  # rows that are written at a time


@dataclass(frozen=True)
class Matching:
    """Which rows stand for the same token: pairs of them, and those that stand alone; (n,) int64 each."""

    base: np.ndarray
    tuned: np.ndarray  # the partners of `base`, as many
    base_only: np.ndarray
    tuned_only: np.ndarray
    by: Literal["id", "token"]

    @classmethod
    def by_id(cls, base: int, tuned: int) -> Matching:
        """Match rows with the same number, of matrices with so many rows."""
        both = np.arange(min(base, tuned))
        return cls(both, both, np.arange(len(both), base), np.arange(len(both), tuned), "id")

    @classmethod
    def by_token(cls, base: list[bytes | None], tuned: list[bytes | None]) -> Matching:
        """Match rows by their tokens' bytes, the first of several with the first; rows without a token stand alone.

        >>> found = Matching.by_token([b"a", None, b"b"], [b"b", b"a", b"a"])
        >>> found.base.tolist(), found.tuned.tolist(), found.base_only.tolist(), found.tuned_only.tolist()
        ([0, 2], [1, 0], [1], [2])
        """
        places: dict[bytes, list[int]] = {}
        for row in reversed(range(len(tuned))):
            places.setdefault(tuned[row] or b"", []).append(row)
        partners = [places[token].pop() if token and places.get(token) else None for token in base]
        left = np.array([row for row, partner in enumerate(partners) if partner is not None], np.int64)
        right = np.array([partner for partner in partners if partner is not None], np.int64)
        return cls(left, right, _others(left, len(base)), _others(right, len(tuned)), "token")


@dataclass(frozen=True)
class Diff:
    """Two token matrices held against each other, pair by pair of rows that stand for the same token.

    A pair is `equal` where all bits are, as they are stored or, of two dtypes that float32 holds, as float32; `rounded`
    where the values may be one number rounded to either dtype, and but for the sign of zeros and the bits of NaN; or
    else `moved`.
    """

    shapes: tuple[tuple[int, int], tuple[int, int]]
    dtypes: tuple[str, str]
    encodings: tuple[Encoding | None, Encoding | None]
    run: dict[str, Any]
    matching: Matching
    states: np.ndarray  # (pairs,) int8, places in STATES
    turns: np.ndarray  # (pairs,) float64, 1 - cos: 0 for equal rows, NaN where a row has no direction
    distances: np.ndarray  # (pairs,) float64, L2: 0 for equal rows, NaN where a value is not finite
    room: int | None  # for numbers, where they go on a terminal

    @cached_property
    def counts(self) -> dict[State, int]:
        """How many pairs, or rows of one matrix alone, there are of each state."""
        pairs = np.bincount(self.states, minlength=3).tolist()
        alone = len(self.matching.base_only), len(self.matching.tuned_only)
        return dict(zip(STATES, (*pairs, *alone), strict=True))

    @property
    def different(self) -> bool:
        """Whether a row moved, or is in one of the matrices alone."""
        return any(self.counts[state] for state in STATES[_MOVED:])

    @cached_property
    def moved(self) -> np.ndarray:
        """The pairs that moved, (n,) int64, the farthest first; those with a value that is not finite before them."""
        places = np.flatnonzero(self.states == _MOVED)
        far = np.nan_to_num(self.distances[places], nan=np.inf)
        return places[np.argsort(-far, kind="stable")]

    def quantiles(self, values: np.ndarray) -> tuple[float, ...]:
        """Return the quantiles at AT of a number of the pairs that moved; none where it is finite for none."""
        return quantiles(values[self.moved])

    def tokens(self, places: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the tokens of pairs, (n,) int64."""
        ids = (self.matching.base, self.matching.tuned)
        known = next((place for place in (0, 1) if self.encodings[place]), 0)
        return tokens_of(ids[known][places], self.encodings[known])

    def records(self) -> Records:
        """Return the pairs as data, behind them the rows of one matrix alone, and beside them what holds of all.

        Raises OutputError where there are more of them than there is room for.
        """
        known = any(each is not None for each in self.encodings)
        token: dict[str, FieldType] = {"token": str} if known else {}
        numbers: dict[str, FieldType] = {"cosine": float, "distance": float}
        fields: dict[str, FieldType] = {"base_id": int, "tuned_id": int, **token, "state": str, **numbers}
        rows = sum(self.counts.values())
        refuse_too_many(rows * len(fields), self.room)
        return Records(self.run, "rows", rows, fields, self._pieces, more={"diff": self._document()})

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        for start in range(0, len(self.states), _PIECE):
            places = np.arange(start, min(start + _PIECE, len(self.states)))
            values: dict[str, Any] = {
                "base_id": self.matching.base[places],
                "tuned_id": self.matching.tuned[places],
                "token": list(map(token_text, self.tokens(places))) if "token" in fields else [],
                "state": [STATES[state] for state in self.states[places].tolist()],
                "cosine": 1 - self.turns[places],
                "distance": self.distances[places],
            }
            yield Piece(len(places), {name: values[name] for name in fields})
        alone = ("base_id", self.matching.base_only), ("tuned_id", self.matching.tuned_only)
        for (name, ids), encoding, state in zip(alone, self.encodings, STATES[-2:], strict=True):
            for start in range(0, len(ids), _PIECE):
                part = ids[start : start + _PIECE]
                empty: dict[str, Any] = dict.fromkeys(fields, [None] * len(part))
                tokens = list(map(token_text, tokens_of(part, encoding)))
                told = {name: part, "token": tokens, "state": [state] * len(part)}
                yield Piece(len(part), {field: told.get(field, empty[field]) for field in fields})

    def _document(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "different": self.different,
            "matched_by": self.matching.by,
            "quantiles_at": list(AT),
            "cosine": self.quantiles(1 - self.turns),
            "distance": self.quantiles(self.distances),
        }


def diff(base: Checkpoint, tuned: Checkpoint, watch: Watch = unwatched, room: int | None = None) -> Diff:
    """Return how the token matrices of two checkpoints differ.

    `watch` is told of the pairs of each pass. Raises InputError for rows of different lengths.
    """
    shapes = shape_of(base, "token"), shape_of(tuned, "token")
    if shapes[0][1] != shapes[1][1]:
        raise InputError(
            f"the rows have different lengths: {shapes[0][1]:,} in {base.given!r}, {shapes[1][1]:,} in {tuned.given!r}"
        )
    layers = base.open({"token": None})["token"], tuned.open({"token": None})["token"]
    matching, dtypes = _matching(base, tuned), (layers[0].dtype, layers[1].dtype)
    states = np.zeros(len(matching.base), np.int8)
    turns, distances = np.zeros(len(states)), np.zeros(len(states))
    for part in watch(_looked_at(*layers, matching), len(states), lambda part: part.count):
        for block in _blocks(len(part.places), shapes[0][1], _BLOCK):
            places = part.places[block]
            left, right = _values(layers[0], part.base[block]), _values(layers[1], part.tuned[block])
            states[places] = _states(left, right, dtypes)
            apart = states[places] != _EQUAL
            turns[places[apart]], distances[places[apart]] = _apart(left[apart], right[apart])
    run = {"embcli": embcli.__version__, "base": _run(base), "tuned": _run(tuned)}
    encodings = base.encoding, tuned.encoding
    return Diff(shapes, dtypes, encodings, run, matching, states, turns, distances, room)


def _run(found: Checkpoint) -> dict[str, Any]:
    return {"encoding": found.encoding.name if found.encoding else None, **found.run}


def _matching(base: Checkpoint, tuned: Checkpoint) -> Matching:
    """Match rows by their tokens where both encodings are known and differ, and else by ID."""
    known = base.encoding, tuned.encoding
    sizes = shape_of(base, "token")[0], shape_of(tuned, "token")[0]
    if known[0] is None or known[1] is None or known[0].name == known[1].name:
        return Matching.by_id(*sizes)
    left, right = (tokens_of(np.arange(size), each) for each, size in zip(known, sizes, strict=True))
    both = min(sizes)
    return Matching.by_id(*sizes) if left[:both] == right[:both] else Matching.by_token(left, right)


def _others(rows: np.ndarray, size: int) -> np.ndarray:
    """Return the rows below `size` that are not among these, (n,) int64."""
    rest = np.ones(size, bool)
    rest[rows] = False
    return np.flatnonzero(rest)


@dataclass(frozen=True, eq=False)
class _Part:
    """Some pairs, and which of them need a closer look: of two dtypes all, of one those that differ in bits."""

    count: int  # of pairs
    places: np.ndarray  # (n,) int64
    base: np.ndarray  # (n, width), their rows as they are stored
    tuned: np.ndarray  # (n, width)

    @classmethod
    def of(cls, first: int, base: np.ndarray, tuned: np.ndarray) -> _Part:
        """Hold consecutive pairs of rows of one dtype against each other, from pair `first` on."""
        places = np.flatnonzero(_bits_differ(base, tuned))
        return cls(len(base), first + places, base[places], tuned[places])


def _joined(parts: Iterator[_Part], dim: int) -> Iterator[_Part]:
    """Yield parts together, so that nobody waits for few rows that differ, or for many that do not."""
    held: list[_Part] = []
    rows = differing = 0
    for part in parts:
        held.append(part)
        rows, differing = rows + part.count, differing + len(part.places)
        if rows * dim >= _TOLD or differing * dim >= _JOINED:
            yield _together(held)
            held, rows, differing = [], 0, 0
    if held:
        yield _together(held)


def _together(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    places, base, tuned = (
        np.concatenate(each) for each in zip(*((p.places, p.base, p.tuned) for p in parts), strict=True)
    )
    return _Part(sum(part.count for part in parts), places, base, tuned)


def _looked_at(base: Layer, tuned: Layer, matching: Matching) -> Iterator[_Part]:
    """Yield all pairs, part by part, in no order."""
    alike = base.dtype == tuned.dtype
    stretches = _as_stored(base, tuned, len(matching.base)) if alike and matching.by == "id" else []
    if stretches:
        yield from ahead(stretches)
        return
    for block in _blocks(len(matching.base), base.shape[1], _STORED):
        left, right = base.stored(matching.base[block]), tuned.stored(matching.tuned[block])
        if alike:
            yield _Part.of(block.start, left, right)
        else:
            yield _Part(len(left), block.start + np.arange(len(left)), left, right)


def _as_stored(base: Layer, tuned: Layer, rows: int) -> list[Iterator[_Part]]:
    """Return the work on so many first rows in parts that run side by side; none where windows are not as stored."""
    count = readers(rows * base.shape[1])
    left, right = _windows(base, count, rows), _windows(tuned, count, rows)
    if len(left) != len(right):
        left, right = _windows(base, 1, rows), _windows(tuned, 1, rows)
    if not left or not right:
        return []
    edges = pairwise([*(first for first, _ in left), rows])
    stretches = zip(edges, left, right, strict=True)
    return [_joined(_pairs(*edge, one, other), base.shape[1]) for edge, (_, one), (_, other) in stretches]


def _windows(layer: Layer, count: int, rows: int) -> list[tuple[int, Iterator[np.ndarray]]]:
    """Return the stretches of a layer; none where their windows are not as they are stored."""
    (first, windows), *others = layer.segments(count, rows)
    window = next(windows)
    if window.itemsize != _WIDTHS.get(layer.dtype):
        return []
    return [(first, chain([window], windows)), *others]


def _pairs(first: int, last: int, left: Iterator[np.ndarray], right: Iterator[np.ndarray]) -> Iterator[_Part]:
    """Yield consecutive pairs, from one to another."""
    one, other = next(left), next(right)
    while first < last:
        count = min(len(one), len(other), last - first)
        yield _Part.of(first, one[:count], other[:count])
        first += count
        one, other = one[count:], other[count:]
        if first < last and not len(one):
            one = next(left)
        if first < last and not len(other):
            other = next(right)


def _bits_differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which rows of two arrays of one dtype, (n, D), have different bits, (n,) bool."""
    width = one.shape[1] * one.itemsize
    word = next(word for word in (np.uint64, np.uint32, np.uint16, np.uint8) if width % word().itemsize == 0)
    found: np.ndarray = (one.view(word) != other.view(word)).any(axis=1)
    return found


def _values(layer: Layer, stored: np.ndarray) -> np.ndarray:
    """Return rows as they are stored, (n, width), as float32 or, where that does not hold them, as float64, (n, D)."""
    return layer.widened(stored) if held_by_float32(layer.dtype) else stored.astype(np.float64)


def _blocks(rows: int, dim: int, values: int) -> Iterator[slice]:
    step = max(values // dim, 1)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _states(left: np.ndarray, right: np.ndarray, dtypes: tuple[str, str]) -> np.ndarray:
    """Return the states of pairs of rows, (n, D) each -> (n,) int8; of one dtype, their bits are known to differ."""
    moved = (left != right) & ~(np.isnan(left) & np.isnan(right))
    bits = np.ones(len(left), bool)
    if dtypes[0] != dtypes[1]:
        moved &= (_rounded_to(dtypes[1], left) != right) & (left != _rounded_to(dtypes[0], right))
        moved[moved] = _too_far(left[moved], right[moved], dtypes)
        if all(map(held_by_float32, dtypes)):
            bits = _bits_differ(left, right)
    return np.where(moved.any(axis=1), _MOVED, np.where(bits, _ROUNDED, _EQUAL)).astype(np.int8)


def _rounded_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return float32 or float64 values, (n, D), as a dtype has them."""
    if not held_by_float32(name):
        return values
    with np.errstate(over="ignore"):
        return rounded_to(name, values.astype(np.float32, copy=False))


def _too_far(left: np.ndarray, right: np.ndarray, dtypes: tuple[str, str]) -> np.ndarray:
    """Return which pairs of values, (n,) each, are no one number that was rounded to either dtype, (n,) bool."""
    reach = (steps(dtypes[0], left) + steps(dtypes[1], right)) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        found: np.ndarray = ~(np.abs(left.astype(np.float64) - right) <= reach)  # of NaN, too
    return found


def _apart(left: np.ndarray, right: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - cos and the L2 distances of pairs of rows, (n, D) each, (n,) float64 each.

    With d the distance and a and b the norms, 1 - cos = (d^2 - (a - b)^2) / 2ab, which small moves do not cancel out;
    where one norm is more than twice the other, half the squared distance of the rows once they have length 1.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        wide, other = left.astype(np.float64), right.astype(np.float64)
        norms, norms_of_other = np.sqrt(squares(wide)), np.sqrt(squares(other))
        far = np.maximum(norms, norms_of_other) > 2 * np.minimum(norms, norms_of_other)
        turns_of_far = squares(wide[far] / norms[far, None] - other[far] / norms_of_other[far, None]) / 2
        wide -= other
        distances = squares(wide)
        turns = (distances - (norms - norms_of_other) ** 2) / (2 * norms * norms_of_other)
        turns[far] = turns_of_far
        distances = np.sqrt(distances)
    turns = np.maximum(turns, 0)
    return np.where(np.isfinite(turns), turns, np.nan), np.where(np.isfinite(distances), distances, np.nan)
