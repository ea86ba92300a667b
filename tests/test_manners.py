"""Small manners: what a terminal gets and a pipe does not, and other names for a thing."""

from __future__ import annotations

import json
import shlex

import pytest

import embcli
from tests.cases import cases

TOY = ("--vocab", "6", "--dim", "3")


# --- other names ----------------------------------------------------------------------------------


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_version_has_a_short_name(in_process, flag):
    assert in_process.ok(flag).text == f"embcli {embcli.__version__}\n"


VERBS = [
    ("tokenize", "hi"),
    ("lookup", "--ids", "2,3", *TOY),
]


@cases
@pytest.mark.parametrize("words", VERBS, ids=lambda words: words[0])
def test_a_format_has_a_short_name_as_option_and_variable(in_process, words, short, form):
    expected = in_process.ok(*words, "-f", form).out
    assert in_process.ok(*words, "-f", short).out == expected
    assert in_process.ok(*words, EMBCLI_FORMAT=short).out == expected


def test_a_variable_that_is_not_a_format_is_refused(in_process):
    assert "EMBCLI_FORMAT 'x'" in in_process.refused("tokenize", "hi", EMBCLI_FORMAT="x")
    assert "EMBCLI_THEME 'x'" in in_process.refused("tokenize", "hi", EMBCLI_THEME="x")


# --- terminals ------------------------------------------------------------------------------------


@cases
def test_decode_ends_its_line_on_a_terminal_and_not_in_a_pipe(in_process, ids, piped, shown):
    words = ("decode", *ids.split())
    assert in_process.ok(*words).text == piped
    assert in_process.ok(*words, terminal=True).text == shown


def without_cost(text: str) -> dict[str, object]:
    """Return a JSON document without what each run measures anew."""
    document = json.loads(text)
    document.pop("cost", None)
    return document


@cases
def test_json_on_a_terminal_is_the_same_document(in_process, tmp_path, monkeypatch, command):
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "x\x9b2J\u202e"))
    words = (*shlex.split(command), "-f", "json")

    document = without_cost(in_process.ok(*words).text)
    shown = in_process.ok(*words, terminal=True).text

    assert without_cost(shown) == document
    assert shown.replace("\n", "").isprintable()


@pytest.mark.parametrize("columns", range(20, 60, 5))
def test_a_sentence_on_a_terminal_is_broken_between_words_so_that_a_flag_can_be_copied(
    in_process, columns
):
    words = ("lookup", "--ids", "0", "--from", "x", "--context-length", "9")
    unbroken = in_process.refused(*words)

    ran = in_process(*words, COLUMNS=str(columns), error_terminal=True)

    lines = ran.err.splitlines()
    assert len(lines) > 1
    assert max(len(line) for line in lines) <= columns
    assert ran.err.split() == unbroken.split()


# --- pages ----------------------------------------------------------------------------------------


def test_sequences_of_one_length_have_a_shape_and_others_are_counted(in_process, snapshot):
    titles = []
    for ids in ("1 2\n3 4\n0 5", "1 2\n3", "1\n", "1 2\n\n"):
        page = in_process("lookup", "--lines", "--ids", "-", *TOY, stdin=ids).text
        title, *_ = page.splitlines()
        titles.append(f"{ids!r}: {title}\n")

    snapshot("lookup/titles-of-sequences.txt", "".join(titles))
