"""Tokens: token IDs with their bytes and positions, checks of them, and how a token is shown.

`text.py` makes Tokens of texts or of IDs; all verbs that read a text work on them. `token_text`
writes a token as data, `shown` for a page.
"""

from __future__ import annotations

import re
import reprlib
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from embcli.errors import IdError, InputError, Notes, RangeError
from embcli.names import Shape, Strings
from embcli.selection import Selection, select
from embcli.wording import ByteToken, Elsewhere, counted

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.encodings.encoding import BosEos
    from embcli.encodings.merging import Derivation
    from embcli.records import Columns, FieldTypes, Names


class Reading(NamedTuple):
    """How texts become tokens; only this class asks an encoding for the tokens of a user's text."""

    encoding: Encoding
    special: bool = False  # whether special tokens in a text are recognised
    has_added: bool = False  # whether those that a model reads around a text are added, too

    @property
    def added(self) -> BosEos:
        """The IDs that are added before and after each text."""
        return self.encoding.bos_eos if self.special and self.has_added else ((), ())

    def ids(self, text: str) -> np.ndarray:
        """Return the IDs of a text, (T,) uint32, without those that are added."""
        return self.encoding.encode(text, self.special)

    def ids_of_token(self, text: str) -> np.ndarray:
        """Return the IDs of a text, or the ID of the token that it is.

        An encoding that adds a space to each text finds ` Paris` if only `Paris` is encoded.
        """
        unspaced = self.ids(text.removeprefix(" "))
        is_token = tokens_of(unspaced, self.encoding) == [text.encode()]
        return unspaced if is_token else self.ids(text)

    def spans(self, text: str) -> np.ndarray | None:
        return self.encoding.spans(text, self.special)

    def derivations(self, text: str) -> Iterator[Derivation]:
        return self.encoding.derivations(text, self.special)


@dataclass(frozen=True, eq=False)
class Tokens:
    """Token IDs in sequences; sequence i is `ids[starts[i]:starts[i + 1]]`.

    `list(tokens)` are the tokens as text, with escapes for incomplete characters. Spans are
    computed once, when they are first asked for.
    """

    ids: np.ndarray  # (T,) uint32 or int64
    starts: np.ndarray  # (sequences + 1,) int64
    reading: Reading | None  # None if the IDs are only row numbers
    many: bool = False  # whether rows name their sequence
    texts: Strings | None = None  # one per sequence; None for IDs
    shape: Shape = ()  # (T,) or (B, T) if IDs were given as an array

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[str | None]:
        return map(token_text, self.bytes_of(self.ids))

    def __getitem__(self, place: int | slice) -> Any:
        return list(self)[place]

    def __repr__(self) -> str:
        return reprlib.repr(list(self))

    @property
    def encoding(self) -> Encoding | None:
        return None if self.reading is None else self.reading.encoding

    @cached_property
    def spans(self) -> np.ndarray | None:
        """First and last + 1 character of each token, (T, 2) int64.

        None if the bytes of the tokens determine them.
        """
        if self.texts is None or self.reading is None:
            return None
        bos, eos = self.reading.added
        spans = [np.empty((0, 2), np.int64)]
        for text in self.texts:
            spans_in_text = self.reading.spans(text)
            if spans_in_text is None:
                return None
            # Added tokens have empty spans, at the beginning and at the end of the text.
            spans.append(np.zeros((len(bos), 2), np.int64))
            spans.append(spans_in_text)
            spans.append(np.full((len(eos), 2), len(text)))
        return np.concatenate(spans)

    def window(self, length: int) -> Tokens:
        """Return the same tokens, each sequence split into sequences of at most `length` tokens."""
        starts = []
        for start, stop in pairwise(self.starts.tolist()):
            # An empty sequence stays one.
            starts.append(np.arange(start, max(stop, start + 1), length))
        starts.append(self.starts[-1:])
        return replace(self, starts=np.concatenate(starts), many=True, shape=())

    def places(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the sequence of each of these tokens, and its position there, both (n,) int64."""
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
        return tokens_of(ids, self.encoding)

    def measured(self, measure: Callable[[bytes], int]) -> np.ndarray:
        """Return what a function of bytes gives for each token, (T,) int64."""
        distinct_ids, places = np.unique(self.ids, return_inverse=True)
        numbers = [measure(token or b"") for token in self.bytes_of(distinct_ids)]
        return np.asarray(np.array(numbers, np.int64)[places])

    @property
    def field_types(self) -> FieldTypes:
        """The type of each field of a token's row, by name."""
        types: FieldTypes = {}
        if self.many:
            types["sequence"] = int
        types["position"] = int
        types["id"] = int
        if self.encoding is not None:
            types["token"] = str
        return types

    def fields(self, index: np.ndarray, names: Names) -> Columns:
        """Return the fields of these tokens by name; `token` only if it is among the names."""
        sequence, position = self.places(index)
        ids = self.ids[index]
        fields = {"sequence": sequence, "position": position, "id": ids}
        if "token" in names:
            fields["token"] = list(map(token_text, self.bytes_of(ids)))
        return fields


def check_known(ids: np.ndarray, encoding: Encoding) -> None:
    """Raise IdError for the first ID that the encoding does not have."""
    unknown = [row for row in np.unique(ids).tolist() if encoding.token_bytes(row) is None]
    if not unknown:
        return
    place = int(np.isin(ids, unknown).argmax())
    token_id = int(ids[place])
    size = encoding.vocabulary_size
    reason = f"IDs go from 0 to {size - 1}"
    if 0 <= token_id < size:
        reason = "this ID is not used"
    raise IdError(
        f"ID {token_id} at position {place:,} is not a token of {encoding.name}: {reason}"
    )


def check_ids(tokens: Tokens, vocabulary_size: int, can_enlarge: bool = True) -> None:
    """Raise IdError for the first ID that a layer of V rows has no row for.

    `can_enlarge` says that the user can choose a larger V.
    """
    is_outside = (tokens.ids < 0) | (tokens.ids >= vocabulary_size)
    if not is_outside.any():
        return
    place = int(is_outside.argmax())
    token_id = int(tokens.ids[place])
    token = tokens.encoding.token_bytes(token_id) if tokens.encoding else None
    reason = (
        f"{id_in_words(token_id, token)} at position {place:,} has no row: the token layer has "
        f"V = {counted(vocabulary_size, 'row')}, for IDs from 0 to {vocabulary_size - 1}"
    )
    if token_id < 0:
        raise IdError(f"{reason}; IDs are not counted from the end")
    if not can_enlarge:
        raise IdError(reason)
    cure = "{reason}; {vocab} or more gives it one (others may change)"
    if tokens.texts is not None:
        cure += ", or leave it out"
    vocab = Elsewhere("vocab", int(tokens.ids.max()) + 1)
    raise IdError(cure, reason=reason, vocab=vocab)


def check_length(tokens: Tokens, context_length: int, can_enlarge: bool) -> None:
    """Raise InputError for a sequence of more tokens than positions.

    `can_enlarge` says that the user can choose a larger context length.
    """
    longest = tokens.longest
    if longest <= context_length:
        return
    cure = "{window} for several of {length:,}"
    if can_enlarge:
        cure = "{longer} for one sequence, or " + cure
    wrong = "{longest:,} tokens are more than the context length of {length:,}: use " + cure
    longer = Elsewhere("context_length", longest)
    raise InputError(wrong, longest=longest, length=context_length, longer=longer)


def id_in_words(token_id: int, token: bytes | None) -> str:
    """Return an ID with its token, if there is one: `ID 262 (' the')`."""
    return f"ID {token_id}" if token is None else f"ID {token_id} ({token_text(token)!r})"


_LIKE_BYTES = re.compile(r"\\+x[0-9a-f]{2}(\\x[0-9a-f]{2})*")


@lru_cache(1 << 18, typed=True)
def token_text(token: bytes | None) -> str | None:
    r"""Return a token as text: its characters, or `\xe2\x80` for bytes (see `shown`).

    A token that consists of such escapes gets one more backslash, so that no two tokens have the
    same text: cl100k_base has both the byte `\xff` and these four characters.
    """
    if token is None:
        return None
    if isinstance(token, ByteToken):
        return _escaped_bytes(token)
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return _escaped_bytes(token)
    return f"\\{text}" if _LIKE_BYTES.fullmatch(text) else text


def _escaped_bytes(token: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in token)


def hint_at_token(text: str, tokens: Iterable[bytes | None]) -> str:
    """Return a question for the first token that differs from a text by spaces or case; or ''."""
    for token in map(token_text, tokens):
        if token and token != text and token.strip().lower() == text.strip().lower():
            return f"did you mean {token!r}?"
    return ""


def tokens_of(rows: np.ndarray, encoding: Encoding | None) -> list[bytes | None]:
    """Return the token of each row of a layer, (n,) int64; None for a row without a token."""
    if encoding is None:
        return [None] * len(rows)
    return [encoding.token_bytes(row) for row in rows.tolist()]


def chosen_rows(
    rows: Selection | None, match: str | None, size: int, encoding: Encoding | None
) -> np.ndarray | None:
    """Return the chosen rows whose tokens a regular expression matches, (n,) int64 ascending.

    None stands for all rows. Raises InputError for a pattern that is malformed, and for one if the
    rows stand for no tokens.
    """
    if rows is None and match is None:
        return None
    chosen = np.unique(select(rows, size, "row"))
    if match is None:
        return chosen
    try:
        pattern = re.compile(match)
    except (re.error, TypeError) as error:
        raise InputError(
            "{match} {given!r} is not a regular expression: {error}", given=str(match), error=error
        ) from None
    if encoding is None:
        raise InputError(
            "{match} {given!r} needs tokens, and the tokens of these rows are unknown", given=match
        )
    texts = [token_text(token) for token in tokens_of(chosen, encoding)]
    has_match = [text is not None and pattern.search(text) is not None for text in texts]
    return chosen[has_match]


def resolve_rows(
    rows: Selection | None, encoding: Encoding | None, size: int, notes: Notes
) -> Selection | None:
    """Return chosen rows with an ID in place of each token of an encoding.

    A token may begin with a space that the user left out, which a note says, and special tokens are
    found by their names. Raises InputError for a text that is not one token, and RangeError for a
    token without a row.
    """
    if encoding is None or not isinstance(rows, str):
        return rows
    parts = rows.split(",")
    for place, part in enumerate(parts):
        if any(map(str.isalpha, part)):
            row = _id_of_token(part, encoding, notes)
            if row >= size:
                raise RangeError(f"{part!r} is ID {row}, and there are {size:,} rows")
            parts[place] = str(row)
    return ",".join(parts)


def _id_of_token(text: str, encoding: Encoding, notes: Notes) -> int:
    """Return the ID of a text that is one token, by itself, after a space, or a special one."""
    for candidate, special in ((text, False), (f" {text}", False), (text, True)):
        ids = Reading(encoding, special).ids_of_token(candidate)
        if len(ids) == 1:
            if candidate != text:
                notes.add(f"{text!r} is not a token; this is the row of {candidate!r}")
            return int(ids[0])
    raise InputError(
        f"{text!r} is {counted(len(Reading(encoding).ids(text)), 'token')}; "
        "a row is named by its ID or by one token",
        hint_at_token(text, map(encoding.token_bytes, range(encoding.vocabulary_size))),
    )


_SHOWN = {
    " ": "␣",
    "\n": "\\n",
    "\t": "\\t",
    "\r": "\\r",
    "\\": "\\\\",
    "␣": "\\u2423",
    "◌": "\\u25cc",
}
# Characters that terminals join with their neighbours, or draw in different widths. U+1171E is a
# spacing mark (Mc) since Unicode 16.
_JOINING = "[\u200d\ufe0e\ufe0f\U0001171e\U0001f1e6-\U0001f1ff\U0001f3fb-\U0001f3ff]"

# Whether tokens are shown in a picture, which fits signs into their cells; set for a whole page.
in_picture = ContextVar("in_picture", default=False)


def varies_in_width(character: str) -> bool:
    """Return whether terminals disagree on the cells of a character, or of what it joins.

    They do on those of spacing marks and viramas, which fit their cells in a picture.
    """
    is_virama = unicodedata.combining(character) == 9
    is_fitted = is_virama or unicodedata.category(character) == "Mc"
    return (is_fitted and not in_picture.get()) or bool(re.match(_JOINING, character))


def shown(token: bytes | None) -> str:
    r"""Return a token for one line of a page, in a known width; no two tokens look alike.

    Spaces are visible, and combining marks without a letter are on a dotted circle. Control
    characters, bidi controls, others that cannot be printed, and those whose width is not known are
    escaped. Bytes that are not complete characters are shown as `\xe2\x80`, and so is a byte that
    is a token beside the tokens of characters.
    """
    if token is None:
        return ""
    if isinstance(token, ByteToken):
        return _escaped_bytes(token)
    try:
        text = token.decode()
    except UnicodeDecodeError:
        return _escaped_bytes(token)
    if text.isascii() and text.isprintable() and "\\" not in text:
        # Most tokens are like this, and it is ten times as fast.
        return text.replace(" ", _SHOWN[" "])
    characters = map(_shown_character, text, f" {text}")
    return "".join(characters)  # each with the one before it


def _shown_character(character: str, previous: str) -> str:
    r"""Return a character as it is, on a dotted circle, or as an escape: `\x1b`, `\u202e`.

    Only ASCII is written with `\x`: from `\x80` on, such an escape means a byte that is not a
    character.
    """
    if character in _SHOWN:
        return _SHOWN[character]
    if not character.isprintable() or varies_in_width(character):
        return _escape(character)
    is_after_mark = unicodedata.category(previous).startswith("M")
    has_base = previous.isalpha() or (is_after_mark and not varies_in_width(previous))
    is_mark = unicodedata.category(character).startswith("M")
    return f"◌{character}" if is_mark and not has_base else character


def _escape(character: str) -> str:
    if "\x80" <= character <= "\xff":
        return f"\\u{ord(character):04x}"
    return character.encode("unicode_escape").decode()
