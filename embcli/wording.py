"""Text for people: counts and sizes in words, sentences about parameters, safe text, facts in data.

Pages and errors use it. Whatever comes from a file or a user passes through `printable` or
`in_line` before a terminal gets it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from string import Formatter
from typing import Any, NamedTuple

DATA = Path(__file__).parent / "data"

QUANTILES = {
    "least": 0.0,
    "1 %": 0.01,
    "25 %": 0.25,
    "median": 0.5,
    "75 %": 0.75,
    "99 %": 0.99,
    "largest": 1.0,
}


def load_facts(name: str) -> Any:
    """Return the content of a JSON file of `data/`."""
    return json.loads((DATA / name).read_text("utf-8"))


def counted(number: int, thing: str) -> str:
    """Return a number of things in words: `1 token`, `2,000 tokens`."""
    plural = "" if number == 1 else "s"
    return f"{number:,} {thing}{plural}"


def first_of(words: Iterable[str], top: int, separator: str = ", ") -> str:
    """Return the first words, joined, with dots for the others."""
    top = min(top, 1 << 30)  # islice takes no larger number
    shown_words = list(islice(words, top + 1))
    if len(shown_words) > top:
        shown_words[top] = "..."
    return separator.join(shown_words)


def nearest(word: str, words: Iterable[str]) -> str:
    """Return the word that is spelled most like another one, or "" if none is like it.

    Capitals and the dashes of an option do not count. Two letters that changed places are like, and
    so is a beginning.

    >>> nearest("jsn", ["csv", "json"]), nearest("cvs", ["csv", "json"]), nearest("js", ["json"])
    ('json', 'csv', 'json')
    >>> nearest("quit", ["audit"]), nearest("--heat", ["--theta"])
    ('', '')
    """
    from difflib import get_close_matches

    spelled = {_letters(other): other for other in words}
    letters = _letters(word)
    near = get_close_matches(letters, spelled, 1, cutoff=_LEAST_ALIKE)
    near += [other for other in spelled if sorted(other) == sorted(letters)]
    near += [other for other in spelled if other.startswith(letters) and len(letters) > 1]
    return spelled[near[0]] if near else ""


_LEAST_ALIKE = 0.7  # of difflib's ratio: most words that share an ending only have less


def _letters(word: str) -> str:
    return word.lstrip("-").casefold()


def in_bytes(size: int) -> str:
    """Return a size in words, in decimal units.

    >>> in_bytes(999), in_bytes(1000), in_bytes(51_463_168)
    ('999 bytes', '1.0 kB', '51.5 MB')
    """
    from rich.filesize import decimal

    return decimal(size)


def number_in(variable: str) -> int:
    """Return a whole number from the environment; 0 if there is none."""
    value = os.environ.get(variable, "")
    if not (value.isascii() and value.isdigit()):
        return 0
    return int(value[:6])


class ByteToken(bytes):
    """A byte that is a token beside those of characters: `<0x41>`, which is not the token `A`."""


class Parameter(str):
    """The name of a parameter, as a value of a sentence that is used for several of them."""


# What an option of the command is in Python, if the method that is called does not have it.
_ELSEWHERE = {
    "vocab": "embcli.seeded(..., vocab={})",
    "context_length": "embcli.seeded(..., context_length={})",
    "encoding": "embcli.open(..., encoding={})",
    "ids": "a list of IDs",
}


class Elsewhere(NamedTuple):
    """An option that the command has, and in Python another call than the one that fails.

    >>> sentence = Sentence("{vocab} or more gives it one", vocab=Elsewhere("vocab", 7))
    >>> str(sentence)
    'embcli.seeded(..., vocab=7) or more gives it one'
    >>> sentence.with_names(lambda parameter: f"--{parameter}")
    '--vocab 7 or more gives it one'
    """

    parameter: str
    value: object = ""

    def with_names(self, name_of: Callable[[str], str]) -> str:
        if name_of is str:
            return _ELSEWHERE[self.parameter].format(self.value or "...")
        return f"{name_of(self.parameter)} {self.value}".rstrip()


class Sentence:
    """A sentence that names parameters of the library: `dim` in Python, `--dim` in the command.

    Braces without a value contain the name of a parameter. A value can be a Parameter, one that is
    Elsewhere, or another sentence.

    >>> sentence = Sentence("{dim} must be at least 1, not {given:,}; give {ids}", given=-2000)
    >>> str(sentence)
    'dim must be at least 1, not -2,000; give ids'
    >>> sentence.with_names(lambda parameter: f"--{parameter}")
    '--dim must be at least 1, not -2,000; give --ids'
    """

    def __init__(self, template: str, **values: object) -> None:
        self.template = template
        self.values = values

    def with_names(self, name_of: Callable[[str], str] = str) -> str:
        """Return the sentence with what a function returns for each parameter."""
        values = {}
        for _, name, _, _ in Formatter().parse(self.template):
            if name is None:
                continue
            value = self.values.get(name, Parameter(name))
            if isinstance(value, Parameter):
                value = name_of(value)
            elif isinstance(value, Sentence | Elsewhere):
                value = value.with_names(name_of)
            values[name] = value
        return self.template.format_map(values)

    def __str__(self) -> str:
        return self.with_names()


# These are C0 except tab and newline, DEL and C1, line and paragraph separators, bidi controls and
# other invisible formatting, surrogates, the two non-characters that XML does not allow either, and
# zero width joiners that have nothing to join.
_UNSAFE = (
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u2069\ufeff\ufff9-\ufffb\ufffe\uffff\ud800-\udfff]|(?<!\\S)\u200d"
)


def printable(text: str) -> str:
    """Return the text with control characters and bidi controls escaped as in JSON, `\u001b`."""
    return re.sub(_UNSAFE, _escape, text)


_BLANKS = str.maketrans({"\n": "\\n", "\t": "\\t"})


def in_line(text: str) -> str:
    """Return the text for one line: tabs and newlines are escaped too."""
    return printable(text).translate(_BLANKS)


_LONG = (
    r"""('[^']{200})[^']+(?=')|("[^"]{200})[^"]+(?=")"""
    r"""|(\([^()]{200})[^()]+(?=\))|([^\s'"]{200})[^\s'"]+"""
)
_LONGEST_LINE = 1000  # characters


def shortened(line: str) -> str:
    """Return a message in which nothing is too long.

    Long words lose their ends, as do long texts in quotes or brackets, and the whole message.
    """
    short = re.sub(_LONG, r"\1\2\3\4...", line)  # one of these four groups has matched
    if len(short) > _LONGEST_LINE:
        return f"{short[:_LONGEST_LINE]}..."
    return short


_SURROGATE = "[\ud800-\udfff]"


def in_data(text: str) -> str:
    """Return text for data in UTF-8.

    Lone surrogates are escaped, such as those by which Python shows bytes that are not UTF-8.
    """
    if text.isascii():
        return text
    return re.sub(_SURROGATE, _escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    is_byte = 0xDC80 <= code <= 0xDCFF  # Python shows a byte that is not UTF-8 like this.
    if is_byte:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\u{code:04x}"
