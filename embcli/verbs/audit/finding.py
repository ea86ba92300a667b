"""What an audit says of a model: its findings, of which some say what it could not look at.

A check yields them, and decides the level of each. Which of them give status 1 is the user's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

import numpy as np

from embcli.errors import InputError, check_choices
from embcli.names import FAULT_GROUPS, FAULTS, Fault, Strings, TokenLayer
from embcli.records import Document
from embcli.wording import counted, first_of, in_data

Level = Literal["alarm", "finding", "remark"]  # the worst first, as the alphabet has it
Verdict = Literal["Sound", "No fault found", "Not sound", "Broken"]
# By the level of a finding, the groups that give status 1 for it, whatever its kind.
_GROUPS = {
    "remark": ("all",),
    "finding": ("all", "findings"),
    "alarm": ("all", "findings", "alarms"),
}
_MOST_IDS = 1000  # of a finding, as data


class Finding(NamedTuple):
    """Something that the audit says of a model.

    With an alarm a model is broken, or it does not load; a finding takes the word "Sound" away, and
    a remark changes no verdict.
    """

    level: Level
    kind: Fault
    text: str
    rows: int = 1  # how many rows, columns or IDs it is about
    layer: TokenLayer | None = None  # the matrix that the rows are of
    ids: tuple[int, ...] = ()  # the rows

    def document(self) -> Document:
        return self._asdict() | {"ids": [*self.ids[:_MOST_IDS]]}


Found = Iterator[Finding]  # what a check yields


def not_checked(text: str) -> Finding:
    """Return the remark on something that an audit could not look at, and why."""
    return Finding("remark", "not-checked", text)


def of_rows(
    level: Level, kind: Fault, rows: np.ndarray, text: str, layer: TokenLayer | None = None
) -> Found:
    """Yield what an audit says of rows, (n,) int64; nothing of none."""
    ids = tuple(rows.tolist())
    if ids:
        yield Finding(level, kind, text, len(ids), layer, ids)


def of_names(level: Level, kind: Fault, names: Sequence[str], text: str) -> Found:
    """Yield what an audit says of names, the first of which end the text; nothing of none."""
    if names:
        yield Finding(level, kind, in_data(f"{text} {first_of(names, 3)}"), len(names))


def of_tensors(
    level: Level, kind: Fault, names: Sequence[str], problem: str, noun: str = "other tensor"
) -> Found:
    """Yield what an audit says of the tensors of these names; nothing of none."""
    return of_names(level, kind, names, f"{counted(len(names), noun)} {problem}:")


def rows_in_words(ids: np.ndarray) -> str:
    """Return rows by their IDs, (n,) int64 in order: a range, or the first of them.

    >>> rows_in_words(np.array([3, 4, 5])), rows_in_words(np.array([7]))
    ('rows 3 to 5', 'row 7')
    """
    if len(ids) == 1:
        return f"row {ids[0]}"
    if ids[-1] - ids[0] == len(ids) - 1:
        return f"rows {ids[0]} to {ids[-1]}"
    return f"rows {first_of(map(str, ids), 8)}"


def checked_kinds(fail_on: Iterable[str] | None) -> Strings:
    """Return the kinds and groups of findings that give status 1.

    Raises InputError for any other name, and for kinds beside `all` or `none`.
    """
    if fail_on is None:
        return ("findings",)
    kinds = check_choices("fail_on", fail_on, (*FAULTS, *FAULT_GROUPS))
    for kind in kinds:
        if kind in ("all", "none") and len(kinds) > 1:
            raise InputError("{fail_on} takes {kind} only by itself", kind=kind)
    return kinds


def fails(finding: Finding, fail_on: Strings) -> bool:
    """Return whether a finding gives status 1: by its kind, or by the group of its level."""
    return not {finding.kind, *_GROUPS[finding.level]}.isdisjoint(fail_on)


def kinds_in_words(findings: Iterable[Finding]) -> str:
    """Return the kinds of findings, with the number of rows of each."""
    counts: Counter[str] = Counter()
    for finding in findings:
        counts[finding.kind] += finding.rows
    return ", ".join(f"{kind} ({counts[kind]:,})" for kind in FAULTS if counts[kind])
