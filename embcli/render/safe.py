"""Text that may hold anything, made safe to print on a terminal."""

from __future__ import annotations

import re

# C0 but tab and newline, DEL and C1, line and paragraph separators, bidi controls and other invisible formatting.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Return the text with control characters and bidi controls written as `\u001b`, an escape that JSON reads too.

    >>> printable("\x1b[2J")
    '\\u001b[2J'
    """
    return _UNSAFE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
