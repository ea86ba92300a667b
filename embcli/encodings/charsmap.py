"""SentencePiece's precompiled map of characters: how a text is normalised before it is split into tokens."""

from __future__ import annotations

import re
from collections.abc import Iterator

import numpy as np

_LABEL = np.uint32(1 << 31 | 0xFF)
_BYTES = np.arange(1, 256, dtype=np.uint32)
_LONGEST = 1 << 24  # bytes of a map; 0.3 MB is usual


class Charsmap:
    """Replacements of characters, and of sequences of characters, of which the longest counts.

    The map is a number of bytes, a trie of that many bytes, and the replacements, each with a zero byte behind it. The
    trie is a double array: a unit has a byte (bits 0 to 7), whether a sequence ends with it (bit 8), and where its
    children are (bits 10 to 30, times 256 with bit 9). Raises ValueError for anything else.
    """

    def __init__(self, data: bytes) -> None:
        size = int.from_bytes(data[:4], "little")
        if not 4 < size + 4 <= len(data) <= _LONGEST or size % 4:
            raise ValueError("its map of characters is damaged")
        self._units, self._texts = np.frombuffer(data, "<u4", size // 4, 4), data[4 + size :]
        first = list(self._characters(_children(self._units[:1])))
        self._single = {ord(character): text for character, _, text in first if text is not None}
        self._first = {character: place for character, place, _ in first}
        following = self._following(np.unique(np.array(list(self._first.values()), np.uint32)))
        among = "".join(map(re.escape, sorted(following)))
        self._sequences = re.compile(f".[{among}]+", re.DOTALL) if among else None

    def normal(self, text: str) -> str:
        """Return a text with all replacements."""
        if self._sequences is None:
            return text.translate(self._single)
        place, normal = 0, ""
        for match in self._sequences.finditer(text):
            normal += text[place : match.start()].translate(self._single)
            normal += "".join(replaced for replaced, _ in self.steps(match[0]))
            place = match.end()
        return normal + text[place:].translate(self._single)

    def steps(self, text: str) -> Iterator[tuple[str, int]]:
        """Yield the replacements of a text in order, each with the number of characters that it replaces."""
        place = 0
        while place < len(text):
            replaced, length = self._single.get(ord(text[place]), text[place]), 1
            state = self._first.get(text[place])
            for end in range(place + 1, len(text)):
                if state is None:
                    break
                state, longer = self._next(state, text[end])
                if longer is not None:
                    replaced, length = longer, end + 1 - place
            yield replaced, length
            place += length

    def _next(self, state: int, character: str) -> tuple[int | None, str | None]:
        """Return the state after one more character, and the replacement if one ends there; None without one."""
        at = state
        for byte in character.encode():
            at = state ^ byte
            if at >= len(self._units) or int(self._units[at] & _LABEL) != byte:
                return None, None
            state = at ^ int(_children(self._units[at]))
        return state, self._text(state) if int(self._units[at]) & 0x100 else None

    def _following(self, states: np.ndarray) -> set[str]:
        """Return the characters that sequences have after their first one."""
        following: set[str] = set()
        known = set(states.tolist())
        while len(states):
            characters = list(self._characters(states))
            following.update(character for character, *_ in characters)
            new = {state for _, state, _ in characters} - known
            known |= new
            states = np.array(sorted(new), np.uint32)
        return following

    def _characters(self, states: np.ndarray) -> Iterator[tuple[str, int, str | None]]:
        """Yield the characters that follow states: each with its own state, and the replacement if one ends here."""
        begun = [b""] * len(states)
        for _ in range(4):
            at = states[:, None] ^ _BYTES  # (n, 255)
            inside = np.where(at < len(self._units), at, 0)
            parents, chosen = np.nonzero((at < len(self._units)) & (self._units[inside] & _LABEL == _BYTES))
            nodes = at[parents, chosen]
            states = nodes ^ _children(self._units[nodes])
            begun = [begun[at] + bytes([byte + 1]) for at, byte in zip(parents.tolist(), chosen.tolist(), strict=True)]
            ends = self._units[nodes] & 0x100 != 0
            is_whole = [_is_character(each) for each in begun]
            for number in np.flatnonzero(is_whole).tolist():
                state = int(states[number])
                yield begun[number].decode(), state, self._text(state) if ends[number] else None
            rest = np.flatnonzero(~np.array(is_whole, bool))
            states, begun = states[rest], [begun[number] for number in rest.tolist()]

    def _text(self, state: int) -> str:
        place = int(self._units[state]) & 0x7FFFFFFF if state < len(self._units) else len(self._texts)
        end = self._texts.find(b"\0", place)
        if end < 0:
            raise ValueError("its map of characters is damaged")
        return self._texts[place:end].decode(errors="replace")


def _is_character(data: bytes) -> bool:
    try:
        return len(data.decode()) == 1
    except UnicodeDecodeError:
        return False


def _children(units: np.ndarray) -> np.ndarray:
    return ((units >> 10) << ((units & 0x200) >> 6)).astype(np.uint32)
