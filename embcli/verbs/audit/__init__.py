"""What looks unusual in a token matrix: broken, equal, unused and under-trained rows, and norms.

`audit` returns an Audit, which is plain data. `measure` computes its numbers, `page` shows them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, check_choice, check_top
from embcli.layer import Origin, Source, shape_of
from embcli.names import BROKEN, FAULTS, SHOWN_ROWS, Fault, Unused
from embcli.numerics.statistics import QUANTILES_AT, quantiles
from embcli.opened import Opened, remark_scaled
from embcli.records import FieldType, Records, listed, run_of
from embcli.result import Result
from embcli.tokens import token_text, tokens_of
from embcli.verbs.audit.measure import (
    RowKinds,
    check_covariance_fits,
    indicators_of,
    scan_rows,
    threshold_of,
    unused,
)
from embcli.wording import Sentence

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.files.checkpoint import Head

__all__ = ["Audit", "audit", "unused"]

_HISTOGRAM_BINS = 24


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit", content="ranking"):
    """The problems of a token matrix, by row and in total.

    `indicators` tell how far each row is from the rows of unused tokens; lower means less trained.
    They are those of Land and Bartolo 2024, "Fishing for Magikarp: Automatically Detecting
    Under-trained Tokens in Large Language Models", for the token matrix, tied or not; their
    published code uses the output head. With u the mean of the unused rows, `cosine_distance` is
    1 - cos(row, u), `centred` the same after subtracting the mean of all rows from both, and
    `without_first` the same after subtracting their first principal component. They are NaN for a
    row without a direction.

    Candidates are tokens whose rows resemble those of unused tokens; only prompting a model can
    confirm one. Their `indicator` is `cosine_distance` if the output head is the token matrix,
    otherwise the `norm` of a row, and at most `threshold`: the median for the unused rows (for the
    cosine, of each row to the mean of the others) plus three times their scaled median absolute
    deviation. `reason` says why there is no threshold.
    """

    shape: tuple[int, int]
    dtype: str
    encoding: Encoding | None
    origin: Origin
    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    unused: dict[int, Unused]  # ID -> why no text can produce it
    padding: int | None  # the row that config.json names as padding; it can be zero
    equal: tuple[tuple[int, ...], ...]  # groups of equal rows, except zero rows
    measured: np.ndarray  # (n,) int64: the finite rows that stand for tokens
    indicators: dict[str, np.ndarray]  # (V,) float64 each; none if no row is known to be unused
    indicator: Literal["cosine_distance", "norm"]
    threshold: float | None
    reason: str
    candidates: np.ndarray  # (n,) int64, by indicator
    output: Head | None  # the output head; None without a checkpoint
    fail_on: tuple[Fault, ...]
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @cached_property
    def non_finite(self) -> np.ndarray:
        return np.flatnonzero(np.isnan(self.norms))

    @cached_property
    def zero(self) -> np.ndarray:
        """The zero rows, (n,) int64, except unused rows and the padding row, which may be zero."""
        allowed = {*self.unused, self.padding}
        rows = np.flatnonzero(self.norms == 0).tolist()
        return np.array([row for row in rows if row not in allowed], np.int64)

    @cached_property
    def by_use(self) -> dict[Unused, np.ndarray]:
        """The unused rows by the reason why they are unused, (n,) int64 each."""
        rows_by_reason: dict[Unused, list[int]] = {}
        for row, reason in self.unused.items():
            rows_by_reason.setdefault(reason, []).append(row)
        return {reason: np.array(rows, np.int64) for reason, rows in rows_by_reason.items()}

    @cached_property
    def quantiles(self) -> tuple[float, ...]:
        return quantiles(self.norms[self.measured])

    @cached_property
    def histogram(self) -> tuple[int, ...]:
        """The number of those norms in each of 24 equal parts of their range.

        The largest norm is in the last part.
        """
        norms = self.norms[self.measured]
        if not len(norms):
            return ()
        # numpy.histogram itself refuses a range that is too narrow for 24 parts.
        edges = np.linspace(norms.min(), norms.max(), _HISTOGRAM_BINS + 1)
        counts, _ = np.histogram(norms, edges)
        return tuple(counts.tolist())

    @cached_property
    def faults(self) -> dict[Fault, int]:
        """The number of rows with each fault.

        Of equal rows it counts those of used tokens, except the first of each group.
        """
        missing = 0
        if self.encoding:
            missing = max(self.encoding.vocabulary_size - self.shape[0], 0)
        equal = 0
        for group in self.equal:
            used = [row for row in group if row not in self.unused]
            equal += max(len(used) - 1, 0)
        return {
            "non-finite": len(self.non_finite),
            "zero": len(self.zero),
            "missing": missing,
            "equal": equal,
            "padding": len(self.by_use.get("padding", ())),
            "candidates": len(self.candidates),
        }

    @property
    def broken(self) -> tuple[Fault, ...]:
        return tuple(name for name in self.fail_on if self.faults[name])

    @property
    def why_no(self) -> str:
        return ", ".join(f"{name} ({self.faults[name]:,})" for name in self.broken)

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return a row for each ID; what holds for the whole matrix stands beside the rows."""
        ids = np.arange(self.shape[0])
        fault_by_row = dict.fromkeys(self.zero.tolist(), "zero")
        fault_by_row |= dict.fromkeys(self.non_finite.tolist(), "non-finite")
        first_equal_row: dict[int, int] = {}
        for group in self.equal:
            first_equal_row |= dict.fromkeys(group[1:], group[0])

        columns: dict[str, tuple[FieldType, Any]] = {"id": (int, ids)}
        if self.encoding:
            columns["token"] = (str, [token_text(token) for token in self.tokens(ids)])
        columns["norm"] = (float, self.norms)
        for name, values in self.indicators.items():
            columns[name] = (float, values)
        columns["unused"] = (str, self._column(self.unused))
        columns["fault"] = (str, self._column(fault_by_row))
        columns["equal_to"] = (int, self._column(first_equal_row))
        columns["candidate"] = (bool, np.isin(ids, self.candidates).tolist())

        run = run_of(self.encoding, **self.origin.document())
        return replace(listed(run, "rows", **columns), more={"audit": self._totals()})

    def _column(self, fact_by_row: Mapping[int, Any]) -> list[Any]:
        """Return the fact of each row, None for a row without one."""
        return [fact_by_row.get(row) for row in range(self.shape[0])]

    def _totals(self) -> dict[str, Any]:
        return {
            "tokens": self.encoding.vocabulary_size if self.encoding else None,
            "faults": self.faults,
            "broken": list(self.broken),
            "unused": {reason: len(rows) for reason, rows in self.by_use.items()},
            "equal": [list(group) for group in self.equal],
            "rows": len(self.measured),
            "quantiles": self.quantiles,
            "quantiles_at": list(QUANTILES_AT),
            "histogram": self.histogram,
            "indicator": self.indicator,
            "threshold": self.threshold,
            "reason": self.reason or None,
            "candidates": self.candidates.tolist(),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.verbs.audit.page import page

        yield from page(self)


def audit(model: Opened, *, fail_on: Iterable[Fault] | None = None, top: int = SHOWN_ROWS) -> Audit:
    """Return which rows of the token matrix are broken, equal, unused or under-trained, and norms.

    `result.broken` has the faults among `fail_on` that were found; by default `fail_on` is
    non-finite, zero and missing rows. The page shows `top` rows of each kind.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).audit().broken
    ()
    """
    source = model.source
    notes = model.notes.begun()
    remark_scaled(notes, model)
    faults = _chosen_faults(fail_on)
    check_top(top)
    size, dim = shape_of(source, "token")
    encoding = source.encoding
    kinds = RowKinds(size, unused(encoding, size) if encoding else {})
    if kinds.reasons:
        check_covariance_fits(dim)

    layers = source.open({"token": None}, notes)
    layer = layers["token"]
    scan = scan_rows(layer, kinds, model.watch)
    norms = scan.norms
    output = _output_head(source)

    # Candidates are found by norm, or by cosine if the rows are also those of the output head.
    indicator: Literal["cosine_distance", "norm"] = "norm"
    values = norms
    unused_values = norms[kinds.unused & (norms > 0)]
    indicators: dict[str, np.ndarray] = {}
    if scan.covariance is not None and scan.unused_sum.any():
        indicators, to_others = indicators_of(layer, kinds, scan, scan.covariance, model.watch)
        if output is not None and output.relation in ("same", "equal"):
            indicator = "cosine_distance"
            values = indicators["cosine_distance"]
            unused_values = to_others[kinds.unused]

    used = np.flatnonzero(kinds.token & ~kinds.unused & (norms > 0))
    threshold, reason = threshold_of(unused_values, values[used])
    candidates = used[:0]
    if threshold is not None:
        candidates = used[values[used] <= threshold]
    return Audit(
        shape=(size, dim),
        dtype=layer.dtype,
        encoding=encoding,
        origin=layers.origin,
        norms=norms,
        unused=kinds.reasons,
        padding=_padding_row(source, size),
        equal=scan.equal,
        measured=np.flatnonzero(kinds.token & np.isfinite(norms)),
        indicators=indicators,
        indicator=indicator,
        threshold=threshold,
        reason=reason,
        candidates=candidates[np.argsort(values[candidates], kind="stable")],
        output=output,
        fail_on=faults,
        top=min(top, size),
        notes=notes,
    )


def _chosen_faults(fail_on: Iterable[Any] | None) -> tuple[Fault, ...]:
    """Return the faults that break a matrix; raise InputError for a name that is no fault."""
    if fail_on is None:
        return BROKEN
    faults = (fail_on,) if isinstance(fail_on, str) else tuple(fail_on)
    if not faults:
        names = ", ".join(FAULTS)
        raise InputError(Sentence("{fail_on} names no fault; choose from {faults}", faults=names))
    for fault in faults:
        check_choice("fail_on", fault, FAULTS)
    return faults


def _output_head(source: Source) -> Head | None:
    """Return the output head of a checkpoint, unless the user chose another tensor."""
    from embcli.files.checkpoint import Checkpoint

    if not isinstance(source, Checkpoint) or source.roles.is_custom_tensor:
        return None
    return source.head


def _padding_row(source: Source, size: int) -> int | None:
    """Return the row that config.json names as padding, if the matrix has it."""
    from embcli.files.checkpoint import Checkpoint

    if not isinstance(source, Checkpoint):
        return None
    padding = source.roles.config.get("pad_token_id")
    if not isinstance(padding, int) or not 0 <= padding < size:
        return None
    return padding
