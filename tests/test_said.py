"""What a terminal is told beside the page: what takes long, and what was written to a file."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from embcli.cli.console import PrintedNotes
from embcli.wording import in_bytes
from tests.cases import cases
from tests.runners import _Buffer, _text_stream
from tests.transcripts import in_a_folder_of_its_own  # noqa: F401 - It is a fixture.


@cases
def test_a_terminal_is_told_what_was_written(in_process, command):
    words = command.split()

    told = in_process(*words, error_terminal=True)
    silent = in_process(*words)

    size = in_bytes(Path("a").stat().st_size)
    assert (told.status, told.out, told.err) == (0, b"", f"embcli: wrote a: {size}\n")
    assert (silent.status, silent.out, silent.err) == (0, b"", "")


def test_nothing_is_said_of_a_device(in_process):
    assert in_process("tokenize", "hi", "-o", "/dev/null", error_terminal=True).err == ""


def on_screen(printed: str) -> str:
    """Return what a terminal shows at the end, for the few sequences that a line is erased by."""
    lines = [""]
    for part in re.findall(r"\x1b\[[0-9;?]*[a-zA-Z]|\r|\n|[^\x1b\r\n]+", printed):
        if part == "\n":
            lines.append("")
        elif part == "\x1b[1A":
            assert lines.pop() == ""
        elif part == "\x1b[2K":
            lines[-1] = ""
        elif part.isprintable():
            lines[-1] += part
    return "\n".join(lines)


@pytest.mark.parametrize("fails", [False, True])
def test_the_name_of_a_slow_step_is_erased_at_its_end(monkeypatch, fails):
    errors = _Buffer(terminal=True)
    monkeypatch.setattr(sys, "stderr", _text_stream(errors))
    notes = PrintedNotes()

    try:
        with notes.slow("loading torch"):
            during = on_screen(errors.getvalue().decode())
            if fails:
                raise ValueError
    except ValueError:
        notes.add("it failed")

    assert during.strip() == "embcli: loading torch"
    left = "embcli: it failed\n" if fails else ""
    assert on_screen(errors.getvalue().decode()) == left


def test_a_pipe_is_not_told_of_a_slow_step(monkeypatch):
    errors = _Buffer(terminal=False)
    monkeypatch.setattr(sys, "stderr", _text_stream(errors))

    with PrintedNotes().slow("loading torch"):
        pass

    assert errors.getvalue() == b""
