"""The pre-tokenizers of llama.cpp, which cut a text into pieces that become tokens by themselves.

Those that a GGUF file can name are in data/splittings.json, with the rules of llama.cpp's
src/llama-vocab.cpp. A vocab.json of transformers uses some of them, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, lru_cache, partial
from itertools import chain, pairwise
from typing import NamedTuple

from embcli.names import Strings
from embcli.wording import load_facts

CACHED_PIECES = 1 << 18  # Most pieces of a text occur often, so their parts are kept.


class Splitting(NamedTuple):
    """A pre-tokenizer: its rules split a text in turn, and flags say more about its encoding.

    `adds_bos` means that a text begins with BOS, `ignores_merges` that a piece that is a token is
    not merged, `keeps_lines` the same for pieces of newlines. Symbols are bytes, or characters with
    the flag `of_characters`; `escapes_spaces` spells spaces as SentencePiece does.
    """

    rules: list[str]
    flags: list[str]

    def pieces(self, text: str) -> Iterable[str]:
        """Return the matches of the rules, and what is between them."""
        pieces = _split(self.rules[0], text)
        for rule in self.rules[1:]:
            pieces = chain.from_iterable(map(partial(_cached_split, rule), pieces))
        return pieces


@cache
def splittings() -> dict[str, Splitting]:
    """Return the pre-tokenizers by name; the names of one share the same object."""
    known: dict[str, Splitting] = {}
    for entry in load_facts("splittings.json"):
        splitting = Splitting(entry["rules"], entry["flags"])
        known |= dict.fromkeys(entry["names"], splitting)
    return known


@lru_cache(CACHED_PIECES)
def _cached_split(rule: str, piece: str) -> Strings:
    return tuple(_split(rule, piece))


# The groups of digits from the right, and which end of each is cut: 0 the first, 1 the last.
_THOUSANDS = {"in thousands": (r"(?r)\p{N}{1,3}", 1), "before thousands": ("(?r)[0-9]{3}", 0)}


def _split(rule: str, text: str) -> Iterable[str]:
    """Return the matches of a rule, and what is between them.

    The rules about thousands group digits from the right, and cut after or before each group.
    """
    import regex

    if rule not in _THOUSANDS:
        return filter(None, regex.splititer(f"({rule})", text, flags=regex.VERSION1))
    pattern, end = _THOUSANDS[rule]
    cuts = [match.span()[end] for match in regex.finditer(pattern, text)]
    bounds = pairwise([0, *reversed(cuts), len(text)])
    return [text[start:stop] for start, stop in bounds if stop > start]
