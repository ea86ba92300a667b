"""The README's pictures: what embcli draws for these commands. `python -m tests.pictures` draws them anew."""

from __future__ import annotations

from pathlib import Path

from tests.inside import Inside

FOLDER = Path(__file__).parent
PICTURES = {
    "lookup": ("lookup", "Every effort moves you"),
    "heat": ("lookup", "Every effort moves you", "--heat"),
    "compare": ("compare", "--draw", "--show", "one-hot"),
}


def drawn(name: str) -> bytes:
    """Return a picture as embcli draws it now."""
    return Inside().ok(*PICTURES[name], "--width", "80", "-f", "svg").out
