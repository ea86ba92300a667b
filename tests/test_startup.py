"""What each command imports, seen in a fresh process: torch takes longer to load than all else together."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
import typer

from embcli import cli, names
from embcli.__main__ import main
from tests.benchmarks import help_plain
from tests.conftest import TIMEOUT

HEAVY = {"torch", "numpy", "tiktoken", "rich"}
GROUP = typer.main.get_command(cli.app)
COMMANDS = [*GROUP.commands, *(f"cache {name}" for name in GROUP.commands["cache"].commands)]
LINE = "embcli lookup --fo"
LAYER = ("--vocab", "7", "--dim", "5", "--context-length", "9", "--seed", "4321")

# None stands in the table of modules for one that is not to be imported.
RUN = """
import sys
from embcli.__main__ import main
status = main()
print(*(name for name, module in sys.modules.items() if module), file=sys.stderr)
sys.exit(status)
"""


def imported(*arguments: str, **environment: str) -> set[str]:
    """Return the heavy packages that a run of embcli imports, all else having gone well."""
    done = subprocess.run(
        [sys.executable, "-c", RUN, *arguments],
        input=b"",
        capture_output=True,
        env={**os.environ, **environment},
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done
    assert done.stdout, done
    modules = set(done.stderr.decode().splitlines()[-1].split())
    assert "embcli.cli" in modules, done
    return modules & HEAVY


@pytest.mark.parametrize("arguments", ["--help", "--version", "--show-completion zsh", *(f"{c} -h" for c in COMMANDS)])
def test_help_imports_nothing_heavy(arguments: str) -> None:
    assert imported(*arguments.split()) == set()


BUILT = "import embcli.cli, typer; print(*typer.main.get_command(embcli.cli.app).commands)"


@pytest.mark.parametrize("words", ["lookup", "cache verify", "tour", "--help", "nonsense", ""])
def test_the_command_of_the_called_verb_alone_is_made(words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUILT, *words.split()], capture_output=True, timeout=TIMEOUT, check=True, text=True
    )
    called = words.split()[:1]
    assert done.stdout.split() == (called if called in (["lookup"], ["cache"]) else [*names.VERBS])


@pytest.mark.parametrize("command", COMMANDS)
def test_help_is_measured_against_an_app_that_says_the_same(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setattr(sys, "argv", ["embcli", *command.split(), "--help"])
    plain: dict[str, Any] = {"__name__": "plain"}
    exec(help_plain.source(cli.app), plain)
    main()
    ours = capsys.readouterr().out
    plain["app"](prog_name="embcli", standalone_mode=False)
    assert capsys.readouterr().out == ours
    assert ours.startswith(f"Usage: embcli {command} ")


@pytest.mark.parametrize(
    "asked",
    [
        {"_EMBCLI_COMPLETE": "complete_bash", "COMP_WORDS": LINE.replace(" ", "\n"), "COMP_CWORD": "2"},
        {"_EMBCLI_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": LINE},
        {"_EMBCLI_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "embcli lookup --encoding "},
        {"_EMBCLI_COMPLETE": "complete_zsh", "_TYPER_COMPLETE_ARGS": "embcli lookup --show "},
        {
            "_EMBCLI_COMPLETE": "complete_fish",
            "_TYPER_COMPLETE_ARGS": LINE,
            "_TYPER_COMPLETE_FISH_ACTION": "get-args",
        },
        {
            "_EMBCLI_COMPLETE": "complete_powershell",
            "_TYPER_COMPLETE_ARGS": LINE,
            "_TYPER_COMPLETE_WORD_TO_COMPLETE": "--fo",
        },
    ],
    ids=lambda asked: f"{asked['_EMBCLI_COMPLETE']}: {asked.get('_TYPER_COMPLETE_ARGS', LINE)}",
)
def test_completion_imports_nothing_heavy(asked: dict[str, str]) -> None:
    assert imported(**asked) == set()


@pytest.mark.parametrize(
    ("arguments", "allowed"),
    [
        ("tokenize hi", {"numpy", "tiktoken", "rich"}),
        ("tokenize --ids 31373,11", {"numpy", "tiktoken", "rich"}),
        ("decode 31373 11", {"numpy", "tiktoken"}),
        ("cache", {"numpy", "rich"}),
        ("info", {"numpy", "tiktoken", "rich"}),
        *((f"tokenize hi -f {form}", {"numpy", "tiktoken"}) for form in ("json", "csv", "npy", "ids")),
        *((f"tokenize hi -f {form}", {"numpy", "tiktoken"}) for form in ("markdown", "latex")),
        ("cache -f json", {"numpy"}),
    ],
)
def test_what_needs_no_layer_imports_no_torch(arguments: str, allowed: set[str]) -> None:
    assert imported(*arguments.split()) <= allowed


def test_a_kept_layer_is_shown_without_torch() -> None:
    assert "torch" in imported("lookup", "--ids", "1,6", *LAYER)
    assert imported("lookup", "--ids", "1,6", *LAYER) <= {"numpy", "rich"}
    assert imported("weights", *LAYER) <= {"numpy", "rich"}
    assert imported("weights", *LAYER, "--format", "json") <= {"numpy"}
    assert imported("neighbors", "--ids", "1", *LAYER, "--format", "json") <= {"numpy"}
    for form in ("ndjson", "npy", "safetensors", "parquet", "markdown"):
        assert imported("lookup", "--ids", "1,6", *LAYER, "--format", form) <= {"numpy"}
