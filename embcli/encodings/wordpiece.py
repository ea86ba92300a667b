"""WordPiece: words in lower case, without accents; each is the longest tokens that spell it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping

from embcli.encodings.algorithm import Derivation, Parts, PieceByPiece, Step
from embcli.encodings.spelling import SPACE

# Ideographs, each of which is a word; as in BERT's own tokenizer, except for the first of the last but two ranges.
_IDEOGRAPHS = (
    *(range(0x4E00, 0xA000), range(0x3400, 0x4DC0), range(0x20000, 0x2A6E0), range(0x2A700, 0x2B740)),
    *(range(0x2B740, 0x2B820), range(0x2B920, 0x2CEB0), range(0xF900, 0xFB00), range(0x2F800, 0x2FA20)),
)


class WordPieces(PieceByPiece):
    """The vocabulary spells the first token of a word with U+2581 before it."""

    def __init__(self, ids: Mapping[bytes, int], unknown: int, lowers: bool, strips_accents: bool) -> None:
        """Take the IDs of tokens, the unknown token, and how a text is normalised."""
        super().__init__()
        self._tokens, self._unknown = ids, unknown
        self._longest = max(map(len, ids), default=0)
        self._spelled = _Characters(lowers, strips_accents)

    def pieces(self, text: str) -> Iterable[str]:
        """Return the words of a text in order."""
        return (word[0] for word in re.finditer(r"\S+", text.translate(self._spelled)))

    def parts(self, piece: str) -> Parts:
        """Return the tokens of a word in order; the unknown token if it has others than these."""
        word = (SPACE + piece).encode()
        parts: Parts = []
        place, hidden = 0, len(SPACE.encode())  # bytes at the beginning that the word does not have
        while place < len(word):
            ends = range(min(len(word), place + self._longest + 1), place, -1)
            end = next((end for end in ends if word[place:end] in self._tokens), 0)
            if not end:
                return [(self._unknown, len(word) - len(SPACE.encode()))]
            parts.append((self._tokens[word[place:end]], max(end - max(place, hidden), 0)))
            place = end
        return parts

    def derivation(self, piece: str) -> Derivation:
        """Return the tokens of a word, the longest first."""
        place, steps = 0, []
        for token_id, length in self.parts(piece):
            steps.append(Step(piece.encode()[place : place + length], token_id))
            place += length
        return Derivation.in_order(piece.encode(), steps)

    def origins(self, text: str) -> list[tuple[int, int]]:
        """Return the span in the text of each character of the words, joined."""
        return [
            (place, place + 1)
            for place, character in enumerate(text)
            for _ in (self._spelled[ord(character)] or "").replace(" ", "")
        ]


class _Characters(dict[int, "str | None"]):
    """What becomes of each character: None if it is left out; spaces separate words."""

    def __init__(self, lowers: bool, strips_accents: bool) -> None:
        self._lowers, self._strips_accents = lowers, strips_accents

    def __missing__(self, code: int) -> str | None:
        self[code] = self._of(chr(code))
        return self[code]

    def _of(self, character: str) -> str | None:
        if self._strips_accents:
            character = unicodedata.normalize("NFD", character)[0]
        kind = unicodedata.category(character)
        if character.isspace() and not "\x1c" <= character <= "\x1f":
            return " "
        if kind in ("Cc", "Cf", "Co", "Cs") or character in "\0\ufffd" or (self._strips_accents and kind[0] == "M"):
            return None
        code = ord(character)
        is_word = kind[0] == "P" or (code < 0x7F and kind[0] == "S") or any(code in each for each in _IDEOGRAPHS)
        lower = character.lower()[0] if self._lowers else character
        return f" {lower} " if is_word else lower
