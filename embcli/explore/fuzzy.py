"""Fuzzy search among the words of a vocabulary, for a list that follows what somebody types.

All words are in one text, shortest first: a search runs through it in C, and stops when it has found enough.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from embcli.tokens import PIECE, shown, tokens_of

if TYPE_CHECKING:
    from embcli.encodings import Encoding

_SPACE = shown(b" ")
_START = "\n"  # before each word: no word on a page contains it


class Words:
    """The words of a vocabulary by ID, as pages show them; make one by `of`, which takes a second for 262,144 words.

    >>> words = Words(["␣Paris", "par", "␣spare", "", "␣paper"])
    >>> words.find("par").tolist(), words.find("P").tolist()
    ([1, 0, 2, 4], [0])
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Take a word for each ID; an empty one stands for none."""
        bare = [word.lstrip(_SPACE) or word for word in words]
        ids = sorted((each for each, word in enumerate(bare) if word), key=lambda each: len(bare[each]))
        self._ids = np.array(ids, np.int64)  # in the order of the text
        self._exact = _Text([bare[each] for each in ids])
        self._folded = _Text([bare[each].casefold() for each in ids])

    @classmethod
    def of(cls, encoding: Encoding, rows: int) -> Words:
        """Return the words of the first `rows` IDs of an encoding."""
        parts = (np.arange(start, min(start + PIECE, rows)) for start in range(0, rows, PIECE))
        return cls([shown(token) for part in parts for token in tokens_of(part, encoding)])

    def find(self, typed: str, top: int = 50) -> np.ndarray:
        """Return the IDs of the words that match best, (n,) int64, n <= `top`.

        First words that begin with what is typed, then words that contain it, then words that contain its letters in
        order; in each group shorter words come first, so the typed word itself, then smaller IDs. Spaces before a word
        do not count, and case counts only if a capital is typed.
        """
        query = typed.encode(errors="replace").decode().replace("\n", " ").strip(f" {_SPACE}").replace(" ", _SPACE)
        if not query:
            return self._ids[:0]
        has_capital = any(map(str.isupper, query))
        places = self._exact.find(query, top) if has_capital else self._folded.find(query.casefold(), top)
        return self._ids[places]


class _Text:
    """Words one after the other."""

    def __init__(self, words: list[str]) -> None:
        self._text = "".join(f"{_START}{word}" for word in words)
        self._starts = [0, *accumulate(len(word) + 1 for word in words)]

    def find(self, query: str, top: int) -> list[int]:
        """Return the places of up to `top` words that match, group by group."""
        letters = "".join(f"[^{letter}{_START}]*{letter}" for letter in map(re.escape, query))
        places: dict[int, None] = {}
        for pattern in (_START + re.escape(query), re.escape(query), _START + letters):
            for match in re.finditer(pattern, self._text):
                places[bisect_right(self._starts, match.start()) - 1] = None
                if len(places) == top:
                    return [*places]
        return [*places]
