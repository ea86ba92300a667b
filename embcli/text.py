"""Texts and lists of token IDs as the user writes them: bytes to text, text to lines, text to IDs.

The command reads its arguments and standard input by these functions, the library its lists.
"""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, NamedTuple

from embcli.errors import InputError

if TYPE_CHECKING:
    import numpy as np

_MOST_IN_RANGES = 100_000_000
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_UNREADABLE = re.compile(r"[^0-9\s]|[0-9]{19}", re.ASCII)  # numpy cannot read it as an ID


class Sequences(NamedTuple):
    """Input sequences: either texts or arrays of token IDs; the other is None."""

    texts: tuple[str, ...] | None = None
    ids: tuple[np.ndarray, ...] | None = None  # (T,) int64 each
    many: bool = False  # whether there may be several, so that rows name their sequence
    shape: tuple[int, ...] = ()  # (T,) or (B, T) of an array of IDs


def parse_ids(text: str) -> np.ndarray:
    """Return the IDs in a text, (T,) int64.

    They are separated by spaces, commas or newlines, or are a JSON array. `2:5` is a range without
    its end: 2, 3, 4. Raises InputError, with the position, for anything but whole numbers from 0
    and ranges of them.

    >>> parse_ids("2, 3,5:7 1").tolist()
    [2, 3, 5, 6, 1]
    """
    import numpy as np

    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1]
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
    start_text, colon, stop_text = word.partition(":")
    start = _parse_id(start_text, place)
    stop = _parse_id(stop_text, place) if colon else start + 1
    if stop <= start:
        wrong = f"{word[:60]!r} at position {place:,} has no IDs"
        raise InputError(f"{wrong}: a range ends after its start, as in 0:5")
    return range(start, stop)


def _parse_id(text: str, place: int) -> int:
    if not re.fullmatch("[0-9]{1,18}", text):
        wrong = f"{text[:60]!r} at position {place:,} is not a token ID"
        reason = "IDs are whole numbers from 0, of up to 18 digits"
        raise InputError(f"{wrong}: {reason}", hint_at_range(text))
    return int(text)


def hint_at_range(text: str) -> str:
    """Return how to write a range such as `3-7` or `3..7`; empty for another text.

    >>> hint_at_range("3..7")
    'A range has a colon and ends before its stop: 3:7.'
    """
    match = re.fullmatch(r"([0-9]+)(?:-|\.{2,3})([0-9]+)", text)
    if match is None:
        return ""
    return f"A range has a colon and ends before its stop: {match[1]}:{match[2]}."


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


def is_text(data: bytes) -> bool:
    """Return whether bytes are UTF-8 without control characters; the last one may be incomplete."""
    decoder = getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return not _CONTROLS.search(text)


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
        reason = f"byte 0x{data[error.start]:02x} at offset {error.start:,} ({error.reason})"
        raise InputError(f"{name} is not UTF-8: {reason}") from None


def original_bytes(argument: str) -> bytes:
    """Return the bytes of an argument; Python has read invalid UTF-8 as lone surrogates."""
    try:
        return argument.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return argument.encode("utf-8", "surrogatepass")
