"""How pre-tokenizers split a text into pieces: merges of byte-pair encoding never cross their edges.

A text is split by each rule in turn, and what a rule does not match is a piece, too. The rules that a GGUF file can
name are in data/splittings.txt.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

_Value = TypeVar("_Value")
_LONGEST_CACHED, _MOST_CACHED = 64, 1 << 18  # characters of a piece whose value is kept, and pieces


class Cache(dict[str, _Value]):
    """What a function returns for pieces; that of short ones is kept."""

    def __init__(self, function: Callable[[str], _Value]) -> None:
        self._function = function

    def __missing__(self, piece: str) -> _Value:
        value = self._function(piece)
        if len(piece) <= _LONGEST_CACHED and len(self) < _MOST_CACHED:
            self[piece] = value
        return value


@dataclass(frozen=True)
class Splitting:
    """A pre-tokenizer: its rules, and what else its name says about an encoding."""

    rules: tuple[str, ...]
    flags: frozenset[str] = frozenset()

    def pieces(self, text: str) -> Iterable[str]:
        """Return the pieces of a text in order."""
        pieces: Iterable[str] = _split(self.rules[0], text)
        for rule in self.rules[1:]:
            pieces = chain.from_iterable(map(_cache(rule).__getitem__, pieces))
        return pieces


def _split(rule: str, text: str) -> Iterator[str]:
    """Yield what a rule matches in a text, and what is between."""
    if rule.endswith(" thousands"):
        yield from filter(None, _in_thousands(text) if rule == "in thousands" else _before_thousands(text))
        return
    place = 0
    for match in _compiled(rule).finditer(text):
        start, end = match.span()
        if start > place:
            yield text[place:start]
        yield text[start:end]
        place = end
    if place < len(text):
        yield text[place:]


@cache
def _cache(rule: str) -> Cache[Iterable[str]]:
    """Return how a rule splits pieces: most of those that another rule leaves are short and occur often."""
    return Cache(lambda piece: [*_split(rule, piece)] if len(piece) <= _LONGEST_CACHED else _split(rule, piece))


@cache
def _compiled(rule: str) -> Any:
    import regex

    return regex.compile(rule, regex.VERSION1)


def _in_thousands(text: str) -> Iterator[str]:
    return _cut(text, r"\p{N}+", lambda start, end: range(start + ((end - start) % 3 or 3), end + 1, 3))


def _before_thousands(text: str) -> Iterator[str]:
    return _cut(text, "[0-9]+", lambda start, end: range(start + (end - start) % 3, end, 3))


def _cut(text: str, digits: str, cuts: Callable[[int, int], range]) -> Iterator[str]:
    place = 0
    for run in _compiled(digits).finditer(text):
        for cut in cuts(*run.span()):
            yield text[place:cut]
            place = cut
    yield text[place:]


@cache
def splittings() -> dict[str, Splitting]:
    """Return the pre-tokenizers by their names."""
    known: dict[str, Splitting] = {}
    facts = (Path(__file__).parents[1] / "data" / "splittings.txt").read_text("utf-8")
    for block in facts.replace("\n        ", "").split("\n\n"):
        head, *rules = block.removesuffix("\n").split("\n    ")
        names, _, flags = head.replace("\n+", "").partition(": ")
        if not head.startswith("#"):
            known |= dict.fromkeys(names.split(), Splitting(tuple(rules), frozenset(flags.split())))
    return known
