"""Small manners: what a terminal gets and a pipe does not, other names for a thing, what is said of sequences."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import embcli
from tests.runners import TIMEOUT, InProcess

COLOR = re.compile(r"\x1b\[[0-9;]*m")
TOY = ("--vocab", "6", "--dim", "3")


def test_the_version_has_a_short_name(in_process: InProcess) -> None:
    assert (
        in_process.ok("-V").text
        == in_process.ok("--version").text
        == f"embcli {embcli.__version__}\n"
    )


@pytest.mark.parametrize("verb", ["tokenize hi", "lookup --ids 2,3 --vocab 6 --dim 3", "cache"])
def test_jsonl_is_ndjson_as_option_variable_and_suffix(
    in_process: InProcess, tmp_path: Path, verb: str
) -> None:
    wanted = in_process.ok(*verb.split(), "-f", "ndjson").out
    assert in_process.ok(*verb.split(), "-f", "jsonl").out == wanted
    assert in_process.ok(*verb.split(), EMBCLI_FORMAT="jsonl").out == wanted
    assert "EMBCLI_FORMAT 'x' is not a format; choose" in in_process.refused(
        *verb.split(), EMBCLI_FORMAT="x"
    )
    assert (
        in_process.ok(*verb.split(), "-f", "md").out
        == in_process.ok(*verb.split(), "-f", "markdown").out
    )
    in_process.ok(*verb.split(), "-o", str(tmp_path / "a.jsonl"))
    assert (tmp_path / "a.jsonl").read_bytes() == wanted


def test_decode_ends_its_line_on_a_terminal_and_not_in_a_pipe(in_process: InProcess) -> None:
    for ids, text in (("6109 3626", "Every effort"), ("198", "\n"), ("15496 198", "Hello\n")):
        assert in_process.ok("decode", *ids.split()).text == text
        assert (
            InProcess().ok("decode", *ids.split(), terminal=True).text
            == text.removesuffix("\n") + "\n"
        )


@pytest.mark.parametrize(
    "command",
    [
        "tokenize 'Every [bold] \x1b[31m\u202e \U0001f600'",
        "lookup --ids 2,3,5,1 --vocab 6 --dim 3",
        "weights --vocab 6 --dim 3",
        "compare",
        "cache",
        "info",
    ],
)
def test_json_on_a_terminal_is_coloured_and_the_same_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "x\x9b2J\u202e"))
    arguments = [*shlex.split(command), "-f", "json"]
    wanted = json.loads(InProcess().ok(*arguments).out)
    shown = InProcess().ok(*arguments, TERM="xterm-256color", terminal=True).text
    plain = InProcess().ok(*arguments, "--color", "never", terminal=True).text
    for text in (COLOR.sub("", shown), plain):
        found = json.loads(text)
        for document in (found, wanted):
            document.pop("cost", None)  # which is measured anew
        assert found == wanted
    assert "\x1b" not in plain
    assert len({*COLOR.findall(shown)}) >= 3
    assert all(line.isprintable() for line in COLOR.sub("", shown).split("\n"))


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        ("1 2\n3 4\n0 5", "B = 3 sequences, T = 2 tokens, D = 3 columns"),
        ("1 2\n3", "2 sequences, 3 tokens, D = 3 columns"),
        ("1\n", "B = 1 sequence, T = 1 token, D = 3 columns"),
        ("1 2\n\n", "2 sequences, 2 tokens, D = 3 columns"),
    ],
)
def test_sequences_of_one_length_have_a_shape_and_others_are_counted(
    in_process: InProcess, lines: str, told: str
) -> None:
    title, *_ = in_process("lookup", "--lines", "--ids", "-", *TOY, stdin=lines).text.splitlines()
    assert title.endswith(f": {told}")


# --- numbers that are too many for a terminal -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "numbers"),
    [
        ("weights -f csv", 12_865_792),
        ("weights --rows 0:1000 --columns 0:101 -f tsv", 101_000),
        ("weights --rows 0:1000 --columns 0:101 -f json", 101_000),
        ("lookup --ids IDS --columns 0:102 -f csv", 102_000),
        ("lookup --ids IDS --columns 0:34 -f ndjson", 102_000),
        ("compare --ids IDS --dim 102 -f csv", 102_000),
        ("compare --ids IDS --dim 51 -f json", 102_000),
    ],
)
def test_more_than_100_000_numbers_are_refused_on_a_terminal(command: str, numbers: int) -> None:
    ids = ",".join(["1"] * 1000)
    told = InProcess().refused(*command.replace("IDS", ids).split(), terminal=True)
    assert (
        told
        == f"embcli: {numbers:,} numbers are too many for a terminal; name a file with -o, or use a pipe\n"
    )


@pytest.mark.parametrize("columns", range(20, 60, 5))
def test_a_sentence_on_a_terminal_is_broken_between_words_so_that_a_flag_can_be_copied(
    columns: int,
) -> None:
    words = ("lookup", "--ids", "0", "--from", "x", "--context-length", "9")
    told = InProcess()(*words, COLUMNS=str(columns), error_terminal=True).err
    assert told.count("\n") > 1
    assert told.split() == InProcess()(*words).err.split()


def test_a_warning_of_numpy_stays_off_standard_error() -> None:
    """Some processors set "invalid" for NaN where others do not; numpy then warns."""
    script = (
        "import embcli.cli.app as app, numpy\n"
        "app.run = lambda *_: numpy.float32([0]) / numpy.float32([0])\n"
        "from embcli.__main__ import run; run()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=TIMEOUT, check=False
    )
    assert (done.returncode, done.stderr) == (0, b"")
