"""JSON from untrusted files: one object, without a name that appears twice."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from embcli.binary import Binary, shortened


class Malformed(ValueError):
    """Bytes are not of their format; the message says why, without the name of the file."""


def read_object(binary: Binary, longest: int) -> dict[str, Any]:
    """Return the JSON object that a file of up to `longest` bytes contains; raises InputError if it does not."""
    data = binary.read_whole(longest)
    try:
        return parsed_object(data, "its JSON")
    except Malformed as error:
        raise binary.refused(str(error)) from None


def parsed_object(data: bytes, what: str, whole_number: Callable[[str], int] = int) -> dict[str, Any]:
    """Return a JSON object; raises Malformed, with a sentence about `what`, for anything else."""

    def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for name, value in pairs:
            if name in result:
                raise Malformed(f"{what} has {shortened(name, 60)} twice")
            result[name] = value
        return result

    try:
        result = json.loads(data.decode(), object_pairs_hook=distinct, parse_int=whole_number)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed(f"{what} is nested too deeply") from None
    except ValueError as error:  # invalid UTF-8 or invalid JSON
        raise Malformed(f"{what} cannot be read ({error})") from None
    if not isinstance(result, dict):
        raise Malformed(f"{what} is not an object")
    return result
