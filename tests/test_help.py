"""Help that teaches: groups in their order, examples that run, and nothing that a verb refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import typer

from embcli import formats
from embcli.cli.app import _PANEL, command_line
from embcli.cli.options import PANELS
from tests.conftest import Embcli
from tests.inside import Inside
from tests.screen import Terminal, as_process_on_terminal, drawn

GROUP = typer.main.get_command(command_line())
COMMANDS = GROUP.commands
EPILOGS = {name: command.epilog.split("\n\n") for name, command in COMMANDS.items()}
EXAMPLES = [example for epilog in EPILOGS.values() for example in epilog[1:]]
ABLE = {
    "tokenize": formats.able("tokens"),
    "weights": formats.able("embeddings"),
    "lookup": formats.able("embeddings"),
    "compare": formats.able("matrices"),
    "batch": formats.able("batches"),
    "positions": formats.able("embeddings"),
    "neighbors": formats.able("ranking"),
    "audit": formats.able("ranking"),
    "diff": formats.able("ranking"),
    "info": formats.able("list"),
    "cache": formats.able("list"),
}


def listed(text: str) -> list[str]:
    """Return the options in a help text, each by its long name, in their order."""
    return [found for found in re.findall(r"^(?:  |│ )(?:-\w, )?(--[a-z-]+)", text, re.MULTILINE) if found != "--help"]


def panels(page: Terminal) -> dict[str, str]:
    """Return the panels of a help text by their titles."""
    parts = re.split(r"^╭─ (.*?) ─+╮$", page.text, flags=re.MULTILINE)
    return {title: body.partition("╰")[0] for title, body in zip(parts[1::2], parts[2::2], strict=True)}


@pytest.mark.parametrize("name", COMMANDS)
def test_each_verb_has_a_few_examples_at_the_end_of_its_help(name: str) -> None:
    title, *examples = EPILOGS[name]
    assert title == "Examples:"
    assert 2 <= len(examples) <= 4
    assert all(f"embcli {name}" in example for example in examples)
    shown = " ".join(Inside().ok(name, "--help").text.split())
    assert shown.endswith(" ".join(["Examples:", *examples]))


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made up; a pipe is one run after the other."""
    monkeypatch.chdir(tmp_path)
    if "cache" in example:
        monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("book.txt", "the-verdict.txt"):
        (tmp_path / name).write_text("Every effort moves you, and so on.\n" * 400)
    tensors = {"wte.weight": 1 + np.eye(8, 4, dtype=np.float32), "wpe.weight": np.eye(4, dtype=np.float32)}
    for name in ("model.safetensors", "tuned.safetensors"):
        safetensors.numpy.save_file(tensors, tmp_path / name)
    step = {"heading": "Tokens", "words": "A text becomes tokens.", "command": "embcli tokenize Hi"}
    (tmp_path / "my-tour.json").write_text(json.dumps([step]))
    piped, written = b"", None
    for part in example.split(" | "):
        command, _, file = part.partition(" < ")
        program, *words = shlex.split(command)
        if program == "echo":
            piped = " ".join(words).encode()
            continue
        assert program == "embcli"
        piped = Inside().ok(*words, stdin=Path(file).read_bytes() if file else piped).out
        written = Path(words[words.index("-o") + 1]) if "-o" in words else None
    assert written.stat().st_size if written else piped


@pytest.mark.parametrize("name", ABLE)
def test_the_formats_in_the_help_are_those_that_the_verb_writes(name: str, tmp_path: Path) -> None:
    (option,) = (each for each in COMMANDS[name].params if "--format" in each.opts)
    told = tuple(re.findall(r"[a-z]+", option.help.replace(" or ", ", ")))
    assert told == ABLE[name]
    file = tmp_path / "book.txt"
    file.write_text("Every effort moves you, and so on.\n" * 4)
    model = str(tmp_path / "model.safetensors")
    safetensors.numpy.save_file({"wte.weight": np.eye(3, dtype=np.float32)}, model)
    arguments = {name: ["--ids", "1"] for name in ("compare", "lookup", "neighbors")}
    arguments |= {"diff": [model, model], "tokenize": ["hi"], "batch": [str(file)]}
    words = arguments.get(name, []) + ["--dim", "4"] * (name not in ("diff", "tokenize", "info", "cache"))
    words += ["--vocab", "6"] * (name in ("audit", "weights", "lookup", "compare", "neighbors"))
    for form in formats.FORMATS:
        ran = Inside()(name, *words, "-f", form, "-o", str(tmp_path / form))
        assert (ran.status == 0) == (form in told), ran
        assert (tmp_path / form).exists() == (form in told)


@pytest.mark.parametrize("name", [*COMMANDS, "cache clear", "cache verify"])
def test_help_in_a_pipe_is_one_plain_list_in_the_order_of_the_groups(name: str) -> None:
    text = Inside().ok(*name.split(), "--help").text
    assert "[[" not in text
    assert "..." not in text.splitlines()[0].replace("COMMAND [ARGS]...", "").replace("[IDS]...", "").replace(
        "[WORD]...", ""
    )
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    if name in COMMANDS:
        declared = [option for option in COMMANDS[name].params if _is_option(option)]
        groups = [PANELS.index(option.rich_help_panel) for option in declared]
        assert groups == sorted(groups)
        assert listed(text) == [_long(option) for option in declared]


def _is_option(parameter: object) -> bool:
    return parameter.opts[0].startswith("-") and "--help" not in parameter.opts  # type: ignore[attr-defined]


def _long(option: object) -> str:
    return next(name for name in option.opts if name.startswith("--"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 140])
def test_help_on_a_terminal_has_panels_and_is_as_wide_as_it_up_to_100(width: int) -> None:
    page = as_process_on_terminal(width, "lookup", "--help")
    found = panels(page)
    assert [*found] == ["Arguments", "Options", *PANELS]
    assert {len(line) for line in page.text.splitlines() if line[:1] in "╭│╰" and line} == {min(width, 100)}
    assert "[[" not in page.text
    for option in COMMANDS["lookup"].params:
        if _is_option(option):
            assert _long(option) in listed(found[option.rich_help_panel])


def test_embcli_alone_is_the_help_with_status_0(embcli: Embcli) -> None:
    assert embcli.ok().text == embcli.ok("--help").text


def test_the_first_screen_has_room_for_all_verbs_to_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 80 x 24, with 14 verbs, the prompt below them and the line that was typed."""
    alone = as_process_on_terminal(80, height=24)
    later = ("batch", "positions", "neighbors", "audit", "diff", "tour", "explain")
    more = [name for name in later if name not in COMMANDS]
    assert len(COMMANDS) + len(more) == 14
    height = len(alone.text.rstrip("\n").split("\n"))
    assert alone.history == 0
    assert height + len(more) <= 24 - 1
    larger = command_line()
    for name in more:
        larger.command(name, rich_help_panel=_PANEL)(_dummy)
    group = typer.main.get_command(larger)
    lines = group.get_help(typer.Context(group)).splitlines()
    assert len(lines) <= 24
    assert {*COMMANDS, *more} <= {line.split()[0] for line in lines if line}
    assert drawn("\r\n".join(lines), 80, 24).history == 0


def _dummy() -> None:
    """Show something in a line that is about as long as those of the others."""


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_told_in_words(name: str) -> None:
    text = " ".join(Inside().ok(name, "--help").text.split())
    for option in COMMANDS[name].params:
        if "--vocab" in option.opts:
            assert "[default: (the encoding's" in text
        if "--format" in option.opts:
            assert "[default: (by the suffix of --output, else EMBCLI_FORMAT, else table)]" in text
    assert "None" not in text
