"""Text that may hold anything, made safe to print: on a page, in a message, on a terminal."""

from __future__ import annotations

import re
import sys
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

# C0 but tab and newline, DEL and C1, line and paragraph separators, bidi controls and other invisible formatting,
# surrogates, and the two that are no characters, which XML does not allow either.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_BLANKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def _for_json(character: str) -> str:
    return f"\\u{ord(character):04x}"


def printable(text: str, escape: Callable[[str], str] = _for_json) -> str:
    r"""Return the text with control characters and bidi controls escaped; as `\u001b` unless told how, as in JSON.

    >>> printable("\x1b[2J")
    '\\u001b[2J'
    """
    return _UNSAFE.sub(lambda match: escape(match[0]), text)


def in_line(text: str) -> str:
    r"""Return the text as it can stand in one line: tabs and newlines are escaped too.

    >>> in_line("a\nb\x1b[2J")
    'a\\nb\\u001b[2J'
    """
    return printable(text).translate(_BLANKS)


def in_data(text: str) -> str:
    r"""Return a path or the like as data can hold it: bytes that are no UTF-8 are written as escapes.

    >>> in_data("caf\udce9")
    'caf\\xe9'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


@cache
def note(message: str) -> None:
    """Say something that the result itself does not tell: on standard error, one line, each said once."""
    say(message)


def say(*lines: str) -> None:
    """Print lines on standard error, safe to print; the first one says that it comes from embcli."""
    if sys.stderr is not None:
        with suppress(OSError):  # when nobody is left to read it, the result does not depend on it
            print("embcli:", "\n".join(map(in_line, lines)), file=sys.stderr, flush=True)
