"""Whether a model is sound: its two matrices row by row, and whether tokenizer and files fit them.

`audit` returns an Audit, which is plain data, and `page` shows it. `matrix` and `measure` compute
the numbers of a matrix, `files` gathers what files say, and `checks` lists what is looked for in
both: in `rows`, in `fit`, and in `load`, which asks transformers.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import get_args

from embcli.encodings import tokenizer_beside
from embcli.errors import Notes, check_choice, whole_number
from embcli.files import open_named
from embcli.layer import Origin, shape_of
from embcli.names import FAULTS, SHOWN_ROWS, Fault, FaultGroup, Strings, TokenLayer
from embcli.numerics.statistics import QUANTILES_AT
from embcli.opened import Opened, remark_scaled
from embcli.records import Document, Records, listed, run_of
from embcli.result import Result
from embcli.verbs.audit.adapter import check_adapter
from embcli.verbs.audit.checks import found_in_files, found_in_matrix
from embcli.verbs.audit.files import ModelFiles, files_of
from embcli.verbs.audit.finding import (
    Finding,
    Level,
    Verdict,
    checked_kinds,
    fails,
    kinds_in_words,
)
from embcli.verbs.audit.load import Loading
from embcli.verbs.audit.matrix import MatrixAudit, audited_matrix
from embcli.verbs.audit.measure import unused
from embcli.verbs.audit.others import check_other_tensors

__all__ = ["Audit", "Finding", "MatrixAudit", "audit", "unused"]


@dataclass(frozen=True, eq=False)
class Audit(Result, verb="audit"):
    """What was found in the token matrix, in the output head, and between a model's files.

    `findings` has all of it, alarms first. With an alarm the model is broken, or does not load; a
    finding takes the word "Sound" away, and a remark changes no verdict. `fail_on` says which give
    status 1. Candidates are tokens whose rows resemble those of unused tokens; only prompting a
    model can confirm one.
    """

    # The token matrix, and the output head if it has rows of its own; or the only one chosen. An
    # adapter can have none.
    matrices: tuple[MatrixAudit, ...]
    files: ModelFiles
    origin: Origin
    loading: Loading  # what transformers makes of the weights
    head_is_copy: bool  # whether both were audited, and all rows of the head are the token's
    findings: tuple[Finding, ...]
    fail_on: Strings = ("findings",)  # kinds and groups of findings that give status 1
    top: int = SHOWN_ROWS  # rows of each kind on a page

    @property
    def main(self) -> MatrixAudit:
        """The matrix that the page begins with: the token matrix, unless it was not audited."""
        return self.matrices[0]

    @cached_property
    def listed(self) -> MatrixAudit:
        """The matrix whose candidates are listed: that in which unused rows are told best."""
        return max(self.matrices, key=lambda matrix: matrix.separation.area or 0)

    @cached_property
    def faults(self) -> dict[str, int]:
        """The number of rows, columns or IDs of each kind, whatever the level."""
        counts = dict.fromkeys(FAULTS, 0)
        for finding in self.findings:
            counts[finding.kind] += finding.rows
        return counts

    def kinds(self, level: Level) -> tuple[Fault, ...]:
        """Return the kinds of the findings of a level."""
        found = {finding.kind for finding in self.findings if finding.level == level}
        return tuple(kind for kind in FAULTS if kind in found)

    @property
    def not_checked(self) -> Strings:
        """What could not be looked at, and why."""
        return tuple(each.text for each in self.findings if each.kind == "not-checked")

    @property
    def broken(self) -> tuple[Fault, ...]:
        return self.kinds("alarm")

    @property
    def is_sound(self) -> bool:
        """Whether there are no findings, and so no alarms, whatever was not looked at."""
        return not self.broken and not self.kinds("finding")

    @property
    def verdict(self) -> Verdict:
        """The word of the last line: "No fault found" if transformers should have been asked."""
        if self.broken:
            return "Broken"
        if not self.is_sound:
            return "Not sound"
        return "No fault found" if self.loading.not_asked else "Sound"

    @property
    def failing(self) -> tuple[Finding, ...]:
        """The findings that give status 1, as `fail_on` says."""
        return tuple(each for each in self.findings if fails(each, self.fail_on))

    @property
    def _why_no(self) -> str:
        return kinds_in_words(self.failing)

    def _records(self) -> Records:
        """Return a row for each finding; what holds for the whole model stands beside them."""
        run = run_of(self.files.encoding, **self.origin.document())
        findings = [finding.document() for finding in self.findings]
        types = {
            "level": str,
            "kind": str,
            "rows": int,
            "layer": str,
            "ids": list[int],
            "text": str,
        }
        columns = {}
        for name, field_type in types.items():
            columns[name] = (field_type, [finding[name] for finding in findings])
        return replace(listed(run, "findings", **columns), more={"audit": self._totals()})

    def _totals(self) -> Document:
        return {
            "tokens": self.files.tokens,
            "faults": self.faults,
            "broken": list(self.broken),
            "verdict": self.verdict,
            "sound": self.verdict == "Sound",
            "not_checked": list(self.not_checked),
            "transformers": self.loading.facts.transformers if self.loading.facts else None,
            "not_asked": self.loading.not_asked or None,
            "matrices": {matrix.name: _totals_of(matrix) for matrix in self.matrices},
        }


def _totals_of(matrix: MatrixAudit) -> Document:
    separation = matrix.separation
    return {
        "shape": list(matrix.shape),
        "unused": {reason: len(rows) for reason, rows in matrix.by_use.items()},
        "equal": [list(group) for group in matrix.scan.equal],
        "rows": len(matrix.measured),
        "quantiles": matrix.quantiles,
        "quantiles_at": list(QUANTILES_AT),
        "indicator": separation.indicator,
        "area": separation.area,
        "threshold": separation.threshold,
        "reason": separation.reason or None,
        "candidates": matrix.candidates.tolist(),
    }


def audit(
    model: Opened,
    *,
    layer: TokenLayer | None = None,
    fail_on: Iterable[Fault | FaultGroup] | None = None,
    top: int = SHOWN_ROWS,
) -> Audit:
    """Return what is wrong with a model: in the rows of its matrices, and between its files.

    `result.findings` has all that was found, each with its level: alarm, finding or remark;
    `result.broken` has the kinds of the alarms. `result.verdict` is "Sound", "No fault found" (but
    transformers was not asked), "Not sound" or "Broken". `result.status` is 1 for what `fail_on`
    names: kinds, whatever the level, or `"findings"` (the default: findings and alarms),
    `"alarms"`, `"all"` or `"none"`; `result.failing` has these findings. `layer` names the only
    matrix whose rows are audited, the token matrix or the output head. The page shows `top` rows of
    each kind.

    >>> import embcli
    >>> embcli.seeded(vocab=6, dim=3).audit().broken
    ()
    """
    check_choice("layer", layer, get_args(TokenLayer))
    whole_number("top", top, 1)
    failing = checked_kinds(fail_on)
    notes = model.notes.begun()
    if layer != "head":
        remark_scaled(notes, model)

    # What the files say is checked before a matrix is read.
    source = model.source
    files = files_of(source)
    found_first = [*found_in_files(files)]
    names: tuple[TokenLayer, ...] = ("token",)
    if layer is not None:
        names = (layer,)
    elif files.head is not None and files.head.is_own:
        names = ("token", "head")
    shape_of(source, names[0])  # raises InputError for a model without a head
    layers = source.open(dict.fromkeys(names), notes)
    matrices = [audited_matrix(name, layers[name], files, notes.watch) for name in names]
    is_copy = files.head is not None and files.head.relation == "equal"
    if len(matrices) == 2:
        token, head = matrices
        is_copy = head.scan.digest == token.scan.digest and head.shape == token.shape
        if is_copy:
            matrices = [token]
    with notes.slow("asking transformers how it loads the model"):
        loading = Loading.of(files.checkpoint, notes)

    findings: list[Finding] = []
    for matrix in matrices:
        findings += found_in_matrix(matrix)
    findings += found_first
    findings += loading.findings(files, is_copy)
    with notes.slow("reading other tensors"):
        findings += check_other_tensors(files, layers.origin, loading.facts)
    findings.sort(key=attrgetter("level"))
    return Audit(
        matrices=tuple(matrices),
        files=files,
        origin=layers.origin,
        loading=loading,
        head_is_copy=is_copy and layer is None,
        findings=tuple(findings),
        fail_on=failing,
        top=top,
        notes=notes,
    )


def audit_adapter(path: str, fail_on: Iterable[str] | None = None) -> Audit:
    """Return what is wrong with an adapter of PEFT whose file has no token matrix.

    `path` and `fail_on` are as in `open` and `audit`. Raises InputError for a damaged file.
    """
    notes = Notes()
    tensors = open_named(path, notes)
    files = ModelFiles(0, tokenizer_beside(tensors.binary, None, notes), tensors=tensors)
    origin = Origin(path=path, unopened=frozenset(tensors), is_remote=tensors.binary.is_remote)
    loading = Loading(not_asked="the file is an adapter")
    findings = [
        *check_other_tensors(files, origin, None),
        *check_adapter(None, files),
        *loading.findings(files, False),
    ]
    findings.sort(key=attrgetter("level"))
    return Audit(
        (), files, origin, loading, False, tuple(findings), checked_kinds(fail_on), notes=notes
    )
