"""What each command imports, seen in a fresh process: torch takes longer than all else together."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from embcli.cli.app import COMMANDS
from tests.cases import data
from tests.runners import TIMEOUT

HEAVY = {"torch", "numpy", "tiktoken", "rich"}
LAYER = "--vocab 7 --dim 5 --context-length 9 --seed 4321"

RUN_ALL = """
import io, json, sys
from embcli.__main__ import main
runs = {}
for command in json.loads(sys.argv[1]):
    sys.argv[1:] = command.split()
    sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    status = main()
    runs[command] = [status, sys.stdout.tell() > 0, list(sys.modules)]
print(json.dumps(runs), file=sys.__stdout__)
"""


def imported(*commands: str, **environment: str) -> dict[str, set[str]]:
    """Run commands in one process; return which modules are loaded after each.

    A command may find loaded what those before it have loaded, so that the largest come last.
    """
    ran = subprocess.run(
        [sys.executable, "-c", RUN_ALL, json.dumps(commands)],
        input=b"",
        capture_output=True,
        env=os.environ | environment,
        timeout=TIMEOUT,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr

    loaded = {}
    for command, (status, has_printed, modules) in json.loads(ran.stdout).items():
        assert status == 0, command
        assert has_printed, command
        assert "embcli.cli.app" in modules, command
        loaded[command] = set(modules)
    return loaded


def assert_imports_no_more(allowed: dict[str, list[str]]) -> None:
    """Assert that commands load no heavy packages but these."""
    for command, loaded in imported(*allowed).items():
        assert HEAVY & loaded <= {*allowed[command]}, command


def test_help_imports_nothing_heavy_but_what_draws_it():
    drawn = ["--help", *(f"{verb} -h" for verb in COMMANDS)]
    allowed = {"--version": [], "--show-completion zsh": []}

    assert_imports_no_more(allowed | {command: ["rich"] for command in drawn})


BASH_ASKS_FOR_A_FLAG = {
    "_EMBCLI_COMPLETE": "complete_bash",
    "COMP_WORDS": "embcli\nlookup\n--fo",
    "COMP_CWORD": "2",
}
ZSH_ASKS_FOR_AN_ENCODING = {
    "_EMBCLI_COMPLETE": "complete_zsh",
    "_TYPER_COMPLETE_ARGS": "embcli lookup --encoding ",
}


@pytest.mark.parametrize(
    "request_of_shell",
    [BASH_ASKS_FOR_A_FLAG, ZSH_ASKS_FOR_AN_ENCODING],
    ids=["a flag", "an encoding"],
)
def test_completion_imports_nothing_heavy(request_of_shell):
    loaded = imported("", **request_of_shell)[""]
    assert HEAVY & loaded <= {"rich"}  # Typer imports it, in less than 20 ms.


# Commands, and the heavy packages that each may load.
ALLOWED = data(__name__)


def test_what_needs_no_layer_imports_no_torch():
    assert_imports_no_more(ALLOWED["without a layer"])


def test_a_cached_layer_is_shown_without_torch(in_process):
    in_process.ok("weights", *LAYER.split())
    in_process.ok("weights", "--layer", "position", *LAYER.split())

    assert_imports_no_more(ALLOWED["of a cached layer"])


def test_a_command_imports_no_other_verb():
    lookup = f"lookup --ids 2 {LAYER}"

    folders = {name.split(".")[2] for name in imported(lookup)[lookup] if "embcli.verbs." in name}

    assert folders == {"lookup"}
