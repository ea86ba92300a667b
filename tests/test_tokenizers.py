"""One text under several tokenizers: its tokens as running text, and rows of each."""

from __future__ import annotations

import re
from itertools import chain

import pytest
from rich.cells import cell_len

import embcli
from embcli import encodings
from embcli.errors import InputError
from embcli.tokens import shown
from tests.cases import cases
from tests.test_huggingface import SENTENCES, saved
from tests.test_page import ESCAPE

__all__ = ["saved"]  # a fixture

PAIR = "gpt2,o200k_base"


def test_special_tokens_are_found_where_they_are_asked_for():
    text = "<|reserved_200018|>a<|endofprompt|>"
    names = ["o200k_harmony", "o200k_base"]  # One of them has two names for one ID.
    result = embcli.tokenizers(text, names, special=True)

    assert result.counts[0] == 3
    plain = embcli.tokenizers(text, names)
    assert min(plain.counts) > 3
    assert any("is read as plain text" in str(note) for note in plain.notes)


@pytest.mark.parametrize("text", [SENTENCES[0], "É effort  moves ", "日本\n\nx"])
@pytest.mark.parametrize("kind", ["byte_level", "pieces", "metaspace", "word_pieces"])
def test_a_tokenizer_json_stands_beside_gpt2(kind, text, saved):
    path = str(saved(kind))
    result = embcli.tokenizers(text, [path, "gpt2"])
    assert result.tokens[0].ids.tolist() == encodings.get(path).encode(text).tolist()


# --- the page -------------------------------------------------------------------------------------


def lines_of_text(name: str, text: str) -> list[int]:
    """Return tiktoken's number of tokens of each line, which a token with its end ends."""
    counts = [0]
    theirs = encodings.get(name).tiktoken
    for token in theirs.decode_tokens_bytes(theirs.encode_ordinary(text)):
        counts[-1] += 1
        if b"\n" in token:
            counts.append(0)
    return counts if counts[-1] or len(counts) == 1 else counts[:-1]


RUNNING = "Every effort\n\n日本 moves you\nUnbelievable: unwillingly!"


@cases
def test_running_text_has_all_tokens_and_counts_them_by_lines(in_process, columns):
    names = ["gpt2", "o200k_base"]
    words = ("tokenize", RUNNING, "--encoding", PAIR, "--color", "always")
    environment = {"COLUMNS": columns, "COLORTERM": "truecolor", "TERM": "xterm-256color"}
    page = in_process.ok(*words, **environment).text.split("\n\n")[0]
    assert max(map(cell_len, ESCAPE.sub("", page).splitlines())) <= int(columns)

    counts = re.findall(r"^(?:\w+)?\x20+(\d+)  ", ESCAPE.sub("", page), re.MULTILINE)
    expected = [*chain.from_iterable(lines_of_text(name, RUNNING) for name in names)]
    assert [*map(int, counts)] == expected

    texts = re.findall(r"\x1b\[[\d;]*[34]8;2;[\d;]+m([^\x1b]*)", page)
    tokens = []
    for name in names:
        theirs = encodings.get(name).tiktoken
        tokens += theirs.decode_tokens_bytes(theirs.encode_ordinary(RUNNING))
    assert texts == [shown(token).replace("␣", " ") for token in tokens]


@pytest.mark.parametrize(
    ("name", "words", "text"),
    [
        ("lines", ("--lines", "--encoding", PAIR), "a\nUnbelievable \n"),
        ("one", ("--inline",), "a b\n\n123\n"),
        ("long-text", ("--encoding", PAIR), "Unbelievable! " * 400),
        ("scripts", ("--encoding", PAIR), "ह\u093f של"),
        ("long-stretches", ("--inline",), "Þ" * 1000),
    ],
)
def test_running_text_without_colour_has_marks(in_process, snapshot, name, words, text):
    ran = in_process.ok("tokenize", *words, stdin=text, COLUMNS="40", suggestions=True)
    snapshot(f"tokenizers/{name}.txt", ran.text)


def test_vowel_signs_are_escaped_only_where_their_width_varies(in_process):
    """In a picture they are on their letters or, as tokens of their own, on a circle."""
    words = ("tokenize", "x दुनिया", "--inline", "--encoding", PAIR)
    svg = in_process.ok(*words, "-f", "svg").text
    assert r"\u093e" in in_process.ok(*words).text
    assert r"\u" not in svg
    assert re.findall("lengthAdjust=[^>]+>([^<]+)<", svg) == ["◌ा", "दुनिया"]


def test_running_text_is_a_page_of_texts(in_process):
    words = ("tokenize", "--inline")
    assert "--format" in in_process.refused(*words, "hi", "-f", "json")
    assert "--merges" in in_process.refused(*words, "hi", "--merges")
    assert "not IDs" in in_process.refused(*words, "--ids", "1,2")


def test_hostile_text_stays_in_its_cells(in_process):
    text = "\x1b[31m\u202e[bold]│\x00\r\n\u0301"
    page = in_process.ok("tokenize", text, "--encoding", PAIR).text

    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", page)
    assert "bold" in page


# --- rows -----------------------------------------------------------------------------------------


def test_a_row_is_a_token_of_an_encoding(in_process, snapshot):
    ran = in_process.ok("tokenize", "a é日", "--encoding", PAIR, "-f", "ndjson")
    snapshot("tokenizers/rows.ndjson", ran.text)


# --- names ----------------------------------------------------------------------------------------


def test_the_library_refuses_ids_and_no_names():
    with pytest.raises(InputError, match="IDs"):
        embcli.tokenizers([1, 2], ["gpt2"])
    with pytest.raises(InputError, match="must name a tokenizer"):
        embcli.tokenizers("x", [])


def test_the_library_takes_one_name_and_notes_an_empty_text():
    (note,) = embcli.tokenizers("", ["gpt2"]).notes

    assert "empty" in note
    assert embcli.tokenizers("Every effort", "gpt2").counts == [2]
