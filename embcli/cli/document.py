"""A JSON document for a person at a terminal: indented, coloured, a row of numbers on one line."""

import json
from typing import Any

from embcli.words import printable


def pretty(document: bytes, color: bool) -> str:
    """Return a JSON document indented, safe to print, and perhaps in colour; its content stays the same."""
    text = printable(f"{_written(json.loads(document), '')}\n")
    if not color:
        return text
    from rich.highlighter import JSONHighlighter

    from embcli.page import export

    return export.text(JSONHighlighter()(text), 2**31, color=True).removesuffix("\n")


def _written(value: Any, indent: str) -> str:
    """Return a value; lists and objects of plain values stand on one line."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    if not any(isinstance(each, (dict, list)) for each in parts):
        return json.dumps(value, ensure_ascii=False)
    inner = f"{indent}  "
    if isinstance(value, dict):
        members = (f"{inner}{json.dumps(name)}: {_written(each, inner)}" for name, each in value.items())
    else:
        members = (inner + _written(each, inner) for each in value)
    start, end = "{}" if isinstance(value, dict) else "[]"
    return f"{start}\n" + ",\n".join(members) + f"\n{indent}{end}"
