"""A file's own words as tokens: those of a GGUF, and those of word vectors, which split texts."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from tokenizers import Tokenizer, models

import embcli
from embcli import encodings
from embcli.encodings.encoding import OwnWords
from embcli.files import open_tensors
from tests.files.made import matrix
from tests.oracles import assert_same_bits
from tests.readers import from_ndjson
from tests.runners import InProcess
from tests.test_vocabularies import ADDED, CONTROL, NORMAL, written

WORDS = ["the", "king", "queen", "The", "naïve", "two words", "\x1b[2J", "king"]
VALUES = matrix(len(WORDS), 4, 2)


@pytest.fixture
def glove(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a file of word vectors in the current folder."""
    monkeypatch.chdir(tmp_path)
    lines = []
    for word, row in zip(WORDS, VALUES.tolist(), strict=True):
        numbers = " ".join(map(repr, row))
        lines.append(f"{word} {numbers}\n")
    Path("glove.txt").write_text("".join(lines))
    return "glove.txt"


def tokens(in_process: InProcess, path: str, *options: str) -> list[str | None]:
    """Return the tokens that `weights` shows beside rows."""
    ran = in_process.ok("weights", "--from", path, "-f", "ndjson", *options)
    return [row["token"] for row in from_ndjson(ran.out)]


# --- word vectors ---------------------------------------------------------------------------------


def test_a_text_is_the_words_of_the_file_between_blanks(in_process, glove):
    words = ("--from", glove, "--show", "token", "-f", "json")
    document = json.loads(in_process("lookup", " queen the\tking\nnaïve", *words).out)
    found = [row["token"] for row in document["tokens"]]
    assert found == ["queen", "the", "king", "naïve"]
    vectors = np.array(document["matrices"]["token"], np.float32)
    assert_same_bits(vectors, VALUES[[2, 0, 1, 4]])
    assert document["run"]["encoding"] == glove


def test_words_without_a_row_are_named_with_what_is_there_in_small_letters(
    in_process, glove, snapshot
):
    many = " ".join(f"x{number}" for number in range(2000))
    refused = []
    for text in ("King the boo KING boo QUEEN", many, "\x1b[2J\u202e"):
        refused.append(in_process.refused("lookup", text, "--from", glove))
    snapshot("lookup/words-without-a-row.txt", "\n".join(refused))


def test_the_words_of_the_rows_are_shown(in_process, glove, snapshot):
    page = in_process.ok("weights", "--from", glove).text
    snapshot("weights/words-of-the-file.txt", page)


def test_word_vectors_have_no_positions(in_process, glove):
    assert "no learned positions" in in_process.refused("positions", "--from", glove)


def test_a_tokenizer_beside_word_vectors_is_not_theirs_but_one_that_is_named_is(in_process, glove):
    others = dict(zip("abcdefgh", range(8), strict=True))
    Tokenizer(models.WordLevel(others, "a")).save("tokenizer.json")
    assert tokens(in_process, glove) == WORDS
    assert tokens(in_process, glove, "--encoding", "tokenizer.json") == [*"abcdefgh"]


def test_words_with_several_rows_are_a_remark(glove):
    _, finding = embcli.open(glove).audit().findings
    assert finding.level == "remark"
    assert finding.rows == 1
    assert "'king'" in finding.text
    assert "queen" not in finding.text


@given(st.lists(st.text("ab", max_size=4), max_size=200))
@example(["ab", "", "bb", "ab", "aab", "abb", "b"])
def test_words_are_found_by_their_first_ids(words):
    """Many have one length, equal first and last letters, or no letters at all."""
    own = OwnWords(Path("a file"), [word.encode() for word in words])
    for word in {*words} - {""}:
        assert own.encode(word).tolist() == [words.index(word)]
    assert own.encode("").tolist() == []


def test_words_stand_where_they_stand_in_the_text(glove):
    own = open_tensors(Path(glove)).own_words()
    text = "  queen\u2003the\n"
    assert own.spans(text).tolist() == [[2, 7], [8, 11]]
    assert own.spans("").shape == (0, 2)
    assert own.decode(own.encode(text)) == b"queen the"
    assert own.vocabulary_size == 8
    assert own.token_bytes(8) is None
    assert own.token_bytes(-1) is None


# --- GGUF -----------------------------------------------------------------------------------------


@pytest.fixture
def padded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return a GGUF in the current folder with 4 tokens and 6 rows."""
    monkeypatch.chdir(tmp_path)
    return written(Path("m.gguf"), "gpt2", ["<s>", "Ġthe", "Ġcat", "Ċ"], rows=6)


def test_the_tokens_of_a_gguf_stand_beside_its_rows(in_process, padded, snapshot):
    page = in_process.ok("weights", "--from", padded).text
    snapshot("weights/tokens-of-a-gguf-and-padding.txt", page)


def test_the_tokens_of_a_gguf_stand_beside_rows_that_are_looked_up(in_process, padded):
    ran = in_process("lookup", "--ids", "1,5", "--from", padded, "-f", "ndjson")
    assert [row["token"] for row in from_ndjson(ran.out)] == [" the", None]


@pytest.mark.parametrize(
    ("model", "word", "normal", "added"),
    [("gpt2", "éĠ", b"\xe9 ", "éĠ"), ("llama", "▁▁", b"  ", "  ")],
)
def test_control_tokens_and_those_that_were_added_stand_for_themselves(
    tmp_path, model, word, normal, added
):
    kinds = [NORMAL, CONTROL, ADDED]
    own = encodings.get(written(tmp_path / "m.gguf", model, [word] * 3, kinds=kinds))
    tokens = [own.token_bytes(token_id) for token_id in range(3)]
    assert tokens == [normal, word.encode(), added.encode()]


def test_kinds_of_fewer_tokens_than_there_are_tell_nothing(tmp_path):
    own = encodings.get(written(tmp_path / "f.gguf", "gpt2", ["Ġ", "Ġ"], kinds=[CONTROL]))
    assert own.token_bytes(0) == b" "
    assert own.token_bytes(1) == b" "


def test_a_tokenizer_beside_a_gguf_comes_before_tokens_that_cannot_split_a_text(
    in_process, tmp_path
):
    path = written(tmp_path / "m.gguf", "gpt2", ["a", "b"])
    Tokenizer(models.WordLevel({"x": 0, "y": 1}, "x")).save(str(tmp_path / "tokenizer.json"))
    assert tokens(in_process, path) == ["x", "y"]
