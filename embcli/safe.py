"""Text made safe to print: on a page, in a message, on a terminal."""

from __future__ import annotations

import re

# C0 except tab and newline, DEL and C1, line and paragraph separators, bidi controls and other invisible formatting,
# surrogates, and the two non-characters that XML does not allow either.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]"
)
_BLANKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def printable(text: str) -> str:
    r"""Return the text with control characters and bidi controls escaped as in JSON, `\u001b`.

    >>> printable("\x1b[2J")
    '\\u001b[2J'
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def in_line(text: str) -> str:
    r"""Return the text for one line: tabs and newlines are escaped too.

    >>> in_line("a\nb\x1b[2J")
    'a\\nb\\u001b[2J'
    """
    return printable(text).translate(_BLANKS)


def in_data(text: str) -> str:
    r"""Return a path or the like for data: bytes that are not UTF-8 are escaped.

    >>> in_data("caf\udce9")
    'caf\\xe9'
    """
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")
