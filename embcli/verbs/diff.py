"""Which rows of two checkpoints' token matrices are equal, and how far the others moved; rows match by their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, Notes, Watch, unwatched
from embcli.files.numbers import held_by_float32
from embcli.layer import Layer, Origin, Source, shape_of
from embcli.names import SHOWN_ROWS, __version__, check_top
from embcli.records import FieldType, Names, Piece, Records, in_pieces
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import token_text, tokens_of
from embcli.verbs.statistics import AT, dots, quantiles, squares
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

State = Literal["equal", "changed", "removed", "added"]
STATES: tuple[State, ...] = get_args(State)
_NAMES = ("BASE", "TUNED")
_BLOCK = 1 << 17  # values compared at a time: they fit into the processor's cache
_STORED = 1 << 22  # values read at a time, as they are stored
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

    A pair is equal if all numbers are, in whatever dtypes: NaN equals NaN, and +0 equals -0. Rows without a partner
    are `removed`, in BASE, or `added`, in TUNED.
    """

    shapes: tuple[tuple[int, int], tuple[int, int]]
    dtypes: tuple[str, str]
    encodings: tuple[Encoding | None, Encoding | None]
    origins: tuple[Origin, Origin]
    run: dict[str, Any]
    matching: Matching
    equal: np.ndarray  # (pairs,) bool
    cosine_distances: np.ndarray  # (pairs,) float64, 1 - cos: 0 for equal rows, NaN if a row has no direction
    distances: np.ndarray  # (pairs,) float64, L2: 0 for equal rows, NaN if a value is not finite
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def counts(self) -> dict[State, int]:
        equal = int(np.count_nonzero(self.equal))
        unmatched = len(self.matching.base_only), len(self.matching.tuned_only)
        return dict(zip(STATES, (equal, len(self.equal) - equal, *unmatched), strict=True))

    @property
    def different(self) -> bool:
        return bool(self.why_no)

    @property
    def why_no(self) -> str:
        words = [f"{counted(count, 'row')} {state}" for state, count in self.counts.items() if count]
        return ", ".join(words[1:] if self.counts["equal"] else words)

    @cached_property
    def changed(self) -> np.ndarray:
        """The pairs that changed, (n,) int64, largest distance first; pairs with non-finite values come first."""
        pairs = np.flatnonzero(~self.equal)
        distances = np.nan_to_num(self.distances[pairs], nan=np.inf)
        return pairs[np.argsort(-distances, kind="stable")]

    def quantiles(self, values: np.ndarray) -> tuple[float, ...]:
        """Return the quantiles at AT of a value of the pairs that changed; empty if it is finite for no pair."""
        return quantiles(values[self.changed])

    def tokens(self, pairs: np.ndarray) -> list[bytes | None]:
        ids, encoding = self.matching.base, self.encodings[0]
        if encoding is None and self.encodings[1] is not None:
            ids, encoding = self.matching.tuned, self.encodings[1]
        return tokens_of(ids[pairs], encoding)

    def records(self) -> Records:
        """Return the pairs as data, then the rows without a partner, and a summary of all."""
        token: dict[str, FieldType] = {"token": str} if any(self.encodings) else {}
        fields: dict[str, FieldType] = {"base_id": int, "tuned_id": int, **token, "state": str}

        def pairs(places: np.ndarray, names: Names) -> dict[str, Any]:
            return {
                "base_id": self.matching.base[places],
                "tuned_id": self.matching.tuned[places],
                "token": list(map(token_text, self.tokens(places))) if "token" in names else [],
                "state": [STATES[0 if equal else 1] for equal in self.equal[places].tolist()],
                "cosine": 1 - self.cosine_distances[places],
                "distance": self.distances[places],
            }

        def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
            yield from in_pieces(len(self.equal), _PIECE, pairs)(fields, matrices)
            unmatched = ("base_id", self.matching.base_only), ("tuned_id", self.matching.tuned_only)
            for (name, ids), encoding, state in zip(unmatched, self.encodings, STATES[2:], strict=True):
                for start in range(0, len(ids), _PIECE):
                    part = ids[start : start + _PIECE]
                    known = {"token": list(map(token_text, tokens_of(part, encoding))), "state": [state] * len(part)}
                    values = dict.fromkeys(fields, [None] * len(part)) | known | {name: part}
                    yield Piece(len(part), {field: values[field] for field in fields})

        more = {
            "counts": self.counts,
            "different": self.different,
            "matched_by": self.matching.by,
            "quantiles_at": list(AT),
            "cosine": self.quantiles(1 - self.cosine_distances),
            "distance": self.quantiles(self.distances),
        }
        fields |= {"cosine": float, "distance": float}
        return Records(self.run, "rows", sum(self.counts.values()), fields, pieces, more={"diff": more})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import left_out, title, words
        from embcli.verbs.parts import first_of, named_rows, origin_in_words

        changed, missing = Excerpt.ends(2 * self.top, len(self.changed)), []
        table = self._table(changed) if len(self.changed) else []
        lines = []
        for name, origin, (rows, columns), dtype in zip(_NAMES, self.origins, self.shapes, self.dtypes, strict=True):
            where = origin_in_words(origin, "token") + (f" of {origin.path}" if origin.path else "")
            lines.append(f"{name:5}  ({rows:,}, {columns:,}) {dtype}: {where}")
        in_words = zip(STATES, ("equal", "changed", "only in BASE", "only in TUNED"), strict=True)
        counts = (f"{self.counts[state]:,} {what}" for state, what in in_words if self.counts[state])
        lines.append(f"rows   {', '.join(counts)}")
        if self.matching.by == "token":
            lines.append("The vocabularies differ: rows match by the bytes of their tokens")
        unmatched = self.matching.base_only, self.matching.tuned_only
        for name, ids, encoding in zip(_NAMES, unmatched, self.encodings, strict=True):
            shown = ids[: self.top + 1]
            if len(ids):
                lines.append(f"only in {name}: {first_of(named_rows(shown, tokens_of(shown, encoding)), self.top)}")
            if more := Excerpt.first(self.top, len(ids)).missing("row", ids):
                missing.append(f"{more} of {name}")
        yield title("Token matrices, row by row")
        yield from map(words, lines)
        yield from table
        if sentence := left_out(changed.missing("changed row", np.arange(1, changed.total + 1)), *missing):
            yield words(sentence)
        guesses = [[*origin.guesses.values()] for origin in self.origins]
        for reason in dict.fromkeys(chain(*guesses)):
            which = (name for name, reasons in zip(_NAMES, guesses, strict=True) if reason in reasons)
            yield words(f"A guess for {' and '.join(which)}: {reason}")
        verdict, style = ("differ", "bad") if self.different else ("are equal", "good")
        yield words(f"The token matrices {verdict}", style)

    def _table(self, changed: Excerpt) -> list[RenderableType]:
        """Return the tokens that changed most, and after a gap those that changed least."""
        from embcli.page import Label, ruled, words, written
        from embcli.verbs.parts import token_label

        pairs, precision, medians = self.changed[changed.places], self.style.precision, []
        labels = [Label("ID", self.matching.base[pairs])]
        if self.matching.by == "token":
            labels.append(Label("in TUNED", self.matching.tuned[pairs]))
        if any(self.encodings):
            labels.append(token_label(self.tokens(pairs)))
        for name, distances in (("1 - cos", self.cosine_distances), ("L2 distance", self.distances)):
            labels.append(Label(name, written(distances[pairs], precision)))
            if quantiles := self.quantiles(distances):
                medians.append(f"{name} {written(np.array(quantiles), precision)[[*QUANTILES].index('median')]}")
        which = f"Changed most, and least; medians: {', '.join(medians)}" if changed.left_out else "Changed most"
        return ["", words(which), ruled(labels, gaps=changed.gaps)]


def diff(base: Source, tuned: Source, *, top: int = SHOWN_ROWS, watch: Watch = unwatched) -> Diff:
    """Return how the token matrices of two checkpoints differ.

    `watch` counts pairs; a page shows `top` rows of each kind. Raises InputError if the rows have different lengths.
    """
    check_top(top)
    shapes = shape_of(base, "token"), shape_of(tuned, "token")
    if shapes[0][1] != shapes[1][1]:
        raise InputError(
            f"the rows have different lengths: {shapes[0][1]:,} in {base.origin.name!r}, "
            f"{shapes[1][1]:,} in {tuned.origin.name!r}"
        )
    opened = base.open({"token": None}), tuned.open({"token": None})
    layers, origins = (opened[0]["token"], opened[1]["token"]), (opened[0].origin, opened[1].origin)
    encodings = base.encoding, tuned.encoding
    matching = Matching.by_id(shapes[0][0], shapes[1][0])
    if encodings[0] and encodings[1] and encodings[0].name != encodings[1].name:
        tokens = [tokens_of(np.arange(size), each) for each, (size, _) in zip(encodings, shapes, strict=True)]
        both = len(matching.base)
        matching = matching if tokens[0][:both] == tokens[1][:both] else Matching.by_token(*tokens)
    equal, cosine_distances, distances = _compared(*layers, matching, watch)
    runs = [
        {"encoding": encoding.name if encoding else None, **origin.document()}
        for encoding, origin in zip(encodings, origins, strict=True)
    ]
    notes = base.notes
    if tuned.notes is not notes:  # the command has the same notes for both
        notes = Notes()
        for remark in chain(base.notes, tuned.notes):
            notes.add(remark)
    return Diff(
        shapes=shapes,
        dtypes=(layers[0].dtype, layers[1].dtype),
        encodings=encodings,
        origins=origins,
        run={"embcli": __version__, "base": runs[0], "tuned": runs[1]},
        matching=matching,
        equal=equal,
        cosine_distances=cosine_distances,
        distances=distances,
        top=top,
        notes=notes,
    )


def _compared(base: Layer, tuned: Layer, matching: Matching, watch: Watch) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return which pairs of rows are equal, (n,) bool, and their cosine and L2 distances, (n,) float64 each."""
    count, dim, same = len(matching.base), base.shape[1], base.dtype == tuned.dtype
    equal, cosine_distances, distances = np.ones(count, bool), np.zeros(count), np.zeros(count)

    def compare(first: int, left: np.ndarray, right: np.ndarray) -> int:
        """Compare consecutive pairs from `first` on, as stored, (n, width) each; return their number."""
        unequal = np.flatnonzero(_bits_differ(left, right)) if same else np.arange(len(left))
        for block in _blocks(len(unequal), dim, _BLOCK):
            rows = unequal[block]
            with np.errstate(all="ignore"):  # of rows that are not finite, and of zero rows
                one, other = _Exact.of(base, left[rows]), _Exact.of(tuned, right[rows])
                differ = (one.values != other.values) & ~(np.isnan(one.values) & np.isnan(other.values))
                moved = (differ | (one.rests != other.rests)).any(axis=1)
                pairs = first + rows[moved]
                equal[pairs] = False
                cosine_distances[pairs], distances[pairs] = _distances(one[moved], other[moved])
        return len(left)

    def parts() -> Iterator[int]:
        for block in _blocks(count, dim, _STORED):
            left, right = matching.base[block], matching.tuned[block]
            yield compare(block.start, base.stored(left), tuned.stored(right))

    for _ in watch(parts(), count, int):
        pass
    return equal, cosine_distances, distances


def _bits_differ(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Return which rows of two arrays of the same dtype, (n, D), have different bits, (n,) bool."""
    width = one.shape[1] * one.itemsize
    word = next(word for word in (np.uint64, np.uint32, np.uint16, np.uint8) if width % word().itemsize == 0)
    differ: np.ndarray = (one.view(word) != other.view(word)).any(axis=1)
    return differ


def _blocks(rows: int, dim: int, values: int) -> Iterator[slice]:
    step = max(values // dim, 1)
    for start in range(0, rows, step):
        yield slice(start, min(start + step, rows))


@dataclass(frozen=True, eq=False)
class _Exact:
    """Rows of numbers, exactly: float64 values, and what these leave of whole numbers of 64 bits."""

    values: np.ndarray  # (n, D) float64
    rests: np.ndarray  # (n, D) float64, or (n, 1) zeros

    @classmethod
    def of(cls, layer: Layer, stored: np.ndarray) -> _Exact:
        """Return rows that are as they are stored, (n, width)."""
        values = (layer.widened(stored) if held_by_float32(layer.dtype) else stored).astype(np.float64)
        if layer.dtype not in ("int64", "uint64"):
            return cls(values, np.zeros((len(values), 1)))
        high, low = stored >> 32, stored & (2**32 - 1)
        return cls(values, (high.astype(np.float64) * 2**32 - values) + low.astype(np.float64))

    def __getitem__(self, rows: np.ndarray) -> _Exact:
        return _Exact(self.values[rows], self.rests[rows])


def _distances(left: _Exact, right: _Exact) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - cos and the L2 distances of pairs of rows, (n, D) each, (n,) float64 each; both to 10 digits or more.

    1 - cos = sin^2 / (1 + cos), which does not cancel: sin is the length of the part of one row that is perpendicular
    to the other, divided by the length of that row.
    """
    base, tuned = left.values, right.values
    lengths, lengths_of_tuned, products = squares(base), squares(tuned), dots(base, tuned)
    across = squares(tuned - (products / lengths)[:, None] * base)
    near = across < _NEAR * lengths_of_tuned
    if near.any():
        across[near] = _across(left[near], right[near])
    cosines = products / (np.sqrt(lengths) * np.sqrt(lengths_of_tuned))
    apart = np.where(cosines > 0, across / lengths_of_tuned / (1 + cosines), np.minimum(1 - cosines, 2))
    distances = np.sqrt(squares(tuned - base + (right.rests - left.rests)))
    return np.where(np.isfinite(apart), apart, np.nan), np.where(np.isfinite(distances), distances, np.nan)


def _across(left: _Exact, right: _Exact) -> np.ndarray:
    """Return the squared length of the part of each row of `right` that is perpendicular to that of `left`, (n,).

    What is left of the row after subtracting its projection is computed from exact products, and then projected once
    more: it can be as small as a rounding.
    """
    base = left.values
    lengths = squares(base)
    factors = (dots(base, right.values) / lengths)[:, None]
    across = _remainders(right.values, factors, base) - factors * left.rests + right.rests
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
