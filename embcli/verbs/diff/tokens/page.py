"""The page of two vocabularies: counts, the rules and the tokens that differ, and a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult

from embcli.page import Answer, Label, left_out, omission, ruled, safe_text, shorten, title
from embcli.page.labels import token_label
from embcli.selection import Excerpt
from embcli.verbs.diff.tokens import TokenChange, TokenDiff
from embcli.wording import counted, first_of

_WHERE = {
    "equal": "equal",
    "changed": "changed",
    "same": "with the same ID",
    "moved": "with another ID",
    "removed": "only in BASE",
    "added": "only in TUNED",
    "reordered": "in another order",
}


def page(diff: TokenDiff, console: Console, options: ConsoleOptions) -> RenderResult:
    yield title("Vocabularies, token by token")
    for name, vocabulary in (("BASE", diff.base), ("TUNED", diff.tuned)):
        encoding = vocabulary.encoding
        words = f"{counted(encoding.vocabulary_size, 'ID')} of {encoding.name}"
        if vocabulary.path != encoding.name:
            words += f": {vocabulary.path}"
        yield safe_text(f"{name:6} {words}")
    yield Answer(f"tokens {counts_in_words(diff.counts)}", style="")
    for rule, states in (diff.rules or {}).items():
        counts = counts_in_words({state: len(entries) for state, entries in states.items()})
        entries = first_of(chain.from_iterable(states.values()), diff.top)
        yield safe_text(shorten(f"{rule:6} {counts}: {entries}", 240))

    omissions = []
    for state in _WHERE:
        changes = [change for change in diff.changes if change.state == state]
        excerpt = Excerpt.first(diff.top, len(changes))
        if changes:
            yield from _table(state, changes[: excerpt.leading])
            omissions.append(omission(excerpt, f"{state} token", first=1))
    yield from left_out(*omissions, parameters=("top",))
    verdict = "differ" if diff.changes else f"are equal in {counted(diff.same, 'token')}"
    if diff.lengths:
        verdict += f"; {diff.lengths}"
    yield Answer(
        f"The vocabularies {verdict}; {diff.rules_in_words}",
        style="bad" if diff.different else "good",
    )


def counts_in_words(counts: Mapping[Any, int]) -> str:
    """Return the counts by state of rows, tokens or entries of rules; those of 0 are left out."""
    words = [f"{count:,} {_WHERE[state]}" for state, count in counts.items() if count]
    return ", ".join(words) or "none"


def _table(state: str, changes: Sequence[TokenChange]) -> RenderResult:
    ids = {
        "ID in BASE": [change.base_id for change in changes],
        "ID in TUNED": [change.tuned_id for change in changes],
    }
    labels = [Label(name, column) for name, column in ids.items() if None not in column]
    labels.append(token_label([change.token for change in changes]))
    yield ""
    yield title(f"Tokens {_WHERE[state]}")
    yield ruled(labels)
