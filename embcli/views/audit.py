"""How `audit` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.hints import hint
from embcli.names import BROKEN
from embcli.page import Block, Column, Excerpt, Word
from embcli.views.parts import head_in_words, origin_in_words, put_left_out, put_origin, token_column
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.audit import Audit, HeadCheck

_BARS = "▁▂▃▄▅▆▇█"
_WHY = {
    "padding": "after the last token",
    "gap": "IDs without a token",
    "byte": "bytes invalid in UTF-8",
    "reserved": "reserved names",
}


def view(result: Audit, page: Page) -> None:
    """Put the verdict on a page, broken and unused rows, statistics of all rows, and rows that stand out."""
    size, dim = result.shape
    origin = origin_in_words(result.origin, "token")
    sizes = f"V = {counted(size, 'row')}, D = {counted(dim, 'column')}"
    page.title(f"Audit of a token matrix, {sizes}: {origin}, {result.dtype}")
    for name, words in _rows_in_words(result).items():
        page.line(f"{name:12}  ", words if isinstance(words, Word) else Word(words))
    page.line()
    _put_statistics(result, page)
    _put_extremes(result, page)
    _put_undertrained(result, page)
    if result.head is not None:
        _put_head(result.head, page)
    page.line(Word(f"What these words mean: {hint('meaning', word=result.verb)}", "dim"))
    put_origin(page, result.origin)
    page.line(_verdict(result))


def _rows_in_words(result: Audit) -> dict[str, str | Word]:
    """Return the numbers of rows, and broken, unused and equal rows, in words."""
    bad, top = {"non-finite": result.non_finite, "all zero": result.zero}, result.top
    return {
        "rows": _rows(result),
        "unused": _unused(result),
        **{name: Word(_named(rows, top), "bad" if len(rows) else "plain") for name, rows in bad.items()},
        "equal": _equal(result.equal, top),
        "outliers": _named(result.outliers, top),
    }


def _rows(result: Audit) -> str | Word:
    size, encoding, missing = result.shape[0], result.encoding, result.faults["missing"]
    if encoding is None:
        return f"{size:,}; their tokens are unknown"
    rows = f"{size:,}, for {encoding.vocabulary_size:,} tokens of {encoding.name}"
    return Word(f"{rows}: {missing:,} have no row", "bad") if missing else rows


def _unused(result: Audit) -> str:
    if result.encoding is None:
        return "unknown without an encoding"
    return ", ".join(f"{len(rows):,} {_WHY[why]}{_span(rows)}" for why, rows in result.by_use.items()) or "none"


def _span(rows: np.ndarray) -> str:
    """Return the first and last of consecutive rows in words; empty for other rows."""
    return f" ({rows[0]} to {rows[-1]})" if len(rows) > 1 and (np.diff(rows) == 1).all() else ""


def _named(rows: np.ndarray, top: int) -> str:
    if not len(rows):
        return "none"
    return f"{counted(len(rows), 'row')}: {_listed(list(map(str, rows[: top + 1].tolist())), ', ', top)}"


def _equal(groups: tuple[tuple[int, ...], ...], top: int) -> str:
    if not groups:
        return "none"
    words = [_listed(list(map(str, group)), " = ", top) for group in groups[: top + 1]]
    return f"{counted(len(groups), 'group')}: {_listed(words, '; ', top)}"


def _listed(words: list[str], between: str, top: int) -> str:
    """Return the first words, and dots if there are more."""
    return between.join([*words[:top], *["..."] * (len(words) > top)])


def _put_statistics(result: Audit, page: Page) -> None:
    """Put statistics of the norms and directions of the rows on a page."""
    statistics = result.statistics
    if not statistics.rows:
        page.line("No token has a finite row.")
        return
    write = page.numbers([Block("", np.array([statistics.quantiles]))]).write
    labels = Column("norms of", [counted(statistics.rows, "row")], "left")
    quantiles = [Column(name, [write(value)]) for name, value in zip(QUANTILES, statistics.quantiles, strict=True)]
    page.table([labels, *quantiles])
    page.line(
        f"from {write(statistics.quantiles[0])} {_bars(statistics.histogram)} to {write(statistics.quantiles[-1])}"
    )
    if result.fences is not None:
        low, high = map(write, result.fences)
        page.line(f"outliers: below {low} or above {high} (Tukey's outer fences of log norms)")
    page.line()
    mean, centred = _number(statistics.mean_cosine), _number(statistics.centred_mean_cosine)
    page.line(f"mean cosine of all pairs {mean}, less the mean row {centred}; 1 for one direction")
    page.line(f"IsoScore {_number(statistics.iso_score)} (Rudman et al. 2022): 1 for equal spread, 0 for one direction")
    if statistics.norm_by_merge is not None:
        page.line(f"norm against merge order {statistics.norm_by_merge:.4f} (Spearman's rank correlation)")


def _bars(counts: tuple[int, ...]) -> str:
    """Return a histogram as bars; one row has the smallest bar, and no row has none.

    >>> _bars((0, 1, 8, 4))
    ' ▁█▄'
    """
    most = max(counts)
    return "".join(_BARS[-(-len(_BARS) * count // most) - 1] if count else " " for count in counts)


def _number(value: float | None) -> str:
    return "none" if value is None else f"{round(value, 4) + 0:.4f}"  # no -0.0000


def _put_extremes(result: Audit, page: Page) -> None:
    """Put the shortest and the longest rows of tokens side by side."""
    rows = np.flatnonzero(result.measured)
    rows = rows[np.argsort(result.norms[rows], kind="stable")]
    count = min(result.top, len(rows))
    write = page.numbers([Block("", result.norms[rows[None, :]])]).write
    columns = []
    for name, ids in (("shortest", rows[:count]), ("longest", rows[::-1][:count])):
        columns += [Column(name, [str(row) for row in ids])]
        columns += [token_column(result.tokens(ids))] if result.encoding else []
        columns += [Column("norm", [write(norm) for norm in result.norms[ids]])]
    if count:
        page.line()
        page.table([*columns])


def _put_undertrained(result: Audit, page: Page) -> None:
    """Put the tokens that resemble unused ones most on a page, with the indicator."""
    tokens = result.undertrained
    by = {"cosine": "1 - cos to their mean", "norm": "norm"}[tokens.indicator]
    page.line()
    page.line(f"Under-trained (Land and Bartolo 2024): like unused rows by {by}")
    if (head := tokens.output) is not None:
        page.line(f"output head: {head_in_words(head.relation, head.rows, head.reason)}")
    if tokens.threshold is None:
        page.line(f"No candidates: {tokens.reason}")
        return
    count = counted(len(tokens.candidates), "candidate")
    shown = Excerpt(min(result.top, len(tokens.candidates)), 0, len(tokens.candidates))
    ids = tokens.candidates[shown.places]
    write = page.numbers([Block("", np.array([[tokens.threshold, *result.indicator[ids]]]))]).write
    page.line(f"{count}, up to {write(tokens.threshold)} like unused rows; only prompting can confirm")
    if len(ids):
        columns = [Column("ID", [str(row) for row in ids])]
        columns += [token_column(result.tokens(ids))] if result.encoding else []
        columns.append(Column(tokens.indicator, [write(value) for value in result.indicator[ids]]))
        page.table([*columns, *_others(result, ids, page)])
        missing = shown.missing(np.arange(1, shown.total + 1), "candidate")
        put_left_out(page, missing, how=hint("top", count=shown.total))


def _others(result: Audit, ids: np.ndarray, page: Page) -> list[Column]:
    """Return the other indicators of rows, (n,) int64, as columns."""
    if result.indicators is None:
        return []
    names = [name for name in vars(result.indicators) if name != result.undertrained.indicator]
    values = {name: vars(result.indicators)[name][ids] for name in names}
    write = page.numbers([Block("", np.array([*values.values()]))]).write
    return [Column(name, [write(value) for value in each]) for name, each in values.items()]


def _put_head(head: HeadCheck, page: Page) -> None:
    rows = f"{head.rows:,} rows" if head.rows == head.used else f"{head.rows:,} rows (of {head.used:,}, evenly sampled)"
    page.line(f"Output head {head.tensor}: for {head.wins:,} of {rows}, the token's own logit is the largest")


def _verdict(result: Audit) -> Word:
    if result.broken:
        return Word(f"Broken: {result.why_no}", "bad")
    sound = "Sound" if {*BROKEN} <= {*result.fail_on} else "Passed"  # other faults were not checked
    outliers = f"; {counted(len(result.outliers), 'outlier')} of the norm" if len(result.outliers) else ""
    return Word(f"{sound}: {', '.join(result.fail_on)}: none{outliers}", "good")
