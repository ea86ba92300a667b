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
        pieces: Iterable[str] = _split(self.rules[0], text)
        for rule in self.rules[1:]:
            pieces = chain.from_iterable(map(_cache(rule).__getitem__, pieces))
        return pieces


def _split(rule: str, text: str) -> Iterator[str]:
    """Yield what a rule matches in a text, and what is between."""
    place = 0
    for start, end in _edges(rule, text):
        if start > place:
            yield text[place:start]
        if end > start:
            yield text[start:end]
        place = end
    if place < len(text):
        yield text[place:]


def _edges(rule: str, text: str) -> Iterator[tuple[int, int]]:
    follows = rule == "in thousands"
    if not follows and rule != "before thousands":
        yield from (match.span() for match in _compiled(rule).finditer(text))
        return
    for run in _compiled(r"\p{N}+" if follows else "[0-9]+").finditer(text):
        start, end = run.span()
        first = start + (end - start) % 3
        yield from ((cut, cut) for cut in range(first + 3 * (follows and first == start), end + follows, 3))


@cache
def _cache(rule: str) -> Cache[Iterable[str]]:
    """Return how a rule splits pieces: most of those that another rule leaves are short and occur often."""
    return Cache(lambda piece: [*_split(rule, piece)] if len(piece) <= _LONGEST_CACHED else _split(rule, piece))


@cache
def _compiled(rule: str) -> Any:
    import regex

    return regex.compile(rule, regex.VERSION1)


def blocks(name: str) -> Iterator[tuple[list[str], list[str], tuple[str, ...]]]:
    """Yield the blocks of a file of data/: names, the words after the colon, and the rules in the lines below."""
    facts = (Path(__file__).parents[1] / "data" / name).read_text("utf-8")
    for block in facts.replace("\n        ", "").split("\n\n"):
        head, *rules = block.removesuffix("\n").split("\n    ")
        names, _, words = head.replace("\n+", "").partition(": ")
        if not head.startswith("#"):
            yield names.split(), words.split(), tuple(rules)


@cache
def splittings() -> dict[str, Splitting]:
    return {
        name: splitting
        for names, flags, rules in blocks("splittings.txt")
        for splitting in [Splitting(rules, frozenset(flags))]
        for name in names
    }
