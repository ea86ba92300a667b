"""Texts and lists of token IDs as the user gives them: bytes to text, text to lines, text to IDs."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder
from typing import TYPE_CHECKING, NamedTuple

from embcli.errors import InputError

if TYPE_CHECKING:
    import numpy as np

_LARGEST_ID = 2**63 - 1
_MOST_IN_RANGES = 100_000_000
_CONTROLS = re.compile("[\x00-\x08\x0e-\x1f\x7f]")
_UNUSUAL = re.compile(r"[^0-9\s]|[0-9]{19}", re.ASCII)  # in a list of IDs that numpy cannot read


class Sequences(NamedTuple):
    """Input sequences: texts, or arrays of token IDs (T,) int64; the other one is None.

    `many` says that there may be several, so that rows name their sequence.
    """

    texts: tuple[str, ...] | None = None
    ids: tuple[np.ndarray, ...] | None = None
    many: bool = False


def parse_ids(text: str) -> np.ndarray:
    """Return the IDs in a text, (T,) int64: separated by spaces, commas or newlines, or a JSON array.

    `2:5` is a range without its end: 2, 3, 4. Raises InputError, with the position, for anything but whole numbers from
    0 and ranges of them.

    >>> parse_ids("2, 3,5:7 1").tolist()
    [2, 3, 5, 6, 1]
    """
    import numpy as np

    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1]
    spaced = stripped.replace(",", " ").strip()  # numpy reads spaces as a 0
    if not _UNUSUAL.search(spaced):
        return np.fromstring(spaced, np.int64, sep=" ")
    ranges = [_range(word, place) for place, word in enumerate(spaced.split())]
    count = sum(map(len, ranges))
    if count > _MOST_IN_RANGES:
        raise InputError(f"the ranges have {count:,} IDs; at most {_MOST_IN_RANGES:,} are possible")
    return np.concatenate(
        [np.arange(each.start, each.stop, dtype=np.uint64).astype(np.int64) for each in ranges]
    )


def lines_of_ids(text: str) -> tuple[np.ndarray, ...]:
    """Return the IDs in each line of a text, (T,) int64 each; raises InputError with the number of the line."""
    arrays = []
    for number, line in enumerate(lines_of(text), 1):
        try:
            arrays.append(parse_ids(line))
        except InputError as error:
            raise InputError(f"line {number:,}: {error}") from None
    return tuple(arrays)


def _range(word: str, place: int) -> range:
    start, colon, end = word.partition(":")
    numbers = []
    for each in (start, end) if colon else (start,):
        if not (each.isascii() and each.removeprefix("-").isdigit()):
            raise InputError(
                f"{each[:60]!r} at position {place:,} is not a token ID: IDs are whole numbers from 0"
            )
        if each.startswith("-"):
            raise InputError(
                f"ID {each[:60]} at position {place:,} is negative: IDs are whole numbers from 0"
            )
        if len(each) > 19 or int(each) > _LARGEST_ID:
            raise InputError(f"ID {each[:60]} at position {place:,} is beyond any vocabulary")
        numbers.append(int(each))
    ids = range(numbers[0], numbers[1] if colon else numbers[0] + 1)
    if not ids:
        raise InputError(
            f"{word[:60]!r} at position {place:,} has no IDs: a range ends after its start, as in 0:5"
        )
    return ids


def is_text(data: bytes) -> bool:
    """Return whether bytes are text in UTF-8 without control characters; the last character may be cut."""
    try:
        text = getincrementaldecoder("utf-8")().decode(data)
    except UnicodeDecodeError:
        return False
    return not _CONTROLS.search(text)


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text without their ends, LF or CRLF; other line breaks may occur within JSON.

    >>> lines_of("a\u2028b\r\n\nc\n")
    ['a\u2028b', '', 'c']
    """
    lines = [line.removesuffix("\r") for line in text.split("\n")]
    return lines if lines[-1] else lines[:-1]


def decoded(given: str | bytes, name: str) -> str:
    """Return bytes, or a text of the command line, as text.

    The InputError for invalid UTF-8 calls it `name` and says where it is.
    """
    if isinstance(given, bytes):
        data = given
    else:  # Python passes invalid UTF-8 of a command line as lone surrogates; this restores the bytes
        try:
            data = given.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            data = given.encode("utf-8", "surrogatepass")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        reason = f"byte 0x{data[error.start]:02x} at offset {error.start:,} ({error.reason})"
        raise InputError(f"{name} is not UTF-8: {reason}") from None
