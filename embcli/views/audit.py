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
    """Put broken, unused and unusual rows on a page, statistics of all rows, and the verdict."""
    size, dim = result.shape
    origin = origin_in_words(result.origin, "token")
    sizes = f"V = {counted(size, 'row')}, D = {counted(dim, 'column')}"
    page.title(f"Audit of a token matrix, {sizes}: {origin}, {result.dtype}")
    for name, words in (_rows_in_words(result) | _statistics(result, page)).items():
        page.line(f"{name:12}  ", words if isinstance(words, Word) else Word(words))
    _put_candidates(result, page)
    page.line(Word(f"What these words mean: {hint('meaning', word=result.verb)}", "dim"))
    put_origin(page, result.origin)
    if result.broken:
        page.line(Word(f"Broken: {result.why_no}", "bad"))
        return
    sound = "Sound" if {*BROKEN} <= {*result.fail_on} else "Passed"  # other faults were not checked
    outliers = f"; {counted(len(result.outliers), 'row')} of unusual norm" if len(result.outliers) else ""
    *first, last = result.fail_on
    faults = f"{', '.join(first)} or {last}" if first else last
    page.line(Word(f"{sound}: no row is {faults}{outliers}", "good"))


def _rows_in_words(result: Audit) -> dict[str, str | Word]:
    """Return the numbers of rows, and broken, unused and equal rows, in words."""
    size, encoding, top, missing = result.shape[0], result.encoding, result.top, result.faults["missing"]
    bad = {"non-finite": result.non_finite, "zero": result.zero}
    broken = "; ".join(_named(rows, top, f"{kind} row") for kind, rows in bad.items() if len(rows))
    rows: str | Word = f"{size:,}; their tokens are unknown"
    unused = "unknown without an encoding"
    if encoding is not None:
        rows = f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}"
        rows = Word(f"{rows}: {missing:,} have no row", "bad") if missing else rows
        unused = ", ".join(f"{len(ids):,} {_WHY[why]}{_range(ids)}" for why, ids in result.by_use.items()) or "none"
    equal = first_of((first_of(map(str, group), top, " = ") for group in result.equal), top, "; ")
    return {
        "rows": rows,
        "unused": unused,
        "broken": Word(broken, "bad") if broken else "none",
        "equal": f"{counted(len(result.equal), 'group')}: {equal}" if equal else "none",
    }


def _range(rows: np.ndarray) -> str:
    """Return the first and last of consecutive rows in words; empty for other rows."""
    return f" ({rows[0]} to {rows[-1]})" if len(rows) > 1 and (np.diff(rows) == 1).all() else ""


def _named(rows: np.ndarray, top: int, what: str = "row") -> str:
    return f"{counted(len(rows), what)}: {first_of(map(str, rows.tolist()), top)}"


def _statistics(result: Audit, page: Page) -> dict[str, str | Word]:
    """Return statistics of the norms and directions of the rows, and rows that stand out, in words."""
    statistics, head = result.statistics, result.head
    words: dict[str, str | Word] = {}
    if statistics.rows:
        words |= _norms(result, page)
        mean, centred = _number(statistics.mean_cosine), _number(statistics.centred_mean_cosine)
        words["directions"] = f"mean cosine {mean}, centred {centred}; IsoScore {_number(statistics.iso_score)}"
    else:
        words["norms"] = "no token has a finite row"
    if statistics.norm_by_merge is not None:
        words["Spearman"] = f"norm against merge order {statistics.norm_by_merge:.4f}"
    if (output := result.undertrained.output) is not None:
        words["output head"] = head_in_words(output.relation, output.rows, output.reason)
    if head is not None:
        sample = "" if head.rows == head.used else f" (of {head.used:,}, evenly sampled)"
        words["own logits"] = f"the largest for {head.wins:,} of {head.rows:,} rows times {head.tensor}{sample}"
    return words


def _norms(result: Audit, page: Page) -> dict[str, str | Word]:
    """Return how the norms are distributed, and which are the least and the largest, in words."""
    quantiles = dict(zip(QUANTILES, result.statistics.quantiles, strict=True))
    write = page.numbers(np.array([*quantiles.values()])).write
    least, median, largest = (write(quantiles[name]) for name in ("least", "median", "largest"))
    rows = np.flatnonzero(result.measured)
    rows = rows[np.argsort(result.norms[rows], kind="stable")]
    words: dict[str, str | Word] = {}
    if result.fences is not None:
        low, high = map(write, result.fences)
        named = _named(result.outliers, result.top) if len(result.outliers) else "none"
        words["outliers"] = f"{named} (norm < {low} or > {high})"
    words["norms"] = f"{least} {_bars(result.statistics.histogram)} {largest}, median {median}"
    for name, ids in (("shortest", rows[: result.top]), ("longest", rows[::-1][: result.top])):
        norms = map(write, result.norms[ids])
        words[name] = ", ".join(map(" ".join, zip(named_rows(ids, result.tokens(ids)), norms, strict=True)))
    return words


def _bars(counts: tuple[int, ...]) -> str:
    """Return a histogram as bars; one row has the smallest bar, and no row has none.

    >>> _bars((0, 1, 8, 4))
    ' ▁█▄'
    """
    most = max(counts)
    return "".join(_BARS[-(-len(_BARS) * count // most) - 1] if count else " " for count in counts)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{round(value, 4) + 0:.4f}"  # no -0.0000


def _put_candidates(result: Audit, page: Page) -> None:
    """Put the tokens that resemble unused ones most on a page, with the indicators."""
    tokens = result.undertrained
    if tokens.threshold is None:
        page.line(f"candidates    none: {tokens.reason}")
        return
    excerpt = Excerpt.first(result.top, len(tokens.candidates))
    ids = tokens.candidates[excerpt.places]
    write = page.numbers(np.array([tokens.threshold, *result.indicator[ids]])).write
    by = {"cosine": "1 - cos to their mean", "norm": "norm"}[tokens.indicator]
    page.line(f"candidates    {excerpt.total:,} like unused rows by {by}: up to {write(tokens.threshold)}")
    if len(ids):
        columns = id_labels(ids, result.tokens(ids) if result.encoding else None)
        columns.append(Column(tokens.indicator, [write(value) for value in result.indicator[ids]]))
        page.table([*columns, *_others(result, ids, page)])
        missing = excerpt.missing("candidate", np.arange(1, excerpt.total + 1))
        put_left_out(page, missing, how=hint("top", count=excerpt.total))


def _others(result: Audit, ids: np.ndarray, page: Page) -> list[Column]:
    """Return the other indicators of rows, (n,) int64, as columns."""
    if result.indicators is None:
        return []
    names = [name for name in vars(result.indicators) if name != result.undertrained.indicator]
    values = {name: vars(result.indicators)[name][ids] for name in names}
    write = page.numbers(*values.values()).write
    return [Column(name, [write(value) for value in each]) for name, each in values.items()]
