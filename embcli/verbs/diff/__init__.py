"""The rows of two token matrices that are equal, and how far the others moved.

`diff` returns a Diff, which is plain data. `measure` matches the rows of BASE and TUNED by their
tokens and compares them, `page` shows the result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, check_choice, check_top
from embcli.layer import Origin, shape_of
from embcli.names import SHOWN_ROWS, TokenLayer, __version__
from embcli.numerics.statistics import QUANTILES_AT, quantiles
from embcli.opened import Opened, remark_scaled
from embcli.records import FieldType, Names, Piece, Records, in_pieces
from embcli.result import Result
from embcli.tokens import token_text, tokens_of
from embcli.verbs.diff.measure import Matching, compare_rows, match_rows
from embcli.wording import counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["Diff", "Matching", "diff"]

State = Literal["equal", "changed", "removed", "added"]


@dataclass(frozen=True, eq=False)
class Diff(Result, verb="diff", content="ranking"):
    """A comparison of two matrices, for each pair of rows that stand for the same token.

    A pair is equal if all numbers are, in whatever dtypes: NaN equals NaN, and +0 equals -0. Rows
    without a partner are `removed`, in BASE, or `added`, in TUNED. The distances of equal rows
    are 0. A cosine distance, 1 - cos, is NaN if a row has no direction, an L2 distance if a value
    is not finite.
    """

    layer: TokenLayer
    shapes: tuple[tuple[int, int], tuple[int, int]]
    dtypes: tuple[str, str]
    encodings: tuple[Encoding | None, Encoding | None]
    origins: tuple[Origin, Origin]
    matching: Matching
    equal: np.ndarray  # (pairs,) bool
    cosine_distances: np.ndarray  # (pairs,) float64
    distances: np.ndarray  # (pairs,) float64, L2
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def counts(self) -> dict[State, int]:
        equal = int(np.count_nonzero(self.equal))
        removed, added = self.matching.alone
        return {
            "equal": equal,
            "changed": len(self.equal) - equal,
            "removed": len(removed),
            "added": len(added),
        }

    @property
    def different(self) -> bool:
        return bool(self.why_no)

    @property
    def why_no(self) -> str:
        parts = []
        for state, count in self.counts.items():
            if state != "equal" and count:
                parts.append(f"{counted(count, 'row')} {state}")
        return ", ".join(parts)

    @cached_property
    def changed(self) -> np.ndarray:
        """The pairs that changed, (n,) int64: non-finite distances first, then the largest."""
        pairs = np.flatnonzero(~self.equal)
        distances = np.nan_to_num(self.distances[pairs], nan=np.inf)
        return pairs[np.argsort(-distances, kind="stable")]

    def quantiles(self, values: np.ndarray) -> tuple[float, ...]:
        """Return the quantiles of a value of the pairs that changed.

        They are those at QUANTILES_AT; there are none if no pair has a finite value.
        """
        return quantiles(values[self.changed])

    def tokens(self, pairs: np.ndarray) -> list[bytes | None]:
        known = 1 if self.encodings[0] is None else 0
        rows = self.matching.pairs[known]
        return tokens_of(rows[pairs], self.encodings[known])

    def records(self) -> Records:
        """Return the pairs as data, then the rows without a partner, and a summary of all."""
        base, tuned = sides_of(self)
        fields: dict[str, FieldType] = {base.id_field: int, tuned.id_field: int}
        if any(self.encodings):
            fields["token"] = str
        fields |= {"state": str, "cosine_distance": float, "l2_distance": float}
        pieces_of_pairs = in_pieces(len(self.equal), len(fields), self._pair_fields)

        def pieces(names: Names, matrices: Names) -> Iterator[Piece]:
            yield from pieces_of_pairs(names, matrices)
            for side in (base, tuned):
                if len(side.alone):
                    yield side.piece_of_alone(names)

        run = {"embcli": __version__, "base": base.document(), "tuned": tuned.document()}
        summary = {
            "counts": self.counts,
            "different": self.different,
            "matched_by": self.matching.by,
            "quantiles_at": list(QUANTILES_AT),
            "cosine_distance": self.quantiles(self.cosine_distances),
            "l2_distance": self.quantiles(self.distances),
        }
        rows = sum(self.counts.values())
        return Records(run, "rows", rows, fields, pieces, more={"diff": summary})

    def _pair_fields(self, pairs: np.ndarray, _: Names) -> dict[str, Any]:
        base_rows, tuned_rows = self.matching.pairs
        return {
            "base_id": base_rows[pairs],
            "tuned_id": tuned_rows[pairs],
            "token": [token_text(token) for token in self.tokens(pairs)],
            "state": np.where(self.equal[pairs], "equal", "changed").tolist(),
            "cosine_distance": self.cosine_distances[pairs],
            "l2_distance": self.distances[pairs],
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.verbs.diff.page import page

        yield from page(self)


class Side(NamedTuple):
    """One of the two models, and its rows without a partner in the other."""

    name: Literal["BASE", "TUNED"]
    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    origin: Origin
    alone: np.ndarray  # (n,) int64
    state_of_alone: State

    @property
    def id_field(self) -> str:
        """The field of the records that has the IDs of its rows: `base_id` or `tuned_id`."""
        return f"{self.name.lower()}_id"

    def document(self) -> dict[str, Any]:
        name = self.encoding.name if self.encoding else None
        return {"encoding": name, **self.origin.document()}

    def piece_of_alone(self, names: Names) -> Piece:
        """Return some fields of the rows without a partner."""
        tokens = tokens_of(self.alone, self.encoding)
        fields = {
            self.id_field: self.alone,
            "token": [token_text(token) for token in tokens],
            "state": [self.state_of_alone] * len(self.alone),
        }
        no_values = [None] * len(self.alone)
        return Piece(len(self.alone), {name: fields.get(name, no_values) for name in names})


def sides_of(result: Diff) -> tuple[Side, Side]:
    """Return BASE and TUNED."""
    return _side(result, 0, "BASE", "removed"), _side(result, 1, "TUNED", "added")


def _side(result: Diff, place: int, name: Literal["BASE", "TUNED"], state_of_alone: State) -> Side:
    return Side(
        name=name,
        shape=result.shapes[place],
        dtype=result.dtypes[place],
        encoding=result.encodings[place],
        origin=result.origins[place],
        alone=result.matching.alone[place],
        state_of_alone=state_of_alone,
    )


def diff(
    model: Opened, other: Opened, *, layer: TokenLayer = "token", top: int = SHOWN_ROWS
) -> Diff:
    """Return which rows of two models' token matrices are equal, and how far the others moved.

    `layer` can be the output head instead. Rows are matched by their tokens; the page shows `top`
    rows of each kind. Raises InputError for rows of different lengths.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).diff(embcli.seeded(vocab=6, dim=3)).different
    False
    """
    if not isinstance(other, Opened):
        raise InputError(f"other must be a Model, as open and seeded return it, not {other!r}")
    check_choice("layer", layer, get_args(TokenLayer))
    notes = model.notes.begun(other.notes)
    if layer == "token":
        remark_scaled(notes, model, other)
    check_top(top)
    base = model.source
    tuned = other.source
    base_size, base_dim = shape_of(base, layer)
    tuned_size, tuned_dim = shape_of(tuned, layer)
    if base_dim != tuned_dim:
        raise InputError(
            f"the rows have different lengths: {base_dim:,} in {base.origin.name!r}, "
            f"{tuned_dim:,} in {tuned.origin.name!r}"
        )

    base_layers = base.open({layer: None}, notes)
    tuned_layers = tuned.open({layer: None}, notes)
    base_layer = base_layers[layer]
    tuned_layer = tuned_layers[layer]
    matching = match_rows(base_size, base.encoding, tuned_size, tuned.encoding)
    compared = compare_rows(base_layer, tuned_layer, matching, model.watch)
    return Diff(
        layer=layer,
        shapes=((base_size, base_dim), (tuned_size, tuned_dim)),
        dtypes=(base_layer.dtype, tuned_layer.dtype),
        encodings=(base.encoding, tuned.encoding),
        origins=(base_layers.origin, tuned_layers.origin),
        matching=matching,
        equal=compared.equal,
        cosine_distances=compared.cosine_distances,
        distances=compared.distances,
        top=min(top, max(base_size, tuned_size, base_dim)),
        notes=notes,
    )
