"""Snapshots that are their own table of cases: a command line, and below it what it answers.

A line `$ embcli lookp x` is a case, a line `# Slips` is a heading, and all other lines are answers.
Whoever adds a case adds its `$` line; `pytest --accept` writes the answer below it.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable

from tests.snapshots import PAGES

PROMPT = "$ embcli"


def command_lines(name: str) -> list[str]:
    """Return the command lines of a file under tests/pages/, each without its `$ embcli`."""
    lines = (PAGES / name).read_text().splitlines()
    return [line.removeprefix(PROMPT).strip() for line in lines if line.startswith(PROMPT)]


def answered(name: str, answer: Callable[[list[str]], str]) -> str:
    """Return a file under tests/pages/ with the answers that its command lines give now."""
    parts = []
    for line in (PAGES / name).read_text().splitlines():
        if line.startswith("# "):
            parts.append(f"{line}\n")
        elif line.startswith(PROMPT):
            words = shlex.split(line)[2:]
            parts.append(f"{line}\n{answer(words)}")
    return "\n".join(parts)
