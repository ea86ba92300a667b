"""What is odd about a token matrix: rows that are broken, equal or of no token, and how all of them lie.

Three passes at most: one over the matrix for norms and sums, one for what takes the mean row, and one over an output
head of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli.encodings.unused import unused
from embcli.files.checkpoint import Checkpoint
from embcli.layer import run_of, shape_of
from embcli.names import BROKEN, FAULTS
from embcli.passes import unwatched
from embcli.records import FieldType, Names, Piece, Records, refuse_too_many
from embcli.tokens import token_text, tokens_of
from embcli.verbs.audit.passes import FirstPass, Indicators, SecondPass, sampled, wins
from embcli.weights.statistics import AT, equal_rows, histogram, quantiles, rank_correlation, refuse_covariance
from embcli.words import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.encodings import Encoding
    from embcli.files.checkpoint import Head
    from embcli.layer import Layer, Source
    from embcli.names import Fault, Unused
    from embcli.passes import Watch

_PIECE = 4096  # rows that are written at a time
_LEAST_UNUSED = 2  # rows by which others can be told
_SCALE = 1.4826  # of the median absolute deviation, to be a standard deviation where numbers are normal
_SPREAD = 3  # of these, within which a row is like the unused ones
_ROUNDING = 1e-12  # of a cosine
BINS = 24  # of the histogram of norms


@dataclass(frozen=True)
class Lying:
    """How the finite rows of tokens lie, so many of them.

    Cosines are the mean of all pairs of rows with a direction, before and after the mean row is taken away.
    """

    rows: int
    quantiles: tuple[float, ...]  # of the norms, at AT; empty where there are no rows
    histogram: tuple[int, ...]  # of the norms, in BINS from the least to the largest
    mean_cosine: float | None
    centred_mean_cosine: float | None
    iso_score: float | None
    norm_by_merge: float | None  # rank correlation of norms with the order of BPE's merges; None where there are none


@dataclass(frozen=True)
class Untrained:
    """Tokens whose rows are like those of unused ones: candidates, since only prompting a model can prove one.

    The indicator is `cosine`, see Indicators, where the output head is the token matrix, and else the `norm` of a row.
    A candidate has one of at most `threshold`: the median of the unused rows' own (in a cosine, of each to the mean of
    the others) and three times their scaled median absolute deviation. `reason` says why there is no threshold.
    """

    indicator: Literal["cosine", "norm"]
    threshold: float | None
    reason: str
    output: Head | None  # which head that is about; None where there is no checkpoint
    candidates: np.ndarray  # (n,) int64, by indicator


@dataclass(frozen=True)
class OwnToken:
    """How often the logits of a token's own row are the largest at that token, in an output head of its own."""

    tensor: str
    rows: int  # how many were tried
    used: int  # of how many, among which they are evenly spread
    wins: int


@dataclass(frozen=True)
class Audit:
    """What is odd about a token matrix, row by row and as a whole."""

    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    run: dict[str, Any]
    norms: np.ndarray  # (V,) float64; NaN where a value is NaN or infinite
    unused: dict[int, Unused]  # ID -> why no text makes it
    equal: tuple[tuple[int, ...], ...]  # groups of rows, but those of zeros
    measured: np.ndarray  # (V,) bool, whether it stands for a token and is finite
    lying: Lying
    indicators: Indicators | None  # None where no row is known as unused
    untrained: Untrained
    head: OwnToken | None
    fail_on: tuple[Fault, ...]
    room: int | None  # for numbers, where they go on a terminal

    @cached_property
    def non_finite(self) -> np.ndarray:
        """The rows with NaN or infinity, (n,) int64."""
        return np.flatnonzero(np.isnan(self.norms))

    @cached_property
    def zero(self) -> np.ndarray:
        """The rows of used tokens that are zero, (n,) int64."""
        return _used(np.flatnonzero(self.norms == 0), self.unused)

    @cached_property
    def by_use(self) -> dict[Unused, np.ndarray]:
        """The unused rows by what tells them, (n,) int64 each."""
        found: dict[Unused, list[int]] = {}
        for row, why in self.unused.items():
            found.setdefault(why, []).append(row)
        return {why: np.array(rows, np.int64) for why, rows in found.items()}

    @cached_property
    def faults(self) -> dict[Fault, int]:
        """How many rows each fault is of; of equal ones, those of used tokens but the first of each group."""
        used = (sum(row not in self.unused for row in group) for group in self.equal)
        counts: dict[Fault, int] = {
            "non-finite": len(self.non_finite),
            "zero": len(self.zero),
            "missing": max(self.encoding.vocabulary_size - self.shape[0], 0) if self.encoding else 0,
            "equal": sum(max(count - 1, 0) for count in used),
            "padding": len(self.by_use.get("padding", ())),
            "candidates": len(self.untrained.candidates),
        }
        return {name: counts[name] for name in FAULTS}

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults there are, of those that it fails on."""
        return tuple(name for name in self.fail_on if self.faults[name])

    @property
    def indicator(self) -> np.ndarray:
        """The indicator of each row by which tokens are candidates, (V,) float64."""
        if self.indicators is None or self.untrained.indicator == "norm":
            return self.norms
        return self.indicators.cosine

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the rows as data, and beside them what holds of all.

        Raises OutputError where there are more of them than there is room for.
        """
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        indicators: dict[str, FieldType] = dict.fromkeys(vars(self.indicators) if self.indicators else (), float)
        found: dict[str, FieldType] = {"unused": str, "fault": str, "equal_to": int, "candidate": bool}
        fields: dict[str, FieldType] = {"id": int, **token, "norm": float, **indicators, **found}
        refuse_too_many(self.shape[0] * len(fields), self.room)
        return Records(self.run, "rows", self.shape[0], fields, self._pieces, more={"audit": self._document()})

    def _pieces(self, fields: Names, _: Names) -> Iterator[Piece]:
        fault = dict.fromkeys(self.non_finite.tolist(), "non-finite") | dict.fromkeys(self.zero.tolist(), "zero")
        first = {row: group[0] for group in self.equal for row in group[1:]}
        candidates = {*self.untrained.candidates.tolist()}
        for start in range(0, self.shape[0], _PIECE):
            ids = np.arange(start, min(start + _PIECE, self.shape[0]))
            rows = ids.tolist()
            values: dict[str, Any] = {
                "id": ids,
                "token": list(map(token_text, self.tokens(ids))),
                "norm": self.norms[ids],
                "unused": list(map(self.unused.get, rows)),
                "fault": list(map(fault.get, rows)),
                "equal_to": list(map(first.get, rows)),
                "candidate": [row in candidates for row in rows],
            }
            values |= {name: each[ids] for name, each in vars(self.indicators).items()} if self.indicators else {}
            yield Piece(len(rows), {name: values[name] for name in fields})

    def _document(self) -> dict[str, Any]:
        return {
            "tokens": self.encoding.vocabulary_size if self.encoding else None,
            "faults": self.faults,
            "broken": list(self.broken),
            "unused": {why: len(rows) for why, rows in self.by_use.items()},
            "equal": [list(group) for group in self.equal],
            **vars(self.lying),
            "quantiles_at": list(AT),
            "indicator": self.untrained.indicator,
            "threshold": self.untrained.threshold,
            "reason": self.untrained.reason or None,
            "candidates": self.untrained.candidates.tolist(),
            "head": dict(vars(self.head)) if self.head else None,
        }


def audit(
    source: Source, watch: Watch = unwatched, fail_on: tuple[Fault, ...] | None = None, room: int | None = None
) -> Audit:
    """Return what is odd about the token matrix of a source.

    `watch` is told of the rows of each pass. `fail_on` are the faults for which it is broken, by default those of a
    matrix that no model can use as it is.
    """
    size, dim = shape_of(source, "token")
    refuse_covariance(dim, "rows of so many numbers may be columns, see --transposed")
    known, layer = source.encoding, source.open({"token": None})["token"]
    idle = unused(known, size) if known else {}
    first = FirstPass(size, dim, idle)
    for block in watch(layer.blocks(), size, len):
        first.add(block)
    second = SecondPass(first)
    for block in watch(layer.blocks(), size, len):
        second.add(block)
    head = _own_token(source, layer, _used(np.flatnonzero(first.norms > 0), idle), watch)
    return Audit(
        shape=(size, dim),
        dtype=layer.dtype,
        encoding=known,
        run=run_of(source, known),
        norms=first.norms,
        unused=idle,
        equal=equal_rows(first.digests, np.flatnonzero(first.norms > 0)),
        measured=first.measured,
        lying=_lying(first, second, known),
        indicators=second.indicators,
        untrained=_untrained(source, first, second),
        head=head,
        fail_on=BROKEN if fail_on is None else fail_on,
        room=room,
    )


def _used(rows: np.ndarray, idle: dict[int, Unused]) -> np.ndarray:
    """Return the rows that are of used tokens, (n,) int64."""
    used: np.ndarray = rows[[row not in idle for row in rows.tolist()]] if idle else rows
    return used


def _lying(first: FirstPass, second: SecondPass, known: Encoding | None) -> Lying:
    rows = np.flatnonzero(first.measured)
    norms = first.norms[rows]
    merges = np.array([row for row in known.merges() if row < len(first.norms)] if known else [], np.int64)
    in_order = merges[first.measured[merges]]
    return Lying(
        rows=len(rows),
        quantiles=quantiles(norms),
        histogram=histogram(norms, BINS),
        mean_cosine=first.mean_cosine,
        centred_mean_cosine=second.mean_cosine,
        iso_score=second.iso_score,
        norm_by_merge=rank_correlation(first.norms[in_order], np.arange(len(in_order))),
    )


def _untrained(source: Source, first: FirstPass, second: SecondPass) -> Untrained:
    """Return the tokens by what tells those that were hardly trained."""
    indicators = second.indicators
    output = source.head if isinstance(source, Checkpoint) else None
    tied = output is not None and output.relation in ("same", "equal")
    cosine = indicators.cosine if indicators and tied else None
    values = first.norms if cosine is None else cosine
    used = np.flatnonzero(first.measured & (first.norms > 0) & ~first.of_unused)
    of_unused = np.where(first.norms > 0, first.norms, np.nan) if cosine is None else second.unused_apart
    threshold, reason = _threshold(values[used], of_unused[first.of_unused & ~np.isnan(of_unused)])
    candidates = used[values[used] <= threshold] if threshold is not None else used[:0]
    ordered = candidates[np.argsort(values[candidates], kind="stable")]
    return Untrained("norm" if cosine is None else "cosine", threshold, reason, output, ordered)


def _threshold(used: np.ndarray, unused: np.ndarray) -> tuple[float | None, str]:
    """Return up to which indicator a row is like unused ones; None, and why, where that cannot be told."""
    if len(unused) < _LEAST_UNUSED:
        return None, f"too few are known as unused to be held against: {counted(len(unused), 'row')}"
    middle = np.median(unused)
    spread = _SCALE * np.median(np.abs(unused - middle))
    threshold = float(middle + _SPREAD * spread + _ROUNDING)
    if not len(used) or np.median(used) <= threshold:
        return None, "the unused rows are like all others, as in a matrix that was never trained"
    return threshold, ""


def _own_token(source: Source, layer: Layer, used: np.ndarray, watch: Watch) -> OwnToken | None:
    """Return how a head of its own answers to the rows of used tokens; None where the file has none."""
    if not isinstance(source, Checkpoint) or source.head.relation != "other" or source.head.tensor is None:
        return None
    head = source.open({"head": None})["head"]
    inside = used[used < head.shape[0]]
    rows = sampled(inside, *head.shape)
    return OwnToken(source.head.tensor.name, len(rows), len(inside), wins(layer, head, rows, watch))
