"""Which rows of two checkpoints' token matrices are equal, and how far the others moved; rows match by their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.files.numbers import held_by_float32, rounded_to, steps
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import SHOWN_ROWS
from embcli.notes import Notes
from embcli.passes import Watch, ahead, readers, unwatched
from embcli.records import FieldType, Names, Piece, Records, in_pieces
from embcli.result import Result
from embcli.statistics import AT, dots, quantiles, squares
from embcli.tokens import token_text, tokens_of
from embcli.version import __version__
from embcli.words import counted

State = Literal["equal", "rounded", "moved", "base only", "tuned only"]
STATES: tuple[State, ...] = get_args(State)
_EQUAL, _ROUNDED, _MOVED = range(3)  # indices of the states of pairs
_BLOCK = 1 << 17  # values compared at a time: they fit into the processor's cache
_STORED = 1 << 22  # values read at a time, as they are stored
_WIDTHS = {"float32": 4, "float16": 2, "bfloat16": 2}  # bytes per value in windows of rows as stored
_PIECE = 4096  # rows written at a time
_ROUNDING = 2.0**-52  # of a length, for each value of a row
_NEAR = 1e-8  # squared sine of an angle below which rounding would show


@dataclass(frozen=True)
class Matching:
    """Which rows stand for the same token: pairs of rows, and rows without a partner; (n,) int64 each."""

    base: np.ndarray
    tuned: np.ndarray  # the partners of `base`
    base_only: np.ndarray
    tuned_only: np.ndarray
    by: Literal["id", "token"]

    @classmethod
    def by_id(cls, base: int, tuned: int) -> Matching:
        """Match rows with the same ID, in matrices of `base` and `tuned` rows."""
        both = np.arange(min(base, tuned))
        return cls(both, both, np.arange(len(both), base), np.arange(len(both), tuned), "id")

    @classmethod
    def by_token(cls, base: list[bytes | None], tuned: list[bytes | None]) -> Matching:
        """Match rows by the bytes of their tokens, equal ones in order; rows without a token have no partner.

        >>> matching = Matching.by_token([b"a", None, b"b"], [b"b", b"a", b"a"])
        >>> matching.base.tolist(), matching.tuned.tolist(), matching.base_only.tolist(), matching.tuned_only.tolist()
        ([0, 2], [1, 0], [1], [2])
        """
        places: dict[bytes, list[int]] = {}
        for row in reversed(range(len(tuned))):
            places.setdefault(tuned[row] or b"", []).append(row)
        partners = [places[token].pop() if token and places.get(token) else None for token in base]
        left = np.array([row for row, partner in enumerate(partners) if partner is not None], np.int64)
        right = np.array([partner for partner in partners if partner is not None], np.int64)
        base_only = np.flatnonzero(~np.isin(np.arange(len(base)), left))
        tuned_only = np.flatnonzero(~np.isin(np.arange(len(tuned)), right))
        return cls(left, right, base_only, tuned_only, "token")


@dataclass(frozen=True, eq=False)
class Diff(Result, verb="diff", content="ranking"):
    """A comparison of two token matrices, for each pair of rows that stand for the same token.

    A pair is `equal` if all bits are equal, as stored or, for two dtypes that float32 represents, as float32; `rounded`
    if the values may be one number rounded to both dtypes, or differ only in the sign of zeros and the bits of NaN;
    otherwise `moved`.
    """

    shapes: tuple[tuple[int, int], tuple[int, int]]
    dtypes: tuple[str, str]
    encodings: tuple[Encoding | None, Encoding | None]
    origins: tuple[Origin, Origin]
    run: dict[str, Any]
    matching: Matching
    states: np.ndarray  # (pairs,) int8, indices into STATES
    cosine_distances: np.ndarray  # (pairs,) float64, 1 - cos: 0 for equal rows, NaN if a row has no direction
    distances: np.ndarray  # (pairs,) float64, L2: 0 for equal rows, NaN if a value is not finite
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def counts(self) -> dict[State, int]:
        """The number of pairs, or of rows without a partner, in each state."""
        pairs = np.bincount(self.states, minlength=3).tolist()
        unmatched = len(self.matching.base_only), len(self.matching.tuned_only)
        return dict(zip(STATES, (*pairs, *unmatched), strict=True))

    @property
    def different(self) -> bool:
        """Whether a row moved, or has no partner."""
        return bool(self.why_no)

    @property
    def why_no(self) -> str:
        """How many rows moved or have no partner; empty if none."""
        moved, in_base, in_tuned = (self.counts[state] for state in STATES[_MOVED:])
        words = {f"{counted(moved, 'row')} moved": moved, f"{in_base:,} only in BASE": in_base}
        return ", ".join(each for each, count in {**words, f"{in_tuned:,} only in TUNED": in_tuned}.items() if count)

    @cached_property
    def moved(self) -> np.ndarray:
        """The pairs that moved, (n,) int64, largest distance first; pairs with non-finite values come first."""
        pairs = np.flatnonzero(self.states == _MOVED)
        distances = np.nan_to_num(self.distances[pairs], nan=np.inf)
        return pairs[np.argsort(-distances, kind="stable")]

    def quantiles(self, values: np.ndarray) -> tuple[float, ...]:
        """Return the quantiles at AT of a value of the pairs that moved; empty if it is finite for no pair."""
        return quantiles(values[self.moved])

    def tokens(self, pairs: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the tokens of pairs, (n,) int64."""
        ids = (self.matching.base, self.matching.tuned)
        known = next((index for index in (0, 1) if self.encodings[index]), 0)
        return tokens_of(ids[known][pairs], self.encodings[known])

    def records(self) -> Records:
        """Return the pairs as data, then the rows without a partner, and a summary of all."""
        known = any(each is not None for each in self.encodings)
        token: dict[str, FieldType] = {"token": str} if known else {}
        numbers: dict[str, FieldType] = {"cosine": float, "distance": float}
        fields: dict[str, FieldType] = {"base_id": int, "tuned_id": int, **token, "state": str, **numbers}
        return Records(
            self.run, "rows", sum(self.counts.values()), fields, self._pieces, more={"diff": self._document()}
        )

    def _pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        yield from in_pieces(len(self.states), _PIECE, self._pairs)(fields, matrices)
        unmatched = ("base_id", self.matching.base_only), ("tuned_id", self.matching.tuned_only)
        for (name, ids), encoding, state in zip(unmatched, self.encodings, STATES[-2:], strict=True):
            for start in range(0, len(ids), _PIECE):
                part = ids[start : start + _PIECE]
                values = dict.fromkeys(fields, [None] * len(part)) | {
                    name: part,
                    "token": list(map(token_text, tokens_of(part, encoding))),
                    "state": [state] * len(part),
                }
                yield Piece(len(part), {field: values[field] for field in fields})

    def _pairs(self, pairs: np.ndarray, names: Names) -> dict[str, Any]:
        return {
            "base_id": self.matching.base[pairs],
            "tuned_id": self.matching.tuned[pairs],
            "token": list(map(token_text, self.tokens(pairs))) if "token" in names else [],
            "state": [STATES[state] for state in self.states[pairs].tolist()],
            "cosine": 1 - self.cosine_distances[pairs],
            "distance": self.distances[pairs],
        }

    def _document(self) -> dict[str, Any]:
        return {
            "counts": self.counts,
            "different": self.different,
            "matched_by": self.matching.by,
            "quantiles_at": list(AT),
            "cosine": self.quantiles(1 - self.cosine_distances),
            "distance": self.quantiles(self.distances),
        }


def diff(base: Source, tuned: Source, watch: Watch = unwatched, top: int = SHOWN_ROWS) -> Diff:
    """Return how the token matrices of two checkpoints differ.

    `watch` counts pairs; a page shows `top` rows of each kind. Raises InputError if the rows have different lengths.
    """
    shapes = shape_of(base, "token"), shape_of(tuned, "token")
    if shapes[0][1] != shapes[1][1]:
        raise InputError(
            f"the rows have different lengths: {shapes[0][1]:,} in {base.origin.name!r}, "
            f"{shapes[1][1]:,} in {tuned.origin.name!r}"
        )
    opened = base.open({"token": None}), tuned.open({"token": None})
    layers = opened[0]["token"], opened[1]["token"]
    matching = _matching(base, tuned)
    pairs = _Pairs(*layers, matching)
    for _ in watch(ahead(pairs.parts()), len(pairs.states), int):
        pass
    origins = opened[0].origin, opened[1].origin
    base_run, tuned_run = (
        {"encoding": source.encoding.name if source.encoding else None, **origin.document()}
        for source, origin in zip((base, tuned), origins, strict=True)
    )
    return Diff(
        shapes=shapes,
        dtypes=(layers[0].dtype, layers[1].dtype),
        encodings=(base.encoding, tuned.encoding),
        origins=origins,
        run={"embcli": __version__, "base": base_run, "tuned": tuned_run},
        matching=matching,
        states=pairs.states,
        cosine_distances=pairs.cosine_distances,
        distances=pairs.distances,
        top=top,
        notes=_both(base.notes, tuned.notes),
    )


def _both(base: Notes, tuned: Notes) -> Notes:
    """Return the remarks on both models; the command has the same notes for both."""
    notes = base if base is tuned else Notes()
    for each in () if base is tuned else (base, tuned):
        for remark in each:
            notes.add(remark)
    return notes


def _matching(base: Source, tuned: Source) -> Matching:
    """Match rows by their tokens if both encodings are known and differ, otherwise by ID."""
    known = base.encoding, tuned.encoding
    sizes = shape_of(base, "token")[0], shape_of(tuned, "token")[0]
    if known[0] is None or known[1] is None or known[0].name == known[1].name:
        return Matching.by_id(*sizes)
    left, right = (tokens_of(np.arange(size), each) for each, size in zip(known, sizes, strict=True))
    both = min(sizes)
    return Matching.by_id(*sizes) if left[:both] == right[:both] else Matching.by_token(left, right)


class _Pairs:
    """The states and distances of pairs of rows; different threads can compare different pairs."""

    def __init__(self, base: Layer, tuned: Layer, matching: Matching) -> None:
        self._base, self._tuned, self._matching = base, tuned, matching
        self._same_dtype = base.dtype == tuned.dtype
        count = len(matching.base)
        self.states = np.zeros(count, np.int8)
        self.cosine_distances, self.distances = np.zeros(count), np.zeros(count)

    def parts(self) -> list[Iterator[int]]:
        """Return the comparison of all pairs, in parts that can run in parallel; each yields how many it compared."""
        if self._same_dtype and self._matching.by == "id":
            rows, dim = len(self.states), self._base.shape[1]
            for count in (readers(rows * dim), 1):
                left, right = _segments(self._base, count, rows), _segments(self._tuned, count, rows)
                if left and [(first, length) for first, length, _ in left] == [each[:2] for each in right]:
                    pairs = zip(left, right, strict=True)
                    return [self._of_windows(first, one, other) for (first, _, one), (_, _, other) in pairs]
        return [self._of_stored_rows()]

    def _of_stored_rows(self) -> Iterator[int]:
        """Compare all pairs, in any order of rows."""
        for block in _blocks(len(self.states), self._base.shape[1], _STORED):
            left, right = self._matching.base[block], self._matching.tuned[block]
            yield self._compare(block.start, self._base.stored(left), self._tuned.stored(right))

    def _of_windows(self, first: int, left: Iterator[np.ndarray], right: Iterator[np.ndarray]) -> Iterator[int]:
        """Compare rows from `first` on with the rows of the same IDs; one of the layers may have more of them."""
        for one, other in zip(left, right, strict=False):
            count = min(len(one), len(other))
            yield self._compare(first, one[:count], other[:count])
            first += count

    def _compare(self, first: int, left: np.ndarray, right: np.ndarray) -> int:
        """Compare consecutive pairs from `first` on, as stored, (n, width) each; return their number."""
        unequal = np.flatnonzero(_bits_differ(left, right)) if self._same_dtype else np.arange(len(left))
        for block in _blocks(len(unequal), self._base.shape[1], _BLOCK):
            rows = unequal[block]
            one, other = _Rows.of(self._base, left[rows]), _Rows.of(self._tuned, right[rows])
            states = _states(one, other, (self._base.dtype, self._tuned.dtype))
            self.states[first + rows] = states
            apart = states != _EQUAL
            pairs = first + rows[apart]
            self.cosine_distances[pairs], self.distances[pairs] = _distances(one[apart], other[apart])
        return len(left)


def _segments(layer: Layer, count: int, rows: int) -> list[tuple[int, int, Iterator[np.ndarray]]]:
    """Return the segments of a layer, each with its first row and the length of its first window.

    None if their windows are not rows as they are stored.
    """
    segments: list[tuple[int, int, Iterator[np.ndarray]]] = []
    for first, windows in layer.segments(count, rows):
        window = next(windows)
        segments.append((first, len(window), chain([window], windows)))
    return segments if window.itemsize == _WIDTHS.get(layer.dtype) else []


def _bits_differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which rows of two arrays of the same dtype, (n, D), have different bits, (n,) bool."""
    width = one.shape[1] * one.itemsize
    word = next(word for word in (np.uint64, np.uint32, np.uint16, np.uint8) if width % word().itemsize == 0)
    differ: np.ndarray = (one.view(word) != other.view(word)).any(axis=1)
    return differ


@dataclass(frozen=True, eq=False)
class _Rows:
    """Rows of numbers, exactly: of whole numbers of 64 bits, float64 values and what these leave of the numbers."""

    values: np.ndarray  # (n, D) float32, or float64 if float32 does not represent them
    rests: np.ndarray | None = None  # (n, D) float64; None for 0

    @classmethod
    def of(cls, layer: Layer, stored: np.ndarray) -> _Rows:
        """Return rows that are as they are stored, (n, width)."""
        if held_by_float32(layer.dtype):
            return cls(layer.widened(stored))
        values = stored.astype(np.float64)
        if layer.dtype not in ("int64", "uint64"):
            return cls(values)
        high, low = stored >> 32, stored & (2**32 - 1)
        return cls(values, (high.astype(np.float64) * 2**32 - values) + low.astype(np.float64))

    def __getitem__(self, rows: np.ndarray) -> _Rows:
        return _Rows(self.values[rows], None if self.rests is None else self.rests[rows])


def _blocks(rows: int, dim: int, values: int) -> Iterator[slice]:
    step = max(values // dim, 1)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


def _states(one: _Rows, other: _Rows, dtypes: tuple[str, str]) -> np.ndarray:
    """Return the states of pairs of rows, (n, D) each -> (n,) int8; rows of the same dtype have different bits."""
    left, right = one.values, other.values
    moved = (left != right) & ~(np.isnan(left) & np.isnan(right))
    bits = np.ones(len(left), bool)
    if one.rests is not None and other.rests is not None:
        moved |= one.rests != other.rests
    elif dtypes[0] != dtypes[1]:
        moved &= (_rounded_to(dtypes[1], left) != right) & (left != _rounded_to(dtypes[0], right))
        moved[moved] = _too_far(left[moved], right[moved], dtypes)
        if all(map(held_by_float32, dtypes)):
            bits = _bits_differ(left, right)
    return np.where(moved.any(axis=1), _MOVED, np.where(bits, _ROUNDED, _EQUAL)).astype(np.int8)


def _rounded_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return float32 or float64 values, (n, D), rounded to a dtype."""
    if not held_by_float32(name):
        return values
    with np.errstate(over="ignore"):
        return rounded_to(name, values.astype(np.float32, copy=False))


def _too_far(left: np.ndarray, right: np.ndarray, dtypes: tuple[str, str]) -> np.ndarray:
    """Return which pairs of values, (n,) each, cannot be one number rounded to each dtype, (n,) bool."""
    reach = (steps(dtypes[0], left) + steps(dtypes[1], right)) / 2
    with np.errstate(over="ignore", invalid="ignore"):
        too_far: np.ndarray = ~(np.abs(left.astype(np.float64) - right) <= reach)  # true for NaN
    return too_far


def _distances(left: _Rows, right: _Rows) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - cos and the L2 distances of pairs of rows, (n, D) each, (n,) float64 each; both to 10 digits or more.

    1 - cos = sin^2 / (1 + cos), which does not cancel: sin is the length of the part of one row that is perpendicular
    to the other, divided by the length of that row.
    """
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        base, tuned = left.values.astype(np.float64), right.values.astype(np.float64)
        lengths, lengths_of_tuned, products = squares(base), squares(tuned), dots(base, tuned)
        moves = tuned - base
        base *= (products / lengths)[:, None]
        across = squares(np.subtract(tuned, base, out=base))
        if right.rests is not None:
            moves += right.rests
        if left.rests is not None:
            moves -= left.rests
        distances = np.sqrt(squares(moves))
        near = across < _NEAR * lengths_of_tuned
        if near.any():
            across[near] = _across(left[near], right[near])
        cosines = products / (np.sqrt(lengths) * np.sqrt(lengths_of_tuned))
        apart = np.where(cosines > 0, across / lengths_of_tuned / (1 + cosines), np.minimum(1 - cosines, 2))
    return np.where(np.isfinite(apart), apart, np.nan), np.where(np.isfinite(distances), distances, np.nan)


def _across(left: _Rows, right: _Rows) -> np.ndarray:
    """Return the squared length of the part of each row of `right` that is perpendicular to that of `left`, (n,).

    What is left of the row after subtracting its projection is computed from exact products, and then projected once
    more: it can be as small as a rounding.
    """
    base, tuned = left.values.astype(np.float64), right.values.astype(np.float64)
    lengths = squares(base)
    factors = (dots(base, tuned) / lengths)[:, None]
    across = _remainders(tuned, factors, base)
    if left.rests is not None:
        across -= factors * left.rests
    if right.rests is not None:
        across += right.rests
    before = squares(across)
    across -= (dots(across, base) / lengths)[:, None] * base
    after = squares(across)
    return np.where(after > (base.shape[1] * _ROUNDING) ** 2 * before, after, 0)  # or only rounding is left


def _remainders(values: np.ndarray, factors: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return values - factors * others, (n, D) float64, from exact products in two parts (Dekker 1971)."""
    products = factors * others
    (high, low), (upper, lower) = _halves(factors), _halves(others)
    rests = low * lower - (((products - high * upper) - low * upper) - high * lower)
    remainders: np.ndarray = (values - products) - rests
    return remainders


def _halves(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return float64 values as sums of two numbers of 26 bits, whose products are exact."""
    scaled = values * (2.0**27 + 1)
    high = scaled - (scaled - values)
    return high, values - high
