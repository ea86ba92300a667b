"""Faults beside the input: each ends in a sentence and status 2, and nothing is lost."""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

from embcli import encodings
from embcli.errors import ran_out
from tests.cases import cases
from tests.runners import PARSERS, TIMEOUT, limited

TOY = ("--vocab", "6", "--dim", "3", "--context-length", "4")
FAILS = "raise OSError('a\\nlibrary is\\x1b[2J broken')"
PRINTED_REASON = "does not load (a library is\\u001b[2J broken)"


# --- torch ----------------------------------------------------------------------------------------


def broken_torch(folder: Path, code: str) -> dict[str, str]:
    """Return an environment whose torch has the true version, and runs this when it is loaded."""
    import torch

    package = folder / "broken" / "torch"
    package.mkdir(parents=True)
    version = Path(torch.__file__).with_name("version.py").read_text()
    (package / "version.py").write_text(version)
    (package / "__init__.py").write_text(code)

    places = [str(package.parent), os.environ.get("PYTHONPATH", ""), str(Path.cwd())]
    return {"PYTHONPATH": os.pathsep.join(places)}


def test_with_a_broken_torch_info_goes_on_and_a_cached_lookup_works(in_process, process, tmp_path):
    lookup = ("lookup", "--ids", "2,3", *TOY)
    info = ("info", "-f", "json")
    shown = in_process.ok(*lookup, suggestions=True).out

    environment = broken_torch(tmp_path, FAILS)

    assert process.ok(*lookup, **environment).out == shown
    assert process.ok(*info, **environment).out == in_process.ok(*info).out


@pytest.mark.parametrize(
    ("code", "command"),
    [
        pytest.param(FAILS, "compare", id="raises"),
        pytest.param("def (", "lookup --ids 1 --seed 77 --vocab 6 --dim 3", id="is cut"),
        pytest.param(
            "import ctypes; ctypes.CDLL('libtorch_none.so')",
            "weights --no-cache",
            id="has no library",
        ),
    ],
)
def test_with_a_broken_torch_what_needs_it_ends_in_a_sentence(process, tmp_path, code, command):
    error = process.refused(*command.split(), **broken_torch(tmp_path, code))

    assert "torch does not load (" in error
    assert "pip install --force-reinstall torch" in error


# --- other packages -------------------------------------------------------------------------------


@pytest.fixture
def _fresh_encodings() -> None:
    """Forget encodings before and after a test."""
    encodings._of_tiktoken.cache_clear()
    yield
    encodings._of_tiktoken.cache_clear()


@pytest.mark.usefixtures("_fresh_encodings")
@cases
def test_a_package_that_does_not_load_is_named_in_a_sentence(
    in_process,
    tmp_path,
    monkeypatch,
    package,
    command,
    feature,
):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text(FAILS)
    (tmp_path / "tokenizer.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name in list(sys.modules):
        if name.partition(".")[0] == package:
            monkeypatch.delitem(sys.modules, name)

    error = in_process.refused(*command.split())

    assert feature in error
    assert PRINTED_REASON in error


# --- memory ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "compare --vocab 2000000 --dim 300",
        "lookup --ids 1 --vocab 3 --dim 200000000 --no-cache -f npy",
        "weights --vocab 300000000 --dim 1 --rows :,:,: -f csv",
    ],
)
def test_memory_that_runs_out_anywhere_is_told_in_a_sentence(process, command):
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    size = pages * resource.getpagesize()

    with limited(resource.RLIMIT_AS, size + 500_000_000):
        ran = process.forked(*command.split())

    assert ran.status == 2
    assert ran.out == b""
    assert ran.err.startswith("embcli: ")
    assert "memory" in ran.err
    assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("fault", "is_shortage"),
    [
        (RuntimeError("can't start new thread"), True),
        (OSError(12, ""), True),
        (ImportError("libtorch.so: failed to map segment"), True),
        (RuntimeError("size mismatch"), False),
        (OSError(28, "No space left"), False),
        (KeyError("a"), False),
    ],
)
def test_a_shortage_of_memory_is_known_in_other_words(fault, is_shortage):
    assert ran_out(fault) == is_shortage


# --- signals --------------------------------------------------------------------------------------


def test_a_signal_while_a_layer_is_cached_leaves_no_wrong_row(in_process, process, tmp_path):
    layer = ("--vocab", "30000", "--dim", "64")
    lookup = ("lookup", "--ids", "0,29999,20000", *layer, "-f", "csv")
    cache = {"EMBCLI_CACHE_DIR": str(tmp_path)}
    torch_rows = in_process.ok(*lookup, "--no-cache").out
    chance = random.Random(0)
    statuses = set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL) * 2:
        started = process.start(
            "weights",
            *layer,
            environment=cache,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        with suppress(subprocess.TimeoutExpired):
            started.wait(chance.uniform(0, 0.2))
        started.send_signal(number)
        statuses.add(started.wait(TIMEOUT))

        if number != signal.SIGKILL:
            assert not list(tmp_path.glob(".*.part"))
        assert in_process.ok(*lookup, **cache).out == torch_rows
        in_process.ok("cache", "clear", **cache)
        assert not list(tmp_path.iterdir())

    before_embcli_began = {255, -signal.SIGINT, -signal.SIGTERM}
    assert statuses <= {0, 130, 143, -signal.SIGKILL} | before_embcli_began


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
def test_an_interrupt_while_python_loads_embcli_leaves_no_traceback(module, start):
    command = [sys.executable, "-c", INTERRUPTED, module, start]
    ran = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)

    assert ran.returncode == -signal.SIGINT
    assert ran.stdout == b""
    assert ran.stderr == b""


# --- places ---------------------------------------------------------------------------------------


def test_standard_output_as_a_file_goes_on_where_it_stands(process, tmp_path):
    log = tmp_path / "log"
    log.write_text("held\n")
    tokenize = ("tokenize", "hi", "-f", "ids", "-o")

    with open(log, "a") as file:
        process.forked(*tokenize, "/dev/stdout", stdout=file)
    assert log.read_text() == "held\n5303\n"

    with open(log, "w") as file:
        file.write("one\n")
        file.flush()
        process.forked(*tokenize, "/dev/fd/1", stdout=file)
        process.forked(*tokenize, "/proc/self/fd/1", stdout=file)
        file.write("two\n")
    assert log.read_text() == "one\n5303\n5303\ntwo\n"


# --- any words ------------------------------------------------------------------------------------

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
INPUTS = ["", "hi", "1 2", "\x00\ufeff"]
LARGE = ("weights", "audit", "lookup", "neighbors")  # verbs that would read all rows of GPT-2


def any_words(chance: random.Random) -> list[str]:
    """Return a verb with some of its options, whose values may be anything."""
    verb = chance.choice([*sorted(set(PARSERS) - {"tour"}), "lookpu"])
    words = [verb]
    if verb in LARGE:
        words += ["--vocab", "100", "--dim", "3"]

    known = PARSERS.get(verb, PARSERS["lookup"]).params
    for option in chance.choices(known, k=chance.choice([0, 1, 1, 2, 4])):
        if option.opts[0].startswith("-"):
            words.append(chance.choice(option.opts))
        if not getattr(option, "is_flag", False):
            values = chance.choice([GOOD, GOOD, ODD])
            words.append(chance.choice(values))
    return words


def test_any_words_are_answered_or_refused_in_a_sentence(in_process, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    chance = random.Random(0)
    statuses = Counter[int]()

    for _ in range(100):
        Path("text.txt").write_text("Every effort\nmoves you\n")
        words = any_words(chance)
        is_terminal = chance.random() < 0.3
        ran = in_process(*words, stdin=chance.choice(INPUTS), terminal=is_terminal)

        statuses[ran.status] += 1
        assert ran.status in (0, 1, 2), words
        assert "Traceback" not in ran.err, words
        if ran.status == 2:
            assert ran.out == b"", words
            assert ran.err.startswith("embcli: "), words

    assert statuses[0] > 10
    assert statuses[2] > 10


@cases
def test_an_error_is_no_longer_than_it_can_be_read(in_process, command):
    error = in_process.refused(*command.replace("WORD", "x" * 3000).split())
    assert max(len(line) for line in error.splitlines()) <= 300
