"""How vocabularies spell the bytes of a token: GPT-2's characters for bytes, SentencePiece's pieces."""

from __future__ import annotations

import re
from functools import lru_cache


@lru_cache
def byte_of() -> dict[str, int]:
    """Return the byte of each character of a byte-level vocabulary, as in GPT-2's encoder.

    Printable characters of Latin-1 are their own bytes; the other bytes are the characters from U+0100 on, in order.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + place): byte for place, byte in enumerate(others)}


def from_characters(word: bytes) -> bytes:
    r"""Return the bytes of a word of a byte-level vocabulary.

    >>> from_characters("Ġmoves".encode())
    b' moves'
    """
    bytes_of = byte_of()
    text = word.decode("utf-8", "replace")
    return bytes(bytes_of[character] for character in text) if bytes_of.keys() >= set(text) else word


def from_piece(word: bytes) -> bytes:
    r"""Return the bytes of a piece of SentencePiece.

    >>> from_piece("▁moves".encode()), from_piece(b"<0x0A>")
    (b' moves', b'\n')
    """
    byte = re.fullmatch(rb"<0x([0-9A-F]{2})>", word)
    return bytes([int(byte[1], 16)]) if byte else word.replace("▁".encode(), b" ")
