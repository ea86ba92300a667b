"""embcli as a process: its exit status, what it says on standard error, and names that reach no terminal raw."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from embcli.__main__ import main
from embcli.errors import EmbcliError
from tests.runners import TIMEOUT, InProcess, Process, Terminal

ODD = "x\x1b]0;pwn\x07\x9b2J\u202e\n[bold]"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")


# --- the exit status ----------------------------------------------------------------------------------------------


def test_an_error_has_its_traceback_where_that_is_asked_for(process: Process) -> None:
    told = process.refused("lookup", "--ids", "x", EMBCLI_DEBUG="0")
    assert told == process.refused("lookup", "--ids", "x")
    ran = process("lookup", "--ids", "x", EMBCLI_DEBUG="1")
    assert (ran.status, ran.out) == (2, b"")
    first, *_, last = ran.err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == f"embcli.errors.InputError: {told.removeprefix('embcli: ').splitlines()[0]}"


def test_an_error_that_nobody_expected_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(sys, "argv", ["embcli", "tokenize", "hi"])
    monkeypatch.setattr("embcli.encodings.get", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        main()
    script = "import embcli.text as t; del t.lines_of; from embcli.__main__ import run; run()"
    done = subprocess.run(
        [sys.executable, "-c", script, "tokenize", "hi"],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 2
    assert done.stderr.startswith(b"Traceback (most recent call last):\n")
    assert b"ImportError" in done.stderr.splitlines()[-1]


def test_an_interrupt_while_a_class_is_made_is_an_interrupt() -> None:
    """Python 3.11 makes a RuntimeError of it."""
    script = """
import embcli.encodings
from embcli.__main__ import run
class Field:
    def __set_name__(self, owner, name):
        raise KeyboardInterrupt
def interrupted(*_):
    class Made:
        field = Field()
embcli.encodings.get = interrupted
run()
"""
    done = subprocess.run(
        [sys.executable, "-c", script, "tokenize", "hi"],
        capture_output=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


@pytest.mark.parametrize(
    ("raised", "status", "told"),
    [
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(), 0, ""),
        (
            EmbcliError("what is wrong", "what would be right"),
            2,
            "embcli: what is wrong\nwhat would be right\n",
        ),
        (OSError(errno.EIO, "Input/output error"), 2, "embcli: cannot go on: Input/output error\n"),
        (EmbcliError("a\nb\x1b[2J"), 2, "embcli: a\\nb\\u001b[2J\n"),
    ],
    ids=ascii,
)
@pytest.mark.parametrize(
    "where",
    ["embcli.encodings.get", "embcli.cli.app.run", "embcli.verbs.tokenize.Tokenization.records"],
)
def test_what_ends_a_command_has_its_status_and_its_words(
    in_process: InProcess,
    monkeypatch: pytest.MonkeyPatch,
    where: str,
    raised: BaseException,
    status: int,
    told: str,
) -> None:
    def ends(*_: object) -> None:
        raise raised

    monkeypatch.setattr(where, ends)
    ran = in_process("tokenize", "hi", "-f", "csv")
    assert (ran.status, ran.out, ran.err) == (status, b"", told)


@pytest.mark.parametrize(
    ("command", "environment", "told"),
    [
        ("info --models", {"HF_HOME": "x" * 5000}, "cannot open 'xxx"),
        (
            "lookup hi --from gpt2",
            {"HF_HOME": "x" * 5000},
            "cannot read 'gpt2': File name too long",
        ),
    ],
)
def test_a_file_that_the_system_refuses_is_named_and_standard_output_is_not_blamed(
    in_process: InProcess, command: str, environment: dict[str, str], told: str
) -> None:
    message = in_process.refused(*command.split(), **environment)
    assert message.startswith(f"embcli: {told}")
    assert "standard output" not in message


@pytest.mark.parametrize("words", ["weights --vocab 9 --dim 2000", "tokenize --ids 0:2000"])
def test_a_terminal_larger_than_any_is_taken_for_a_large_one(words: str) -> None:
    text = Terminal()(*words.split(), "--color", "never", width=60_000, height=60_000).text
    lines = text.splitlines()
    assert max(map(len, lines)) <= 1000
    assert len(lines) <= 1002
    assert max(map(len, lines)) > 900 or len(lines) > 900


# --- names that reach no terminal raw -----------------------------------------------------------------------------


@pytest.mark.parametrize("terminal", [False, True], ids=["pipe", "terminal"])
@pytest.mark.parametrize("command", ["info", "cache", "cache clear"])
def test_the_cache_folder_is_shown_safe(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, terminal: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    InProcess().ok("weights", "--vocab", "6", "--dim", "3", EMBCLI_CACHE_DIR=ODD)
    ran = InProcess()(*command.split(), EMBCLI_CACHE_DIR=ODD, terminal=terminal)
    assert (ran.status, ran.err) == (0, "")
    assert "\\u001b]0;pwn\\u0007\\u009b2J\\u202e\\n[bold]" in ran.text
    shown = (
        re.sub(r"\x1b\[[0-9;]*m", "", ran.text) if terminal else ran.text
    )  # without embcli's own colours
    assert not RAW.search(shown)


@pytest.mark.parametrize(("command", "key"), [("info", "cache"), ("cache", "folder")])
@pytest.mark.parametrize(
    ("folder", "told"),
    [(ODD, ODD), ("caf\udce9", "caf\\xe9"), ("\udcff/\u202e\udc80\\", "\\xff/\u202e\\x80\\")],
    ids=ascii,
)
def test_json_keeps_the_true_path(
    in_process: InProcess, command: str, key: str, folder: str, told: str
) -> None:
    """Of a path that is no UTF-8, bytes are told as escapes: JSON has no place for them."""
    assert (
        json.loads(in_process.ok(*command.split(), "-f", "json", EMBCLI_CACHE_DIR=folder).out)[
            "run"
        ][key]
        == told
    )


def test_a_note_is_one_line_whatever_the_path_holds(in_process: InProcess, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / f"a\nb{ODD}\udcff")
    ran = in_process(
        "lookup", "--ids", "1", "--vocab", "6", "--dim", "3", "-f", "csv", EMBCLI_CACHE_DIR=folder
    )
    assert ran.status == 0
    assert ran.err.startswith("embcli: nothing is cached: cannot write to ")
    assert ran.err.endswith("(Not a directory)\n")
    assert ran.err.count("\n") == 1
    assert not RAW.search(ran.err)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tokenize", "--file", ODD),
        ("tokenize", "hi", "-o", f"{ODD}/none"),
        ("tokenize", "hi", "-o", f"out.{ODD}"),
        ("tokenize", "hi", "--encoding", ODD),
        ("tokenize", "hi", "--format", ODD),
        ("lookup", "hi", "--show", ODD),
        ("lookup", "hi", "--columns", ODD),
        ("lookup", "--ids", ODD),
        ("lookup", "--seed", ODD),
        ("decode", ODD),
        (ODD,),
        (f"--{ODD}",),
    ],
    ids=ascii,
)
def test_a_refusal_names_its_value_safely(
    in_process: InProcess, arguments: tuple[str, ...]
) -> None:
    message = in_process.refused(*arguments)
    assert "pwn" in message
    assert not RAW.search(message)
