"""embcli as a process: its exit status, its standard error, and names that are shown safely."""

from __future__ import annotations

import errno
import json
import re
import subprocess
import sys

import pytest

from embcli.errors import EmbcliError
from tests.cases import cases
from tests.runners import TIMEOUT

ODD = "x\x1b]0;pwn\x07\x9b2J\u202e\n[bold]"
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]")
COLOR = re.compile(r"\x1b\[[0-9;]*m")
TOY = ("--vocab", "6", "--dim", "3")


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    """Run a script as `tokenize hi`."""
    command = [sys.executable, "-c", script, "tokenize", "hi"]
    return subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False, text=True)


# --- the exit status ------------------------------------------------------------------------------


def test_an_error_has_its_traceback_where_that_is_asked_for(in_process, process):
    words = ("lookup", "--ids", "-5")
    error = in_process.refused(*words)
    assert in_process.refused(*words, EMBCLI_DEBUG="0") == error

    ran = process(*words, EMBCLI_DEBUG="1")

    assert ran.status == 2
    assert ran.out == b""
    first, *_, last = ran.err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last == f"embcli.errors.InputError: {error.removeprefix('embcli: ').rstrip()}"


def test_an_error_that_nobody_expected_keeps_its_traceback():
    ran = run_script(
        "import embcli.text as t; del t.lines_of_ids; from embcli.__main__ import run; run()"
    )

    assert ran.returncode == 2
    first, *_, last = ran.stderr.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.startswith("ImportError")


@cases
def test_a_package_that_is_missing_is_named_in_one_line(package, format, error, reason):
    ran = run_script(f"""
import sys
class Missing:
    def find_spec(self, name, *_):
        if name == "{package}":
            raise {error}("it broke", name=name)
sys.meta_path.insert(0, Missing())
sys.argv = ["embcli", "weights", "--vocab", "2", "--dim", "2", "-f", "{format}"]
from embcli.__main__ import run; run()
""")

    assert ran.returncode == 2
    assert ran.stderr == f"embcli: {package} {reason} {package}\n"


def test_a_warning_of_numpy_stays_off_standard_error():
    """Some processors set "invalid" for NaN where others do not; numpy then warns."""
    ran = run_script("""
import embcli.cli.app as app, numpy
app.run = lambda *_: numpy.float32([0]) / numpy.float32([0])
from embcli.__main__ import run; run()
""")

    assert ran.returncode == 0
    assert ran.stderr == ""


def test_an_interrupt_while_a_class_is_made_is_an_interrupt():
    """Python 3.11 makes a RuntimeError of it."""
    ran = run_script("""
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
""")

    assert ran.returncode == 130
    assert ran.stdout == ""
    assert ran.stderr == ""


@pytest.mark.parametrize(
    ("raised", "status", "error"),
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
    [
        "embcli.encodings.get",
        "embcli.cli.app.run",
        "embcli.verbs.tokenize.Tokenization._records",
    ],
)
def test_what_ends_a_command_has_its_status_and_its_words(
    in_process,
    monkeypatch,
    where,
    raised,
    status,
    error,
):
    def fail(*_: object) -> None:
        raise raised

    monkeypatch.setattr(where, fail)
    ran = in_process("tokenize", "hi", "-f", "csv")

    assert ran.status == status
    assert ran.out == b""
    assert ran.err == error


def test_a_file_that_the_system_refuses_is_named_and_standard_output_is_not_blamed(in_process):
    error = in_process.refused("lookup", "hi", "--from", "gpt2", HF_HOME="x" * 5000)

    assert "File name too long" in error
    assert "standard output" not in error


# --- names that reach no terminal raw -------------------------------------------------------------


@cases
@pytest.mark.parametrize("command", ["info", "cache", "cache clear"])
def test_the_cache_folder_is_shown_safe(
    in_process,
    tmp_path,
    monkeypatch,
    command,
    is_terminal,
):
    monkeypatch.chdir(tmp_path)
    in_process.ok("weights", *TOY, EMBCLI_CACHE_DIR=ODD)

    page = in_process.ok(*command.split(), EMBCLI_CACHE_DIR=ODD, terminal=is_terminal).text

    assert "\\u001b]0;pwn\\u0007\\u009b2J\\u202e\\n[bold]" in page
    without_colours = COLOR.sub("", page) if is_terminal else page
    assert not RAW.search(without_colours)


@pytest.mark.parametrize(
    ("folder", "written"),
    [
        (ODD, ODD),
        ("caf\udce9", "caf\\xe9"),
        ("\udcff/\u202e\udc80\\", "\\xff/\u202e\\x80\\"),
    ],
    ids=ascii,
)
def test_json_keeps_the_true_path(in_process, folder, written):
    """A byte that is not UTF-8 is written as an escape: JSON has no place for it."""
    ran = in_process.ok("info", "-f", "json", EMBCLI_CACHE_DIR=folder)
    assert json.loads(ran.out)["run"]["cache"] == written


def test_a_note_is_one_line_whatever_the_path_holds(in_process, tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / f"a\nb{ODD}\udcff")

    ran = in_process("lookup", "--ids", "1", *TOY, "-f", "csv", EMBCLI_CACHE_DIR=folder)

    assert ran.status == 0
    assert ran.err.startswith("embcli: nothing is cached")
    assert ran.err.endswith("(Not a directory)\n")
    assert ran.err.count("\n") == 1
    assert not RAW.search(ran.err)


@cases
def test_a_refusal_names_its_value_safely(in_process, words):
    error = in_process.refused(*words)

    assert "pwn" in error
    assert not RAW.search(error)
