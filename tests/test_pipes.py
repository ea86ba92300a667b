"""embcli among other programs: real pipes, files, signals and terminals."""

from __future__ import annotations

import os
import resource
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from embcli import encodings
from embcli.atomic import destination
from embcli.result import chosen_format
from embcli.seeded_layers.seeded import Seeded
from tests.cases import cases
from tests.files.made import save_words
from tests.oracles import assert_same_bits, live
from tests.runners import TIMEOUT, Process, Ran, limited

TEXT = "Every effort moves you\n\nto 🦜s and\tback,\nagain"
LONG = "Every effort moves you, and every parrot too.\n" * 400


def bash(script: str) -> Ran:
    """Run a script in which `embcli` is this embcli."""
    function = f'embcli() {{ "{sys.executable}" -m embcli "$@"; }}'
    command = ["bash", "-c", f"{function}\n{script}"]
    done = subprocess.run(command, input=b"", capture_output=True, timeout=TIMEOUT, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def wait_for(path: Path, pattern: str) -> None:
    """Wait until a file whose name has this pattern contains something."""
    end = time.monotonic() + TIMEOUT
    while not any(part.stat().st_size for part in path.glob(pattern)):
        assert time.monotonic() < end, "nothing was written"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text of 4,400 tokens."""
    path = tmp_path_factory.mktemp("text") / "long.txt"
    path.write_text(LONG)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a file that was there before, alone in its folder."""
    path = tmp_path / "old.ndjson"
    path.write_bytes(b"as it was\n")
    return path


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def assert_as_it_was(old: Path) -> None:
    """Assert that a file is unchanged, and still alone in its folder."""
    assert old.read_bytes() == b"as it was\n"
    assert names(old.parent) == [old.name]


# --- in -------------------------------------------------------------------------------------------


@cases
def test_ids_from_tokenize_give_the_same_bytes_as_the_text(in_process, split, options):
    lookup = ("lookup", "--dim", "8", *options, "-f", "json")

    ids = in_process.ok("tokenize", *split, "-f", "ids", stdin=TEXT).out
    of_ids = in_process.ok(*lookup, "--ids", "-", stdin=ids).out

    assert of_ids == in_process.ok(*lookup, stdin=TEXT).out


@cases
def test_a_pipe_of_another_format_is_told_which_one_is_read(in_process, writes, reads, cure):
    piped = in_process.ok(*writes.split()).out
    assert cure in in_process.refused(*reads.split(), stdin=piped)


def test_what_is_read_as_a_text_and_may_be_meant_otherwise_is_noted(in_process):
    piped = in_process("lookup", "--dim", "3", stdin=b"6109 3626\n")
    assert "embcli lookup --ids -" in piped.err
    assert not in_process("lookup", "--dim", "3", stdin=b"6109 effort").err
    assert "echo -n" in in_process("tokenize", stdin=b"6109 effort\n").err
    assert "a switch takes no value" in in_process("compare", "--gradient", "true").err


# --- out ------------------------------------------------------------------------------------------


@cases
def test_a_reader_that_leaves_early_ends_it_quietly(process, long_file, command, beginning):
    first_bytes = beginning.encode("latin-1")
    count = 8 + len(first_bytes)
    ran = process.read_early(count, *command.split(), "--file", str(long_file))

    assert ran.status == 0
    assert ran.err == ""
    assert beginning in ran.out.decode("latin1")


def test_a_reader_that_leaves_early_changes_no_answer(process, tmp_path):
    base = tmp_path / "base.npy"
    tuned = tmp_path / "tuned.npy"
    np.save(base, np.zeros((60_000, 1), np.float32))
    np.save(tuned, np.full((60_000, 1), np.nan, np.float32))

    ran = process.read_early(8, "diff", str(base), str(tuned), "-f", "ndjson")

    assert ran.status == 1
    assert ran.err.startswith("embcli: JSON has no NaN")


@cases
def test_a_full_disk_is_an_error(process, command):
    ran = process.into("/dev/full", *command.split())

    assert ran.status == 2
    assert ran.err == "embcli: cannot write to standard output: No space left on device\n"


# --- which format ---------------------------------------------------------------------------------


@cases
def test_the_suffix_of_the_output_chooses_the_format(name, form):
    assert chosen_format("embeddings", None, name) == form


@cases
def test_a_format_that_is_named_comes_first_and_that_of_the_environment_last(
    kind, form, name, chosen
):
    assert chosen_format(kind, form, name, "npy") == chosen


def test_an_empty_environment_sets_no_default(in_process):
    ran = in_process.ok("tokenize", "hi", EMBCLI_FORMAT="")
    assert ran.text == in_process.ok("tokenize", "hi").text


# --- files ----------------------------------------------------------------------------------------


def test_a_new_file_is_written_with_the_permissions_of_the_umask(tmp_path):
    path = tmp_path / "new"
    mask = os.umask(0o027)
    try:
        with destination(path) as file:
            file.write(b"new")
    finally:
        os.umask(mask)

    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link_and_permissions_stay_as_they_are(in_process, old, tmp_path):
    old.chmod(0o604)
    link = tmp_path / "link"
    link.symlink_to(old.name)

    in_process.ok("tokenize", "hi", "-f", "ids", "-o", str(link))

    assert link.is_symlink()
    assert old.read_text() == "5303\n"
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert sorted(tmp_path.iterdir()) == [link, old]


def test_a_private_file_is_private_while_it_is_written(old):
    old.chmod(0o600)

    with destination(old) as file:
        file.write(b"new")
        modes = [stat.S_IMODE(path.stat().st_mode) for path in old.parent.iterdir()]

    assert modes == [0o600, 0o600]
    assert old.read_bytes() == b"new"


@pytest.mark.parametrize(
    "name", ["一" * 83 + ".csv", "🦜" * 62 + ".csv", "a" * 251 + ".csv", "-dash.csv"]
)
def test_any_name_that_the_file_system_takes_will_do(tmp_path, name):
    with destination(tmp_path / name) as file:
        file.write(b"new")
    assert names(tmp_path) == [name]


# --- pipes, full disks and signals ----------------------------------------------------------------


def test_output_may_be_a_pipe(process):
    ran = process.forked("tokenize", "hi", "-f", "ids", "-o", "/dev/stdout")

    assert ran == Ran(0, b"5303\n", "")


def test_a_pipe_beside_a_model_and_a_notebook_are_named(in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("model.txt").write_text("1.5 2.5\n")
    os.mkfifo("config.json")
    assert "'config.json': it is not a regular" in in_process.refused("audit", "model.txt")
    Path("work.ipynb").write_text('{"cells": []}')
    assert "it is a notebook" in in_process.refused("audit", "work.ipynb")


def test_output_may_be_a_pipe_with_a_name(process, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)

    ran = process.forked("tokenize", "hi", "-f", "ids", "-o", str(pipe))

    assert ran == Ran(0, b"", "")
    assert os.read(reader, 100) == b"5303\n"
    os.close(reader)


@cases
def test_a_disk_that_fills_up_leaves_the_earlier_file_as_it_was(
    in_process, old, long_file, form, name
):
    in_process.ok("lookup", "hi")  # It caches the layers.
    place = str(old.with_name(name))

    with limited(resource.RLIMIT_FSIZE, 200_000):
        words = ("lookup", "--file", str(long_file), "--window", "-f", form, "-o", place)
        error = in_process.refused(*words)

    assert error == f"embcli: cannot write to {place!r}: File too large\n"
    assert_as_it_was(old)


@pytest.fixture(scope="module")
def huge_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text whose vectors take many seconds to write."""
    path = tmp_path_factory.mktemp("text") / "huge.txt"
    path.write_text(LONG * 60)
    return path


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGINT, 130),
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGKILL, -9),
    ],
)
def test_a_signal_in_the_middle_ends_it_and_leaves_the_earlier_file_as_it_was(
    process, old, huge_file, number, status
):
    words = ("lookup", "--file", str(huge_file), "--window", "-o", str(old))
    started = process.start(*words, stderr=subprocess.PIPE)
    wait_for(old.parent, ".*.part")

    started.send_signal(number)
    _, errors = started.communicate(timeout=TIMEOUT)

    assert started.returncode == status
    assert errors == b""
    if number == signal.SIGKILL:  # Nobody is left to remove the half-written file.
        (half,) = old.parent.glob(".*.part")
        half.unlink()
    assert_as_it_was(old)


def test_ctrl_c_ends_a_regular_expression_that_runs_for_ever(process):
    started = process.start("neighbors", "--ids", "3", "--dim", "2", "--match", "(-+)+x")
    with pytest.raises(subprocess.TimeoutExpired):
        started.wait(2)
    started.send_signal(signal.SIGINT)
    assert started.wait(5) == 130


def test_a_signal_that_is_ignored_stays_so(process, old, long_file):
    """As nohup starts a program."""
    handler = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    started = process.start(
        *("lookup", "--file", str(long_file), "--window", "-o", str(old)), stderr=subprocess.PIPE
    )
    signal.signal(signal.SIGHUP, handler)
    wait_for(old.parent, ".*.part")

    started.send_signal(signal.SIGHUP)
    _, errors = started.communicate(timeout=TIMEOUT)

    assert started.returncode == 0
    assert errors == b""
    assert old.read_bytes() != b"as it was\n"


# --- terminals and closed streams -----------------------------------------------------------------


@cases
def test_text_on_its_way_to_a_terminal_is_made_safe(terminal, options):
    ids = encodings.get("gpt2").encode("\x9b2J\u202eש\r").tolist()
    words = [str(token_id) for token_id in ids]

    assert terminal("decode", *words, *options).text == "\\u009b2J\\u202eש\\u000d\r\n"


def test_csv_on_a_terminal_has_its_line_ends_and_no_other_control_character(
    terminal,
):
    shown = terminal("tokenize", "\x1b", "-f", "csv").text
    assert shown == "position,id,token,bytes,start,end\r\n0,215,\\u001b,1b,0,1\r\n"


@cases
def test_a_closed_stream_is_no_reason_to_fail_where_it_is_not_needed(
    process,
    tmp_path,
    monkeypatch,
    command,
    closed,
    status,
    out,
    error,
):
    monkeypatch.chdir(tmp_path)
    save_words(tmp_path / "tokenizer.json", ["hi"])

    ran = process.forked(*command.split(), closed=(closed,))

    assert ran.status == status
    assert ran.text == out
    assert error in ran.err
    assert ran.err == "" or ran.err.startswith("embcli: ")


def test_a_file_is_written_though_all_streams_are_closed(tmp_path):
    path = tmp_path / "out"

    ran = bash(f"embcli tokenize hi -f ids -o {path} <&- >&- 2>&-")

    assert ran == Ran(0, b"", "")
    assert path.read_text() == "5303\n"


# --- memory ---------------------------------------------------------------------------------------

MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak(process: Process, *words: str, stdin: bytes = b"") -> int:
    """Return the peak memory of embcli in bytes.

    A small process starts it, as a child begins with its parent's memory.
    """
    command = [sys.executable, "-c", MEASURE, *process.command, *words]
    ran = subprocess.run(command, input=stdin, capture_output=True, check=True, timeout=TIMEOUT)
    return int(ran.stdout)


@pytest.mark.parametrize(
    ("command", "text", "times"),
    [
        ("tokenize -f ids", LONG * 500, 5),
        ("decode", "262 " * 2_500_000, 12),
    ],
    ids=["text", "IDs"],
)
def test_a_long_input_through_a_pipe_takes_a_few_times_its_size(process, command, text, times):
    most = 80e6 + times * len(text)
    assert peak(process, *command.split(), stdin=text.encode()) < most


@cases
def test_memory_does_not_grow_with_the_output(process, tmp_path, form, columns, bytes_of_a_number):
    path = tmp_path / "text.txt"
    path.write_text(LONG * 15)
    lookup = ("lookup", "--file", str(path), "--window", "-f", form, "--columns")

    small = peak(process, *lookup, "0:1")
    large = peak(process, *lookup, f"0:{columns}")

    tokens = len(encodings.get("gpt2").encode(LONG)) * 15
    more_bytes = tokens * (columns - 1) * bytes_of_a_number
    assert large - small < more_bytes / 8


# --- other programs -------------------------------------------------------------------------------


@cases
def test_duckdb_reads_the_numbers_of_a_file(in_process, tmp_path, form, columns):
    path = tmp_path / f"weights.{form}"
    in_process.ok("weights", "--vocab", "9", "--dim", "2", "-o", str(path))

    query = f"select {columns} from '{path}' order by id"
    command = ["duckdb", "-list", "-noheader", "-c", query]
    ran = subprocess.run(command, capture_output=True, check=True, timeout=TIMEOUT)

    lines = ran.stdout.decode().replace("|", " ").splitlines()
    rows = np.float32([line.split() for line in lines])
    assert_same_bits(rows, live(Seeded(9, 2))["token"])
