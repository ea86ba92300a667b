"""How `diff` looks."""

from itertools import chain

import numpy as np

from embcli.hints import hint
from embcli.oldpage import Column, Excerpt, Page, Word
from embcli.tokens import tokens_of
from embcli.verbs.diff import Diff, State
from embcli.views.parts import first_of, named_rows, origin_in_words, put_left_out, token_column
from embcli.words import QUANTILES

_NAMES = ("BASE", "TUNED")
_STATES: dict[State, str] = {
    "equal": "equal",
    "changed": "changed",
    "removed": "only in BASE",
    "added": "only in TUNED",
}


def view(result: Diff, page: Page) -> None:
    """Put on a page how many rows are equal, how far the others moved, and which changed most and least."""
    page.title("Token matrices, row by row")
    for name, origin, shape, dtype in zip(_NAMES, result.origins, result.shapes, result.dtypes, strict=True):
        tensor = origin_in_words(origin, "token")
        where = tensor if origin.path is None else f"{tensor} of {origin.path}"
        page.line(f"{name:5}  ({shape[0]:,}, {shape[1]:,}) {dtype}: {where}")
    counts = (f"{result.counts[state]:,} {words}" for state, words in _STATES.items() if result.counts[state])
    page.line(f"rows   {', '.join(counts)}")
    if result.matching.by == "token":
        page.line("The vocabularies differ: rows match by the bytes of their tokens")
    missing, most = [], -(-len(result.changed) // 2)
    unmatched = result.matching.base_only, result.matching.tuned_only
    for name, ids, encoding in zip(_NAMES, unmatched, result.encodings, strict=True):
        first, shown = Excerpt.first(result.top, len(ids)), ids[: result.top + 1]
        most = max(most, len(ids))
        if len(ids):
            page.line(f"only in {name}: {first_of(named_rows(shown, tokens_of(shown, encoding)), result.top)}")
        if first.left_out:
            missing.append(f"{first.missing('row', ids)} of {name}")
    excerpt = Excerpt.ends(2 * result.top, len(result.changed))
    if len(result.changed):
        page.line()
        _put_changed(result, excerpt, page)
    changed = excerpt.missing("changed row", np.arange(1, len(result.changed) + 1))
    put_left_out(page, changed, *missing, how=hint("top", count=most))
    page.line(Word(f"What these words mean: {hint('meaning', word=result.verb)}", "dim"))
    guesses = [[*origin.guesses.values()] for origin in result.origins]
    for reason in dict.fromkeys(chain(*guesses)):
        which = (name for name, reasons in zip(_NAMES, guesses, strict=True) if reason in reasons)
        page.line(f"A guess for {' and '.join(which)}: {reason}")
    if result.different:
        page.line(Word("The token matrices differ", "bad"))
    else:
        page.line(Word(f"The token matrices are equal; {hint('other tensors')}", "good"))


def _put_changed(result: Diff, excerpt: Excerpt, page: Page) -> None:
    """Put the tokens that changed most on a page, and after a gap those that changed least."""
    pairs = result.changed[excerpt.places]
    labels = [Column("ID", result.matching.base[pairs])]
    if result.matching.by == "token":
        labels.append(Column("in TUNED", result.matching.tuned[pairs]))
    if any(result.encodings):
        labels.append(token_column(result.tokens(pairs)))
    medians = []
    for name, distances in (("1 - cos", result.cosine_distances), ("L2 distance", result.distances)):
        labels.append(Column(name, page.written(distances[pairs])))
        if quantiles := result.quantiles(distances):
            medians.append(f"{name} {page.written(np.array(quantiles))[[*QUANTILES].index('median')]}")
    page.line(f"Changed most, and least; medians: {', '.join(medians)}" if excerpt.left_out else "Changed most")
    page.table([*labels], excerpt.gaps)
