"""Help, as Typer draws it, and the words to type when a command line is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import typer

from embcli.cli.app import command_line
from tests.runners import InProcess

COMMANDS = typer.main.get_command(command_line()).commands
EXAMPLES = [line for each in COMMANDS.values() for line in each.epilog.split("\n\n")[1::2]]
EXAMPLES.remove("embcli tour")  # test_tour reads all of it
MOST_OPTIONS = {
    "lookup": 29,
    "neighbors": 28,
    "batch": 27,
    "positions": 25,
    "compare": 24,
    "weights": 23,
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_options_of_a_command_are_few_and_in_panels(name: str) -> None:
    options = [each for each in COMMANDS[name].params if each.opts[0].startswith("-")]
    assert len({*options}) + 1 <= MOST_OPTIONS.get(name, 22)  # and --help
    text = InProcess().ok(name, "--help", COLUMNS="100").text
    panels = re.findall(r"─ (Input|Model|View|Output) ─", text)
    assert panels == [panel for panel in ("Input", "Model", "View", "Output") if panel in panels]
    assert all(option.rich_help_panel for option in options)
    for option in options:
        assert max(option.opts, key=len) in text
    assert text == InProcess().ok("help", name, COLUMNS="100").text


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("made")
    for name in ("book.txt", "the-verdict.txt"):
        (folder / name).write_text("Every effort moves you, and so on.\n" * 400)
    token = np.random.default_rng(1).standard_normal(
        (50257, 8), np.float32
    )  # as many rows as GPT-2 has tokens
    (folder / "gpt2").mkdir()
    for name in ("model.safetensors", "tuned.safetensors", "gpt2/model.safetensors"):
        tensors = {
            "wte.weight": token[:200] if name[0] != "g" else token,
            "wpe.weight": np.eye(8, dtype=np.float32),
        }
        safetensors.numpy.save_file(tensors, folder / name)
    return folder


@pytest.mark.parametrize("example", EXAMPLES)
def test_each_example_runs(
    example: str, made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
            assert "needs a terminal" in InProcess().refused(*words)
            return
        piped = InProcess().ok(*words, stdin=Path(file).read_bytes() if file else piped).out
        written = Path(words[words.index("-o") + 1]) if "-o" in words else None
    assert written.stat().st_size if written else piped


def test_embcli_alone_is_a_screen_and_help_lists_all_commands(in_process: InProcess) -> None:
    alone, whole = in_process.ok(COLUMNS="80").text, in_process.ok("--help", COLUMNS="80").text
    assert len(alone.splitlines()) < 24  # and a line to type in
    assert whole == in_process.ok("help", COLUMNS="80").text
    for text, options, more in ((alone, [], []), (whole, ["Options"], ["More"])):
        assert "Start with embcli tour" in text
        panels = re.findall(r"^╭─ ([\w ]+) ─", text, re.MULTILINE)
        assert panels == [*options, "Text and vectors", "Matrices and models", *more]
        listed = re.findall(r"^│ ([a-z]+) ", text, re.MULTILINE)
        assert {*COMMANDS} - {*listed} == ({*()} if more else {"decode", "help", "cache"})


def test_names_that_papers_have_for_kinds_are_understood(in_process: InProcess) -> None:
    words = ("positions", "--dim", "4", "-f", "json")
    assert in_process.ok(*words, "--kind", "rope").out == in_process.ok(*words, "rotary").out


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("6109", "'6109' is read as a text; for token IDs: embcli {} --ids 6109"),
        ("2, 3 5", "'2, 3 5' is read as a text; for token IDs: embcli {} --ids 2,3,5"),
        ("my book", "'my book' is read as a text; for the file: embcli {} --file 'my book'"),
    ],
)
@pytest.mark.parametrize("verb", ["tokenize", "lookup", "neighbors"])
def test_a_text_that_is_ids_or_a_file_is_read_as_a_text_with_a_note(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, text: str, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my book").write_text("Chapter one")
    ran = InProcess()(verb, text, *(["--dim", "3"] if verb != "tokenize" else []))
    assert f"embcli: {said.format(verb)}\n" in ran.err
