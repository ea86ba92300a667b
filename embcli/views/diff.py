"""How `diff` looks."""

from collections.abc import Iterator
from itertools import chain

import numpy as np

from embcli.encodings import Encoding
from embcli.hints import hint
from embcli.oldpage import Column, Excerpt, Page, Word
from embcli.tokens import tokens_of
from embcli.verbs.diff import Diff, State
from embcli.views.parts import first_of, named_rows, origin_in_words, put_left_out, token_column
from embcli.words import QUANTILES

_NAMES = ("base", "tuned")
_STATES: dict[State, str] = {
    "equal": "bit-identical",
    "rounded": "equal except for rounding to the coarser dtype",
    "moved": "changed",
    "base only": "only in BASE",
    "tuned only": "only in TUNED",
}


def view(result: Diff, page: Page) -> None:
    """Put on a page how many rows are equal, how far the others moved, and which changed most and least."""
    page.title("Token matrices, row by row")
    for name, origin, shape, dtype in zip(_NAMES, result.origins, result.shapes, result.dtypes, strict=True):
        tensor = origin_in_words(origin, "token")
        where = tensor if origin.path is None else f"{tensor} of {origin.path}"
        page.line(f"{name.upper():5}  ({shape[0]:,}, {shape[1]:,}) {dtype}: {where}")
    states = _STATES if len({*result.dtypes}) > 1 else {**_STATES, "rounded": "equal in value, with different bits"}
    counts = (f"{result.counts[state]:,} {words}" for state, words in states.items() if result.counts[state])
    page.line(f"rows   {', '.join(counts)}")
    if result.matching.by == "token":
        page.line("The vocabularies differ: rows match by the bytes of their tokens")
    for name, ids, encoding in _without_partner(result):
        first = ids[: result.top + 1]
        if len(ids):
            page.line(f"only in {name}: {first_of(named_rows(first, tokens_of(first, encoding)), result.top)}")
    excerpt = Excerpt.ends(2 * result.top, len(result.moved))
    if len(result.moved):
        page.line()
        _put_tokens(result, excerpt, page)
    _put_missing(result, excerpt, page)
    page.line(Word(f"What these words mean: {hint('meaning', word=result.verb)}", "dim"))
    guesses = [[*origin.guesses.values()] for origin in result.origins]
    for reason in dict.fromkeys(chain(*guesses)):
        which = (name.upper() for name, reasons in zip(_NAMES, guesses, strict=True) if reason in reasons)
        page.line(f"A guess for {' and '.join(which)}: {reason}")
    if result.different:
        page.line(Word("The token matrices differ", "bad"))
    else:
        page.line(Word(f"The token matrices are equal; {hint('other tensors')}", "good"))


def _put_tokens(result: Diff, excerpt: Excerpt, page: Page) -> None:
    """Put the tokens that changed most on a page, and after a gap those that changed least."""
    pairs = result.moved[excerpt.places]
    labels = [Column("ID", result.matching.base[pairs])]
    if result.matching.by == "token":
        labels.append(Column("in TUNED", result.matching.tuned[pairs]))
    if any(each is not None for each in result.encodings):
        labels.append(token_column(result.tokens(pairs)))
    medians = []
    for name, distances in (("1 - cos", result.cosine_distances), ("L2 distance", result.distances)):
        labels.append(Column(name, page.written(distances[pairs])))
        if quantiles := result.quantiles(distances):
            medians.append(f"{name} {page.written(np.array(quantiles))[[*QUANTILES].index('median')]}")
    page.line(f"Changed most, and least; medians: {', '.join(medians)}" if excerpt.left_out else "Changed most")
    page.table([*labels], excerpt.gaps)


def _without_partner(result: Diff) -> Iterator[tuple[str, np.ndarray, Encoding | None]]:
    """Yield the rows of each matrix that the other lacks."""
    rows = (result.matching.base_only, result.matching.tuned_only)
    yield from zip(("BASE", "TUNED"), rows, result.encodings, strict=True)


def _put_missing(result: Diff, excerpt: Excerpt, page: Page) -> None:
    """Say which rows are not shown, and how to see all."""
    count = len(result.moved)
    missing, most = [excerpt.missing("changed row", np.arange(1, count + 1))], -(-count // 2)
    for name, ids, _ in _without_partner(result):
        first = Excerpt.first(result.top, len(ids))
        missing += [f"{first.missing('row', ids)} of {name}"] if first.left_out else []
        most = max(most, len(ids))
    put_left_out(page, *missing, how=hint("top", count=most))
