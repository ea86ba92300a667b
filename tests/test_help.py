"""Help that teaches: groups in their order, examples that run, and nothing that a verb refuses."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import typer

from embcli import formats
from embcli.cli.app import command_line
from embcli.cli.help import GROUPS
from embcli.cli.options import PANELS
from tests.conftest import Embcli
from tests.inside import Inside
from tests.screen import OWN_ESCAPES, contrast, help_on_terminal, rgb, styled

GROUP = typer.main.get_command(command_line())
COMMANDS = GROUP.commands
EPILOGS = {name: command.epilog.split("\n") for name, command in COMMANDS.items()}
EXAMPLES = [example for epilog in EPILOGS.values() for example in epilog[1::2]]
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
    return re.findall(r"^  (?:-\w, )?(--[a-z-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_the_first_screen_of_a_verb_is_one_sentence_three_examples_and_five_options(name: str) -> None:
    """At 80 x 24, with the prompt below it; all of it has the same lines before the others."""
    page = help_on_terminal(80, name, "--help", height=24)
    assert page.history == 0
    usage, blank, sentence, empty, *lines = page.text.splitlines()
    assert usage.startswith(f"Usage: embcli {name} ")
    assert (blank, empty, sentence[-1]) == ("", "", ".")
    assert len(lines) <= 24 - 1 - 4
    assert [line[2:] for line in lines[:6]] == EPILOGS[name]
    assert [line[:4] for line in lines[:6:2]] == ["  # "] * 3
    assert all(f"embcli {name}" in example for example in EPILOGS[name][1::2])
    options = [option for option in COMMANDS[name].params if _is_option(option)]
    assert listed(page.text) == [_long(option) for option in options[:5]]
    whole = Inside().ok("help", name).text
    others = len(options) - 5
    if others > 0:
        assert lines[-2:] == ["", f"{others} more options: embcli help {name}"]
        assert whole.startswith("\n".join(page.text.splitlines()[:-2]))
    assert whole == Inside().ok(name, "--help").text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("book.txt", "the-verdict.txt"):
        (folder / name).write_text("Every effort moves you, and so on.\n" * 400)
    token = np.random.default_rng(1).standard_normal((50257, 8), np.float32)  # as many rows as GPT-2 has tokens
    (folder / "gpt2").mkdir()
    for name in ("model.safetensors", "tuned.safetensors", "gpt2/model.safetensors"):
        tensors = {"wte.weight": token[:200] if name[0] != "g" else token, "wpe.weight": np.eye(8, dtype=np.float32)}
        safetensors.numpy.save_file(tensors, folder / name)
    step = {"heading": "Tokens", "words": "A text becomes tokens.", "command": "embcli tokenize Hi"}
    (folder / "my-tour.json").write_text(json.dumps([step]))
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(example: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files are made up; a pipe is one run after the other."""
    monkeypatch.chdir(tmp_path)
    if "cache" in example:
        monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "cache"))
    for file in made.iterdir():
        (tmp_path / file.name).symlink_to(file)
    piped, written = b"", None
    for part in example.split(" | "):
        command, _, file = part.partition(" < ")
        program, *words = shlex.split(command)
        if program == "echo":
            piped = " ".join(words).encode()
            continue
        assert program == "embcli"
        if words[0] == "explore":
            assert "needs a terminal" in Inside().refused(*words)
            return
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
        if form not in told or name in ("info", "cache"):  # test_library writes all that the others write
            ran = Inside()(name, *words, "-f", form, "-o", str(tmp_path / form))
            assert (ran.status == 0) == (form in told), ran
            assert (tmp_path / form).exists() == (form in told)


@pytest.mark.parametrize("name", [*COMMANDS, "cache clear"])
def test_help_in_a_pipe_is_whole_in_the_order_of_the_groups(name: str) -> None:
    text = Inside().ok(*name.split(), "--help", COLUMNS="140").text
    assert not re.search(r"\[\[|<|>(?!=)|\x1b|None", text.partition("\n\n")[2].partition("\nOptions\n")[2])
    assert text.isascii()
    assert max(map(len, text.splitlines())) <= 100
    if name in COMMANDS:
        declared = [option for option in COMMANDS[name].params if _is_option(option)]
        groups = [PANELS.index(option.rich_help_panel) for option in declared]
        assert groups == sorted(groups)
        assert listed(text) == [_long(option) for option in declared]
        titles = re.findall(r"^[A-Z][a-z]+$", text, re.MULTILINE)
        assert titles == [PANELS[0], *(PANELS[group] for group in sorted({*groups} - {0}))]


def _is_option(parameter: object) -> bool:
    return parameter.opts[0].startswith("-") and "--help" not in parameter.opts  # type: ignore[attr-defined]


def _long(option: object) -> str:
    return next(name for name in option.opts if name.startswith("--"))  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["lookup", "weights", "cache"])
def test_no_name_and_no_metavar_is_broken_however_narrow(name: str) -> None:
    """Each is on a line of its own at 40 columns, as a word of a description is."""
    page = help_on_terminal(40, "help", *name.split())
    assert max(map(len, page.text.splitlines())) <= 40
    lines = [line.strip() for line in page.text.splitlines()]
    for option in (each for each in _command(name).params if _is_option(each)):
        short = [each for each in option.opts if len(each) == 2][:1]
        value = [] if option.is_flag else [option.metavar]
        assert " ".join([", ".join([*short, _long(option)]), *value]) in lines
    told = {*" ".join(" ".join(lines).split()).split()}
    wide = {*" ".join(Inside().ok("help", *name.split(), COLUMNS="100").text.split()).split()}
    assert told == wide


def _command(name: str) -> Any:
    found = GROUP
    for word in name.split():
        found = found.commands[word]
    return found


def test_on_a_tall_terminal_the_help_is_whole() -> None:
    page = help_on_terminal(80, "lookup", "-h", height=100)
    assert page.text == Inside().ok("help", "lookup").text


def test_the_colours_of_help_are_those_of_a_page_and_can_be_read_on_white_and_on_black() -> None:
    for raw in (help_on_terminal(80).raw, help_on_terminal(80, "lookup", "-h", height=24).raw):
        pieces = [piece for line in raw.split("\n") for piece in styled(line)]
        colors = {piece.color for piece in pieces} - {()}
        assert colors == {(38, 2, 0, 135, 215)}  # of a page's numbers below zero
        assert all(contrast(rgb(color), ground) >= 3 for color in colors for ground in ((0, 0, 0), (255, 255, 255)))
        assert any(piece.bold for piece in pieces)
    assert OWN_ESCAPES.search(Inside(terminal=True).ok("lookup", "-h", NO_COLOR="1").text) is None


def test_embcli_alone_is_the_list_of_verbs_with_status_0(inside: Embcli) -> None:
    assert inside.ok().text == inside.ok("--help").text == inside.ok("help").text


def test_the_first_screen_says_what_to_type_and_has_room_for_the_verbs_to_come() -> None:
    """At 80 x 24, with the prompt below it, in groups by what verbs are for."""
    alone = help_on_terminal(80, height=24)
    lines = alone.text.splitlines()
    assert alone.history == 0
    more = [name for name in ("explore", "explain") if name not in COMMANDS]
    assert len(lines) + len(more) <= 24 - 1
    assert lines[2].split("#")[0].split() == ["Start", "embcli", "tour"]
    assert 'embcli lookup "Every effort moves you"' in lines[3]
    groups: dict[str, list[str]] = {}
    for line in lines[5:-2]:
        label, verb = line[:10].strip(), line[10:].split()[0]
        groups.setdefault(label or [*groups][-1], []).append(verb)
    assert tuple(groups) == GROUPS
    assert sorted(verb for verbs in groups.values() for verb in verbs) == sorted(COMMANDS)
    assert groups["Matrix"][:4] == ["weights", "neighbors", "audit", "diff"]
    narrow = help_on_terminal(40).text.splitlines()
    assert max(map(len, narrow)) <= 40
    assert {"Start", *GROUPS} <= {*narrow}


@pytest.mark.parametrize("name", COMMANDS)
def test_defaults_are_told_in_words(name: str) -> None:
    text = " ".join(Inside().ok(name, "--help").text.split())
    for option in COMMANDS[name].params:
        if "--vocab" in option.opts:
            assert "Default: the encoding's" in text
        if "--format" in option.opts:
            assert "Default: by -o's suffix, EMBCLI_FORMAT or table." in text
    assert "None" not in text


def test_help_of_what_is_no_verb_is_refused() -> None:
    assert (
        Inside().refused("help", "nonsense") == "embcli: No such command 'nonsense'.\nTry 'embcli --help' for help.\n"
    )
