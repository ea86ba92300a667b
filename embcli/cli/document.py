"""A JSON document for a person at a terminal: indented, coloured, a row of numbers on one line."""

import json
from io import StringIO
from typing import Any

from embcli.words import printable

_INDENT = "  "


def pretty(document: bytes, color: bool) -> str:
    """Return a JSON document indented, safe to print, and perhaps in colour; its content stays the same."""
    text = printable(f"{_written(json.loads(document), '')}\n")
    return _colored(text) if color else text


def _written(value: Any, indent: str) -> str:
    """Return a value; lists and objects of plain values stand on one line."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(each, (dict, list)) for each in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = indent + _INDENT
    if isinstance(value, dict):
        members = [f"{inner}{json.dumps(name)}: {_written(each, inner)}" for name, each in value.items()]
        return "{\n" + ",\n".join(members) + f"\n{indent}}}"
    return "[\n" + ",\n".join(inner + _written(each, inner) for each in value) + f"\n{indent}]"


def _colored(text: str) -> str:
    from rich.console import Console
    from rich.highlighter import JSONHighlighter

    console = Console(file=StringIO(), force_terminal=True, width=2**31, highlight=False, markup=False, emoji=False)
    with console.capture() as capture:
        console.print(JSONHighlighter()(text), end="", no_wrap=True, soft_wrap=True)
    return capture.get()
