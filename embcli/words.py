"""Counts, sizes, times and quantiles in words, and the names of parameters in a sentence."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

QUANTILES = {"least": 0.0, "1 %": 0.01, "25 %": 0.25, "median": 0.5, "75 %": 0.75, "99 %": 0.99, "largest": 1.0}


def counted(number: int, thing: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "token"), counted(2000, "token")
    ('1 token', '2,000 tokens')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def in_bytes(size: int) -> str:
    """Return a size in words, in decimal units.

    >>> in_bytes(51463168), in_bytes(72)
    ('51.5 MB', '72 bytes')
    """
    if size < 1000:
        return f"{size} bytes"
    power = min(int(math.log10(size) / 3), 6)
    return f"{size / 1000**power:,.1f} {('kB', 'MB', 'GB', 'TB', 'PB', 'EB')[power - 1]}"


def in_seconds(seconds: float) -> str:
    """Return a time in words, with three digits.

    >>> in_seconds(1.234e-5), in_seconds(2)
    ('12.3 µs', '2.0 s')
    """
    for unit, factor in (("µs", 1e6), ("ms", 1e3)):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:,.1f} s"


def spelled(sentence: str, parameters: Sequence[str], name_of: Callable[[str], str]) -> str:
    """Return a sentence with the parameters that it names, in its last place outside quotes, as a function spells it.

    >>> spelled("tokens without encoding: give ids or encoding", ("ids", "encoding"), lambda name: f"--{name}")
    'tokens without encoding: give --ids or --encoding'
    """
    rest = ""
    for parameter in reversed(parameters):
        places = re.finditer(rf"(?<!\w)(['\"]).*?\1|(?<![\w.-])({parameter})(?![\w-])", sentence)
        for place in [place for place in places if place[2]][-1:]:
            rest = name_of(parameter) + sentence[place.end() :] + rest
            sentence = sentence[: place.start()]
    return sentence + rest
