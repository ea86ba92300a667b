"""The README's examples, pictures and commands are what embcli prints, draws and knows.

`pytest --accept=README.md --accept=tests/pictures` writes outputs and pictures anew.
"""

from __future__ import annotations

import doctest
import re
import shlex
import shutil
import xml.etree.ElementTree as ET
from functools import partial
from importlib.metadata import entry_points
from pathlib import Path
from typing import get_args

import pytest

import embcli.__main__
from embcli.cli.app import COMMANDS
from embcli.explore.app import Explorer
from embcli.explore.explored import ExploredMatrix
from embcli.names import Extra
from tests.benchmarks import __main__ as benchmarks
from tests.explored import settle
from tests.runners import InProcess
from tests.transcripts import printed

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
TEXT = README.read_text()  # Read once: a test of another worker may be about to write it.
BLOCK = re.compile(r"```console\n.*?```", re.DOTALL)
EXAMPLE = re.compile(r"^\$ (.*)\n((?:(?!\$ |```).*\n)*)", re.MULTILINE)
NUMBER = re.compile(r"-?[0-9]+\.[0-9]+")

# The command of a picture, which its text names, and the picture's name.
PICTURES = re.findall(r"!\[What `embcli (?!explore)(.*)` shows.*/(\w+)\.svg\)", TEXT)


# --- what examples print --------------------------------------------------------------------------


def test_the_examples_of_the_readme_print_what_it_says(in_process, snapshot, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = TEXT

    for block in BLOCK.findall(TEXT):
        renewed = EXAMPLE.sub(partial(with_output, in_process), block)
        text = text.replace(block, renewed)

    snapshot.hold(README, text)
    if not shutil.which("jq"):
        pytest.skip("jq is not installed: the example with it was not run")


def with_output(in_process: InProcess, example: re.Match[str]) -> str:
    """Return an example with what its command prints, or as it is if the two say the same."""
    command, kept = example.groups()
    if " jq " in command and not shutil.which("jq"):
        return example[0]
    found = printed(in_process, command)
    output = kept if is_same(found, kept) else found
    return f"$ {command}\n{output}"


def is_same(found: str, kept: str) -> bool:
    """Return whether texts are equal but for last decimals, which differ between processors."""
    found_numbers = [float(number) for number in NUMBER.findall(found)]
    kept_numbers = [float(number) for number in NUMBER.findall(kept)]
    if NUMBER.sub("0", found) != NUMBER.sub("0", kept):
        return False
    return found_numbers == pytest.approx(kept_numbers, abs=2e-4)


def test_the_installed_command_is_the_one_that_tests_run():
    (command,) = entry_points(group="console_scripts", name="embcli")
    assert command.load() is embcli.__main__.run


def test_the_python_example_of_the_readme_gives_what_it_says(
    monkeypatch,
):
    monkeypatch.setenv("COLUMNS", "80")
    example = doctest.DocTestParser().get_doctest(TEXT, {}, "README", str(README), 0)

    found = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE).run(example)

    assert found.attempted > 7
    assert found.failed == 0


# --- pictures -------------------------------------------------------------------------------------


def picture_of_the_readme(name: str) -> Path:
    """Return the file of a picture that the README shows."""
    path = f"tests/pictures/{name}.svg"
    assert f"]({path})" in TEXT
    return ROOT / path


@pytest.mark.parametrize(("command", "name"), PICTURES)
def test_a_picture_of_the_readme_is_what_embcli_draws(in_process, snapshot, command, name):
    picture = picture_of_the_readme(name)

    drawn = in_process.ok(*shlex.split(command), "--width", "80", "-f", "svg").text

    kept = picture.read_text()
    snapshot.hold(picture, kept if is_same(drawn, kept) else drawn)


async def test_the_picture_of_explore_says_what_its_screen_says(snapshot, monkeypatch):
    """The screen is a row with its neighbours; textual draws it in its own way in each version."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    picture = picture_of_the_readme("explore")
    source = ExploredMatrix(embcli.seeded(), None, {})

    async with Explorer(source, source.row_of(" effort")).run_test(size=(96, 26)) as pilot:
        await pilot.press("enter")
        await settle(pilot)
        pilot.app.theme = "textual-light"
        await settle(pilot)
        drawn = without_fonts_of_the_web(pilot.app.export_screenshot())

    if snapshot.accepts(picture):
        snapshot.hold(picture, drawn)
    assert is_same(words_of_svg(drawn), words_of_svg(picture.read_text()))


def without_fonts_of_the_web(svg: str) -> str:
    """Return a drawing of textual's that loads nothing."""
    return re.sub(r"@font-face \{.*?\}|<!--.*?-->| clip-path=\"[^\"]*\"", "", svg, flags=re.DOTALL)


def words_of_svg(svg: str) -> str:
    """Return the texts of an SVG, one a line."""
    texts = ET.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")
    return "\n".join("".join(text.itertext()) for text in texts)


# --- commands -------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["pip install torch==2.13.0 -e '.[test]'", "pytest -n 3"])
def test_ci_installs_and_tests_as_the_readme_says(command):
    assert command in TEXT
    assert command in (ROOT / ".ci" / "run").read_text()


def test_ci_tries_each_command_and_each_extra_on_the_smallest_versions():
    tried = (ROOT / ".ci" / "smallest").read_text()
    assert [name for name in COMMANDS if f" embcli {name}" not in tried] == []
    prepared = str(re.findall("^prepare .*", tried, re.MULTILINE))
    assert [name for name in get_args(Extra) if name not in prepared] == []


def commands_in_the_readme() -> list[str]:
    """Return the commands outside of examples: in lines of their own, and in sentences."""
    text = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    in_lines = re.findall(r"^    (embcli .*?)(?:\s+#.*)?$", text, re.MULTILINE)
    in_sentences = re.findall(r"`(embcli [^`]+)`", text)
    return [*in_lines, *(" ".join(command.split()) for command in in_sentences)]


@pytest.mark.usefixtures("named_files")
def test_the_commands_that_the_readme_names_are_run(in_process):
    is_run = re.compile("(?!.*(explore|hf://|--install-completion))")
    commands = sorted({*filter(is_run.match, commands_in_the_readme())})
    assert len(commands) > 30

    for command in commands:
        line = re.sub("~/gpt2|org/[a-z]+", "gpt2", command.replace(",org/name", ""))
        assert in_process(*shlex.split(line)[1:]).status == 0, line


@pytest.mark.parametrize("row", re.findall(r"^\| an? .*", TEXT, re.MULTILINE))
def test_a_row_of_what_to_touch_names_places_and_what_stands_there(row):
    names = re.findall(r"`(?!pytest)([^`]+)`", row.replace("/V", "/weights"))
    places = [name for name in names if re.search(r"/|\.py$", name)]
    text = ""
    for place in places:
        path = ROOT / ("" if place.startswith((".ci", "tests")) else "embcli") / place
        files = path.rglob("*.*") if place.endswith("/") else [path]
        text += "".join(file.read_text() for file in files if file.suffix != ".pyc")
    assert [name for name in names if name not in places and name not in text] == []


def test_the_readme_promises_the_ratios_that_benchmarks_hold(tmp_path):
    bounds = {case.name: case.bound for case in benchmarks.cases(tmp_path)}
    promised = re.findall(r"^\| `.* \| ([0-9.]+) \|$", TEXT, re.MULTILINE)
    names = ("lookup, kept", "lookup 200,019 x 4,096", "100 GB against 2 MB")
    assert [*map(float, promised)] == [bounds[name] for name in names]


def test_the_readme_is_short():
    assert len(TEXT.splitlines()) <= 260
