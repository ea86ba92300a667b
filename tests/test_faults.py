"""Faults outside the path of the input: each ends in a sentence and status 2, and nothing is lost."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import typer

from embcli import encodings
from embcli.cli.app import command_line
from tests.runners import TIMEOUT, InProcess, Process

TOY = ("--vocab", "6", "--dim", "3", "--context-length", "4")


# --- torch ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, str]:
    """Return an environment whose torch is of the true version and does not load."""
    import torch

    package = tmp_path / "broken" / "torch"
    package.mkdir(parents=True)
    source = Path(torch.__file__).with_name("version.py").read_text()
    (package / "version.py").write_text(source)
    code = {
        "raises": "raise RuntimeError('a\\nlibrary is\\x1b[2J broken')",
        "is cut": "def (",
        "has no library": "import ctypes; ctypes.CDLL('libtorch_none.so')",
    }
    (package / "__init__.py").write_text(code[request.param])
    return {
        "PYTHONPATH": os.pathsep.join(
            [str(package.parent), os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
        )
    }


@pytest.mark.parametrize("broken", ["raises"], indirect=True)
def test_with_a_broken_torch_info_goes_on_and_a_kept_lookup_works(
    process: Process, broken: dict[str, str]
) -> None:
    kept = InProcess().ok("lookup", "--ids", "2,3", *TOY, suggestions=True).out
    assert process.ok("lookup", "--ids", "2,3", *TOY, **broken).out == kept
    assert (
        process.ok("info", "-f", "json", **broken).out == InProcess().ok("info", "-f", "json").out
    )


@pytest.mark.parametrize(
    ("broken", "command"),
    [
        ("raises", "compare"),
        ("is cut", "lookup --ids 1 --seed 77 --vocab 6 --dim 3"),
        ("has no library", "weights --no-cache"),
    ],
    indirect=["broken"],
)
def test_with_a_broken_torch_what_needs_it_ends_in_a_sentence(
    process: Process, broken: dict[str, str], command: str
) -> None:
    told = process.refused(*command.split(), **broken)
    assert told.startswith("embcli: torch does not load (")
    assert "; reinstall it: pip install --force-reinstall torch" in told
    assert told.count("\n") == 1


# --- other packages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("package", "command", "told"),
    [
        ("tiktoken", "tokenize hi", "tiktoken does not load ("),
        ("tiktoken", "tokenize hi --encoding gpt-4o", "tiktoken does not load ("),
        (
            "tokenizers",
            "tokenize hi --encoding ./tokenizer.json",
            "a tokenizer.json needs a package that does ",
        ),
        ("resvg_py", "compare -o a.png", "png needs a package that does not load ("),
        (
            "pyarrow",
            "weights --vocab 6 --dim 3 -f parquet -o a",
            "parquet needs a package that does not load (",
        ),
    ],
    ids=lambda each: each.split()[0],
)
def test_a_package_that_does_not_load_is_named_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, package: str, command: str, told: str
) -> None:
    encodings.get.cache_clear()
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(
        "raise OSError('a\\nlibrary is\\x1b[2J broken')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{}")
    error = InProcess().refused(*command.split())
    encodings.get.cache_clear()
    assert told in error
    assert "a library is\\u001b[2J broken)" in error


# --- memory -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "compare --vocab 2000000 --dim 300",
        "lookup --ids 1 --vocab 3 --dim 200000000 --no-cache -f npy",
        "weights --vocab 300000000 --dim 1 --rows :,:,: -f csv",
    ],
)
def test_memory_that_runs_out_anywhere_is_told_in_a_sentence(command: str) -> None:
    limited = ["sh", "-c", 'ulimit -v 1074000; exec "$@"', "sh", *Process.command, *command.split()]
    ran = subprocess.run(
        limited, stdin=subprocess.DEVNULL, capture_output=True, timeout=TIMEOUT, check=False
    )
    assert (ran.returncode, ran.stdout) == (2, b"")
    assert re.fullmatch("embcli: .*memory.*\n", ran.stderr.decode())


# --- signals ----------------------------------------------------------------------------------------------------------


def test_a_signal_while_a_layer_is_kept_leaves_no_wrong_row(tmp_path: Path) -> None:
    layer, here = ("--vocab", "40000", "--dim", "64"), {"EMBCLI_CACHE_DIR": str(tmp_path)}
    chance, statuses = random.Random(0), Counter[int]()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) * 3:
        process = Process().start(
            "weights",
            *layer,
            environment=here,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with suppress(subprocess.TimeoutExpired):
            process.wait(chance.uniform(0, 0.25))
        process.send_signal(number)
        statuses[process.wait(TIMEOUT)] += 1
        assert number == signal.SIGKILL or not [*tmp_path.glob(".*.part")]
        lookup = ("lookup", "--ids", "0,39999,20000", *layer, "-f", "csv")
        assert InProcess().ok(*lookup, **here).out == InProcess().ok(*lookup, "--no-cache").out
        InProcess().ok("cache", "clear", **here)
        assert not [*tmp_path.iterdir()]
    assert {*statuses} <= {
        0,
        130,
        143,
        255,
        -2,
        -9,
        -15,
    }  # 255: the signal came before embcli began


INTERRUPTED = """
import os, runpy, signal, sys
sys.modules.pop("__future__", None)
class Interrupts:
    def find_spec(name, path, target=None):
        if name == sys.argv[1]:
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupts)
if sys.argv.pop() == "-m":
    runpy.run_module("embcli", run_name="__main__", alter_sys=True)
else:
    from embcli.__main__ import run
    run()
"""


@pytest.mark.parametrize("module", ["__future__", "embcli.names", "typer"])
@pytest.mark.parametrize("start", ["-m", "run"])
def test_an_interrupt_while_python_loads_embcli_leaves_no_traceback(
    module: str, start: str
) -> None:
    command = [sys.executable, "-c", INTERRUPTED, module, start]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, b"", b"")


# --- its own input ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        *("diff m.npy m.npy -f json -o m.npy", "diff m.npy n.npy -f json -o ./n.npy"),
        *(
            "weights --from m.npy -o link.npy",
            "weights --from . -o tokenizer.json",
            "weights m.npy -o m.npy",
        ),
        *("tokenize --file m.npy -f npy -o m.npy", "batch --file m.npy -o m.npy"),
        "neighbors --vector m.npy -f json -o m.npy",
        "tokenize x --encoding gpt2,tokenizer.json -f json -o tokenizer.json",
    ],
)
def test_an_output_does_not_replace_what_the_command_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("m.npy", "n.npy", "tokenizer.json"):
        np.save(tmp_path / "m.npy", np.eye(3, dtype=np.float32))
        Path(name).write_bytes((tmp_path / "m.npy").read_bytes())
    Path("link.npy").symlink_to("m.npy")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    assert "is read by this command; name another file with --output" in InProcess().refused(
        *command.split()
    )
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


# --- places -----------------------------------------------------------------------------------------------------------


def test_standard_output_as_a_file_goes_on_where_it_stands(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("held\n")
    first, second, third = (
        f"{' '.join(Process.command)} tokenize hi -f ids -o {place}"
        for place in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
    )
    subprocess.run(["sh", "-c", f"{first} >> {log}"], check=True, timeout=TIMEOUT)
    assert log.read_text() == "held\n5303\n"
    subprocess.run(
        ["sh", "-c", f"(echo one; {second}; {third}; echo two) > {log}"],
        check=True,
        timeout=TIMEOUT,
    )
    assert log.read_text() == "one\n5303\n5303\ntwo\n"


# --- any words --------------------------------------------------------------------------------------------------------

ODD = [
    "",
    "-",
    "--",
    "[bold]",
    "\x1b[2J",
    "\udcff",
    "\ud800",
    "\u202eab",
    "漢字",
    "9" * 5000,
    "=",
    "%s",
    "-1",
    "1e3",
]
GOOD = [
    "1",
    "2",
    "0:2",
    "hi",
    "2,3,1",
    "text.txt",
    "none",
    ".",
    "out.json",
    "token,input",
    "json",
    "gpt2",
    "cosine",
]


def test_any_words_are_answered_or_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    commands, chance, statuses = (
        typer.main.get_command(command_line()).commands,
        random.Random(0),
        Counter[int](),
    )
    for _ in range(100):
        Path("text.txt").write_text("Every effort\nmoves you\n")
        name = chance.choice([*sorted({*commands} - {"tour"}), "lookpu"])
        words = [
            name,
            *(
                ["--vocab", "100", "--dim", "3"]
                if name in ("weights", "audit", "lookup", "neighbors")
                else ()
            ),
        ]
        for option in chance.choices(
            commands.get(name, commands["lookup"]).params, k=chance.choice([0, 1, 1, 2, 4])
        ):
            flag = [chance.choice(option.opts)] if option.opts[0].startswith("-") else []
            value = (
                []
                if getattr(option, "is_flag", False)
                else [chance.choice(chance.choice([GOOD, GOOD, ODD]))]
            )
            words += flag + value
        ran = InProcess()(
            *words,
            stdin=chance.choice(["", "hi", "1 2", "\x00\ufeff"]),
            terminal=chance.random() < 0.3,
        )
        statuses[ran.status] += 1
        assert ran.status in (0, 1, 2), words
        assert "Traceback" not in ran.err, words
        if ran.status == 2:
            assert ran.out == b"", words
            assert ran.err.startswith("embcli: "), words
    assert min(statuses[0], statuses[2]) > 10


TOO_LONG = """WORD|lookup --ids WORD|lookup hi --columns WORD|lookup hi --only WORD|lookup hi --show WORD
lookup hi --from WORD|lookup hi --encoding WORD|lookup hi -f WORD|lookup hi --position WORD|weights --rows WORD
decode WORD|positions WORD|explain WORD|audit --fail-on WORD|diff WORD a|neighbors hi --match (WORD|info WORD"""


@pytest.mark.parametrize("command", re.split(r"[|\n]", TOO_LONG))
def test_an_error_is_no_longer_than_it_can_be_read(command: str) -> None:
    told = InProcess().refused(*command.replace("WORD", "x" * 3000).split())
    assert max(map(len, told.splitlines())) <= 200
