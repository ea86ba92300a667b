"""What an audit says of a model: its findings, and what it could not look at.

A check yields both. `judged` makes alarms of the findings that a user wants to fail on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

from embcli.errors import InputError, check_choice
from embcli.names import ALARMS, FAULT_GROUPS, FAULTS, Fault, TokenLayer
from embcli.wording import Sentence

Level = Literal["remark", "finding", "alarm"]
_MOST_IDS = 1000  # of a finding, as data


class Finding(NamedTuple):
    """Something that the audit says of a model.

    A remark changes no verdict, a finding takes the word "Sound" away, and an alarm gives status 1.
    """

    level: Level
    kind: Fault
    rows: int  # how many rows, columns or IDs it is about
    text: str
    is_in_matrix: bool = False  # whether the page says it among the facts about a matrix
    layer: TokenLayer | None = None  # the matrix that the rows are of
    ids: tuple[int, ...] = ()  # the rows

    def document(self) -> dict[str, Any]:
        document = self._asdict()
        del document["is_in_matrix"]
        document["ids"] = [*self.ids[:_MOST_IDS]]
        return document

    @property
    def is_fault(self) -> bool:
        """Whether it counts among the faults; a remark does only if it is about rows."""
        return self.level != "remark" or self.is_in_matrix


class NotChecked(NamedTuple):
    """Something that an audit could not look at, and why."""

    text: str


Found = Iterator[Finding | NotChecked]  # what a check yields


def first_names(names: Sequence[str], most: int) -> str:
    """Return the first names for a sentence, with dots for the others."""
    others = ", ..." if len(names) > most else ""
    return ", ".join(names[:most]) + others


def rows_in_words(ids: Sequence[int]) -> str:
    """Return rows by their IDs, in order: a range, or the first of them.

    >>> rows_in_words([3, 4, 5]), rows_in_words([7])
    ('rows 3 to 5', 'row 7')
    """
    if len(ids) == 1:
        return f"row {ids[0]}"
    if ids[-1] - ids[0] == len(ids) - 1:
        return f"rows {ids[0]} to {ids[-1]}"
    return f"rows {first_names([str(row) for row in ids[:9]], 8)}"


def checked_kinds(fail_on: Iterable[str] | None) -> tuple[str, ...]:
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


def judged(finding: Finding, fail_on: tuple[str, ...]) -> Finding:
    """Return a finding as an alarm if its kind is one; a remark is one only if it is named."""
    names = {finding.kind, "all"}
    if finding.level != "remark":
        names.add("findings")
    if finding.level == "alarm" or (finding.level == "finding" and finding.kind in ALARMS):
        names.add("default")
    if not names.isdisjoint(fail_on):
        return finding._replace(level="alarm")
    if finding.level == "alarm":
        return finding._replace(level="finding")
    return finding
