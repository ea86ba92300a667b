"""Texts and token IDs as a user gives them -> Tokens; functions are in the order of the steps.

Bytes become text, and text or lists become Sequences: the command reads its arguments and standard
input, the library what it is given. `encode_sequences` makes Tokens of them.
"""

from __future__ import annotations

import re
import reprlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from embcli.errors import EmbcliError, InputError, Notes, WrongTypeError
from embcli.names import Shape, Strings
from embcli.selection import hint_at_spelling
from embcli.tokens import Reading, Tokens, shown
from embcli.wording import Sentence

if TYPE_CHECKING:
    from embcli.encodings import Encoding

_MOST_IN_RANGES = 100_000_000
# A list of IDs, as Python, numpy and torch print it.
_LIST = re.compile(r"(?:(?:\w+\.)?(?:tensor|array)\()?[\[(]([^][()]*)[\])]\)?")
_UNREADABLE = re.compile(r"[^0-9\s]|[0-9]{19}", re.ASCII)  # numpy cannot read it as an ID


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text without their ends, LF or CRLF.

    Other line breaks do not end a line: they may occur within JSON.

    >>> lines_of("a\u2028b\r\n\nc\n")
    ['a\u2028b', '', 'c']
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def decoded(content: str | bytes, name: str) -> str:
    """Return bytes, or a text of the command line, as text.

    The InputError for invalid UTF-8 calls it `name` and says where it is.
    """
    data = content if isinstance(content, bytes) else original_bytes(content)
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise InputError(
            f"{name} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start:,} "
            f"({error.reason})",
            "Text is read as UTF-8; --from reads the file of a model.",
        ) from None


def original_bytes(argument: str) -> bytes:
    """Return the bytes of an argument; Python has read invalid UTF-8 as lone surrogates."""
    try:
        return argument.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return argument.encode("utf-8", "surrogatepass")


def parse_ids(text: str) -> np.ndarray:
    """Return the IDs in a text, (T,) int64.

    They are separated by spaces, commas or newlines, or are a list as Python, numpy or torch has
    it. `2:5` is a range without its end: 2, 3, 4. Raises InputError, with the position, for
    anything but whole numbers from 0 and ranges of them.

    >>> parse_ids("2, 3,5:7 1").tolist(), parse_ids("tensor([2, 3])").tolist()
    ([2, 3, 5, 6, 1], [2, 3])
    """
    stripped = text.strip()
    listed = _LIST.fullmatch(stripped)
    if listed is not None:
        stripped = listed[1]
    if re.search(r",\s*,", stripped):
        raise InputError(f"nothing stands between two commas of the IDs {stripped!r}")
    hint = hint_at_spelling(stripped)
    if hint:
        raise InputError(f"{stripped!r} is not a list of token IDs", hint)
    spaced = stripped.replace(",", " ").strip()
    if not _UNREADABLE.search(spaced):
        return np.fromstring(spaced, np.int64, sep=" ")
    ranges = [_parse_range(word, place) for place, word in enumerate(spaced.split())]
    count = sum(map(len, ranges))
    if count > _MOST_IN_RANGES:
        raise InputError(f"the ranges have {count:,} IDs; at most {_MOST_IN_RANGES:,} are possible")
    return np.concatenate([np.arange(ids.start, ids.stop, dtype=np.int64) for ids in ranges])


def _parse_range(word: str, place: int) -> range:
    """Return the IDs of `5` or `2:5`, the word at a place of a list."""
    match = re.fullmatch("([0-9]{1,18})(?::([0-9]{1,18}))?", word)
    if match is None:
        hint = hint_at_spelling(word)
        if not hint and not word[-1:].isdigit():  # such as a word of a page
            hint = "-f ids writes IDs: embcli tokenize TEXT -f ids; IDs in a file are piped in"
        raise InputError(
            f"{word!r} at position {place:,} is not a token ID: IDs are whole numbers from 0, "
            "of up to 18 digits",
            hint,
        )
    start = int(match[1])
    stop = int(match[2] or start + 1)
    if stop <= start:
        raise InputError(
            f"{word!r} at position {place:,} has no IDs: a range ends after its start, as in 0:5"
        )
    return range(start, stop)


def lines_of_ids(text: str) -> tuple[np.ndarray, ...]:
    """Return the IDs in each line of a text, (T,) int64 each.

    Raises InputError with the number of the line.
    """
    arrays = []
    for number, line in enumerate(lines_of(text), 1):
        try:
            arrays.append(parse_ids(line))
        except InputError as error:
            raise InputError(f"line {number:,}: {error}", error.hint) from None
    return tuple(arrays)


class Sequences(NamedTuple):
    """Input sequences: either texts or arrays of token IDs; the other is None."""

    texts: Strings | None = None
    ids: tuple[np.ndarray, ...] | None = None  # (T,) int64 each
    many: bool = False  # whether there may be several, so that rows name their sequence
    shape: Shape = ()  # (T,) or (B, T) of an array of IDs


def sequences_of(text_or_ids: Any, lines: bool = False) -> Sequences:
    """Return texts or IDs as sequences; raises InputError for anything else."""
    if isinstance(text_or_ids, Sequences):
        return text_or_ids
    if isinstance(text_or_ids, str):
        texts = tuple(lines_of(text_or_ids)) if lines else (text_or_ids,)
        return Sequences(texts=texts, many=lines)
    is_list = isinstance(text_or_ids, list | tuple) and text_or_ids
    if is_list and all(isinstance(item, str) for item in text_or_ids):
        return Sequences(texts=tuple(text_or_ids), many=True)
    ids = ids_of(text_or_ids, most_dimensions=2)
    return Sequences(ids=tuple(np.atleast_2d(ids)), many=ids.ndim == 2, shape=ids.shape)


def ids_of(values: Any, most_dimensions: int = 1) -> np.ndarray:
    """Return one ID, (1,), or several, (T,) or (B, T), as int64; raises InputError for others."""
    try:
        ids = np.atleast_1d(values)
    except EmbcliError:  # of a result that is drawn
        raise
    except ValueError:
        lengths = [len(row) for row in values if hasattr(row, "__len__")]
        raise InputError(
            f"sequences of lengths {reprlib.repr(lengths)} are not one array of IDs; "
            "pad them, or give one at a time"
        ) from None
    if ids.size and ids.dtype.kind not in "iu":
        raise WrongTypeError(
            "token IDs are whole numbers, such as 2 or [2, 3], and a text is a str; this is "
            f"{reprlib.repr(values)}"
        )
    if ids.ndim > most_dimensions:
        raise InputError(
            f"IDs of shape {ids.shape} have {ids.ndim} dimensions, more than {most_dimensions}: "
            "give one part at a time, such as ids[0]"
        )
    return ids.astype(np.int64)


def encode_sequences(
    sequences: Sequences,
    encoding: Encoding | None,
    special: bool = False,
    has_added: bool = True,
    notes: Notes | None = None,
) -> Tokens:
    """Return the tokens of texts, which need an encoding, or of IDs; remarks go to the notes.

    If `special`, special tokens are recognised; if also `has_added`, those that a model reads
    before and after a text are added.
    """
    reading = None if encoding is None else Reading(encoding, special, has_added)
    arrays = [np.empty(0, np.int64), *(sequences.ids or ())]
    if sequences.texts is not None and reading is not None:
        before, after = reading.added
        arrays = [np.empty(0, np.uint32)]
        for text in sequences.texts:
            ids = (before, reading.ids(text), after)  # numpy takes an empty tuple for floats
            arrays.append(np.concatenate(ids, dtype=np.uint32, casting="unsafe"))
        if not special:
            _remark_special(sequences.texts, reading, notes or Notes())
    starts = np.cumsum([len(ids) for ids in arrays])
    return Tokens(
        np.concatenate(arrays), starts, reading, sequences.many, sequences.texts, sequences.shape
    )


_SPECIAL = re.compile(r"<\|\w+\|>")  # matches most names of special tokens


def _remark_special(texts: Sequence[str], reading: Reading, notes: Notes) -> None:
    """Remark on special tokens: those that the model adds, and those that count as plain text."""
    encoding = reading.encoding
    if reading.has_added:
        added = []
        for ids, where in zip(encoding.bos_eos, ("before", "after"), strict=True):
            tokens = [shown(encoding.token_bytes(token_id)) for token_id in ids]
            if tokens:
                added.append(f"{' '.join(tokens)} {where}")
        if added:
            notes.add(
                Sentence(
                    "for its model, this tokenizer puts {read} a text; {special} does so here",
                    read=" and ".join(added),
                )
            )

    names = set()
    for text in texts:
        names.update(_SPECIAL.findall(text))
    plain = [name for name in sorted(names) if _is_plain(name, reading)]
    if plain:
        notes.add(
            Sentence(
                "{plain} is read as plain text; {special} makes it one token",
                plain=" ".join(plain),
            )
        )


def _is_plain(name: str, reading: Reading) -> bool:
    """Return whether a name is one token only if special tokens are recognised."""
    special_ids = reading._replace(special=True).ids(name)
    return len(special_ids) == 1 and not np.array_equal(special_ids, reading.ids(name))
