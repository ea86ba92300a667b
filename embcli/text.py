"""What the user gave: an argument, a file or standard input, as text or as token IDs, in one sequence or one a line."""

from __future__ import annotations

import os
import re
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.errors import InputError

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np

_LARGEST_ID = 2**63 - 1
_NOT_PLAIN = re.compile(r"[^0-9\s]|[0-9]{19}", re.ASCII)  # what makes a list of IDs need a second look


@dataclass(frozen=True, eq=False)
class Given:
    """The sequences to work on: texts, or arrays of token IDs (T,) int64; the other one is None."""

    texts: tuple[str, ...] | None = None
    ids: tuple[np.ndarray, ...] | None = None
    lines: bool = False


def read(
    text: str | None = None,
    file: Path | None = None,
    ids: str | None = None,
    lines: bool = False,
    errors: str = "strict",
    example: str = 'embcli lookup "Every effort moves you"',
) -> Given:
    """Read what was given; without text, file and IDs that is standard input, unless it is a terminal.

    `lines` makes each line a sequence of its own, without its line end. Raises InputError when nothing or too much is
    given (with the example of what would be enough), and for bytes that are no UTF-8 unless `errors` is "replace".
    """
    named = {"TEXT": text, "--file": file, "--ids": ids}
    used = [name for name, value in named.items() if value is not None]
    if len(used) > 1:
        both = re.fullmatch(r"([0-9]{1,19}),? ([0-9]{1,19}),?", f"{ids} {text}", re.ASCII)
        hint = f"IDs stand in one word, with commas between: --ids {both[1]},{both[2]}" if both else ""
        raise InputError(f"{' and '.join(used)} stand for the same input; give one of them", hint)
    if ids is not None:
        source = _standard_input("--ids -", "echo 2,3,5,1 | ...") if ids == "-" else ids
        return Given(ids=_lines_of_ids(source) if lines else (parse_ids(source),), lines=lines)
    texts = [_text(text, file, errors, example)]
    if lines:
        texts = lines_of(texts[0])
    return Given(texts=tuple(texts), lines=lines)


def read_ids(ids: str | None = None, example: str = "embcli decode 6109 3626 6100 345") -> np.ndarray:
    """Read the IDs that were given, (T,) int64; without any (or for -) from standard input, unless it is a terminal.

    Raises InputError, with the example, when there are none to read, and for what is no ID.
    """
    option = re.search(r"(?:^| )(--[a-z][-a-z]*)", ids or "")
    if option:
        raise InputError(f"there is no option {option[1]}; IDs stand by themselves, as in: {example}")
    return parse_ids(_standard_input("IDS", example) if ids is None or ids == "-" else ids)


def parse_ids(text: str) -> np.ndarray:
    """Return the IDs in a text, (T,) int64: separated by spaces, commas or newlines, or a JSON array.

    Raises InputError for anything that is no whole number from 0, with its place.

    >>> parse_ids("2, 3,5 1").tolist()
    [2, 3, 5, 1]
    """
    import numpy as np

    stripped = text.strip()
    if stripped.startswith("[") and stripped.endswith("]"):
        stripped = stripped[1:-1]
    spaced = stripped.replace(",", " ").strip()  # numpy reads a 0 from blanks alone
    if not _NOT_PLAIN.search(spaced):
        return np.fromstring(spaced, np.int64, sep=" ")
    return np.array([_one_id(word, place) for place, word in enumerate(spaced.split())], np.int64)


def _lines_of_ids(text: str) -> tuple[np.ndarray, ...]:
    arrays = []
    for number, line in enumerate(lines_of(text), 1):
        try:
            arrays.append(parse_ids(line))
        except InputError as error:
            raise InputError(f"line {number:,}: {error}") from None
    return tuple(arrays)


def _one_id(word: str, place: int) -> int:
    if not (word.isascii() and word.removeprefix("-").isdigit()):
        raise InputError(f"{word[:60]!r} at position {place:,} is not a token ID: IDs are whole numbers from 0")
    if word.startswith("-"):
        raise InputError(f"ID {word[:60]} at position {place:,} is negative: IDs are whole numbers from 0")
    if len(word) > 19 or int(word) > _LARGEST_ID:
        raise InputError(f"ID {word[:60]} at position {place:,} is beyond any vocabulary")
    return int(word)


def decode(data: bytes, source: str, errors: str = "strict", errors_can_be_replaced: bool = True) -> str:
    """Return bytes as text; `source` names them in the InputError for bytes that are no UTF-8."""
    try:
        return data.decode("utf-8", errors)
    except UnicodeDecodeError as error:
        what = f"{source} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start:,} ({error.reason})"
        hint = "; --errors replace goes on with U+FFFD in its place" if errors_can_be_replaced else ""
        raise InputError(f"{what}{hint}") from None


def _argument(text: str, errors: str) -> str:
    if text.isascii():
        return text
    try:
        # Bytes of the command line that are no UTF-8 arrive as lone surrogates; this gives the bytes back.
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        data = text.encode("utf-8", "surrogatepass")
    return decode(data, "TEXT", errors)


def _file(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}") from None
    except ValueError as error:
        raise InputError(f"cannot read {str(path)!r}: {error}") from None


def _text(text: str | None, file: Path | None, errors: str, example: str) -> str:
    if file is not None and str(file) != "-":
        return decode(_file(file), str(file), errors)
    if text is None or text == "-":
        return _standard_input("TEXT", example, errors)
    return _argument(text, errors)


def _standard_input(what: str, example: str, errors: str | None = None) -> str:
    """Return what is piped in; bytes that are no UTF-8 can be replaced where `errors` is given."""
    if sys.stdin is None or sys.stdin.isatty():
        raise InputError(
            f"no {what} given and nothing is piped in, as in: {example}", hint="Try 'embcli --help' for help."
        )
    try:
        data = sys.stdin.buffer.read()
    except OSError as error:
        raise InputError(f"cannot read standard input: {os.strerror(error.errno or 0)}") from None
    return decode(data, "standard input", errors or "strict", errors_can_be_replaced=errors is not None)


def lines_of(text: str) -> list[str]:
    r"""Return the lines of a text without their ends, which are LF or CRLF: other breaks may stand within JSON.

    >>> lines_of("a\u2028b\r\n\nc\n")
    ['a\u2028b', '', 'c']
    """
    lines = text.split("\n")
    for number, line in enumerate(lines):  # in place: long texts are not held three times
        lines[number] = line.removesuffix("\r")
    return lines if lines[-1] else lines[:-1]
