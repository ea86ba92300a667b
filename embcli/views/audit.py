"""How `audit` looks."""

import numpy as np

from embcli.hints import hint
from embcli.names import BROKEN
from embcli.oldpage import Column, Excerpt, Page, Word
from embcli.verbs.audit import Audit
from embcli.views.parts import (
    first_of,
    head_in_words,
    id_labels,
    named_rows,
    origin_in_words,
    put_left_out,
    put_origin,
)
from embcli.words import QUANTILES, counted

_BARS = "▁▂▃▄▅▆▇█"
_WHY = {
    "padding": "after the last token",
    "gap": "IDs without a token",
    "byte": "bytes that UTF-8 never uses",
    "reserved": "reserved names",
}


def view(result: Audit, page: Page) -> None:
    """Put broken, unused and equal rows on a page, norms, candidates, and the verdict."""
    (size, dim), top, encoding = result.shape, result.top, result.encoding
    sizes = f"V = {counted(size, 'row')}, D = {counted(dim, 'column')}"
    page.title(f"Audit of a token matrix, {sizes}: {origin_in_words(result.origin, 'token')}, {result.dtype}")

    unused = "unknown without an encoding"
    rows: str | Word = f"{size:,}; their tokens are unknown"
    if encoding is not None:
        rows = f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}"
        if missing := result.faults["missing"]:
            rows = Word(f"{rows}: {missing:,} have no row", "bad")
        unused = ", ".join(f"{len(ids):,} {_WHY[why]}{_range(ids)}" for why, ids in result.by_use.items()) or "none"
    broken = "; ".join(
        f"{counted(len(ids), f'{kind} row')}: {first_of(map(str, ids.tolist()), top)}"
        for kind, ids in (("non-finite", result.non_finite), ("zero", result.zero))
        if len(ids)
    )
    groups = first_of((first_of(map(str, group), top, " = ") for group in result.equal), top, "; ")
    lines: dict[str, str | Word] = {
        "rows": rows,
        "unused": unused,
        "broken": Word(broken, "bad") if broken else "none",
        "equal": f"{counted(len(result.equal), 'group')}: {groups}" if groups else "none",
        "norms": "no token has a finite row",
    }
    if len(result.measured):
        named = dict(zip(QUANTILES, result.quantiles, strict=True))
        write = page.numbers(np.array([*named.values()])).write
        least, median, largest = (write(named[name]) for name in ("least", "median", "largest"))
        lines["norms"] = f"{least} {_bars(result.histogram)} {largest}, median {median}"
        by_norm = result.measured[np.argsort(result.norms[result.measured], kind="stable")]
        for name, ids in (("shortest", by_norm[:top]), ("longest", by_norm[::-1][:top])):
            norms = map(write, result.norms[ids])
            lines[name] = ", ".join(map(" ".join, zip(named_rows(ids, result.tokens(ids)), norms, strict=True)))
    if (output := result.output) is not None:
        lines["output head"] = head_in_words(output.relation, output.rows, output.reason)
    for name, words in lines.items():
        page.line(f"{name:12}  ", words if isinstance(words, Word) else Word(words))

    _put_candidates(result, page)
    page.line(Word(f"What these words mean: {hint('meaning', word=result.verb)}", "dim"))
    put_origin(page, result.origin)
    if result.broken:
        page.line(Word(f"Broken: {result.why_no}", "bad"))
        return
    sound = "Sound" if {*BROKEN} <= {*result.fail_on} else "Passed"  # other faults were not checked
    *first, last = result.fail_on
    faults = f"{', '.join(first)} or {last}" if first else last
    page.line(Word(f"{sound}: no row is {faults}", "good"))


def _range(rows: np.ndarray) -> str:
    """Return the first and last of consecutive rows in words; empty for other rows."""
    return f" ({rows[0]} to {rows[-1]})" if len(rows) > 1 and (np.diff(rows) == 1).all() else ""


def _bars(counts: tuple[int, ...]) -> str:
    """Return a histogram as bars; one row has the smallest bar, and no row has none.

    >>> _bars((0, 1, 8, 4))
    ' ▁█▄'
    """
    most = max(counts)
    return "".join(_BARS[-(-len(_BARS) * count // most) - 1] if count else " " for count in counts)


def _put_candidates(result: Audit, page: Page) -> None:
    """Put the tokens that resemble unused ones most on a page, with the indicators."""
    if result.threshold is None:
        page.line(f"candidates    none: {result.reason}")
        return
    excerpt = Excerpt.first(result.top, len(result.candidates))
    ids = result.candidates[excerpt.places]
    values = {name: each[ids] for name, each in result.distances.items()}
    first, *others = values.values()
    write = page.numbers(np.array([result.threshold, *first])).write
    by = {"cosine": "1 - cos to their mean", "norm": "norm"}[result.indicator]
    page.line(f"candidates    {excerpt.total:,} like unused rows by {by}: up to {write(result.threshold)}")
    if len(ids):
        columns = id_labels(ids, result.tokens(ids) if result.encoding else None)
        for name, numbers in values.items():
            columns.append(Column(name, [write(value) for value in numbers]))
            write = page.numbers(*others).write if others else write
        page.table([*columns])
        missing = excerpt.missing("candidate", np.arange(1, excerpt.total + 1))
        put_left_out(page, missing, how=hint("top", count=excerpt.total))
