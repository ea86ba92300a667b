"""Help, as Typer draws it, its examples, and the words to type for what was not meant.

The pages of help stand in tests/pages/VERB/help.txt.
"""

from __future__ import annotations

import ast
import re
import shlex
from pathlib import Path
from string import Formatter
from typing import get_args

import pytest

from embcli.cli import options
from embcli.names import Variable
from embcli.wording import load_facts
from tests.cases import cases, data
from tests.runners import PARSERS
from tests.transcripts import answered, assert_height, printed

ROOT = Path(__file__).parents[1]
PARAMETERS = {each.name for command in PARSERS.values() for each in command.params}
SENTENCES = ("Sentence", "Error")  # how the names of classes end that take a template
# Functions whose first value is the name of a parameter.
CHECKS = ("Parameter", "check_choice", "check_choices", "check_number", "whole_number")
PANELS = ("Input", "Model", "View", "Output")
MOST_OPTIONS = 30
NAMED_OPTION = rf"(?:\b({'|'.join(PARSERS)})(?: [A-Z]\w*)* )?(?<![\w-])(--[a-z][a-z-]+)"


# --- the pages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", PARSERS)
def test_the_help_of_a_command_has_its_examples_above_its_options_as_they_are_typed(
    in_process, snapshot, verb
):
    page = in_process.ok(verb, "--help", COLUMNS="80").text

    snapshot(f"{verb}/help.txt", page)
    assert "…" not in page  # as in a default that is cut
    above, _, below = page.partition("╭─")
    for example in re.findall(r"\[not dim\](.*)\[/\]", PARSERS[verb].help):
        assert example in above
        assert example not in below


@pytest.mark.parametrize("verb", ["", "lookup"])
def test_help_has_two_names(in_process, snapshot, verb):
    page = in_process.ok(*verb.split(), "-h", COLUMNS="80").text

    snapshot(f"./{verb}/help.txt", page)
    assert in_process.ok(*verb.split(), "--help", COLUMNS="80").text == page


def test_embcli_alone_prints_a_screen_and_leaves_a_line_to_type_in(in_process, snapshot):
    page = in_process.ok(COLUMNS="80").text

    snapshot("embcli-alone.txt", page)
    assert_height(page, 23)


@cases
def test_a_width_that_no_terminal_has_is_limited(in_process, words):
    lines = in_process.ok(*words, COLUMNS="99999999").text.splitlines()

    assert max(map(len, lines)) <= 1000


@pytest.mark.parametrize("verb", PARSERS)
def test_the_options_of_a_command_are_few_and_each_is_in_a_panel(verb, monkeypatch):
    monkeypatch.setattr(options, "spellings", {})  # No command line has been read.
    own = [each for each in PARSERS[verb].params if each.opts[0].startswith("-")]

    assert len(own) <= MOST_OPTIONS
    for option in own:
        assert option.rich_help_panel in PANELS, option.name
        if option.name not in options._FLAGS:  # Sentences name it by its first flag.
            assert options.flag_of(option.name) == option.opts[0], "a flag for options._FLAGS"
        variable = f"EMBCLI_{option.name.upper()}"
        if variable in get_args(Variable):  # It sets the default.
            assert variable in option.show_default


def test_what_stands_for_a_choice_names_all_of_it():
    shown = [each for command in PARSERS.values() for each in command.params if each.metavar]
    choices = {
        each.metavar: [*each.type.choices] for each in shown if hasattr(each.type, "choices")
    }
    assert choices
    for metavar, names in choices.items():
        assert metavar.strip("[]").split("|") == names or metavar.isupper(), metavar


def test_no_words_are_of_an_option_that_is_gone():
    names = {verb: {each.name for each in PARSERS[verb].params} for verb in PARSERS}
    for owner, words in load_facts("options.json").items():
        assert words.keys() <= names.get(owner, PARAMETERS), owner


@cases
def test_a_default_in_the_help_is_what_is_done_without_the_option(in_process, line, option):
    words = line.split()
    assert in_process.ok(*words, *option.split()).out == in_process.ok(*words).out


# --- names of options -----------------------------------------------------------------------------


def test_words_name_options_that_there_are_and_of_the_command_before_them():
    """A command, words in capitals, and an option: `diff BASE TUNED --tokens` in a sentence."""
    known = {"": {*data(__name__)["flags of others"]}}
    for verb, command in PARSERS.items():
        known[verb] = {"--help"}.union(*(each.opts for each in command.params))
        known[""] |= known[verb]
    unknown = []
    for path in (ROOT / "README.md", *(ROOT / "embcli").rglob("*.*")):
        if path.suffix in (".py", ".md", ".json") and path.name != "hints.json":
            text = " ".join(path.read_text().split())
            for verb, flag in re.findall(NAMED_OPTION, text):
                if flag not in known[verb]:
                    unknown.append((path.name, verb, flag))
    assert not unknown


def test_sentences_name_parameters_that_there_are():
    known = PARAMETERS | options._FLAGS.keys() | {None}
    for path in (ROOT / "embcli").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Call(ast.Name(kind), [ast.Constant(str(template)), *_], values) if (
                    kind.endswith(SENTENCES)
                ):
                    named = {name for _, name, *_ in Formatter().parse(template)}
                    assert named - {each.arg for each in values} <= known, (path, template)
                    # An error without values takes no template.
                    assert values or kind == "Sentence" or named <= {None}, (path, template)
                case ast.Call(ast.Name(checks), [ast.Constant(name), *_]) if checks in CHECKS:
                    assert name in known, (path, name)


# --- the examples ---------------------------------------------------------------------------------


def examples() -> list[str]:
    """Return the command lines above the options of each command."""
    found = []
    for command in PARSERS.values():
        found += re.findall(r"\[not dim\](.*)\[/\]", command.help)
    return found


# test_explore runs the others.
PRINTED = [each for each in examples() if not each.startswith("embcli explore")]


@pytest.mark.usefixtures("named_files")
@pytest.mark.parametrize("example", PRINTED)
def test_each_example_runs(in_process, monkeypatch, example):
    if "cache" in example:
        monkeypatch.setenv("EMBCLI_CACHE_DIR", "cache")

    page = printed(in_process, example)

    words = shlex.split(example)
    if "-o" in words:
        written = Path(words[words.index("-o") + 1])
        assert written.stat().st_size
    else:
        assert page.strip()


# --- what else is understood ----------------------------------------------------------------------


def test_names_that_papers_have_for_kinds_are_understood(in_process):
    words = ("positions", "--dim", "4", "-f", "json")
    rotary = in_process.ok(*words, "rotary").out
    assert in_process.ok(*words, "rope").out == rotary
    assert in_process.ok(*words, "RoPE").out == rotary


def test_each_note_says_what_the_snapshot_says(in_process, snapshot, tmp_path, monkeypatch):
    """A text that is IDs or a file is read as a text, with a note on what may have been meant."""
    monkeypatch.chdir(tmp_path)
    Path("my book").write_text("Chapter one")

    def answer(words: list[str]) -> str:
        ran = in_process(*words)
        assert ran.status == 0
        return ran.err

    snapshot("notes.txt", answered("notes.txt", answer))
