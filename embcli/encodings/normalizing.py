"""How a text is spelled before it is split into tokens: SentencePiece's map of characters, and spaces."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from embcli.encodings.algorithm import Algorithm
from embcli.encodings.spelling import SPACE

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


@dataclass(frozen=True)
class Normalization:
    """What is done to a text, in this order."""

    charsmap: Charsmap | None = None
    joins_spaces: bool = False  # several spaces are one; those at the end are none
    adds_space: bool = False  # before the first character
    adds_space_to_word: bool = False  # rather before the first word; a space is always added if spaces are joined

    def spelled(self, text: str) -> str:
        """Return a text as the vocabulary spells it.

        >>> Normalization(joins_spaces=True, adds_space=True).spelled("  a  b ")
        '▁a▁b'
        >>> Normalization(adds_space=True).spelled(" a")
        '▁▁a'
        >>> Normalization(joins_spaces=True, adds_space_to_word=True).spelled("a b")
        '▁a▁b'
        """
        normal = self.charsmap.normal(text) if self.charsmap else text
        if self.joins_spaces:
            words = [word for word in normal.split(" ") if word]
            return SPACE * (words != [] and (self.adds_space or self.adds_space_to_word)) + SPACE.join(words)
        begun = normal.lstrip(" ") if self.adds_space_to_word else normal
        lead = SPACE * (len(normal) - len(begun) + (self.adds_space and begun != ""))
        return lead + begun.replace(" ", SPACE)

    def origins(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the span in the text of each character of its spelling."""
        place, spaces, begun = 0, 0, False
        for normal, length in self.charsmap.steps(text) if self.charsmap else ((each, 1) for each in text):
            for character in normal:
                is_first = not begun and (character != " " or not (self.joins_spaces or self.adds_space_to_word))
                if is_first and (self.adds_space or (self.adds_space_to_word and self.joins_spaces)):
                    yield place, place
                begun = begun or is_first
                if character != " " and spaces and self.joins_spaces and not is_first:
                    yield place, place
                spaces = spaces + 1 if character == " " else 0
                if character != " " or not self.joins_spaces:
                    yield place, place + length
            place += length


class NormalizedWords(Algorithm):
    """A text is normalised, and split into words whose edges no token crosses."""

    def __init__(self, normalization: Normalization, tokens: Iterable[bytes]) -> None:
        self._normalization, self._words = normalization, words_between(tokens)

    def pieces(self, text: str) -> Iterable[str]:
        """Return the words of a text in order, as the vocabulary spells them."""
        return (word[0] for word in self._words.finditer(self._normalization.spelled(text)))

    def origins(self, text: str) -> Iterable[tuple[int, int]]:
        """Return the span in the text of each character of the pieces, joined."""
        return self._normalization.origins(text)


def words_between(tokens: Iterable[bytes]) -> re.Pattern[str]:
    r"""Return a pattern of words, each with the spaces before it, such that no token reaches over their edges.

    A space within a token counts as nothing: a merge is its two tokens with a space between them.

    >>> words_between([b"a", b"\xe2\x96\x81a", b"b\xe2\x96\x81"]).findall("\u2581a\u2581\u2581b\u2581c\u2581d")
    ['▁a', '▁▁b▁c', '▁d']
    """
    end = "\udcff"  # what a byte that UTF-8 never has is decoded to
    text = b"\xff".join(tokens).decode(errors="surrogateescape")
    inside = {match[1] for match in re.finditer(f"([^ {SPACE}{end}]) ?(?={SPACE})", text)}
    before = "".join(map(re.escape, sorted(inside)))  # characters that a space can follow within a token
    return re.compile(f".[^{SPACE}]*(?:(?<=[{SPACE}{before}]){SPACE}+[^{SPACE}]*)*", re.DOTALL)
