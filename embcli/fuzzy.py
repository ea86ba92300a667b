"""Fuzzy search among the words of a vocabulary, for a list that follows what somebody types.

All words are in one text, shortest first: a search runs through it in C, and stops when it has found enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import numpy as np

from embcli.tokens import shown, tokens_of

if TYPE_CHECKING:
    from embcli.encodings import Encoding

_SPACE = shown(b" ")
_END = "\n"  # after each word: no word on a page contains it
_PIECE = 4096  # words spelled at a time
_BITS = 61


class Words:
    """The words of a vocabulary by ID, as pages show them; make one by `of`, which takes a second for 262,144 words.

    >>> words = Words(["␣Paris", "par", "␣spare", "", "␣paper"])
    >>> words.find("par").tolist(), words.find("P").tolist()
    ([1, 0, 2, 4], [0])
    """

    def __init__(self, words: Sequence[str]) -> None:
        """Take a word for each ID; an empty one stands for none."""
        bare = [word.lstrip(_SPACE) or word for word in words]
        lengths = np.array([*map(len, bare)], np.int64)
        order = np.argsort(lengths, kind="stable")
        self._ids = order[lengths[order] > 0]  # in the order of the text
        text = "".join(f"{_END}{bare[each]}" for each in self._ids.tolist())
        self._exact, self._folded = _Text(text), _Text(text.casefold())
        self._letters = _letters(self._folded.data, self._folded.starts[:-1])

    @classmethod
    def of(cls, encoding: Encoding, rows: int) -> Words:
        """Return the words of the first `rows` IDs of an encoding."""
        parts = (np.arange(start, min(start + _PIECE, rows)) for start in range(0, rows, _PIECE))
        return cls([shown(token) for part in parts for token in tokens_of(part, encoding)])

    def find(self, typed: str, top: int = 50) -> np.ndarray:
        """Return the IDs of the words that match best, (n,) int64, n <= `top`.

        First words that begin with what is typed, then words that contain it, then words that contain its letters in
        order; in each group shorter words come first, so the typed word itself, then smaller IDs. Spaces before a word
        do not count, and case counts only if a capital is typed.
        """
        query = typed.encode(errors="replace").decode().replace(_END, " ").strip(f" {_SPACE}").replace(" ", _SPACE)
        text = self._exact if any(map(str.isupper, query)) else self._folded
        if text is self._folded:
            query = query.casefold()
        found: dict[int, None] = {}
        for place in self._matches(text, query) if query else ():
            found[place] = None
            if len(found) == top:
                break
        return self._ids[[*found]]

    def _matches(self, text: _Text, query: str) -> Iterator[int]:
        """Yield the places of the words that match, group by group; a word can be in several."""
        for part in (f"{_END}{query}", query):
            yield from text.containing(part)
        letters = _letters(query.casefold().encode(), np.zeros(1, np.int64))
        long_enough = np.diff(text.starts) > len(query)
        yield from text.with_letters(query, np.flatnonzero(long_enough & (self._letters & letters == letters)))


class _Text:
    """Words one after the other, in UTF-8."""

    def __init__(self, text: str) -> None:
        self.data = f"{text}{_END}".encode()
        self.starts = np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord(_END)) + 1  # of each word, and the end

    def containing(self, part: str) -> Iterator[int]:
        """Yield the places of the words that contain a part of the text, or begin after its first character."""
        searched, before = part.encode(), part.startswith(_END)
        at = self.data.find(searched)
        while at >= 0:
            place = int(np.searchsorted(self.starts, at, side="right")) - (not before)
            yield place
            at = self.data.find(searched, int(self.starts[place + 1]) - 1)

    def with_letters(self, query: str, places: np.ndarray) -> Iterator[int]:
        """Yield those of some places, (n,) int64, whose words contain the letters of a query in order."""
        letters, find = [each.encode() for each in query], self.data.find
        for place, start, stop in zip(
            *(each.tolist() for each in (places, self.starts[places], self.starts[places + 1])), strict=True
        ):
            at = start
            for letter in letters:
                at = find(letter, at, stop) + 1
                if not at:
                    break
            else:
                yield place


def _letters(text: bytes, starts: np.ndarray) -> np.ndarray:
    """Return the bytes of each word that starts in a text, (n,) uint64, as bits, which several bytes share."""
    bits = np.uint64(1) << (np.frombuffer(text, np.uint8) % _BITS).astype(np.uint64)
    return np.bitwise_or.reduceat(bits, starts) if len(starts) else np.empty(0, np.uint64)
