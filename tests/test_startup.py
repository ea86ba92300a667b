"""What each command imports, seen in a fresh process: torch takes longer to load than all else together."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
import typer

from embcli.cli.app import command_line
from tests.runners import TIMEOUT, InProcess

HEAVY = {"torch", "numpy", "tiktoken", "rich"}
GROUP = typer.main.get_command(command_line())
COMMANDS = [*GROUP.commands]
LINE = "embcli lookup --fo"
LAYER = "--vocab 7 --dim 5 --context-length 9 --seed 4321"

ALL = """
import io, json, sys
from embcli.__main__ import main
done = {}
for asked in json.loads(sys.argv[1]):
    sys.argv[1:], sys.stdout = asked.split(), io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    status = main()
    printed = sys.stdout.tell() > 0
    done[asked] = [status, printed, [*sys.modules]]
print(json.dumps(done), file=sys.__stdout__)
"""


def imported(*asked: str, **environment: str) -> list[set[str]]:
    """Return the heavy packages that are imported after each of these runs in one process, all else having gone well.

    None may load what the next would find loaded: they are asked in the order of what they may import.
    """
    ran = subprocess.run(
        [sys.executable, "-c", ALL, json.dumps(asked)],
        input=b"",
        capture_output=True,
        env={**os.environ, **environment},
        timeout=TIMEOUT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    done = json.loads(ran.stdout)
    assert [*done] == [*asked]
    for command, (status, printed, modules) in done.items():
        assert (status, printed) == (0, True), command
        assert "embcli.cli.app" in modules, command
    return [HEAVY & {*modules} for *_, modules in done.values()]


def test_help_imports_nothing_heavy_but_what_draws_it() -> None:
    asked = [
        "--version",
        "--show-completion zsh",
        "--help",
        *(f"{command} -h" for command in COMMANDS),
    ]
    assert imported(*asked) == [set(), set(), *[{"rich"}] * (len(asked) - 2)]


def test_a_start_builds_one_command_and_no_adapter() -> None:
    assert len(command_line(["lookup", "hi"]).registered_commands) == 1
    code = "import sys; import embcli.__main__; import embcli.cli.app; print('pydantic' in sys.modules)"
    ran = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT, check=True
    )
    assert ran.stdout.decode().split()[-1] == "False"


@pytest.mark.parametrize(
    "asked",
    [
        {
            "_EMBCLI_COMPLETE": "complete_bash",
            "COMP_WORDS": LINE.replace(" ", "\n"),
            "COMP_CWORD": "2",
        },
        {"_EMBCLI_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "embcli lookup --encoding "},
    ],
    ids=["a flag", "an encoding"],
)
def test_completion_imports_nothing_heavy(asked: dict[str, str]) -> None:
    assert imported("", **asked)[0] <= {"rich"}  # by Typer, for less than 20 ms


@pytest.mark.parametrize(
    "runs",
    [
        {"cache -f json": {"numpy"}, "cache": {"numpy", "rich"}},
        {
            "decode 31373 11": {"numpy", "tiktoken"},
            "tokenize hi -f npy": {"numpy", "tiktoken"},
            **{
                run: {"numpy", "tiktoken", "rich"}
                for run in ("tokenize hi", "tokenize --ids 31373,11", "info")
            },
        },
    ],
    ids=["cache", "tokens"],
)
def test_what_needs_no_layer_imports_no_torch(runs: dict[str, set[str]]) -> None:
    assert_imports_no_more(runs)


def test_a_kept_layer_is_shown_without_torch(in_process: InProcess) -> None:
    in_process.ok("weights", *LAYER.split())
    in_process.ok("weights", "--layer", "position", *LAYER.split())
    assert_imports_no_more(
        {
            f"neighbors --ids 1 {LAYER} --format json": {"numpy"},
            **{
                f"lookup --ids 1,6 {LAYER} --format {form}": {"numpy"}
                for form in ("parquet", "npy", "csv")
            },
            **{f"{verb} {LAYER}": {"numpy", "rich"} for verb in ("lookup --ids 1,6", "weights")},
        }
    )


def assert_imports_no_more(runs: dict[str, set[str]]) -> None:
    for (command, allowed), modules in zip(runs.items(), imported(*runs), strict=True):
        assert modules <= allowed, command
