"""How SentencePiece spells a text before it is split: characters are replaced, spaces are joined, escaped and added."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.encodings.spelling import SPACE

if TYPE_CHECKING:
    from embcli.encodings.charsmap import Charsmap


@dataclass(frozen=True)
class Normalization:
    """What is done to a text, in this order; `leads` before its first character, or before its first word."""

    charsmap: Charsmap | None = None
    joins_spaces: bool = False  # several spaces are one; those at the end are none
    leads: bool = False  # a space is added
    leads_words: bool = False  # it follows spaces at the beginning; if they are joined, it is always added

    def spelled(self, text: str) -> str:
        """Return a text as the vocabulary spells it.

        >>> Normalization(joins_spaces=True, leads=True).spelled("  a  b "), Normalization(leads=True).spelled(" a")
        ('▁a▁b', '▁▁a')
        >>> Normalization(joins_spaces=True, leads_words=True).spelled("a b")
        '▁a▁b'
        """
        normal = self.charsmap.normal(text) if self.charsmap else text
        if self.joins_spaces:
            words = [word for word in normal.split(" ") if word]
            return SPACE * (words != [] and (self.leads or self.leads_words)) + SPACE.join(words)
        begun = normal.lstrip(" ") if self.leads_words else normal
        lead = SPACE * (len(normal) - len(begun) + (self.leads and begun != ""))
        return lead + begun.replace(" ", SPACE)

    def origins(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the span in the text of each character of its spelling."""
        place, spaces, begun = 0, 0, False
        for normal, length in self.charsmap.steps(text) if self.charsmap else ((each, 1) for each in text):
            for character in normal:
                is_first = not begun and (character != " " or not (self.joins_spaces or self.leads_words))
                if is_first and (self.leads or (self.leads_words and self.joins_spaces)):
                    yield place, place
                begun = begun or is_first
                if character != " " and spaces and self.joins_spaces and not is_first:
                    yield place, place
                spaces = spaces + 1 if character == " " else 0
                if character != " " or not self.joins_spaces:
                    yield place, place + length
            place += length
