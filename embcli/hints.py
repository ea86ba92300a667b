"""What a page tells the reader to type next; the sentences are data, as they name the command's flags."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


@cache
def _hints() -> dict[str, str]:
    hints: dict[str, str] = json.loads((Path(__file__).parent / "data" / "hints.json").read_text())
    return hints


def hint(name: str, **values: object) -> str:
    """Return a hint by its name, with values in place of its braces.

    >>> hint("columns")
    '--columns picks'
    """
    return _hints()[name].format_map(values)
