"""embcli among other programs: real pipes, real files, real signals, and terminals where it matters."""

from __future__ import annotations

import json
import re
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
from embcli.cli.output import format_of
from embcli.errors import OutputError
from embcli.seeded_layers.source import SeededSource
from tests.runners import TIMEOUT, InProcess, Process, Ran, Terminal

TEXT = "Every effort moves you\n\nto 🦜s and\tback,\nagain"
LONG = "Every effort moves you, and every parrot too.\n" * 400
TEXT_FORMATS = ("table", "json", "ndjson", "csv", "tsv")
LOOKUP_FORMATS = (*TEXT_FORMATS, "npy", "safetensors", "parquet")


def bash(script: str) -> Ran:
    """Run a script in which `embcli` is this embcli."""
    command = ["bash", "-c", f'embcli() {{ "{sys.executable}" -m embcli "$@"; }}\n{script}']
    done = subprocess.run(command, input=b"", capture_output=True, timeout=TIMEOUT, check=False)
    return Ran(done.returncode, done.stdout, done.stderr.decode())


def wait_for(path: Path, pattern: str) -> None:
    """Wait until there is something in a file whose name has this pattern."""
    end = time.monotonic() + TIMEOUT
    while not any(part.stat().st_size for part in path.glob(pattern)):
        assert time.monotonic() < end, "nothing was written"
        time.sleep(0.005)


@pytest.fixture(scope="module")
def long_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("text") / "long.txt"
    path.write_text(LONG)
    return path


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """Return a file that was there before, alone in its folder."""
    path = tmp_path / "old.ndjson"
    path.write_bytes(b"as it was\n")
    return path


def assert_as_it_was(old: Path) -> None:
    assert old.read_bytes() == b"as it was\n"
    assert [path.name for path in old.parent.iterdir()] == [old.name]


# --- in -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options", ["", "--lines", "--window --context-length 3", "--lines --window"]
)
def test_ids_from_tokenize_give_the_same_bytes_as_the_text(
    in_process: InProcess, options: str
) -> None:
    lookup = ("lookup", "--dim", "8", *options.split(), "-f", "json")
    ids = in_process.ok(
        "tokenize", *["--lines"] * ("--lines" in options), "-f", "ids", stdin=TEXT
    ).out
    out = in_process.ok(*lookup, "--ids", "-", stdin=ids).out
    assert out == in_process.ok(*lookup, stdin=TEXT).out
    assert len(json.loads(out)["matrices"]["input"]) > 12


# --- out ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("command", "wanted"),
    [
        ("lookup --window -f table", b"Input embeddings = token + position"),
        ("lookup --window -f json", b'{"run":{"embcli":"'),
        ("lookup --window -f ndjson", b'{"sequence":0,"position":0,"id":6109,"token":"Every",'),
        ("lookup --window -f csv", b"sequence,position,id,token,0,1,"),
        ("lookup --window -f tsv", b"sequence\tposition\tid\ttoken\t0\t1\t"),
        ("lookup --window -f npy", b"\x93NUMPY\x01\x00"),
        ("lookup --window -f safetensors", b"{"),
        ("lookup --window -f parquet", b"PAR1"),
        ("tokenize --lines -f ids", b"6109 3626 6100 345"),
        ("tokenize -f csv", b"position,id,token,bytes,start,end"),
    ],
)
def test_a_reader_that_leaves_early_ends_it_quietly(
    long_file: Path, command: str, wanted: bytes
) -> None:
    ran = Process().read_early(8 + len(wanted), *command.split(), "--file", str(long_file))
    assert (ran.status, ran.err) == (0, "")
    assert wanted in ran.out


def test_a_reader_that_leaves_early_changes_no_answer(tmp_path: Path) -> None:
    for name, value in ("base", 0), ("tuned", np.nan):
        np.save(tmp_path / name, np.full((60_000, 1), value, np.float32))
    ran = Process().read_early(
        8, "diff", f"{tmp_path}/base.npy", f"{tmp_path}/tuned.npy", "-f", "ndjson"
    )
    assert ran.status == 1
    assert (
        ran.err
        == "embcli: JSON has no NaN and no infinity: they are written as null; other formats keep them\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        *(f"lookup hi -f {form}" for form in LOOKUP_FORMATS),
        "lookup --help",
        "tokenize hi -f ids",
        "decode 1",
        "--version",
        "help decode",
    ],
)
def test_a_full_disk_is_an_error(command: str) -> None:
    ran = Process().into("/dev/full", *command.split())
    assert (ran.status, ran.err) == (
        2,
        "embcli: cannot write to standard output: No space left on device\n",
    )


def test_a_full_disk_behind_output_is_an_error(in_process: InProcess) -> None:
    message = in_process.refused("tokenize", "hi", "-o", "/dev/full")
    assert message == "embcli: cannot write to '/dev/full': No space left on device\n"


# --- which format -------------------------------------------------------------------------------------------------


SUFFIXES = """.json json|.ndjson ndjson|.jsonl ndjson|.csv csv|.tsv tsv|.npy npy|.safetensors safetensors
.parquet parquet|.txt table|.md markdown|.svg svg|.html html|.CSV csv|x table"""


@pytest.mark.parametrize(
    ("suffix", "form"), [each.split() for each in re.split(r"[|\n]", SUFFIXES)]
)
def test_the_suffix_of_the_output_chooses_the_format(suffix: str, form: str) -> None:
    assert format_of("embeddings", None, f"out{suffix}") == form
    assert format_of("embeddings", "tsv", f"out{suffix}") == "tsv"


def test_the_environment_sets_another_default_where_the_result_has_that_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBCLI_FORMAT", "npy")
    assert format_of("embeddings", None, None) == "npy"
    assert format_of("embeddings", None, "out.csv") == "csv"
    assert format_of("embeddings", "json", None) == "json"
    assert format_of("list", None, None) == "table"
    with pytest.raises(OutputError, match="cannot be written as npy"):
        format_of("list", "npy", None)
    assert format_of("embeddings", None, "out.unknown") == "npy"
    assert format_of("list", None, "out.unknown") == "table"
    monkeypatch.setenv("EMBCLI_FORMAT", "")
    assert format_of("embeddings", None, None) == "table"


# --- files --------------------------------------------------------------------------------------------------------


def test_a_new_file_is_written_with_the_permissions_of_the_umask(tmp_path: Path) -> None:
    ran = bash(f"umask 027; embcli tokenize hi -f ids -o {tmp_path}/new")
    assert (ran.status, ran.out, ran.err) == (0, b"", "")
    (path,) = tmp_path.iterdir()
    assert path.read_text() == "5303\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_a_link_stays_a_link_and_permissions_stay_as_they_are(
    in_process: InProcess, old: Path, tmp_path: Path
) -> None:
    old.chmod(0o604)
    link = tmp_path / "link"
    link.symlink_to(old.name)
    in_process.ok("tokenize", "hi", "-f", "ids", "-o", str(link))
    assert link.is_symlink()
    assert old.read_text() == "5303\n"
    assert stat.S_IMODE(old.stat().st_mode) == 0o604
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link", "old.ndjson"]


def test_a_private_file_is_private_while_it_is_written(old: Path) -> None:
    old.chmod(0o600)
    with destination(old) as file:
        file.write(b"new")
        modes = [stat.S_IMODE(path.stat().st_mode) for path in old.parent.iterdir()]
    assert modes == [0o600, 0o600]
    assert old.read_bytes() == b"new"


@pytest.mark.parametrize(
    "name", ["一" * 83 + ".csv", "🦜" * 62 + ".csv", "a" * 251 + ".csv", "-dash.csv"]
)
def test_any_name_that_the_file_system_takes_will_do(tmp_path: Path, name: str) -> None:
    with destination(tmp_path / name) as file:
        file.write(b"new")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def must_not(*_: object, **__: object) -> None:
    pytest.fail("this is work, and the place is to be refused before it")


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ("-o none/out.npy", "No such file or directory"),
        ("-o file/out.npy", "Not a directory"),
        ("-f npy -o folder", "Is a directory"),
        ("-f projector -o none/folder", "No such file or directory"),
        ("-f projector -o file", "Not a directory"),
        (
            "-f projector -o folder",
            "contains 'notes.txt', which is not embcli's; name another folder",
        ),
        ("-f projector", "projector is a folder of files; name it with --output"),
    ],
)
@pytest.mark.parametrize("verb", ["lookup hi", "weights"])
def test_a_place_is_refused_before_any_work(
    in_process: InProcess,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    verb: str,
    arguments: str,
    reason: str,
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "notes.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    monkeypatch.chdir(tmp_path)
    for name in ("open", "shape"):
        monkeypatch.setattr(SeededSource, name, must_not)
    monkeypatch.setattr("embcli.cli.app.read", must_not)
    assert reason in in_process.refused(*verb.split(), *arguments.split())
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["file", "folder", "notes.txt"]


# --- folders ------------------------------------------------------------------------------------------------------

TOY = ("weights", "--vocab", "6", "--dim", "3", "-f", "projector")
TOY_ROWS = ("weights", "--vocab", "9", "--dim", "2", "-f", "ndjson")
FILES = ["metadata.tsv", "projector_config.pbtxt", "vectors.tsv"]


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_folder_is_made_or_takes_the_place_of_an_earlier_one(
    in_process: InProcess, tmp_path: Path
) -> None:
    folder = tmp_path / "projector"
    assert in_process.ok(*TOY, "-o", str(folder)).out == b""
    first = contents(folder)
    assert sorted(first) == FILES
    in_process.ok(*TOY, "--seed", "5", "-o", str(folder))
    second = contents(folder)
    assert sorted(second) == FILES
    assert second["vectors.tsv"] != first["vectors.tsv"]
    assert [path.name for path in tmp_path.iterdir()] == ["projector"]
    (tmp_path / "empty").mkdir()
    in_process.ok(*TOY, "-o", str(tmp_path / "empty"))
    assert contents(tmp_path / "empty") == first


def test_output_may_be_a_pipe(tmp_path: Path) -> None:
    script = "embcli tokenize hi -f ids -o /dev/stdout | cat; embcli tokenize hi -f ids -o >(cat); wait $!"
    ran = bash(script)
    assert (ran.status, ran.out, ran.err) == (0, b"5303\n5303\n", "")
    pipe = f"{tmp_path}/pipe"
    ran = bash(f"mkfifo {pipe}; cat {pipe} & embcli tokenize hi -f ids -o {pipe} || kill $!; wait")
    assert (ran.status, ran.out, ran.err) == (0, b"5303\n", "")


@pytest.mark.parametrize("options", ["", "-f projector"])
def test_a_disk_that_fills_up_leaves_the_earlier_file_as_it_was(
    in_process: InProcess, old: Path, long_file: Path, options: str
) -> None:
    in_process.ok("lookup", "hi")  # which keeps the layers
    place = old.with_name("folder") if options else old
    ran = bash(f"ulimit -f 200; embcli lookup --file {long_file} --window {options} -o {place}")
    assert (ran.status, ran.out, ran.err) == (
        2,
        b"",
        f"embcli: cannot write to {str(place)!r}: File too large\n",
    )
    assert_as_it_was(old)


@pytest.fixture(scope="module")
def huge_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a text whose vectors take many seconds to write."""
    path = tmp_path_factory.mktemp("text") / "huge.txt"
    path.write_text(LONG * 60)
    return path


@pytest.mark.parametrize(
    ("number", "status"),
    [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGKILL, -9)],
)
def test_a_signal_in_the_middle_ends_it_and_leaves_the_earlier_file_as_it_was(
    old: Path, huge_file: Path, number: int, status: int
) -> None:
    process = Process().start(
        "lookup", "--file", str(huge_file), "--window", "-o", str(old), stderr=subprocess.PIPE
    )
    wait_for(old.parent, ".*.part")
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    assert (process.returncode, errors) == (status, b"")
    for half in old.parent.glob(".*.part"):
        assert number == signal.SIGKILL  # nobody is left to remove it
        half.unlink()
    assert_as_it_was(old)


def test_a_signal_in_the_middle_of_a_folder_leaves_nothing(tmp_path: Path, huge_file: Path) -> None:
    folder = tmp_path / "projector"
    process = Process().start(
        "lookup", "--file", str(huge_file), "--window", "-f", "projector", "-o", str(folder)
    )
    wait_for(tmp_path, ".*.part/vectors.tsv")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT)
    assert process.returncode == 128 + signal.SIGTERM
    assert not [*tmp_path.iterdir()]


def test_a_signal_that_is_ignored_stays_so(old: Path, long_file: Path) -> None:
    """As nohup starts a program."""
    ran = bash(
        f"""trap '' HUP
        "{sys.executable}" -m embcli lookup --file {long_file} --window -o {old} & process=$!
        until ls {old.parent}/.*.part >/dev/null 2>&1 || ! kill -0 $process; do sleep 0.01; done
        kill -HUP $process; wait $process"""
    )
    assert (ran.status, ran.err) == (0, "")
    assert old.read_bytes() != b"as it was\n"


# --- terminals and closed streams ---------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments", ["-f npy", "-f safetensors", "-f npy -o /dev/tty"])
def test_binary_data_is_refused_on_a_terminal(arguments: str) -> None:
    message = "embcli: binary data is not for a terminal; pipe it to another program, or name a file with --output\r\n"
    assert Terminal()("tokenize", "hi", *arguments.split(), width=200) == Ran(
        2, message.encode(), ""
    )


@pytest.mark.parametrize("arguments", [(), ("-o", "/dev/tty")], ids=" ".join)
def test_text_on_its_way_to_a_terminal_is_made_safe(arguments: tuple[str, ...]) -> None:
    ids = encodings.get("gpt2").encode("\x9b2J\u202eש\r").tolist()
    assert Terminal()("decode", *map(str, ids), *arguments).text == "\\u009b2J\\u202eש\\u000d\r\n"


def test_csv_on_a_terminal_has_its_line_ends_and_no_other_control_character() -> None:
    wanted = "position,id,token,bytes,start,end\r\n0,215,\\u001b,1b,0,1\r\n"
    assert Terminal()("tokenize", "\x1b", "-f", "csv").text == wanted


@pytest.mark.parametrize(
    ("script", "status", "out", "error"),
    [
        ("embcli tokenize <&-", 2, b"", "no TEXT given and nothing is piped in"),
        ("embcli tokenize hi -f ids <&-", 0, b"5303\n", ""),
        (
            "embcli tokenize hi -f ids >&-",
            2,
            b"",
            "standard output is closed; open it, or name a file with --output",
        ),
        ("embcli tokenize hi -f ids 2>&-", 0, b"5303\n", ""),
        ("embcli tokenize hi -f ids --seed 1 2>&-", 2, b"", ""),
        ("embcli tokenize hi -f ids -o out <&- >&- 2>&- ; cat out", 0, b"5303\n", ""),
    ],
)
def test_closed_streams_are_no_reason_to_fail_where_they_are_not_needed(
    tmp_path: Path, script: str, status: int, out: bytes, error: str
) -> None:
    ran = bash(f"cd {Path.cwd()} && {script.replace(' out', f' {tmp_path}/out')}")
    assert (ran.status, ran.out) == (status, out)
    assert error in ran.err
    assert ran.err == "" or ran.err.startswith("embcli: ")
    assert "Traceback" not in ran.err


# --- memory -------------------------------------------------------------------------------------------------------

MEASURE = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)
"""


def peak(*arguments: str, stdin: bytes = b"") -> int:
    """Return the peak memory of embcli in bytes; a small process starts it, as a child begins with its parent's."""
    command = [sys.executable, "-c", MEASURE, *Process.command, *arguments]
    return int(
        subprocess.run(
            command, input=stdin, capture_output=True, check=True, timeout=TIMEOUT
        ).stdout
    )


def test_a_long_text_or_list_of_ids_through_a_pipe_takes_a_few_times_its_size() -> None:
    text, ids = LONG.encode() * 500, b"262 " * 2_500_000
    assert len(text) > 9e6
    assert peak("tokenize", "-f", "ids", stdin=text) < 80e6 + 5 * len(text)
    assert peak("decode", stdin=ids) < 80e6 + 12 * len(ids)


@pytest.mark.parametrize("form", ["npy", "ndjson"])
def test_memory_does_not_grow_with_the_output(tmp_path: Path, form: str) -> None:
    (tmp_path / "text.txt").write_text(LONG * 15)
    count = len(encodings.get("gpt2").encode(LONG)) * 15
    small, large = (
        peak(
            "lookup", "--file", f"{tmp_path}/text.txt", "--window", "-f", form, "--columns", columns
        )
        for columns in ("0:1", "0:256" if form == "npy" else "0:24")
    )
    written = 4 * count * (255 if form == "npy" else 23 * 3)
    assert large - small < written / 8


# --- other programs -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["csv", "ndjson", "parquet"])
def test_duckdb_reads_the_numbers_of_a_file(
    in_process: InProcess, tmp_path: Path, form: str
) -> None:
    in_process.ok("weights", "--vocab", "9", "--dim", "2", "-o", f"{tmp_path}/w.{form}")
    wanted = [
        each["vectors"]["token"]
        for each in map(json.loads, in_process.ok(*TOY_ROWS).out.splitlines())
    ]
    columns = {
        "ndjson": "vectors.token[1], vectors.token[2]",
        "parquet": "vector[1], vector[2]",
        "csv": "columns('^[01]$')",
    }[form]
    query = f"select {columns} from '{tmp_path}/w.{form}' order by id"
    done = subprocess.run(
        ["duckdb", "-list", "-noheader", "-c", query],
        capture_output=True,
        check=True,
        timeout=TIMEOUT,
    )
    found = [[float(value) for value in line.split("|")] for line in done.stdout.decode().split()]
    assert np.float32(found).tolist() == np.float32(wanted).tolist()
