"""Notes for the person at the terminal: on standard error, never among the results, each said once."""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import cache

from embcli.safe import printable


@cache
def note(message: str) -> None:
    """Say something that the result itself does not tell."""
    if sys.stderr is not None:
        with suppress(OSError):  # when nobody is left to read it, the result does not depend on it
            print(f"embcli: {printable(message)}", file=sys.stderr, flush=True)
