"""How a text is spelled before it is split into tokens, by the package `sentencepiece`: characters, and spaces."""

from __future__ import annotations

from collections.abc import Iterator

from embcli.encodings.spelling import SPACE


def _field(number: int, value: bytes) -> bytes:
    length, size = b"", len(value)
    while size > 0x7F:
        length, size = length + bytes([size & 0x7F | 0x80]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + value


def without_spaces(charsmap: bytes) -> bytes:
    """Return a model that replaces characters and leaves spaces; added to another, it takes its normalizer's place."""
    return _field(3, _field(2, charsmap) + b"\x18\0\x20\0\x28\0")


class Normalizer:
    """A text as T5's vocabulary spells it; sentencepiece replaces characters, and spaces are llama.cpp's."""

    def __init__(self, charsmap: bytes, joins_spaces: bool, adds_space: bool) -> None:
        """Join several spaces and give each word one before it, or add one to the first word, behind its spaces."""
        from sentencepiece import SentencePieceNormalizer

        self._package = SentencePieceNormalizer(model_proto=without_spaces(charsmap))
        self._joins_spaces, self._leads = joins_spaces, joins_spaces or adds_space

    def spelled(self, text: str) -> str:
        text.encode()  # the package's own error for a lone surrogate says nothing
        normal: str = self._package.normalize(text)
        if self._joins_spaces:
            return "".join(SPACE + word for word in normal.split(" ") if word)
        begun = normal.lstrip(" ")
        lead = SPACE * (len(normal) - len(begun) + (self._leads and begun != ""))
        return lead + begun.replace(" ", SPACE)

    def origins(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the span in the text of each character of its spelling."""
        normal, places = self._package.normalize(text, with_offsets=True)
        before = " " if self._leads else ""  # what stands before a character, and gives it a space of its own
        for place, (character, start) in enumerate(zip(normal, places, strict=False)):
            if character != " " and before == " ":
                yield start, start
            before = character if self._joins_spaces or character == before else ""
            if character != " " or not self._joins_spaces:
                yield start, next((end for end in places[place + 1 :] if end > start), len(text))
