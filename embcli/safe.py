"""Text made safe to print: on a page, in a message, on a terminal."""

from __future__ import annotations

import re

# C0 except tab and newline, DEL and C1, line and paragraph separators, bidi controls and other invisible formatting,
# surrogates, the two non-characters that XML does not allow either, and zero width joiners without anything to join.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]|(?<!\\S)\u200d"
)
_SURROGATE = re.compile("[\ud800-\udfff]")
_LONG = re.compile(
    r"""('[^']{200})[^']+(?=')|("[^"]{200})[^"]+(?=")|(\([^()]{200})[^()]+(?=\))|([^\s'"]{200})[^\s'"]+"""
)
_LONGEST_LINE = 1000  # characters of a message, whatever is in it
_BLANKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def printable(text: str) -> str:
    r"""Return the text with control characters and bidi controls escaped as in JSON, `\u001b`.

    >>> printable("\x1b[2J"), printable("caf\udce9")
    ('\\u001b[2J', 'caf\\xe9')
    """
    return _UNSAFE.sub(_escape, text)


def in_line(text: str) -> str:
    r"""Return the text for one line: tabs and newlines are escaped too.

    >>> in_line("a\nb\x1b[2J")
    'a\\nb\\u001b[2J'
    """
    return printable(text).translate(_BLANKS)


def shortened(line: str) -> str:
    """Return a message with 200 characters of each word, and of each text in quotes or brackets, that is longer.

    >>> shortened(f"there is no option '{'long' * 60}'") == f"there is no option '{'long' * 50}...'"
    True
    """
    short = _LONG.sub(lambda match: f"{match[match.lastindex or 0]}...", line)
    return short if len(short) <= _LONGEST_LINE else f"{short[:_LONGEST_LINE]}..."


def in_data(text: str) -> str:
    r"""Return text for data in UTF-8: bytes of a path that are not UTF-8, and other lone surrogates, are escaped.

    >>> in_data("caf\udce9"), in_data("\ud800")
    ('caf\\xe9', '\\ud800')
    """
    return text if text.isascii() else _SURROGATE.sub(_escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    is_byte = 0xDC80 <= code <= 0xDCFF  # Python's form of a byte that is not UTF-8
    return f"\\x{code - 0xDC00:02x}" if is_byte else f"\\u{code:04x}"
