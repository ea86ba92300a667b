"""Which rows of two checkpoints' token matrices are equal, and how far the others moved; rows match by their tokens."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, check_top
from embcli.layer import Layer, Origin, shape_of
from embcli.names import SHOWN_ROWS, __version__
from embcli.numerics.statistics import QUANTILES_AT, quantiles, squares
from embcli.opened import Opened, remark_scaled
from embcli.records import FieldType, Names, Piece, Records, in_pieces
from embcli.result import Result
from embcli.selection import Excerpt
from embcli.tokens import token_text, tokens_of
from embcli.wording import QUANTILES, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult

State = Literal["equal", "changed", "removed", "added"]
STATES: tuple[State, ...] = get_args(State)
_NAMES = ("BASE", "TUNED")
_BLOCK = 1 << 20  # values compared at a time


class Matching(NamedTuple):
    """Which rows stand for the same token: pairs of rows, and rows without a partner; (n,) int64 each."""

    pairs: tuple[np.ndarray, np.ndarray]  # of BASE, and of TUNED
    alone: tuple[np.ndarray, np.ndarray]
    by: Literal["id", "token"]


def matched(sizes: tuple[int, int], encodings: tuple[Encoding | None, Encoding | None]) -> Matching:
    """Match rows by their IDs; if the vocabularies differ, by the bytes of their tokens, equal ones in order.

    Rows without a token have no partner then.
    """
    base, tuned = map(np.arange, sizes)
    both = min(sizes)
    by: Literal["id", "token"] = "id"
    pairs = base[:both], tuned[:both]
    if encodings[0] and encodings[1] and encodings[0].name != encodings[1].name:
        tokens, others = tokens_of(base, encodings[0]), tokens_of(tuned, encodings[1])
        if tokens[:both] != others[:both]:
            places: dict[bytes, list[int]] = {}
            for row in reversed(range(len(others))):
                places.setdefault(others[row] or b"", []).append(row)
            found = [
                (row, places[token].pop())
                for row, token in enumerate(tokens)
                if token and places.get(token)
            ]
            left, right = np.array(found, np.int64).reshape(-1, 2).T
            by, pairs = "token", (left, right)
    return Matching(pairs, (np.setdiff1d(base, pairs[0]), np.setdiff1d(tuned, pairs[1])), by)


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
    matching: Matching
    equal: np.ndarray  # (pairs,) bool
    cosine_distances: (
        np.ndarray
    )  # (pairs,) float64, 1 - cos: 0 for equal rows, NaN if a row has no direction
    distances: np.ndarray  # (pairs,) float64, L2: 0 for equal rows, NaN if a value is not finite
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def counts(self) -> dict[State, int]:
        equal = int(np.count_nonzero(self.equal))
        return dict(
            zip(
                STATES,
                (equal, len(self.equal) - equal, *map(len, self.matching.alone)),
                strict=True,
            )
        )

    @property
    def different(self) -> bool:
        return bool(self.why_no)

    @property
    def why_no(self) -> str:
        words = [
            f"{counted(self.counts[state], 'row')} {state}"
            for state in STATES[1:]
            if self.counts[state]
        ]
        return ", ".join(words)

    @cached_property
    def changed(self) -> np.ndarray:
        """The pairs that changed, (n,) int64, largest distance first; pairs with non-finite values come first."""
        pairs = np.flatnonzero(~self.equal)
        distances = np.nan_to_num(self.distances[pairs], nan=np.inf)
        return pairs[np.argsort(-distances, kind="stable")]

    def quantiles(self, values: np.ndarray) -> tuple[float, ...]:
        """Return the quantiles of a value of the pairs that changed; empty if it is finite for no pair."""
        return quantiles(values[self.changed])

    def tokens(self, pairs: np.ndarray) -> list[bytes | None]:
        known = 1 if self.encodings[0] is None else 0
        return tokens_of(self.matching.pairs[known][pairs], self.encodings[known])

    def records(self) -> Records:
        """Return the pairs as data, then the rows without a partner, and a summary of all."""
        (base, tuned), count = self.matching.pairs, len(self.equal)
        token: dict[str, FieldType] = {"token": str} if any(self.encodings) else {}
        fields: dict[str, FieldType] = {"base_id": int, "tuned_id": int, **token, "state": str}
        fields |= {"cosine_distance": float, "l2_distance": float}

        def of_pairs(places: np.ndarray, _: Names) -> dict[str, Any]:
            return {
                "base_id": base[places],
                "tuned_id": tuned[places],
                "token": [*map(token_text, self.tokens(places))],
                "state": np.where(self.equal[places], "equal", "changed").tolist(),
                "cosine_distance": self.cosine_distances[places],
                "l2_distance": self.distances[places],
            }

        def pieces(names: Names, matrices: Names) -> Iterator[Piece]:
            yield from in_pieces(count, len(fields), of_pairs)(names, matrices)
            unmatched = zip(
                ("base_id", "tuned_id"),
                self.matching.alone,
                self.encodings,
                STATES[2:],
                strict=True,
            )
            for name, ids, encoding, state in unmatched:
                if len(ids):
                    values: dict[str, Any] = {**dict.fromkeys(fields, [None] * len(ids)), name: ids}
                    values |= {
                        "token": [*map(token_text, tokens_of(ids, encoding))],
                        "state": [state] * len(ids),
                    }
                    yield Piece(len(ids), {field: values[field] for field in names})

        more = {
            "counts": self.counts,
            "different": self.different,
            "matched_by": self.matching.by,
            "quantiles_at": list(QUANTILES_AT),
            "cosine_distance": self.quantiles(self.cosine_distances),
            "l2_distance": self.quantiles(self.distances),
        }
        runs = [
            {"encoding": encoding.name if encoding else None, **origin.document()}
            for encoding, origin in zip(self.encodings, self.origins, strict=True)
        ]
        run = {"embcli": __version__, "base": runs[0], "tuned": runs[1]}
        return Records(run, "rows", sum(self.counts.values()), fields, pieces, more={"diff": more})

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Note, left_out, omission, safe_text, title
        from embcli.page.labels import first_of, named_rows, origin_in_words

        yield title("Token matrices, row by row")
        for name, origin, (rows, columns), dtype in zip(
            _NAMES, self.origins, self.shapes, self.dtypes, strict=True
        ):
            where = origin_in_words(origin, "token") + (f" of {origin.path}" if origin.path else "")
            yield safe_text(f"{name:5}  ({rows:,}, {columns:,}) {dtype}: {where}")
        in_words = zip(
            self.counts.values(), ("equal", "changed", "only in BASE", "only in TUNED"), strict=True
        )
        yield safe_text(
            f"rows   {', '.join(f'{count:,} {what}' for count, what in in_words if count)}"
        )
        if self.matching.by == "token":
            yield safe_text("The vocabularies differ: rows match by the bytes of their tokens")
        changed = Excerpt.ends(2 * self.top, len(self.changed))
        missing = [omission(changed, "changed row", np.arange(1, changed.total + 1))]
        for name, ids, encoding in zip(_NAMES, self.matching.alone, self.encodings, strict=True):
            shown = ids[: self.top + 1]
            if len(ids):
                named = first_of(named_rows(shown, tokens_of(shown, encoding)), self.top)
                yield safe_text(f"only in {name}: {named}")
            if more := omission(Excerpt.first(self.top, len(ids)), "row", ids):
                missing.append(f"{more} of {name}")
        yield from self._table(changed) if len(self.changed) else []
        note = left_out(*missing, parameters=("top",))
        if note is not None:
            yield note
        guesses = [[*origin.guesses.values()] for origin in self.origins]
        for reason in dict.fromkeys(chain(*guesses)):
            which = (
                name for name, reasons in zip(_NAMES, guesses, strict=True) if reason in reasons
            )
            yield safe_text(f"A guess for {' and '.join(which)}: {reason}")
        verdict, style = ("differ", "bad") if self.different else ("are equal", "good")
        matrices = (
            "tensors"
            if any(origin.is_custom_tensor for origin in self.origins)
            else "token matrices"
        )
        unopened = max(origin.unopened for origin in self.origins)
        others = f"; {counted(unopened, 'other tensor')} not compared" if unopened else ""
        parameters = ("tensor", "encoding") if unopened else ()
        yield Note(f"The {matrices} {verdict}{others}", *parameters, style=style)

    def _table(self, changed: Excerpt) -> list[RenderableType]:
        """Return the tokens that changed most, and after a gap those that changed least."""
        from embcli.page import Label, ruled, title, written
        from embcli.page.labels import token_label

        pairs, precision, medians = self.changed[changed.places], self.style.precision, []
        labels = [Label("ID", self.matching.pairs[0][pairs])]
        if self.matching.by == "token":
            labels.append(Label("in TUNED", self.matching.pairs[1][pairs]))
        if any(self.encodings):
            labels.append(token_label(self.tokens(pairs)))
        for name, distances in (
            ("cosine distance", self.cosine_distances),
            ("L2 distance", self.distances),
        ):
            labels.append(Label(name, written(distances[pairs], precision)))
            if quantiles := self.quantiles(distances):
                medians.append(
                    f"{name} {written(np.array(quantiles), precision)[[*QUANTILES].index('median')]}"
                )
        which = (
            f"Changed most, and least; medians: {', '.join(medians)}"
            if changed.left_out
            else "Changed most"
        )
        return ["", title(which), ruled(labels, gaps=changed.gaps)]


def diff(model: Opened, other: Opened, *, top: int = SHOWN_ROWS) -> Diff:
    """Return which rows of the token matrices of two models are equal, and how far the others moved.

    Rows are matched by their tokens; the page shows `top` rows of each kind. Raises InputError for rows of
    different lengths.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).diff(embcli.seeded(vocab=6, dim=3)).different
    False
    """
    if not isinstance(other, Opened):
        raise InputError(f"other must be a Model, as open and seeded return it, not {other!r}")
    notes = model.notes.begun(other.notes)
    remark_scaled(notes, model, other)
    base = model.source
    tuned = other.source
    check_top(top)
    shapes = shape_of(base, "token"), shape_of(tuned, "token")
    if shapes[0][1] != shapes[1][1]:
        raise InputError(
            f"the rows have different lengths: {shapes[0][1]:,} in {base.origin.name!r}, "
            f"{shapes[1][1]:,} in {tuned.origin.name!r}"
        )
    opened = base.open({"token": None}, notes), tuned.open({"token": None}, notes)
    layers = left_layer, right_layer = opened[0]["token"], opened[1]["token"]
    matching = matched((shapes[0][0], shapes[1][0]), (base.encoding, tuned.encoding))
    count = len(matching.pairs[0])
    equal, cosine_distances, distances = np.ones(count, bool), np.zeros(count), np.zeros(count)
    are_whole = all(layer.dtype in ("int64", "uint64", "int32", "uint32") for layer in layers)
    step = max(_BLOCK // shapes[0][1], 1)
    for block in model.watch(np.split(np.arange(count), range(step, count, step)), count, len):
        left = left_layer.stored(matching.pairs[0][block])
        right = right_layer.stored(matching.pairs[1][block])
        if left_layer.dtype == right_layer.dtype:  # most rows have equal bytes, and need no numbers
            rows = np.flatnonzero((left.view(np.uint8) != right.view(np.uint8)).any(axis=1))
            block, left, right = block[rows], left[rows], right[rows]
        one = _numbers(left_layer, left)
        two = _numbers(right_layer, right)
        if are_whole:  # float64 does not hold all of them
            changed = (left != right).any(axis=1)
        else:
            changed = ((one != two) & ~(np.isnan(one) & np.isnan(two))).any(axis=1)
        pairs = block[changed]
        equal[pairs] = False
        cosine_distances[pairs], distances[pairs] = _distances(one[changed], two[changed])
    return Diff(
        shapes=shapes,
        dtypes=(layers[0].dtype, layers[1].dtype),
        encodings=(base.encoding, tuned.encoding),
        origins=(opened[0].origin, opened[1].origin),
        matching=matching,
        equal=equal,
        cosine_distances=cosine_distances,
        distances=distances,
        top=min(top, max(*shapes[0], *shapes[1])),
        notes=notes,
    )


def _numbers(layer: Layer, stored: np.ndarray) -> np.ndarray:
    """Return rows as they are stored, (n, width), in float64, (n, D)."""
    from embcli.files.numbers import held_by_float32

    rows = layer.widened(stored) if held_by_float32(layer.dtype) else stored
    return rows.astype(np.float64)


@np.errstate(all="ignore")  # of rows that are not finite, and of zero rows
def _distances(base: np.ndarray, tuned: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return 1 - cos and the L2 distances of pairs of rows, (n, D) float64 each -> (n,) float64 each.

    1 - cos is half of the squared distance between the rows scaled to length 1, which does not cancel.
    """
    turned = tuned / np.sqrt(squares(tuned))[:, None] - base / np.sqrt(squares(base))[:, None]
    cosine = squares(turned) / 2
    moved = np.sqrt(squares(tuned - base))
    return np.where(np.isfinite(cosine), cosine, np.nan), np.where(
        np.isfinite(moved), moved, np.nan
    )
