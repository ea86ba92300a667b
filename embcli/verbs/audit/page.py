"""The page of an audit: a line for each fact, a table of candidates, and a verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from rich.table import Table
from rich.text import Text

from embcli.formats import or_list
from embcli.names import BROKEN, Unused
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
from embcli.wording import QUANTILES, counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from embcli.verbs.audit import Audit


class Fact(NamedTuple):
    """A line of the page."""

    name: str
    text: str
    is_bad: bool = False  # whether no model can use such a matrix


def page(audit: Audit) -> Iterator[RenderableType]:
    rows, columns = audit.shape
    sizes = f"V = {counted(rows, 'row')}, D = {counted(columns, 'column')}"
    origin = origin_in_words(audit.origin, "token")
    yield title(f"Audit of a token matrix, {sizes}: {origin}, {audit.dtype}")

    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    for fact in _facts(audit):
        table.add_row(f"{fact.name:12}", safe_text(fact.text, "bad" if fact.is_bad else ""))
    yield table

    yield from _candidates_table(audit)
    yield from origin_lines(audit.origin)
    yield _verdict(audit)


def _facts(audit: Audit) -> Iterator[Fact]:
    yield _rows_fact(audit)
    yield _unused_fact(audit)
    yield _broken_fact(audit)
    yield _equal_fact(audit)
    yield from _norm_facts(audit)
    head = audit.output
    if head is not None:
        yield Fact("output head", head_in_words(head.relation, head.rows, head.reason))
    yield _candidates_fact(audit)


def _rows_fact(audit: Audit) -> Fact:
    size = audit.shape[0]
    encoding = audit.encoding
    if encoding is None:
        return Fact("rows", f"{size:,}; their tokens are unknown")
    text = f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}"
    missing = audit.faults["missing"]
    if missing:
        text += f": {missing:,} have no row"
    return Fact("rows", text, is_bad=missing > 0)


def _unused_fact(audit: Audit) -> Fact:
    if audit.encoding is None:
        return Fact("unused", "unknown without an encoding")
    parts = [_unused_in_words(reason, ids) for reason, ids in audit.by_use.items()]
    return Fact("unused", ", ".join(parts) or "none")


_REASONS: dict[Unused, str] = {
    "padding": "after the last token",
    "gap": "IDs without a token",
    "byte": "bytes that UTF-8 never uses",
    "reserved": "reserved names",
}


def _unused_in_words(reason: Unused, ids: np.ndarray) -> str:
    text = f"{len(ids):,} {_REASONS[reason]}"
    is_range = ids[-1] - ids[0] == len(ids) - 1
    if len(ids) > 1 and is_range:
        text += f" ({ids[0]} to {ids[-1]})"
    return text


def _broken_fact(audit: Audit) -> Fact:
    parts = []
    for kind, ids in (("non-finite row", audit.non_finite), ("zero row", audit.zero)):
        if len(ids):
            shown = ids[: audit.top + 1]  # one more tells first_of that there are others
            rows = first_of(named_rows(shown, audit.tokens(shown)), audit.top)
            parts.append(f"{counted(len(ids), kind)}: {rows}")
    text = "; ".join(parts) or "none"
    padding = audit.padding
    if padding is not None and audit.norms[padding] == 0:
        text += f"; row {padding} is zero, and padding by config.json"
    return Fact("broken", text, is_bad=len(parts) > 0)


def _equal_fact(audit: Audit) -> Fact:
    if not audit.equal:
        return Fact("equal", "none")
    groups = []
    for group in audit.equal[: audit.top + 1]:
        rows = (str(row) for row in group)
        groups.append(first_of(rows, audit.top, " = "))
    count = counted(len(audit.equal), "group")
    return Fact("equal", f"{count}: {first_of(groups, audit.top, '; ')}")


def _norm_facts(audit: Audit) -> Iterator[Fact]:
    if not len(audit.measured):
        yield Fact("norms", "no token has a finite row")
        return
    numbers = NumberFormat([np.array(audit.quantiles)], audit.style.precision)
    quantiles = dict(zip(QUANTILES, audit.quantiles, strict=True))
    least = numbers.write(quantiles["least"])
    largest = numbers.write(quantiles["largest"])
    median = numbers.write(quantiles["median"])
    yield Fact("norms", f"{least} {_bars(audit.histogram)} {largest}, median {median}")

    by_norm = audit.measured[np.argsort(audit.norms[audit.measured], kind="stable")]
    yield Fact("shortest", _rows_with_norms(audit, by_norm[: audit.top], numbers))
    yield Fact("longest", _rows_with_norms(audit, by_norm[::-1][: audit.top], numbers))


def _bars(histogram: tuple[int, ...]) -> str:
    """Return a bar for each count, in eighths of a line rounded up, so that only 0 has none."""
    blocks = " ▁▂▃▄▅▆▇█"
    highest = max(histogram)
    eighths = [-(-8 * count // highest) for count in histogram]
    return "".join(blocks[height] for height in eighths)


def _rows_with_norms(audit: Audit, ids: np.ndarray, numbers: NumberFormat) -> str:
    names = named_rows(ids, audit.tokens(ids))
    pairs = zip(names, audit.norms[ids], strict=True)
    return ", ".join(f"{name} {numbers.write(norm)}" for name, norm in pairs)


def _candidates_fact(audit: Audit) -> Fact:
    if audit.threshold is None:
        return Fact("candidates", f"none: {audit.reason}")
    count = len(audit.candidates)
    indicator = "norm" if audit.indicator == "norm" else "1 - cos to their mean"
    threshold = _indicator_format(audit).write(audit.threshold)
    return Fact("candidates", f"{count:,} like unused rows by {indicator}: up to {threshold}")


def _candidates_table(audit: Audit) -> Iterator[RenderableType]:
    """Yield a table of the candidates that resemble unused rows most, if there are any."""
    excerpt = Excerpt.first(audit.top, len(audit.candidates))
    ids = audit.candidates[excerpt.places]
    if not len(ids):
        return
    labels = id_labels(ids, audit.tokens(ids))
    headers = {"cosine_distance": "cosine distance"}  # other indicators are headers as they are
    for name, values in _columns(audit).items():
        if name == audit.indicator:
            numbers = _indicator_format(audit)
            cells = [numbers.write(value) for value in values[ids]]
        else:
            cells = written(values[ids], audit.style.precision)
        labels.append(Label(headers.get(name, name), cells))
    yield ruled(labels)

    ranks = np.arange(1, excerpt.total + 1)
    missing = left_out(omission(excerpt, "candidate", ranks), parameters=("top",))
    if missing is not None:
        yield missing


def _columns(audit: Audit) -> dict[str, np.ndarray]:
    """Return what the table shows of the candidates, for all rows: name -> (V,) float64."""
    if audit.indicator == "norm":
        return {"norm": audit.norms, **audit.indicators}
    return audit.indicators


def _indicator_format(audit: Audit) -> NumberFormat:
    """Return the format that the threshold and the indicators in the table have in common."""
    shown = audit.candidates[: audit.top]
    values = _columns(audit)[audit.indicator][shown]
    return NumberFormat([np.array([audit.threshold, *values])], audit.style.precision)


def _verdict(audit: Audit) -> Text:
    if audit.broken:
        return safe_text(f"Broken: {audit.why_no}", "bad")
    checks_all = set(BROKEN) <= set(audit.fail_on)
    text = f"{'Sound' if checks_all else 'Passed'}: no row is {or_list(audit.fail_on)}"
    unopened = audit.origin.unopened
    if not unopened:
        return Note(text, style="good")
    text += f"; {counted(unopened, 'other tensor')} not checked"
    return Note(text, "tensor", "encoding", style="good")
