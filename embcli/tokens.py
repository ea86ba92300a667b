"""Tokens: token IDs with the bytes they stand for and the place they hold in the text, and how a token is shown."""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError
from embcli.records import Piece, Records
from embcli.selection import distinct

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.encodings import Encoding
    from embcli.text import Given

PIECE = 4096  # tokens that are worked on at a time, so that memory does not grow with the text


@dataclass(frozen=True)
class Tokens:
    """Token IDs in sequences; sequence i is `ids[starts[i]:starts[i + 1]]`."""

    ids: np.ndarray  # (T,) uint32 or int64
    starts: np.ndarray  # (sequences + 1,) int64
    encoding: Encoding | None  # what the IDs mean; None where they are just row numbers
    many: bool = False  # more than one sequence was asked for, so rows say which one they are of

    def __len__(self) -> int:
        return len(self.ids)

    def window(self, length: int) -> Tokens:
        """Return the same tokens with every sequence cut into sequences of at most `length` tokens."""
        cuts = [
            np.arange(start, max(stop, start + 1), length)  # an empty sequence stays one
            for start, stop in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        starts = np.concatenate([*cuts, self.starts[-1:]])
        return Tokens(self.ids, starts, self.encoding, many=True)

    def places(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequence of these tokens, and their positions in it, both (n,) int64."""
        sequence = np.searchsorted(self.starts, index, side="right") - 1
        return sequence, index - self.starts[sequence]

    @cached_property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return int(np.diff(self.starts).max(initial=0))

    def bytes_of(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of each ID; None for an ID that the encoding does not have."""
        if self.encoding is None:
            return [None] * len(ids)
        return list(map(self.encoding.token_bytes, ids.tolist()))

    @property
    def field_names(self) -> tuple[str, ...]:
        """What a row says of its token: the keys of `fields`."""
        return ("sequence",) * self.many + ("position", "id") + ("token",) * (self.encoding is not None)

    def fields(self, index: np.ndarray) -> dict[str, Any]:
        """Return what rows say of these tokens: sequence (where there are many), position, ID, token."""
        sequence, position = self.places(index)
        ids = self.ids[index]
        fields: dict[str, Any] = {"sequence": sequence} if self.many else {}
        fields |= {"position": position, "id": ids}
        if self.encoding is not None:
            fields["token"] = [token_text(token) for token in self.bytes_of(ids)]
        return fields


def tokenize(given: Given, encoding: Encoding | None, special: bool = False) -> Tokens:
    """Return the tokens of what was given; texts are encoded (for which there must be an encoding), IDs are taken."""
    if given.texts is not None and encoding is not None:
        arrays = [encoding.encode(text, special) for text in given.texts]
    else:
        arrays = list(given.ids or ())
    starts = np.cumsum([0, *map(len, arrays)])
    if len(arrays) != 1:
        arrays = [np.concatenate([np.empty(0, np.int64), *arrays]).astype(np.int64)]
    return Tokens(arrays[0], starts, encoding, many=given.lines)


@dataclass(frozen=True)
class Stretch:
    """Consecutive tokens, with where they stand in their text.

    `start` to `end`, each (n,) int64, count characters from the start of the sequence. A token that holds only a part
    of a character has that whole character in its span, and so have the other tokens that share it: `joined` says
    that a token begins in the middle of a character. `characters` is how many characters begin in these tokens.
    """

    index: np.ndarray  # (n,) int64, places among all tokens
    tokens: list[bytes]
    start: np.ndarray
    end: np.ndarray
    joined: np.ndarray  # (n,) bool
    characters: int


@dataclass(frozen=True)
class Tokenization:
    """The result of `tokenize`: tokens, each with its bytes and its span."""

    tokens: Tokens

    def __post_init__(self) -> None:
        check_known(self.tokens)

    def stretches(self) -> Iterator[Stretch]:
        """Yield all tokens in consecutive stretches."""
        before = first = 0  # characters before this stretch, and before the sequence that it begins in
        for start in range(0, len(self.tokens), PIECE):
            index = np.arange(start, min(start + PIECE, len(self.tokens)))
            found, places = distinct(self.tokens.ids[index])
            known = [token or b"" for token in self.tokens.bytes_of(found)]
            begun = np.array([sum(map(_begins, token)) for token in known], np.int64)[places]
            joined = np.array([bool(token) and not _begins(token[0]) for token in known])[places]
            end = before + np.cumsum(begun)
            opening = np.where(self.tokens.places(index)[1] == 0, end - begun, first)
            base = np.maximum.accumulate(opening)
            begin = np.maximum(end - begun - joined, base)
            characters = int(begun.sum())
            tokens = [known[place] for place in places.tolist()]
            yield Stretch(index, tokens, begin - base, end - base, joined, characters)
            before, first = before + characters, int(base[-1])

    def pieces(self) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces."""
        for each in self.stretches():
            yield Piece(len(each.index), partial(self._fields, each), {})

    def _fields(self, stretch: Stretch) -> dict[str, Any]:
        in_hex = [token.hex() for token in stretch.tokens]
        return self.tokens.fields(stretch.index) | {"bytes": in_hex, "start": stretch.start, "end": stretch.end}

    def records(self) -> Records:
        """Return the tokens as data: position, ID, token, bytes (hex) and span of each."""
        encoding = self.tokens.encoding
        return Records(
            run={"encoding": encoding.name if encoding else None, "sequences": len(self.tokens.starts) - 1},
            unit="tokens",
            rows=len(self.tokens),
            fields=(*self.tokens.field_names, "bytes", "start", "end"),
            matrices={},
            pieces=lambda _: self.pieces(),
        )


def _begins(byte: int) -> bool:
    """Return whether a byte of UTF-8 begins a character."""
    return byte & 0xC0 != 0x80


def check_known(tokens: Tokens) -> None:
    """Raise InputError for an ID that the encoding does not have."""
    if tokens.encoding is None:
        return
    for token_id in distinct(tokens.ids)[0].tolist():
        if tokens.encoding.token_bytes(token_id) is None:
            place = int(np.flatnonzero(tokens.ids == token_id)[0])
            size = tokens.encoding.vocabulary_size
            why = "this ID is not used" if 0 <= token_id < size else f"IDs go from 0 to {size - 1}"
            raise InputError(f"ID {token_id} at position {place:,} is no token of {tokens.encoding.name}: {why}")


def decode(ids: np.ndarray, encoding: Encoding) -> bytes:
    """Return the bytes that token IDs stand for; raises InputError for an ID that the encoding does not have."""
    tokens = Tokens(ids, np.array([0, len(ids)]), encoding)
    check_known(tokens)
    return b"".join(token or b"" for token in tokens.bytes_of(tokens.ids))


def token_text(token: bytes | None) -> str | None:
    r"""Return a token as text: its characters, or `\xe2\x80` where its bytes are no whole characters.

    >>> token_text(b" effort"), token_text(b"\xe2\x80")
    (' effort', '\\xe2\\x80')
    """
    if token is None:
        return None
    try:
        return token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)


_SHOWN = {" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "␣": "\\u2423"}
# Characters that a terminal joins with their neighbours or draws in a width of its own choosing.
_JOINING = {"\u200d", "\ufe0e", "\ufe0f", *map(chr, range(0x1F1E6, 0x1F200)), *map(chr, range(0x1F3FB, 0x1F400))}
_JOINING |= {"\U0001171e"}  # a spacing mark (Mc) since Unicode 16


def shown(token: bytes | None) -> str:
    r"""Return a token as a terminal can show it in one line, in a known width, so that no two tokens look alike.

    Spaces are visible, control characters, bidi controls and everything else that is not printed as itself are
    escaped, and so is a combining mark that has no letter to stand on. Bytes that are no whole characters are shown as
    `\xe2\x80`.

    >>> shown(b" effort"), shown(b"\x1b[2J"), shown("\u202e".encode())
    ('␣effort', '\\x1b[2J', '\\u202e')
    """
    if token is None:
        return ""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    return "".join(
        _shown_character(character, text[place - 1] if place else "") for place, character in enumerate(text)
    )


def _shown_character(character: str, previous: str) -> str:
    if character in _SHOWN:
        return _SHOWN[character]
    if character.isascii() and character.isprintable():
        return character
    category = unicodedata.category(character)
    # Terminals disagree on the cells of a spacing mark (Mc) and of what a virama (9) joins; a mark needs a letter.
    unsure = category == "Mc" or unicodedata.combining(character) == 9 or character in _JOINING
    loose = category in ("Mn", "Me") and not previous.isalpha()
    return escaped(character) if unsure or loose or not character.isprintable() else character


def escaped(character: str) -> str:
    r"""Return a character as an escape: `\x1b`, `\u00a0`, `\u202e`, `\U0001f1e6`.

    Only ASCII is written with `\x`: from `\x80` on that is a byte which is no character.
    """
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
