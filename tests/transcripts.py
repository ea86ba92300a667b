"""Command lines with what embcli answers, for snapshots.

Some snapshots are their own table of cases: a line `$ embcli lookp x` is a case, a line `# Slips`
is a heading, and all other lines are answers. Whoever adds a case adds its `$` line;
`pytest --accept=PATH` writes the answer below it.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from tests.runners import TIMEOUT, InProcess
from tests.snapshots import PAGES

PROMPT = "$ embcli"


def session(in_process: InProcess, *commands: str, stdin: str = "") -> str:
    """Return command lines with what embcli answers, as a terminal shows them."""
    shown = []
    for command in commands:
        ran = in_process(*shlex.split(command), stdin=stdin, COLUMNS="80")
        shown.append(f"{PROMPT} {command}\n{ran.text}{ran.err}")
    return "\n".join(shown)


def printed(in_process: InProcess, command: str) -> str:
    """Return what a line of pipes prints, one after the other: a shell runs what is not embcli."""
    output = b""
    for pipe in command.split(" && "):
        piped = b""
        for part in pipe.split(" | "):
            if part.startswith("embcli "):
                words = shlex.split(part)[1:]
                piped = in_process.ok(*words, stdin=piped, suggestions=True, COLUMNS="80").out
            else:
                piped = subprocess.run(
                    ["bash", "-c", part], input=piped, stdout=PIPE, timeout=TIMEOUT, check=True
                ).stdout
        output += piped
    text = output.decode().replace("\r\n", "\n")
    return text if text.endswith("\n") else f"{text}\n"


def document_of(in_process: InProcess, *words: str) -> dict[str, Any]:
    """Return the JSON document that a command line gives."""
    return json.loads(in_process(*words, "-f", "json").out)


def on_a_small_screen(in_process: InProcess, *words: str) -> str:
    """Return a page that has room below its command line and above the next, on 24 lines."""
    page = in_process(*words, terminal=True, COLUMNS="80", LINES="24", NO_COLOR="1").text
    assert_height(page, 22)
    return page


def assert_height(page: str, limit: int) -> None:
    """Hold the lines of a page against the most that it may have; a failure says both."""
    lines = page.count("\n")
    assert lines <= limit, f"{lines} lines, of at most {limit}:\n{page}"


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test of a module that has this writes its files there: no page has a longer path."""
    monkeypatch.chdir(tmp_path)


# --- snapshots that are their own table of cases --------------------------------------------------


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


def refused(name: str, in_process: InProcess) -> str:
    """Return a file under tests/pages/ with the errors that its command lines give now."""
    return answered(name, lambda words: in_process.refused(*words))
