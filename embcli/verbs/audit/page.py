"""The page of an audit: a line for each fact, a table of candidates, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from embcli.names import Strings
from embcli.page import (
    Answer,
    Label,
    left_out,
    omission,
    ruled,
    safe_text,
    title,
    written,
)
from embcli.page.labels import (
    first_rows,
    head_in_words,
    id_labels,
    origin_in_words,
    origin_lines,
)
from embcli.selection import Excerpt
from embcli.verbs.audit import Audit, MatrixAudit
from embcli.verbs.audit.finding import kinds_in_words
from embcli.wording import QUANTILES, counted


class Fact(NamedTuple):
    """A line of the page."""

    name: str
    text: str
    is_bad: bool = False  # whether no model can use such a matrix


def page(audit: Audit, console: Console, options: ConsoleOptions) -> RenderResult:
    if audit.matrices:
        main = audit.main
        rows, columns = main.shape
        sizes = f"V = {counted(rows, 'row')}, D = {counted(columns, 'column')}"
        origin = origin_in_words(audit.origin, main.name)
        article = "an" if main.name == "head" else "a"
        yield title(f"Audit of {article} {main.in_words}, {sizes}: {origin}, {main.dtype}")
    else:
        yield title(f"Audit of an adapter: {audit.origin.name}")

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for fact in _facts(audit):
        table.add_row(f"{fact.name:12}", safe_text(fact.text, "bad" if fact.is_bad else ""))
    yield table

    if audit.matrices:
        matrix = audit.listed
        candidates = Excerpt.first(audit.top, len(matrix.candidates))
        if candidates.total:
            ids = matrix.candidates[candidates.places]
            labels = id_labels(ids, audit.files.encoding)
            for name, values in matrix.values.items():
                cells = written(values[ids], audit.style.precision)
                labels.append(Label(name.replace("_", " "), cells))
            yield ruled(labels)
        yield from left_out(omission(candidates, "candidate", first=1), parameters=("top",))
    yield from origin_lines(audit.origin)
    yield _verdict(audit)


def _facts(audit: Audit) -> Iterator[Fact]:
    if audit.matrices:
        yield _rows_fact(audit)
        yield _unused_fact(audit)
        yield _norms_fact(audit, audit.main)
        yield from _head_facts(audit)
        yield _candidates_fact(audit)
    for finding in audit.findings:
        if finding.kind in ("padding", "candidates", "not-asked", "not-checked"):
            continue  # Other lines say that.
        text = finding.text
        if finding.ids and finding.kind in ("zero", "non-finite", "head"):
            text += f": {first_rows(finding.ids, audit.files.encoding, audit.top)}"
        yield Fact(finding.kind, text, is_bad=finding.level == "alarm")


def _rows_fact(audit: Audit) -> Fact:
    size = audit.main.shape[0]
    encoding = audit.files.encoding
    if encoding is None:
        return Fact("rows", f"{size:,}; their tokens are unknown")
    ids = counted(encoding.vocabulary_size, "ID")
    return Fact("rows", f"{size:,}, for {ids} of {encoding.name}")


def _unused_fact(audit: Audit) -> Fact:
    if audit.files.encoding is None:
        return Fact("unused", "unknown without an encoding")
    counts = []
    for reason, ids in audit.main.by_use.items():
        count = counted(len(ids), _UNUSED_UNITS[reason]) + _WHY_UNUSED[reason]
        is_range = ids[-1] - ids[0] == len(ids) - 1
        if len(ids) > 1 and is_range:
            count += f" ({ids[0]} to {ids[-1]})"
        counts.append(count)
    return Fact("unused", ", ".join(counts) or "none")


_UNUSED_UNITS = {"padding": "row", "gap": "ID", "byte": "byte", "reserved": "reserved name"}
_WHY_UNUSED = {
    "padding": " after the last token",
    "gap": " without a token",
    "byte": " invalid in UTF-8",
    "reserved": "",
}


def _norms_fact(audit: Audit, matrix: MatrixAudit) -> Fact:
    if not matrix.quantiles:
        return Fact("norms", "no token has a finite row")
    numbers = written(np.array(matrix.quantiles), audit.style.precision)
    norms = dict(zip(QUANTILES, numbers, strict=True))
    return Fact("norms", f"{norms['least']} to {norms['largest']}, median {norms['median']}")


def _head_facts(audit: Audit) -> Iterator[Fact]:
    """Yield what is known of the output head: its rows, if it has some of its own."""
    if audit.head_is_copy:
        yield Fact("output head", "a copy of the token matrix: all rows are equal")
        return
    if audit.files.checkpoint:
        yield Fact("output head", _head_in_words(audit))
    for head in audit.matrices[1:]:
        yield _norms_fact(audit, head)._replace(name="  norms")


def _head_in_words(audit: Audit) -> str:
    """Describe the output head by what the file has and, without one there, by its class."""
    head = audit.files.head
    if head is None:
        return "not read"
    if head.is_own:
        return "a tensor of its own"
    facts = audit.loading.facts
    if head.tensor is not None or (facts is not None and facts.ties_head):
        return "the token matrix itself (tied)"
    if facts is not None and facts.head is None and not facts.failure:
        return f"none: {facts.name} has none"
    return head_in_words(head.relation, head.compared, head.reason)


def _candidates_fact(audit: Audit) -> Fact:
    matrix = audit.listed
    separation = matrix.separation
    if separation.threshold is None:
        return Fact("candidates", f"none: {separation.reason}")
    count = len(matrix.candidates)
    indicator = _INDICATORS[separation.indicator]
    where = "" if matrix is audit.main else f" of the {matrix.in_words}"
    (threshold,) = written(np.array([separation.threshold]), audit.style.precision)
    area = f"AUC {separation.area:.2f}"
    return Fact(
        "candidates", f"{count:,}{where} (no faults): {indicator} up to {threshold}, {area}"
    )


_INDICATORS = {
    "norm": "norm",
    "cosine_distance": "cosine distance",
    "centred": "centred cosine distance",
}


def _verdict(audit: Audit) -> Answer:
    verdict = audit.verdict
    if not audit.is_sound:
        level = "alarm" if audit.broken else "finding"
        kinds = kinds_in_words(each for each in audit.findings if each.level == level)
        return Answer(f"{verdict}: {kinds}", style="bad")

    why_no = f"; status 1: {audit._why_no}" if audit._why_no else ""
    names = [f"the {matrix.in_words}" for matrix in audit.matrices]
    if audit.head_is_copy:
        names.append("the output head")
    start = "Sound:" if verdict == "Sound" else f"{verdict} in"
    checked = "the tensors of the adapter"
    if names:
        checked = f"the rows of {' and of '.join(names)}{audit.files.checked}"
    text = f"{start} {checked}{audit.loading.in_words}"
    parameters: Strings = ()
    if audit.not_checked:
        text += f"; not checked: {'; '.join(audit.not_checked)}"
        parameters = ("tensor", "encoding")
    if audit.loading.not_asked and not audit.failing:
        parameters = ("fail_on",)
    return Answer(f"{text}{why_no}", *parameters, style="good")
