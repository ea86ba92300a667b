"""The examples of the README and of pages.md are what embcli prints. `python -m tests.test_readme` writes them anew."""

from __future__ import annotations

import doctest
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from tests.pictures import FOLDER, PICTURES, drawn
from tests.runners import InProcess

README = Path(__file__).parent.parent / "README.md"
PAGES = (README, Path(__file__).parent / "pages.md")
BLOCK = re.compile(r"```console\n(.*?)```", re.DOTALL)
EXAMPLE = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
# Measured times differ from run to run, and the last decimals between processors.
MEASURED = re.compile(r"^(?:time .*|  at least .*|linear: [\s\S]*?by\s+zero.*)$", re.MULTILINE)
NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")


def examples() -> list[tuple[str, str]]:
    """Return the commands of the examples and what they say they print."""
    return [
        example
        for page in PAGES
        for block in BLOCK.findall(page.read_text())
        for example in EXAMPLE.findall(block)
    ]


def shown(command: str, folder: Path) -> str:
    """Return what a command prints, within this process if it is only embcli."""
    words = shlex.split(command)
    if words[0] != "embcli" or re.search("[|<>;&$`\n]", command):
        return printed(command, str(folder))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return (
            InProcess()
            .ok(*words[1:], COLUMNS="80", suggestions=True)
            .text.replace("\r\n", "\n")
            .rstrip("\n")
            + "\n"
        )


def printed(command: str, folder: str) -> str:
    """Return what a command prints, with the tools of this Python's environment first."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(README.parent), "COLUMNS": "80"}
    shell = ["bash", "-o", "pipefail", "-c", command]
    ran = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, timeout=120, check=False
    )
    assert (ran.returncode, ran.stderr) == (0, b""), ran
    output = ran.stdout.decode().replace("\r\n", "\n")
    return output if output.endswith("\n") else f"{output}\n"


@pytest.mark.parametrize(
    ("command", "output"), examples(), ids=[command[:40] for command, _ in examples()]
)
def test_an_example_prints_what_it_says(command: str, output: str, tmp_path: Path) -> None:
    for tool in ("jq", "duckdb"):
        if f" {tool} " in command and not (
            shutil.which(tool) or (Path(sys.executable).parent / tool).exists()
        ):
            pytest.skip(f"{tool} is not installed")
    assert_same(*(MEASURED.sub("", text) for text in (shown(command, tmp_path), output)))


def assert_same(found: str, wanted: str) -> None:
    assert NUMBER.sub("0", found) == NUMBER.sub("0", wanted)
    numbers = [float(number) for number in NUMBER.findall(wanted)]
    assert [float(number) for number in NUMBER.findall(found)] == pytest.approx(numbers, abs=2e-4)


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_in_the_readme_is_what_embcli_draws(name: str) -> None:
    assert f"](tests/pictures/{name}.svg)" in README.read_text()
    if name != "explore":  # which textual draws, in its own way with each version
        kept, now = (FOLDER / f"{name}.svg").read_text(), drawn(name).decode()
        assert_same(
            *(re.sub("<text.*?(?:µs|the&#160;time).*?</text>", "", each) for each in (now, kept))
        )


def test_the_python_example_gives_what_the_readme_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    found = doctest.testfile(
        str(README), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE
    )
    assert found.attempted > 7
    assert found.failed == 0


def test_the_commands_to_install_and_to_test_stand_in_the_readme_and_in_ci() -> None:
    text, ci = README.read_text(), (README.parent / ".ci" / "run").read_text()
    assert "pip install torch==2.13.0 . && embcli lookup" in text
    line = "pip install torch==2.13.0 -e '.[test]'"
    assert line in text
    assert line in ci


def commands() -> list[str]:
    """Return the commands that the README names outside of its examples: in lines of their own, and in sentences."""
    text = re.sub(r"```.*?```", "", README.read_text(), flags=re.DOTALL)
    lines = re.findall(r"^    (embcli .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    return sorted(
        {*lines, *(" ".join(each.split()) for each in re.findall(r"`(embcli [^`]+)`", text))}
    )


def test_commands_on_models_and_entries_that_the_readme_names_are_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = np.random.default_rng(3).standard_normal((50257, 4), np.float32)
    safetensors.numpy.save_file({"wte.weight": rows, "wpe.weight": rows[:64]}, "model.safetensors")
    named = [
        each
        for each in commands()
        if re.match("embcli explain|(?!embcli explore).*(~/gpt2|org/)", each)
    ]
    assert len(named) > 15
    for command in named:
        line = re.sub("~/gpt2|org/[a-z]+", "model.safetensors", command.replace(",org/name", ""))
        assert InProcess()(*shlex.split(line)[1:]).status == 0, line


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 270


def write() -> None:
    """Write the output of all examples into the README and pages.md."""
    with tempfile.TemporaryDirectory() as folder:

        def renewed(block: re.Match[str]) -> str:
            body = EXAMPLE.sub(
                lambda example: f"$ {example[1]}\n{printed(example[1], folder)}", block[1]
            )
            return f"```console\n{body}```"

        for page in PAGES:
            page.write_text(BLOCK.sub(renewed, page.read_text()))


if __name__ == "__main__":
    write()
