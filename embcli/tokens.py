"""Tokens: token IDs with their bytes and their positions in the text, checks of them, and how a token is shown."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError
from embcli.wording import Sentence

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.records import FieldType, Names
    from embcli.text import Sequences


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token IDs in sequences; sequence i is `ids[starts[i]:starts[i + 1]]`."""

    ids: np.ndarray  # (T,) uint32 or int64
    starts: np.ndarray  # (sequences + 1,) int64
    encoding: Encoding | None  # of the IDs; None if they are only row numbers
    many: bool = False  # whether rows name the sequence that they belong to
    texts: tuple[str, ...] | None = None  # that were encoded, one per sequence; None for IDs
    special: bool = False  # whether special tokens in the texts were recognised
    added: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())  # IDs before and after each text

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def spans(self) -> np.ndarray | None:
        """First and last + 1 character of each token, (T, 2) int64; None if the bytes determine them."""
        if self.texts is None or self.encoding is None:
            return None
        before, after = map(len, self.added)  # their spans are empty
        spans = [np.empty((0, 2), np.int64)]
        for text in self.texts:
            known = self.encoding.spans(text, self.special)
            if known is None:
                return None
            spans += [np.zeros((before, 2), np.int64), known, np.full((after, 2), len(text))]
        return np.concatenate(spans)

    def window(self, length: int) -> Tokens:
        """Return the same tokens, each sequence split into sequences of at most `length` tokens."""
        pieces = [
            np.arange(start, max(stop, start + 1), length)  # an empty sequence stays one
            for start, stop in zip(self.starts[:-1].tolist(), self.starts[1:].tolist(), strict=True)
        ]
        return replace(self, starts=np.concatenate([*pieces, self.starts[-1:]]), many=True)

    def places(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequence of each of these tokens, and its position in the sequence, both (n,) int64."""
        sequence = np.searchsorted(self.starts, index, side="right") - 1
        return sequence, index - self.starts[sequence]

    @property
    def sequences(self) -> int:
        return len(self.starts) - 1

    @cached_property
    def longest(self) -> int:
        return int(np.diff(self.starts).max(initial=0))

    def bytes_of(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of each ID; None for an ID that the encoding does not have."""
        if self.encoding is None:
            return [None] * len(ids)
        distinct, places = np.unique(ids, return_inverse=True)  # most tokens occur more than once
        tokens = list(map(self.encoding.token_bytes, distinct.tolist()))
        return [tokens[place] for place in places.tolist()]

    def measured(self, measure: Callable[[bytes], int]) -> np.ndarray:
        """Return a number that the bytes of each token give, (T,) int64."""
        ids, places = np.unique(self.ids, return_inverse=True)
        numbers = np.array([measure(token or b"") for token in self.bytes_of(ids)], np.int64)
        return np.asarray(numbers[places])

    @property
    def field_types(self) -> dict[str, FieldType]:
        """The fields of a token's row: sequence (if there are many), position, ID, token (of a known encoding)."""
        sequence: dict[str, FieldType] = {"sequence": int} if self.many else {}
        token: dict[str, FieldType] = {"token": str} if self.encoding is not None else {}
        return {**sequence, "position": int, "id": int, **token}

    def fields(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        """Return the named fields of these tokens, of those in `field_types`."""
        sequence, position = self.places(index)
        fields: dict[str, Any] = {"sequence": sequence, "position": position, "id": self.ids[index]}
        if "token" in names:
            fields["token"] = list(map(token_text, self.bytes_of(self.ids[index])))
        return {name: fields[name] for name in names if name in fields}


def tokenize(
    given: Sequences, encoding: Encoding | None, special: bool = False, has_added: bool = True
) -> Tokens:
    """Return the tokens of texts, which need an encoding, or of IDs.

    `special` tokens are recognised, and if `has_added`, those that a model reads before and after a text are added.
    """
    if given.texts is None or encoding is None:
        arrays = given.ids or ()
        starts = np.cumsum([0, *map(len, arrays)])
        return Tokens(
            np.concatenate([np.empty(0, np.int64), *arrays]), starts, encoding, given.many
        )
    ids, lengths = bytearray(), [0]  # as bytes: a million small arrays are many times slower
    added = encoding.bos_eos if special and has_added else ((), ())
    before, after = (np.array(each, np.uint32) for each in added)
    for text in given.texts:
        parts = before, encoding.encode(text, special), after
        for part in parts:
            ids += part.data
        lengths.append(sum(map(len, parts)))
    array = np.frombuffer(ids, np.uint32)
    return Tokens(array, np.cumsum(lengths), encoding, given.many, given.texts, special, added)


def check_known(ids: np.ndarray, encoding: Encoding) -> None:
    """Raise InputError for the first ID that the encoding does not have."""
    unknown = [
        token_id for token_id in np.unique(ids).tolist() if encoding.token_bytes(token_id) is None
    ]
    if unknown:
        place = int(np.isin(ids, unknown).argmax())
        token_id, size = int(ids[place]), encoding.vocabulary_size
        why = "this ID is not used" if 0 <= token_id < size else f"IDs go from 0 to {size - 1}"
        raise InputError(
            f"ID {token_id} at position {place:,} is not a token of {encoding.name}: {why}"
        )


def check_ids(tokens: Tokens, vocabulary_size: int, can_enlarge: bool = True) -> None:
    """Raise InputError for the first ID that a layer of V rows has no row for; `grows` if V can be chosen."""
    wrong = np.flatnonzero((tokens.ids < 0) | (tokens.ids >= vocabulary_size))
    if not len(wrong):
        return
    place = int(wrong[0])
    token_id = int(tokens.ids[place])
    token = id_in_words(
        token_id, tokens.encoding.token_bytes(token_id) if tokens.encoding else None
    )
    there_are = (
        f"the token layer has V = {vocabulary_size:,} rows, for IDs from 0 to {vocabulary_size - 1}"
    )
    reason = f"{token} at position {place:,} has no row: {there_are}"
    if can_enlarge and token_id >= 0:
        rows = int(tokens.ids.max()) + 1
        raise InputError(
            Sentence("{reason}; pass {vocab} {rows} or more", reason=reason, rows=rows)
        )
    raise InputError(reason)


def check_length(tokens: Tokens, context_length: int, can_enlarge: bool) -> None:
    """Raise InputError for a sequence of more tokens than positions; `grows` if the context length can be chosen."""
    if tokens.longest > context_length:
        reason = f"{tokens.longest:,} tokens are more than the context length of {context_length:,}"
        cure = "{window} for several of {length:,}"
        if can_enlarge:
            cure = "{context_length} {longest} for one sequence, or " + cure
        numbers = {"longest": tokens.longest, "length": context_length}
        raise InputError(Sentence("{reason}: pass " + cure, reason=reason, **numbers))


def id_in_words(token_id: int, token: bytes | None) -> str:
    """Return an ID with its token, if there is one: `ID 262 (' the')`."""
    return f"ID {token_id}" if token is None else f"ID {token_id} ({token_text(token)!r})"


_LIKE_BYTES = re.compile(r"\\+x[0-9a-f]{2}(\\x[0-9a-f]{2})*")


@lru_cache(1 << 18)  # most tokens occur more than once
def token_text(token: bytes | None) -> str | None:
    r"""Return a token as text: its characters, or `\xe2\x80` if its bytes are not complete characters.

    A token that consists of such characters gets one more backslash, so that no two tokens have the same text:
    cl100k_base has both the byte `\xff` and these four characters.
    """
    if token is None:
        return None
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    return f"\\{text}" if _LIKE_BYTES.fullmatch(text) else text


def tokens_of(rows: np.ndarray, encoding: Encoding | None) -> list[bytes | None]:
    """Return the bytes of the token of each row of a layer, (n,) int64; None for a row without a token."""
    return [encoding.entry(row) if encoding else None for row in rows.tolist()]


_SHOWN = {" ": "␣", "\n": "\\n", "\t": "\\t", "\r": "\\r", "\\": "\\\\", "␣": "\\u2423"}
# Characters that terminals join with their neighbours, or draw in different widths.
_JOINING = {
    "\u200d",
    "\ufe0e",
    "\ufe0f",
    *map(chr, range(0x1F1E6, 0x1F200)),
    *map(chr, range(0x1F3FB, 0x1F400)),
}
_JOINING |= {"\U0001171e"}  # a spacing mark (Mc) since Unicode 16


def shown(token: bytes | None) -> str:
    r"""Return a token for one line of a terminal, in a known width, so that no two tokens look alike.

    Spaces are visible. Control characters, bidi controls, other characters that cannot be printed, and combining marks
    without a letter are escaped. Bytes that are not complete characters are shown as `\xe2\x80`.
    """
    if token is None:
        return ""
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in token)
    if text.isascii() and text.isprintable() and "\\" not in text:  # most tokens: ten times as fast
        return text.replace(" ", _SHOWN[" "])
    return "".join(map(_shown_character, text, f" {text}"))


def _shown_character(character: str, previous: str) -> str:
    r"""Return a character, or an escape: `\x1b`, `\u00a0`, `\u202e`, `\U0001f1e6`.

    Only ASCII is written with `\x`: from `\x80` on, such an escape means a byte that is not a character.
    """
    if character in _SHOWN:
        return _SHOWN[character]
    category, code = unicodedata.category(character), ord(character)
    # Terminals disagree on the width of spacing marks (Mc) and of characters that a virama (9) joins.
    varies_in_width = (
        category == "Mc" or unicodedata.combining(character) == 9 or character in _JOINING
    )
    has_no_letter = category in ("Mn", "Me") and not previous.isalpha()
    if character.isprintable() and not varies_in_width and not has_no_letter:
        return character
    return (
        f"\\x{code:02x}"
        if code < 0x80
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )
