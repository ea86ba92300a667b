"""Whether a model is sound: its two matrices row by row, and whether tokenizer and files fit them.

`audit` returns an Audit, which is plain data. `matrix` and `measure` compute what is unusual in a
matrix, `fit` what does not fit together, and `page` shows it all.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError, check_choice, check_top
from embcli.layer import Origin, shape_of
from embcli.names import (
    ALARMS,
    FAULT_GROUPS,
    FAULTS,
    SHOWN_ROWS,
    Fault,
    FaultGroup,
    TokenLayer,
)
from embcli.numerics.statistics import QUANTILES_AT
from embcli.opened import Opened, remark_scaled
from embcli.records import FieldType, Records, listed, run_of
from embcli.result import Result
from embcli.selection import Selection, select
from embcli.tokens import token_text, tokens_of
from embcli.verbs.audit.fit import Finding, Fit, Level, fit_of
from embcli.verbs.audit.load import Loading, question_about
from embcli.verbs.audit.matrix import MatrixAudit, audited_matrix
from embcli.verbs.audit.measure import check_covariance_fits, unused
from embcli.wording import Sentence, counted

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

__all__ = ["Audit", "Finding", "MatrixAudit", "audit", "unused"]

# Models have median norms well above this; float16 that is labelled bfloat16 does not.
_SMALLEST_MEDIAN = 1e-6


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit"):
    """What was found in the token matrix, in the output head, and between a model's files.

    `findings` has all of it. A remark changes no verdict, a finding takes the word "Sound" away,
    and an alarm is either of them that `fail_on` names. Candidates are tokens whose rows resemble
    those of unused tokens; only prompting a model can confirm one.
    """

    # The token matrix, and the output head if it has rows of its own; or the only one chosen.
    matrices: tuple[MatrixAudit, ...]
    encoding: Encoding | None
    origin: Origin
    fit: Fit
    loading: Loading  # what transformers makes of the weights
    head_is_copy: bool  # whether both were audited, and all rows of the head are the token's
    findings: tuple[Finding, ...]
    rows: np.ndarray | None = None  # (n,) int64: the IDs whose rows are data; None for findings
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @property
    def main(self) -> MatrixAudit:
        """The matrix that the page begins with: the token matrix, unless it was not audited."""
        return self.matrices[0]

    @cached_property
    def listed(self) -> MatrixAudit:
        """The matrix whose candidates are listed: that in which unused rows are told best."""
        return max(self.matrices, key=lambda matrix: matrix.choice.area or 0)

    @cached_property
    def faults(self) -> dict[str, int]:
        """The number of rows, columns or IDs of each kind."""
        counts: dict[str, int] = dict.fromkeys(FAULTS, 0)
        for finding in self.findings:
            if finding.is_fault:
                counts[finding.kind] += finding.rows
        return counts

    def kinds(self, level: str) -> tuple[Fault, ...]:
        """Return the kinds of the findings of a level."""
        found = {finding.kind for finding in self.findings if finding.level == level}
        return tuple(kind for kind in FAULTS if kind in found)

    @property
    def broken(self) -> tuple[Fault, ...]:
        return self.kinds("alarm")

    @property
    def is_sound(self) -> bool:
        """Whether there are no findings, and so no alarms, whatever is not checked."""
        return not self.broken and not self.kinds("finding")

    @property
    def not_checked(self) -> tuple[str, ...]:
        """What could not be looked at, and why, and what no audit looks at."""
        parts = list(self.fit.not_checked)
        if self.fit.partly_compared and len(self.matrices) == 1 and not self.head_is_copy:
            parts.append(f"the output head: {self.fit.partly_compared} compared, all equal")
        unopened = self.origin.unopened - len(self.fit.finite)
        if unopened > 0:
            parts.append(counted(unopened, "other tensor"))
        return tuple(parts)

    @property
    def _why_no(self) -> str:
        return self.in_words("alarm")

    def in_words(self, level: str) -> str:
        """Return the kinds of the findings of a level, with the number of rows of each."""
        return ", ".join(f"{kind} ({self.faults[kind]:,})" for kind in self.kinds(level))

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return a row for each finding, or for each ID that was asked for.

        What holds for the whole model stands beside the rows.
        """
        run = run_of(self.encoding, **self.origin.document())
        totals = {"audit": self._totals()}
        findings = [finding.document() for finding in self.findings]
        if self.rows is not None:
            rows = listed(run, "rows", **self._row_columns(self.rows))
            return replace(rows, more={**totals, "findings": findings})

        types: dict[str, FieldType] = {"level": str, "kind": str, "rows": int, "text": str}
        columns: dict[str, tuple[FieldType, Any]] = {}
        for name, field_type in types.items():
            columns[name] = (field_type, [finding[name] for finding in findings])
        return replace(listed(run, "findings", **columns), more=totals)

    def _row_columns(self, ids: np.ndarray) -> dict[str, tuple[FieldType, Any]]:
        matrix = self.main
        size, _ = matrix.shape
        faults = np.full(size, None)
        for name, rows in matrix.broken.items():
            faults[rows] = name
        first_equal_rows = np.full(size, None)
        for first, *others in matrix.equal:
            first_equal_rows[others] = first

        columns: dict[str, tuple[FieldType, Any]] = {"id": (int, ids)}
        if self.encoding:
            columns["token"] = (str, [token_text(text) for text in self.tokens(ids)])
        for name, values in matrix.values.items():
            columns[name] = (float, values[ids])
        columns["unused"] = (str, [matrix.unused.get(row) for row in ids.tolist()])
        columns["fault"] = (str, faults[ids].tolist())
        columns["equal_to"] = (int, first_equal_rows[ids].tolist())
        columns["candidate"] = (bool, np.isin(ids, matrix.candidates).tolist())
        return columns

    def _totals(self) -> dict[str, Any]:
        return {
            "tokens": self.fit.tokens,
            "faults": self.faults,
            "broken": list(self.broken),
            "sound": self.is_sound,
            "not_checked": list(self.not_checked),
            "transformers": self.loading.facts.transformers if self.loading.facts else None,
            "not_asked": self.loading.not_asked or None,
            "matrices": {matrix.name: _totals_of(matrix) for matrix in self.matrices},
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.verbs.audit.page import page

        yield from page(self)


def _totals_of(matrix: MatrixAudit) -> dict[str, Any]:
    choice = matrix.choice
    return {
        "shape": list(matrix.shape),
        "zero": matrix.zero.tolist(),
        "non_finite": matrix.non_finite.tolist(),
        "overflowing": matrix.overflowing.tolist(),
        "unused": {reason: len(rows) for reason, rows in matrix.by_use.items()},
        "equal": [list(group) for group in matrix.equal],
        "rows": len(matrix.measured),
        "quantiles": matrix.quantiles,
        "quantiles_at": list(QUANTILES_AT),
        "histogram": matrix.histogram,
        "indicator": choice.indicator,
        "area": choice.area,
        "threshold": choice.threshold,
        "reason": choice.reason or None,
        "candidates": matrix.candidates.tolist(),
    }


def audit(
    model: Opened,
    *,
    layer: TokenLayer | None = None,
    fail_on: Iterable[Fault | FaultGroup] | None = None,
    rows: Selection | None = None,
    top: int = SHOWN_ROWS,
) -> Audit:
    """Return what is wrong with a model: in the rows of its matrices, and between its files.

    `result.findings` has all that was found, `result.broken` the kinds among `fail_on`; by default
    (`"default"`) these are non-finite, zero and missing rows, the same in the output head, special
    tokens without a row, and matrices that transformers draws at random. A kind that is named
    includes its remarks. `"findings"` stands for whatever is not a remark, `"all"` and `"none"` for
    all kinds and none. `layer` names the only matrix whose rows are audited, the token matrix or
    the output head. The page shows `top` rows of each kind. The data are the findings or, if `rows`
    chooses some (`"all"`, `"0:5,100"`), the values of these rows.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).audit().broken
    ()
    """
    check_choice("layer", layer, get_args(TokenLayer))
    notes = model.notes.begun()
    if layer != "head":
        remark_scaled(notes, model)
    kinds = _checked_kinds(fail_on)
    check_top(top)
    source = model.source
    encoding = source.encoding
    question = question_about(source)  # It is answered during the passes.
    fit = fit_of(source, encoding)
    chosen: tuple[TokenLayer, ...] = ("token",)
    if layer is not None:
        chosen = (layer,)
    elif fit.has_own_head:
        chosen = ("token", "head")

    shapes = {name: shape_of(source, name) for name in chosen}
    size_of_main, _ = shapes[chosen[0]]
    ids = None
    if rows is not None:
        ids = select(None if str(rows) == "all" else rows, size_of_main, "row")
    layers = source.open(dict.fromkeys(chosen), notes)
    audits: dict[TokenLayer, MatrixAudit] = {}
    for name, (size, dim) in shapes.items():
        reasons = unused(encoding, size) if encoding else {}
        if reasons:
            check_covariance_fits(dim)
        audits[name] = audited_matrix(
            name, layers[name], reasons, fit.padding_rows, fit.overflow_at, notes.watch
        )

    is_copy = fit.head is not None and fit.head.relation == "equal"
    if len(audits) == 2:
        token = audits["token"]
        head = audits["head"]
        is_copy = head.digest == token.digest and head.shape == token.shape
        if is_copy:
            del audits["head"]
    matrices = tuple(audits.values())
    findings: list[Finding] = []
    for matrix in matrices:
        findings += _row_findings(matrix)
    findings += fit.findings()
    with notes.slow("asking transformers how it loads the model"):
        loading = Loading.answered(question)
    findings += loading.findings(source, is_copy)
    longest = max(size for size, _ in shapes.values())
    return Audit(
        matrices=matrices,
        encoding=encoding,
        origin=layers.origin,
        fit=fit,
        loading=loading,
        head_is_copy=is_copy and layer is None,
        findings=tuple(_judged(finding, kinds) for finding in findings),
        rows=ids,
        top=min(top, longest),
        notes=notes,
    )


def _checked_kinds(fail_on: Iterable[str] | None) -> tuple[str, ...]:
    """Return the kinds and groups that give status 1.

    Raises InputError for any other name, and for kinds beside `all` or `none`.
    """
    if fail_on is None:
        return ("default",)
    kinds = (fail_on,) if isinstance(fail_on, str) else tuple(fail_on)
    for kind in kinds:
        check_choice("fail_on", kind, (*FAULTS, *FAULT_GROUPS))
        if kind in ("all", "none") and len(kinds) > 1:
            raise InputError(Sentence("{fail_on} takes {kind} only by itself", kind=kind))
    return kinds


def _row_findings(matrix: MatrixAudit) -> Iterator[Finding]:
    """Yield what was found in the rows of a matrix; broken rows of a head are of the kind head."""
    where = f"in the {matrix.in_words}"
    for name, rows in matrix.broken.items():
        kind: Fault = "zero" if name == "zero" else "non-finite"
        if matrix.name == "head":
            kind = "head"
        if len(rows):
            text = f"{counted(len(rows), f'{name} row')} {where}"
            yield Finding("finding", kind, len(rows), text, is_in_matrix=True)
    count = len(matrix.constant)
    if count and len(matrix.measured) > 1:
        columns = reprlib.repr(matrix.constant.tolist())
        text = (
            f"{count:,} of {matrix.shape[1]:,} columns with the same value in all rows "
            f"of the {matrix.in_words}: {columns}"
        )
        yield Finding("finding", "constant", count, text)
    median = matrix.median_norm
    if median < _SMALLEST_MEDIAN:
        text = f"a median norm of {median:.1e} {where}: the dtype may be wrong"
        yield Finding("finding", "fit", 1, text)
    if matrix.equal_tokens:
        text = f"{counted(matrix.equal_tokens, 'token')} with the row of another, {where}"
        yield Finding("remark", "equal", matrix.equal_tokens, text, is_in_matrix=True)
    if len(matrix.candidates):
        text = f"{counted(len(matrix.candidates), 'token')} like unused rows, {where}"
        count = len(matrix.candidates)
        yield Finding("remark", "candidates", count, text, is_in_matrix=True)


def _judged(finding: Finding, kinds: tuple[str, ...]) -> Finding:
    """Return a finding as an alarm if its kind is one; a remark is one only if it is named."""
    names = {finding.kind, "all"}
    if finding.level != "remark":
        names.add("findings")
    if finding.level == "alarm" or (finding.level == "finding" and finding.kind in ALARMS):
        names.add("default")
    if names & {*kinds}:
        return finding._replace(level="alarm")
    level: Level = "remark" if finding.level == "remark" else "finding"
    return finding._replace(level=level)
