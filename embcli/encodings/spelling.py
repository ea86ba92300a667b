"""How vocabularies spell the bytes of a token: GPT-2's characters for bytes, SentencePiece's pieces."""

from __future__ import annotations

import re
from collections.abc import Iterable

import numpy as np

SPACE = "\u2581"  # SentencePiece's spelling of a space


# GPT-2's encoder: printable characters of Latin-1 are their own bytes; the others are U+0100 and on, in order.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
_BYTES = dict(zip(_PRINTABLE, _PRINTABLE, strict=True)) | dict(zip(range(0x100, 0x200), _OTHERS, strict=False))
_BYTES |= dict.fromkeys(_OTHERS, 0x100)  # in Latin-1 such a character stands for no byte


def bytes_of(word: bytes) -> bytes | None:
    r"""Return the bytes of a word of a byte-level vocabulary; None if it has other characters.

    >>> bytes_of("Ġmoves".encode())
    b' moves'
    """
    try:
        return word.decode().translate(_BYTES).encode("latin-1")
    except UnicodeError:
        return None


def from_characters(word: bytes) -> bytes:
    """Return the bytes of a word of a byte-level vocabulary; others are spelled as they are."""
    known = bytes_of(word)
    return word if known is None else known


def from_piece(word: bytes) -> bytes:
    r"""Return the bytes of a piece of SentencePiece.

    >>> from_piece("▁moves".encode()), from_piece(b"<0x0A>")
    (b' moves', b'\n')
    """
    byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", word)
    return bytes([int(byte[1], 16)]) if byte else word.replace(SPACE.encode(), b" ")


def words_between(tokens: Iterable[bytes]) -> re.Pattern[str]:
    r"""Return a pattern of words, each with the spaces before it, such that no token reaches over their edges.

    A space within a token is ignored: a merge is its two tokens with a space between them.

    >>> words_between([b"a", b"\xe2\x96\x81a", b"b\xe2\x96\x81"]).findall("\u2581a\u2581\u2581b\u2581c\u2581d")
    ['▁a', '▁▁b▁c', '▁d']
    """
    end = "\udcff"  # what a byte that UTF-8 never has is decoded to
    text = b"\xff".join(tokens).decode(errors="surrogateescape")
    inside = {match[1] for match in re.finditer(f"([^ {SPACE}{end}]) ?(?={SPACE})", text)}
    before = "".join(map(re.escape, sorted(inside)))  # characters that a space can follow within a token
    return re.compile(f".[^{SPACE}]*(?:(?<=[{SPACE}{before}]){SPACE}+[^{SPACE}]*)*", re.DOTALL)


def spans_of(tokens: list[bytes]) -> np.ndarray:
    """Return the spans of tokens that spell a text, (n, 2) int64; a token with part of a character gets all of it."""
    ends = np.cumsum([0, *map(len, tokens)])
    return characters_of(b"".join(tokens), ends[:-1], ends[1:])


def characters_of(text: bytes, starts: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """Return the first and the end character of ranges of bytes, (n, 2) int64; part of a character counts as all."""
    data = np.frombuffer(text, np.uint8)
    begun = np.zeros(len(data) + 1, np.int32)  # characters that begin before each byte
    np.cumsum(data & 0xC0 != 0x80, out=begun[1:])
    first = begun[np.minimum(starts + 1, len(data))] - (starts < len(data))
    return np.stack([np.maximum(first, 0), begun[ends]], axis=1).astype(np.int64)
