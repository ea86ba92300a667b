"""Tokens: token IDs with the bytes they stand for and the place they hold in the text, and how a token is shown."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from embcli.encodings import Encoding
    from embcli.records import FieldType, Names
    from embcli.text import Sequences

PIECE = 4096  # tokens that are worked on at a time, so that memory does not grow with the text


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token IDs in sequences; sequence i is `ids[starts[i]:starts[i + 1]]`."""

    ids: np.ndarray  # (T,) uint32 or int64
    starts: np.ndarray  # (sequences + 1,) int64
    encoding: Encoding | None  # what the IDs mean; None where they are just row numbers
    many: bool = False  # more than one sequence was asked for, so rows say which one they are of
    spelled: dict[int, bytes] = field(default_factory=dict)  # place -> bytes, where the text has others than the ID
    spans: np.ndarray | None = None  # (T, 2) int64, from and to which character; None if their bytes tell it
    from_text: bool = False  # whether a text was encoded, not IDs given

    def __len__(self) -> int:
        return len(self.ids)

    def window(self, length: int) -> Tokens:
        """Return the same tokens with every sequence cut into sequences of at most `length` tokens."""
        cuts = [
            np.arange(start, max(stop, start + 1), length)  # an empty sequence stays one
            for start, stop in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        return replace(self, starts=np.concatenate([*cuts, self.starts[-1:]]), many=True)

    def places(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequence of these tokens, and their positions in it, both (n,) int64."""
        sequence = np.searchsorted(self.starts, index, side="right") - 1
        return sequence, index - self.starts[sequence]

    @property
    def sequences(self) -> int:
        """How many sequences there are."""
        return len(self.starts) - 1

    @cached_property
    def longest(self) -> int:
        """The length of the longest sequence."""
        return int(np.diff(self.starts).max(initial=0))

    def bytes_of(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of each ID; None for an ID that the encoding does not have."""
        return list(map(self._bytes, ids.tolist()))

    @cached_property
    def _bytes(self) -> Callable[[int], bytes | None]:
        return cache(self.encoding.token_bytes) if self.encoding else lambda _: None

    def bytes_at(self, index: np.ndarray) -> list[bytes | None]:
        """Return the bytes of each of these tokens, as the text has them."""
        found = self.bytes_of(self.ids[index])
        if self.spelled:
            found = [self.spelled.get(place, token) for place, token in zip(index.tolist(), found, strict=True)]
        return found

    @property
    def field_types(self) -> dict[str, FieldType]:
        """The fields of a token's row: sequence (if there are many), position, ID, token (of a known encoding)."""
        sequence: dict[str, FieldType] = {"sequence": int} if self.many else {}
        token: dict[str, FieldType] = {"token": str} if self.encoding is not None else {}
        return {**sequence, "position": int, "id": int, **token}

    def fields(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        """Return what rows say of these tokens: of `field_types` those that are asked for."""
        fields: dict[str, Any] = {}
        if "sequence" in names:
            fields["sequence"] = self.places(index)[0]
        if "position" in names:
            fields["position"] = self.places(index)[1]
        if "id" in names:
            fields["id"] = self.ids[index]
        if "token" in names:
            fields["token"] = self.texts(self.bytes_at(index))
        return fields

    def texts(self, tokens: Iterable[bytes | None]) -> list[str | None]:
        """Return each of these tokens as text, see `token_text`."""
        return list(map(self._text, tokens))

    @cached_property
    def _text(self) -> Callable[[bytes | None], str | None]:
        return cache(token_text)


def tokenize(given: Sequences, encoding: Encoding | None, special: bool = False, spans: bool = False) -> Tokens:
    """Return the tokens of what was given; texts are encoded (for which there must be an encoding), IDs are taken.

    With `spans` it is worked out where tokens stand in a text whose bytes are not theirs.
    """
    if given.texts is None or encoding is None:
        arrays = given.ids or ()
        ids, lengths, found = np.concatenate([np.empty(0, np.int64), *arrays]), list(map(len, arrays)), None
    else:
        ids, lengths, found = _encoded(given.texts, encoding, special, spans)
    from_text = given.texts is not None and encoding is not None
    tokens = Tokens(ids, np.cumsum([0, *lengths]), encoding, given.many, spans=found, from_text=from_text)
    return replace(tokens, spelled=_spelled(given.texts, tokens)) if special and given.texts else tokens


def _encoded(
    texts: tuple[str, ...], encoding: Encoding, special: bool, told: bool
) -> tuple[np.ndarray, list[int], np.ndarray | None]:
    """Return the IDs of all texts, (T,) uint32, how many are of each, and if `told`, the spans that there are."""
    if len(texts) == 1:
        ids = encoding.encode(texts[0], special)
        return ids, [len(ids)], encoding.spans(texts[0], special) if told else None
    joined, spans, lengths = bytearray(), bytearray(), []  # a million small arrays take many times as much
    for text in texts:
        ids = encoding.encode(text, special)
        joined += ids.data
        lengths.append(len(ids))
        found = encoding.spans(text, special) if told else None
        if found is not None:
            spans += found.tobytes()
    ids = np.frombuffer(joined, np.uint32)
    return ids, lengths, np.frombuffer(spans, np.int64).reshape(-1, 2) if spans else None


def _spelled(texts: tuple[str, ...], tokens: Tokens) -> dict[int, bytes]:
    """Return by place the bytes of tokens that the texts spell otherwise than their IDs."""
    spelled: dict[int, bytes] = {}
    for text, (start, stop) in zip(texts, pairwise(tokens.starts.tolist()), strict=True):
        found = tokens.encoding.spelled(text, tokens.ids[start:stop]) if tokens.encoding else {}
        spelled |= {start + place: token for place, token in found.items()}
    return spelled


def check_known(tokens: Tokens) -> None:
    """Raise InputError for the first ID that the encoding does not have."""
    encoding = tokens.encoding
    if encoding is None:
        return
    different: set[int] = set()
    for start in range(0, len(tokens), PIECE):
        different.update(tokens.ids[start : start + PIECE].tolist())
    unknown = {token_id for token_id in different if encoding.token_bytes(token_id) is None}
    if unknown:
        place = next(place for place, token_id in enumerate(tokens.ids.tolist()) if token_id in unknown)
        token_id, size = int(tokens.ids[place]), encoding.vocabulary_size
        why = "this ID is not used" if 0 <= token_id < size else f"IDs go from 0 to {size - 1}"
        raise InputError(f"ID {token_id} at position {place:,} is no token of {encoding.name}: {why}")


_LIKE_BYTES = re.compile(r"\\+x[0-9a-f]{2}(\\x[0-9a-f]{2})*")


def token_text(token: bytes | None) -> str | None:
    r"""Return a token as text: its characters, or `\xe2\x80` where its bytes are no whole characters.

    A token whose own characters read like that has one more backslash before them, so that no two tokens are the same
    text: cl100k_base has both the byte `\xff` and the four characters.

    >>> token_text(b" effort"), token_text(b"\xff"), token_text(b"\\xff")
    (' effort', '\\xff', '\\\\xff')
    """
    if token is None:
        return None
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    return f"\\{text}" if _LIKE_BYTES.fullmatch(text) else text


def tokens_of(rows: np.ndarray, encoding: Encoding | None) -> list[bytes | None]:
    """Return the bytes of the token that each row of a layer, (n,) int64, stands for; None for one without a token."""
    return [encoding.entry(row) if encoding else None for row in rows.tolist()]


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
