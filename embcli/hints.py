"""What a page tells the reader to type next; the sentences are data, as they name the command's flags."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path

_LEFT_OUT: ContextVar[str | None] = ContextVar("_LEFT_OUT", default=None)


@cache
def _hints() -> dict[str, str]:
    hints: dict[str, str] = json.loads((Path(__file__).parent / "data" / "hints.json").read_text())
    return hints


def hint(name: str, **values: object) -> str:
    """Return a hint by its name, with values in place of its braces; it is empty if the reader was told already.

    >>> hint("columns")
    '--columns picks'
    """
    return "" if _LEFT_OUT.get() == name else _hints()[name].format_map(values)


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """Leave out a hint that the words around a page give; the words of a step in a tour, for one."""
    token = _LEFT_OUT.set(name)
    try:
        yield
    finally:
        _LEFT_OUT.reset(token)
