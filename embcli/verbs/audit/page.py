"""The page of an audit: a line for each fact, a table of candidates, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from embcli.names import ALARMS
from embcli.page import (
    Label,
    Note,
    NumberFormat,
    left_out,
    omission,
    ruled,
    safe_text,
    title,
    written,
)
from embcli.page.labels import (
    first_of,
    head_in_words,
    id_labels,
    named_rows,
    origin_in_words,
    origin_lines,
)
from embcli.selection import Excerpt
from embcli.verbs.audit.fit import padded_in_words
from embcli.wording import QUANTILES, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.verbs.audit import Audit, MatrixAudit


class Fact(NamedTuple):
    """A line of the page."""

    name: str
    text: str
    is_bad: bool = False  # whether no model can use such a matrix


def page(audit: Audit) -> Iterator[RenderableType]:
    main = audit.main
    rows, columns = main.shape
    sizes = f"V = {counted(rows, 'row')}, D = {counted(columns, 'column')}"
    origin = origin_in_words(audit.origin, main.name)
    article = "an" if main.name == "head" else "a"
    yield title(f"Audit of {article} {main.in_words}, {sizes}: {origin}, {main.dtype}")

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for fact in _facts(audit):
        table.add_row(f"{fact.name:12}", safe_text(fact.text, "bad" if fact.is_bad else ""))
    yield table

    matrix = audit.listed
    candidates = Excerpt.first(audit.top, len(matrix.candidates))
    if candidates.total:
        yield _candidates_table(audit, candidates)
    ranks = np.arange(1, candidates.total + 1)
    missing = left_out(omission(candidates, "candidate", ranks), parameters=("top",))
    if missing is not None:
        yield missing
    yield from origin_lines(audit.origin)
    yield _verdict(audit)


def _facts(audit: Audit) -> Iterator[Fact]:
    yield _rows_fact(audit)
    yield _unused_fact(audit)
    yield _broken_fact(audit, audit.main)
    yield _equal_fact(audit, audit.main)
    yield from _norm_facts(audit)
    yield from _head_facts(audit)
    yield _candidates_fact(audit)
    yield from _fit_facts(audit)


def _rows_fact(audit: Audit) -> Fact:
    size = audit.main.shape[0]
    encoding = audit.files.encoding
    if encoding is None:
        return Fact("rows", f"{size:,}; their tokens are unknown")
    return Fact("rows", f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}")


def _unused_fact(audit: Audit) -> Fact:
    encoding = audit.files.encoding
    if encoding is None:
        return Fact("unused", "unknown without an encoding")
    counts = []
    for reason, ids in audit.main.by_use.items():
        count = counted(len(ids), _UNUSED_UNITS[reason]) + _WHY_UNUSED[reason]
        is_range = ids[-1] - ids[0] == len(ids) - 1
        if len(ids) > 1 and is_range:
            count += f" ({ids[0]} to {ids[-1]})"
        counts.append(count)
    text = ", ".join(counts) or "none"
    if "padding" in audit.main.by_use:
        text += padded_in_words(audit.main.shape[0], encoding.vocabulary_size)
    return Fact("unused", text)


_UNUSED_UNITS = {"padding": "row", "gap": "ID", "byte": "byte", "reserved": "reserved name"}
_WHY_UNUSED = {
    "padding": " after the last token",
    "gap": " without a token",
    "byte": " invalid in UTF-8",
    "reserved": "",
}


def _broken_fact(audit: Audit, matrix: MatrixAudit, name: str = "broken") -> Fact:
    parts = []
    for kind, ids in matrix.broken.items():
        if len(ids):
            shown = ids[: audit.top + 1]  # one more tells first_of that there are others
            rows = first_of(named_rows(shown, audit.tokens(shown)), audit.top)
            parts.append(f"{counted(len(ids), f'{kind} row')}: {rows}")
    text = "; ".join(parts) or "none"
    for row in sorted({*matrix.files.padding_rows}):
        if 0 <= row < matrix.shape[0] and matrix.norms[row] == 0:
            text += f"; row {row} is zero, and padding by the configuration"
    return Fact(name, text, is_bad=len(parts) > 0)


def _equal_fact(audit: Audit, matrix: MatrixAudit) -> Fact:
    if not matrix.equal:
        return Fact("equal", "none")
    groups = []
    for group in matrix.equal[: audit.top + 1]:
        rows = (str(row) for row in group)
        groups.append(first_of(rows, audit.top, " = "))
    count = counted(sum(map(len, matrix.equal)), "row")
    return Fact("equal", f"{count}: {first_of(groups, audit.top, '; ')}")


def _norm_facts(audit: Audit) -> Iterator[Fact]:
    main = audit.main
    if not len(main.measured):
        yield Fact("norms", "no token has a finite row")
        return
    numbers = NumberFormat([np.array(main.quantiles)], audit.style.precision)
    yield Fact("norms", _norms_in_words(main, numbers))

    by_norm = main.measured[np.argsort(main.norms[main.measured], kind="stable")]
    yield Fact("shortest", _rows_with_norms(audit, by_norm[: audit.top], numbers))
    yield Fact("longest", _rows_with_norms(audit, by_norm[::-1][: audit.top], numbers))


def _norms_in_words(matrix: MatrixAudit, numbers: NumberFormat) -> str:
    quantiles = dict(zip(QUANTILES, matrix.quantiles, strict=True))
    least = numbers.write(quantiles["least"])
    largest = numbers.write(quantiles["largest"])
    median = numbers.write(quantiles["median"])
    return f"{least} {_bars(matrix.histogram)} {largest}, median {median}"


def _bars(histogram: tuple[int, ...]) -> str:
    """Return a bar for each count, in eighths of a line rounded up, so that only 0 has none."""
    blocks = " ▁▂▃▄▅▆▇█"
    highest = max(histogram)
    eighths = [-(-8 * count // highest) for count in histogram]
    return "".join(blocks[height] for height in eighths)


def _rows_with_norms(audit: Audit, ids: np.ndarray, numbers: NumberFormat) -> str:
    names = named_rows(ids, audit.tokens(ids))
    pairs = zip(names, audit.main.norms[ids], strict=True)
    return ", ".join(f"{name} {numbers.write(norm)}" for name, norm in pairs)


def _head_facts(audit: Audit) -> Iterator[Fact]:
    """Yield what is known of the output head: its rows, if it has some of its own."""
    if audit.head_is_copy:
        yield Fact("output head", "a copy of the token matrix: all rows are equal")
        return
    if audit.files.checkpoint:
        yield Fact("output head", _head_in_words(audit))
    for head in audit.matrices[1:]:
        yield _broken_fact(audit, head, "  broken")
        yield _equal_fact(audit, head)._replace(name="  equal")
        if len(head.measured):
            numbers = NumberFormat([np.array(head.quantiles)], audit.style.precision)
            yield Fact("  norms", _norms_in_words(head, numbers))


def _head_in_words(audit: Audit) -> str:
    """Describe the output head by what the file has and, without one there, by its class."""
    head = audit.files.head
    if head is None:
        return "not read"
    if head.tensor is not None and head.relation != "same":
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
    threshold = _indicator_format(audit).write(separation.threshold)
    area = f"area under curve {separation.area:.2f}"
    return Fact("candidates", f"{count:,}{where}: {indicator} up to {threshold}, {area}")


_INDICATORS = {
    "norm": "norm",
    "cosine_distance": "cosine distance",
    "centred": "centred cosine distance",
    "without_first": "cosine distance without the first component",
}


def _candidates_table(audit: Audit, excerpt: Excerpt) -> Table:
    """Return a table of the candidates that resemble unused rows most."""
    matrix = audit.listed
    ids = matrix.ranked[excerpt.places]
    labels = id_labels(ids, audit.tokens(ids))
    headers = {"cosine_distance": "cosine distance"}  # other indicators are headers as they are
    for name, values in matrix.values.items():
        if name == matrix.separation.indicator:
            numbers = _indicator_format(audit)
            cells = [numbers.write(value) for value in values[ids]]
        else:
            cells = written(values[ids], audit.style.precision)
        labels.append(Label(headers.get(name, name), cells))
    return ruled(labels)


def _indicator_format(audit: Audit) -> NumberFormat:
    """Return the format that the threshold and the indicators in the table have in common."""
    matrix = audit.listed
    shown = matrix.ranked[: audit.top]
    values = matrix.values[matrix.separation.indicator][shown]
    threshold = np.array([matrix.separation.threshold])
    return NumberFormat([threshold, values], audit.style.precision)


def _fit_facts(audit: Audit) -> Iterator[Fact]:
    """Yield what does not fit together between the files of the model."""
    for finding in audit.findings:
        if not finding.is_in_matrix:
            yield Fact(finding.kind, finding.text, is_bad=finding.level == "alarm")


def _verdict(audit: Audit) -> Text:
    if audit.broken:
        # Other kinds are alarms only if the user names them.
        word = "Broken" if {*audit.broken} & {*ALARMS, "load"} else "Alarm"
        return safe_text(f"{word}: {audit._why_no}", "bad")
    if audit.kinds("finding"):
        return safe_text(f"Not sound: {audit.in_words('finding')}", "bad")

    names = [f"the {matrix.in_words}" for matrix in audit.matrices]
    if audit.head_is_copy:
        names.append("the output head")
    text = (
        f"Sound: the rows of {' and of '.join(names)}{audit.files.checked}{audit.loading.in_words}"
    )
    if not audit.not_checked:
        return Note(text, style="good")
    unchecked = "; ".join(audit.not_checked)
    return Note(f"{text}; not checked: {unchecked}", "tensor", "encoding", style="good")
