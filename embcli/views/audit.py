"""How `audit` looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.names import BROKEN
from embcli.page import Block, Column, Word
from embcli.views.parts import head_in_words, put_guesses, token_column
from embcli.words import QUANTILES, counted

if TYPE_CHECKING:
    from embcli.page import Page
    from embcli.verbs.audit import Audit, OwnToken

_MOST_NAMED = 6  # rows, or groups of them, in a line
_EXTREMES = 5  # rows in a table
_BARS = "▁▂▃▄▅▆▇█"
_WHY = {
    "padding": "behind the last token",
    "gap": "of IDs without a token",
    "byte": "of bytes that UTF-8 never has",
    "reserved": "of reserved names",
}


def view(result: Audit, page: Page) -> None:
    """Put the verdict on a page, what is broken or unused, how the rows lie, and those that stand out."""
    size, dim = result.shape
    origin = f"seed {result.run['seed']}" if "seed" in result.run else result.run["tensors"]["token"]
    page.title(f"Audit of a token matrix, (V, D) = ({size:,}, {dim:,}): {origin}, {result.dtype}")
    for name, told in _found(result).items():
        page.line(f"{name:12}  ", told if isinstance(told, Word) else Word(told))
    page.line()
    _put_lying(result, page)
    _put_extremes(result, page)
    _put_untrained(result, page)
    if result.head is not None:
        _put_head(result.head, page)
    put_guesses(page, result.run)
    page.line(_verdict(result))


def _found(result: Audit) -> dict[str, str | Word]:
    """Return in words what is found by looking at each row."""
    bad = {"non-finite": result.non_finite, "all zero": result.zero}
    return {
        "rows": _rows(result),
        "no use": _unused(result),
        **{name: Word(_named(rows), "bad" if len(rows) else "plain") for name, rows in bad.items()},
        "equal": _equal(result),
    }


def _rows(result: Audit) -> str | Word:
    size, known = result.shape[0], result.encoding
    if known is None:
        return f"{size:,}; their tokens are not known"
    told = f"{size:,}, for {known.vocabulary_size:,} tokens of {known.name}"
    return Word(f"{told}: {result.faults['missing']:,} have none", "bad") if result.faults["missing"] else told


def _unused(result: Audit) -> str:
    if result.encoding is None:
        return "not known without an encoding"
    told = [f"{len(rows):,} {_WHY[why]}{_span(rows)}" for why, rows in result.by_use.items()]
    return ", ".join(told) or "none"


def _span(rows: np.ndarray) -> str:
    """Return from where to where consecutive rows go, in words."""
    return f" ({rows[0]} to {rows[-1]})" if len(rows) > 1 and (np.diff(rows) == 1).all() else ""


def _named(rows: np.ndarray) -> str:
    if not len(rows):
        return "none"
    more = ", ..." if len(rows) > _MOST_NAMED else ""
    return f"{counted(len(rows), 'row')}: {', '.join(map(str, rows[:_MOST_NAMED].tolist()))}{more}"


def _equal(result: Audit) -> str:
    groups = [
        " = ".join(map(str, group[:_MOST_NAMED])) + " = ..." * (len(group) > _MOST_NAMED) for group in result.equal
    ]
    if not groups:
        return "none"
    more = "; ..." if len(groups) > _MOST_NAMED else ""
    return f"{counted(len(groups), 'group')}: {'; '.join(groups[:_MOST_NAMED])}{more}"


def _put_lying(result: Audit, page: Page) -> None:
    """Put on the page how the rows lie: their norms in short, and their directions."""
    lying = result.lying
    if not lying.rows:
        page.line("No row of a token is finite.")
        return
    write = page.numbers([Block("", np.array([lying.quantiles]))]).write
    labels = Column("norms of", [counted(lying.rows, "row")], "left")
    quantiles = [Column(name, [write(value)]) for name, value in zip(QUANTILES, lying.quantiles, strict=True)]
    page.table([labels, *quantiles])
    page.line(f"from {write(lying.quantiles[0])} {_bars(lying.histogram)} to {write(lying.quantiles[-1])}")
    page.line()
    page.line(f"mean cosine of all pairs {_number(lying.mean_cosine)}, centred {_number(lying.centred_mean_cosine)}")
    page.line(f"IsoScore {_number(lying.iso_score)} (Rudman et al. 2022): 1 in all directions alike, 0 in one")
    if lying.norm_by_merge is not None:
        page.line(f"norm against order of merges {lying.norm_by_merge:.4f} (Spearman's rank correlation)")


def _bars(counts: tuple[int, ...]) -> str:
    """Return a histogram as bars; the least bar is of a single row, and there is none for no row.

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
    count = min(_EXTREMES, len(rows))
    write = page.numbers([Block("", result.norms[rows[None, :]])]).write
    columns = []
    for name, ids in (("shortest", rows[:count]), ("longest", rows[::-1][:count])):
        columns += [Column(name, [str(row) for row in ids])]
        columns += [token_column(result.tokens(ids))] if result.encoding else []
        columns += [Column("norm", [write(norm) for norm in result.norms[ids]])]
    if count:
        page.line()
        page.table([*columns])


def _put_untrained(result: Audit, page: Page) -> None:
    """Put the tokens that are most like unused ones on the page, and how that is told."""
    untrained = result.untrained
    by = {"cosine": "1 - cos to the mean of the unused rows", "norm": "norm"}[untrained.indicator]
    page.line()
    page.line(f"Hardly trained, by {by} (Land and Bartolo 2024)")
    if untrained.output is not None:
        page.line(f"output head: {head_in_words(untrained.output)}")
    if untrained.threshold is None:
        page.line(f"No candidates: {untrained.reason}")
        return
    count = counted(len(untrained.candidates), "candidate")
    ids = untrained.candidates[:_EXTREMES]
    write = page.numbers([Block("", np.array([[untrained.threshold, *result.indicator[ids]]]))]).write
    page.line(f"{count}, up to {write(untrained.threshold)}, as unused rows are; only a prompt can prove one")
    if len(ids):
        columns = [Column("ID", [str(row) for row in ids])]
        columns += [token_column(result.tokens(ids))] if result.encoding else []
        columns.append(Column(untrained.indicator, [write(value) for value in result.indicator[ids]]))
        page.table([*columns, *_others(result, ids, page)])


def _others(result: Audit, ids: np.ndarray, page: Page) -> list[Column]:
    """Return what the indicators of rows, (n,) int64, are by which they are no candidates."""
    if result.indicators is None:
        return []
    names = [name for name in vars(result.indicators) if name != result.untrained.indicator]
    values = {name: vars(result.indicators)[name][ids] for name in names}
    write = page.numbers([Block("", np.array([*values.values()]))]).write
    return [Column(name, [write(value) for value in each]) for name, each in values.items()]


def _put_head(head: OwnToken, page: Page) -> None:
    tried = f"{head.rows:,}" if head.rows == head.used else f"{head.rows:,} (of {head.used:,}, evenly spread)"
    page.line(f"Output head {head.tensor}: of {tried} rows, {head.wins:,} have their own token's logit largest")


def _verdict(result: Audit) -> Word:
    if result.broken:
        return Word(f"Broken: {', '.join(f'{name} ({result.faults[name]:,})' for name in result.broken)}", "bad")
    sound = "Sound" if {*BROKEN} <= {*result.fail_on} else "Passed"  # of what else is wrong nobody asked
    return Word(f"{sound}: {', '.join(result.fail_on)}: none", "good")
