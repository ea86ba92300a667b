"""The README's pictures: what embcli draws for these commands. `python -m tests.pictures` draws them anew."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
PICTURES = {
    "lookup": ("lookup", "Every effort moves you"),
    "compare": ("compare", "--draw", "--show", "one-hot"),
}


def drawn(name: str) -> bytes:
    """Return a picture as embcli draws it now."""
    command = [sys.executable, "-m", "embcli", *PICTURES[name], "--width", "80", "-f", "svg"]
    return subprocess.run(command, stdout=subprocess.PIPE, timeout=120, check=True).stdout
