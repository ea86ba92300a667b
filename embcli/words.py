"""Counts, sizes, times and quantiles in words, and sentences that name parameters."""

from __future__ import annotations

import math
import string
from collections.abc import Callable
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Message:
    """A sentence that names parameters in braces; `values` fill the other braces."""

    template: str
    values: dict[str, object]

    def spelled(self, name: Callable[[str], str]) -> str:
        """Return the sentence with each parameter's name as a function spells it."""
        fields = [field for _, field, *_ in string.Formatter().parse(self.template) if field]
        return self.template.format(**{field: name(field) for field in fields} | self.values)

    def __str__(self) -> str:
        return self.spelled(str)


def naming(template: str, **values: object) -> Message:
    """Return a message whose template names parameters in braces, and takes values by keyword.

    >>> str(naming("{dim} must be at least 1, not {given:,}", given=0))
    'dim must be at least 1, not 0'
    >>> naming("{dim} must be at least 1, not {given:,}", given=0).spelled(lambda name: f"--{name}")
    '--dim must be at least 1, not 0'
    """
    return Message(template, values)


def plain(message: str | Message) -> Message:
    """Return a sentence that names no parameters as a message."""
    return Message("{sentence}", {"sentence": message}) if isinstance(message, str) else message
