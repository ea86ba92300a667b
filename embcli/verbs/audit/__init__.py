"""Problems of a token matrix: broken, equal, unused and under-trained rows, and statistics of all rows.

It takes up to three passes: one for norms and sums, one that needs the mean row, and one over a separate output head.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from embcli.encodings import Encoding
from embcli.encodings.unused import unused
from embcli.files.checkpoint import Checkpoint, Head
from embcli.layer import Layers, Origin, Source, shape_of
from embcli.names import BROKEN, FAULTS, SHOWN_ROWS, Fault, Unused
from embcli.passes import Watch, unwatched
from embcli.records import FieldType, Names, Records, in_pieces, run_of
from embcli.result import Result
from embcli.statistics import AT, equal_rows, fences, histogram, quantiles, rank_correlation, refuse_covariance
from embcli.tokens import token_text, tokens_of
from embcli.verbs.audit.passes import FirstPass, Indicators, SecondPass, sampled, wins
from embcli.words import counted

_PIECE = 4096  # rows written at a time
_LEAST_UNUSED = 2  # unused rows that other rows can be compared with
_SCALE = 1.4826  # turns a median absolute deviation into a standard deviation, for normally distributed numbers
_SPREAD = 3  # standard deviations from the median of the unused rows that a candidate may be
_ROUNDING = 1e-12  # of a cosine
BINS = 24  # of the histogram of norms


@dataclass(frozen=True)
class RowStatistics:
    """Norm and direction statistics of the finite token rows; the names are keys of the JSON document.

    Cosines are the mean over all pairs of rows with a direction, before and after the mean row is subtracted.
    """

    rows: int
    quantiles: tuple[float, ...]  # of the norms, at AT; empty if there are no rows
    histogram: tuple[int, ...]  # of the norms, in BINS from the smallest to the largest
    mean_cosine: float | None
    centred_mean_cosine: float | None
    iso_score: float | None
    norm_by_merge: float | None  # rank correlation of norms with the order of BPE merges; None without merges


@dataclass(frozen=True)
class UndertrainedTokens:
    """Tokens whose rows resemble those of unused tokens: candidates that only prompting a model can confirm.

    The indicator is `cosine` (see Indicators) if the output head is the token matrix, otherwise the `norm` of a row.
    For candidates it is at most `threshold`: the median for the unused rows (for the cosine, of each row to the mean of
    the others) plus three times their scaled median absolute deviation. `reason` says why there is no threshold.
    """

    indicator: Literal["cosine", "norm"]
    threshold: float | None
    reason: str
    output: Head | None  # the output head; None without a checkpoint
    candidates: np.ndarray  # (n,) int64, by indicator


@dataclass(frozen=True)
class HeadCheck:
    """How often the largest logit for a token's row is that of the same token, with a separate output head."""

    tensor: str
    rows: int  # rows that were tried
    used: int  # rows that they were evenly sampled from
    wins: int


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit", content="ranking"):
    """The problems of a token matrix, by row and in total."""

    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    origin: Origin
    run: dict[str, Any]
    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    unused: dict[int, Unused]  # ID -> why no text can produce it
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    measured: np.ndarray  # (V,) bool, whether the row stands for a token and is finite
    statistics: RowStatistics
    fences: tuple[float, float] | None  # of the norms, see `statistics.fences`; None if there are no rows
    outliers: np.ndarray  # (n,) int64: used rows whose norms are beyond the fences, farthest first
    indicators: Indicators | None  # None if no row is known to be unused
    undertrained: UndertrainedTokens
    head: HeadCheck | None
    fail_on: tuple[Fault, ...]
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def non_finite(self) -> np.ndarray:
        """The rows that contain NaN or infinity, (n,) int64."""
        return np.flatnonzero(np.isnan(self.norms))

    @cached_property
    def zero(self) -> np.ndarray:
        """The zero rows of used tokens, (n,) int64."""
        return _used(np.flatnonzero(self.norms == 0), self.unused)

    @cached_property
    def by_use(self) -> dict[Unused, np.ndarray]:
        """The unused rows by the reason why they are unused, (n,) int64 each."""
        reasons = dict.fromkeys(self.unused.values())
        return {why: np.array([row for row, each in self.unused.items() if each == why], np.int64) for why in reasons}

    @cached_property
    def faults(self) -> dict[Fault, int]:
        """The number of rows with each fault; of equal rows, those of used tokens except the first of each group."""
        used = (sum(row not in self.unused for row in group) for group in self.equal)
        counts: dict[Fault, int] = {
            "non-finite": len(self.non_finite),
            "zero": len(self.zero),
            "missing": max(self.encoding.vocabulary_size - self.shape[0], 0) if self.encoding else 0,
            "equal": sum(max(count - 1, 0) for count in used),
            "padding": len(self.by_use.get("padding", ())),
            "candidates": len(self.undertrained.candidates),
        }
        return {name: counts[name] for name in FAULTS}

    @property
    def broken(self) -> tuple[Fault, ...]:
        """The faults found, of those in `fail_on`."""
        return tuple(name for name in self.fail_on if self.faults[name])

    @property
    def why_no(self) -> str:
        """The faults that make the matrix broken, with their counts; empty if there are none."""
        return ", ".join(f"{name} ({self.faults[name]:,})" for name in self.broken)

    @property
    def indicator(self) -> np.ndarray:
        """The indicator that decides about candidates, for each row, (V,) float64."""
        if self.indicators is None or self.undertrained.indicator == "norm":
            return self.norms
        return self.indicators.cosine

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the rows as data, and a summary of all."""
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        indicators: dict[str, FieldType] = dict.fromkeys(vars(self.indicators) if self.indicators else (), float)
        faults: dict[str, FieldType] = {"unused": str, "fault": str, "equal_to": int}
        faults |= {"candidate": bool, "outlier": bool}
        fields: dict[str, FieldType] = {"id": int, **token, "norm": float, **indicators, **faults}
        pieces = in_pieces(self.shape[0], _PIECE, self._fields)
        return Records(self.run, "rows", self.shape[0], fields, pieces, more={"audit": self._document()})

    @cached_property
    def _by_row(self) -> dict[str, dict[int, Any]]:
        """The fields that most rows do not have, by ID."""
        return {
            "unused": dict(self.unused),
            "fault": dict.fromkeys(self.non_finite.tolist(), "non-finite") | dict.fromkeys(self.zero.tolist(), "zero"),
            "equal_to": {row: group[0] for group in self.equal for row in group[1:]},
        }

    def _fields(self, ids: np.ndarray, names: Names) -> dict[str, Any]:
        rows, indicators = ids.tolist(), vars(self.indicators) if self.indicators else {}
        return {
            "id": ids,
            "token": list(map(token_text, self.tokens(ids))) if "token" in names else [],
            "norm": self.norms[ids],
            **{name: values[ids] for name, values in indicators.items()},
            **{name: list(map(values.get, rows)) for name, values in self._by_row.items()},
            "candidate": np.isin(ids, self.undertrained.candidates).tolist(),
            "outlier": np.isin(ids, self.outliers).tolist(),
        }

    def _document(self) -> dict[str, Any]:
        return {
            "tokens": self.encoding.vocabulary_size if self.encoding else None,
            "faults": self.faults,
            "broken": list(self.broken),
            "unused": {why: len(rows) for why, rows in self.by_use.items()},
            "equal": [list(group) for group in self.equal],
            **vars(self.statistics),
            "quantiles_at": list(AT),
            "fences": self.fences,
            "outliers": self.outliers.tolist(),
            "indicator": self.undertrained.indicator,
            "threshold": self.undertrained.threshold,
            "reason": self.undertrained.reason or None,
            "candidates": self.undertrained.candidates.tolist(),
            "head": dict(vars(self.head)) if self.head else None,
        }


def audit(
    source: Source, fail_on: tuple[Fault, ...] | None = None, watch: Watch = unwatched, top: int = SHOWN_ROWS
) -> Audit:
    """Return the problems of the token matrix of a source.

    `fail_on` are the faults that make it broken, by default those of a matrix that no model can use. `watch` counts the
    rows of each pass; a page shows `top` rows of each kind.
    """
    size, dim = shape_of(source, "token")
    refuse_covariance(dim, "is it stored as (D, V)?")
    separate = isinstance(source, Checkpoint) and source.head.relation == "other"
    encoding, layers = source.encoding, source.open({"token": None, "head": None} if separate else {"token": None})
    layer = layers["token"]
    unused_rows = unused(encoding, size) if encoding else {}
    first = FirstPass(size, dim, unused_rows)
    for block in watch(layer.blocks(), size, len):
        first.add(block)
    second = SecondPass(first)
    for block in watch(layer.blocks(), size, len):
        second.add(block)
    nonzero = np.flatnonzero(first.norms > 0)
    limits, outliers = _outliers(first.norms, nonzero[~first.of_unused[nonzero]])
    return Audit(
        shape=(size, dim),
        dtype=layer.dtype,
        encoding=encoding,
        origin=layers.origin,
        run=run_of(encoding, **layers.origin.document()),
        norms=first.norms,
        unused=unused_rows,
        equal=equal_rows(first.digests, nonzero),
        measured=first.measured,
        statistics=_statistics(first, second, encoding),
        fences=limits,
        outliers=outliers,
        indicators=second.indicators,
        undertrained=_undertrained(source, first, second),
        head=_head_check(layers, _used(nonzero, unused_rows), watch),
        fail_on=BROKEN if fail_on is None else fail_on,
        top=top,
        notes=source.notes,
    )


def _used(rows: np.ndarray, unused: dict[int, Unused]) -> np.ndarray:
    """Return the rows of used tokens, (n,) int64."""
    used: np.ndarray = rows[[row not in unused for row in rows.tolist()]] if unused else rows
    return used


def _statistics(first: FirstPass, second: SecondPass, encoding: Encoding | None) -> RowStatistics:
    rows = np.flatnonzero(first.measured)
    norms = first.norms[rows]
    merges = np.array([row for row in encoding.merges() if row < len(first.norms)] if encoding else [], np.int64)
    in_order = merges[first.measured[merges]]
    return RowStatistics(
        rows=len(rows),
        quantiles=quantiles(norms),
        histogram=histogram(norms, BINS),
        mean_cosine=first.mean_cosine,
        centred_mean_cosine=second.mean_cosine,
        iso_score=second.iso_score,
        norm_by_merge=rank_correlation(first.norms[in_order], np.arange(len(in_order))),
    )


def _outliers(norms: np.ndarray, used: np.ndarray) -> tuple[tuple[float, float] | None, np.ndarray]:
    """Return the fences of the norms of used rows, (n,) int64, and the rows beyond them, the farthest ones first."""
    limits = fences(norms[used])
    if limits is None:
        return None, used
    beyond = np.maximum(limits[0] / norms[used], norms[used] / limits[1])
    return limits, used[np.argsort(-beyond, kind="stable")][: np.count_nonzero(beyond > 1)]


def _undertrained(source: Source, first: FirstPass, second: SecondPass) -> UndertrainedTokens:
    """Return the tokens whose rows resemble those of unused tokens."""
    indicators = second.indicators
    output = source.head if isinstance(source, Checkpoint) else None
    tied = output is not None and output.relation in ("same", "equal")
    cosine = indicators.cosine if indicators and tied else None
    values = first.norms if cosine is None else cosine
    used = np.flatnonzero(first.measured & (first.norms > 0) & ~first.of_unused)
    of_unused = np.where(first.norms > 0, first.norms, np.nan) if cosine is None else second.unused_distances
    threshold, reason = _threshold(values[used], of_unused[first.of_unused & ~np.isnan(of_unused)])
    candidates = used[values[used] <= threshold] if threshold is not None else used[:0]
    ordered = candidates[np.argsort(values[candidates], kind="stable")]
    return UndertrainedTokens("norm" if cosine is None else "cosine", threshold, reason, output, ordered)


def _threshold(used: np.ndarray, unused: np.ndarray) -> tuple[float | None, str]:
    """Return the largest indicator of a row that resembles unused rows; None, with a reason, if there is none."""
    if len(unused) < _LEAST_UNUSED:
        return None, f"too few known unused rows for comparison: {counted(len(unused), 'row')}"
    middle = np.median(unused)
    spread = _SCALE * np.median(np.abs(unused - middle))
    threshold = float(middle + _SPREAD * spread + _ROUNDING)
    if not len(used) or np.median(used) <= threshold:
        return None, "the unused rows resemble all others, as in an untrained matrix"
    return threshold, ""


def _head_check(layers: Layers, used: np.ndarray, watch: Watch) -> HeadCheck | None:
    """Return how a separate output head responds to the rows of used tokens; None if the file has no such head."""
    if "head" not in layers:
        return None
    head = layers["head"]
    inside = used[used < head.shape[0]]
    rows = sampled(inside, *head.shape)
    return HeadCheck(layers.origin.tensors["head"], len(rows), len(inside), wins(layers["token"], head, rows, watch))
