"""JSON out of strangers' files: an object, strictly read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from embcli.files.tensors import refused, shortened

if TYPE_CHECKING:
    from pathlib import Path


class _Twice(ValueError):
    """A name stands twice in one object."""


def parsed(path: Path, data: bytes) -> dict[str, Any]:
    """Return the JSON object that a file holds; raises InputError for what is none, or has a name twice."""
    try:
        found = json.loads(data.decode(), object_pairs_hook=_distinct)
    except RecursionError:
        raise refused(path, "its JSON is nested too deeply") from None
    except ValueError as error:
        raise refused(path, f"it is no JSON ({error})") from None
    if not isinstance(found, dict):
        raise refused(path, "it is JSON, but no object")
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise _Twice(f"{shortened(name)} stands twice")
        found[name] = value
    return found
