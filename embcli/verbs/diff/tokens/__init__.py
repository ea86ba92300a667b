"""Which tokens only one of two vocabularies has, and which have another ID in the other.

The rules by which their tokenizers split a text are compared as well. `page` shows a TokenDiff.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import zip_longest
from typing import Any, Literal, NamedTuple

from embcli.encodings import Encoding
from embcli.encodings.encoding import Rules
from embcli.errors import Notes, whole_number
from embcli.names import SHOWN_ROWS, __version__
from embcli.records import Records, listed
from embcli.result import Result
from embcli.tokens import Reading, token_text
from embcli.verbs.diff.measure import paired_by_token
from embcli.wording import counted

TokenState = Literal["removed", "added", "moved"]


class Vocabulary(NamedTuple):
    """The tokens of a model or of a tokenizer's file."""

    path: str
    encoding: Encoding

    @property
    def tokens(self) -> Iterator[bytes | None]:
        """The tokens in the order of their IDs."""
        return map(self.encoding.token_bytes, range(self.encoding.vocabulary_size))


class TokenChange(NamedTuple):
    """A token that only one vocabulary has, or that has another ID in the other."""

    token: bytes
    state: TokenState
    base_id: int | None
    tuned_id: int | None


@dataclass(frozen=True, eq=False)
class TokenDiff(Result, verb="diff"):
    """The tokens in which two vocabularies differ, in the order of the IDs of BASE, then of TUNED.

    A token is `removed` if only BASE has it, `added` if only TUNED has it, and `moved` if its IDs
    differ.
    """

    base: Vocabulary
    tuned: Vocabulary
    same: int  # tokens with the same ID in both
    changes: tuple[TokenChange, ...]
    rules: Rules | None = None  # the entries that differ, by state; None if none was compared
    top: int = SHOWN_ROWS
    lengths: str = ""  # that the rows have different lengths, if matrices were to be compared

    @cached_property
    def counts(self) -> dict[str, int]:
        counts = {"same": self.same, "moved": 0, "removed": 0, "added": 0}
        for change in self.changes:
            counts[change.state] += 1
        return counts

    @property
    def different(self) -> bool:
        return bool(self._why_no)

    @property
    def _why_no(self) -> str:
        reasons = differences(self.counts, "token")
        if self.rules:
            reasons.append(self.rules_in_words)
        if self.lengths:
            reasons.append(self.lengths)
        return ", ".join(reasons)

    @property
    def rules_in_words(self) -> str:
        if self.rules is None:
            return "rules not compared"
        return f"different rules: {', '.join(self.rules) or 'none'}"

    def _records(self) -> Records:
        run = {
            "embcli": __version__,
            "base": {"from": self.base.path, "encoding": self.base.encoding.name},
            "tuned": {"from": self.tuned.path, "encoding": self.tuned.encoding.name},
        }
        summary = {"counts": self.counts, "different": self.different, "rules": self.rules}
        changes = self.changes
        records = listed(
            run,
            "tokens",
            base_id=(int, [change.base_id for change in changes]),
            tuned_id=(int, [change.tuned_id for change in changes]),
            token=(str, [token_text(change.token) for change in changes]),
            state=(str, [change.state for change in changes]),
        )
        return replace(records, more={"diff": summary})


def differences(counts: Mapping[Any, int], unit: str) -> list[str]:
    """Return the counts by state in words, without those that are 0 and the first: equal ones."""
    _, *states = counts
    return [f"{counted(counts[state], unit)} {state}" for state in states if counts[state]]


def compare_tokens(
    base: Vocabulary, tuned: Vocabulary, top: int, notes: Notes, text: str | None
) -> TokenDiff:
    """Return the tokens in which two vocabularies differ.

    The IDs that both give to a text are compared as well.
    """
    whole_number("top", top, 1)
    same = 0
    changes = []
    for token, base_id, tuned_id in paired_by_token(base.tokens, tuned.tokens):
        state: TokenState = "moved"
        if tuned_id is None:
            state = "removed"
        elif base_id is None:
            state = "added"
        if base_id == tuned_id:
            same += 1
        else:
            changes.append(TokenChange(token, state, base_id, tuned_id))
    rules = different_rules(base.encoding, tuned.encoding, text)
    return TokenDiff(base, tuned, same, tuple(changes), rules, top, notes=notes)


def different_rules(base: Encoding, tuned: Encoding, text: str | None) -> Rules | None:
    """Return the entries of rules that only one encoding has, or that both have in another order.

    The IDs that they give to a text are compared as another rule. None means that nothing can be
    compared.
    """
    found = {} if text is None else other_ids(base, tuned, text)
    if not base.rules or base.rules.keys() != tuned.rules.keys():
        return None if text is None else found
    for rule, value in base.rules.items():
        ours = _entries(value)
        theirs = _entries(tuned.rules[rule])
        pairs = zip(ours & theirs, theirs & ours, strict=True)  # in the order of the first of them
        states = {
            "removed": list(ours - theirs),
            "added": list(theirs - ours),
            "reordered": [entry for entry, other in pairs if entry != other],
        }
        if any(states.values()):
            found[rule] = states
    return found


def other_ids(base: Encoding, tuned: Encoding, text: str, name: str = "the text") -> Rules:
    """Return the first token of a text whose ID differs, as a rule that was changed."""
    base_ids = Reading(base).ids(text).tolist()
    tuned_ids = Reading(tuned).ids(text).tolist()
    pairs = zip_longest(base_ids, tuned_ids)
    for place, (base_id, tuned_id) in enumerate(pairs):
        if base_id != tuned_id:
            return {f"IDs of {name} from token {place:,} on": {"moved": [str(base_id)]}}
    return {}


def _entries(rule: Any) -> Counter[str]:
    """Return the entries of a rule as they are written, in order."""
    if isinstance(rule, dict):
        rule = [f"{name}: {value!r}" for name, value in rule.items()]
    if rule == "":
        rule = None  # Both say that something is not set.
    return Counter(map(str, rule if isinstance(rule, list) else [rule]))
