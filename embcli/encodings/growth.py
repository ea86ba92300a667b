"""How much longer the rules of a `tokenizer.json` can make a text: a few, one after the other, multiply it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import orjson

_NAMED = re.compile(rb"Replace|\\u00[4-7]")  # the rule, and letters that no honest file escapes
_BEYOND = 1 << 60  # characters


class Growth:
    """The Replace and Prepend rules of the bytes of a `tokenizer.json`; malformed ones count as none."""

    def __init__(self, data: bytes) -> None:
        try:
            described = orjson.loads(data) if _NAMED.search(data) else {}
            self._rules = {part: [*_rules(described.get(part))] for part in ("normalizer", "decoder")}
            self.added = sum(len(each["content"]) for each in described.get("added_tokens", ()))
        except (ValueError, TypeError, AttributeError, KeyError):  # the package refuses such a file
            self._rules, self.added = {}, 0

    def most(self, part: str, length: int) -> int:
        """Return how many characters a text of `length` characters can become in the normalizer or the decoder."""
        for times, more in self._rules.get(part, ()):
            length = min(length * times + more, _BEYOND)
        return length


def _rules(part: Any) -> Iterator[tuple[int, int]]:
    """Yield by how much the rules in a part of a tokenizer multiply a text and lengthen it, in their order."""
    waiting = [part] if part else []
    while waiting:
        each = waiting.pop(0)
        waiting = [*each.get("normalizers", ()), *each.get("decoders", ()), *waiting]
        if each["type"] == "Prepend":
            yield 1, len(each["prepend"])
        elif each["type"] == "Replace":
            pattern, length = each["pattern"].get("String"), len(each["content"])
            # A regular expression can match before each character.
            yield (max(-(-length // len(pattern)), 1) if pattern else length + 1), 0
