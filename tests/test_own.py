"""A file's own words as tokens: those of a GGUF beside its rows, and those of word vectors, of which texts are made."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from tokenizers import Tokenizer, models

from embcli import encodings
from embcli.encodings.encoding import OwnWords
from embcli.files import open_tensors
from tests.oracles import assert_same_bits
from tests.runners import InProcess
from tests.test_vocabularies import ADDED, CONTROL, NORMAL, written

WORDS = ["the", "king", "queen", "The", "naïve", "two words", "\x1b[2J", "king"]
VALUES = np.random.default_rng(2).standard_normal((len(WORDS), 4), np.float32)


@pytest.fixture
def glove(tmp_path: Path) -> Path:
    lines = [
        f"{word} {' '.join(map(repr, row.tolist()))}\n"
        for word, row in zip(WORDS, VALUES, strict=True)
    ]
    (tmp_path / "glove.txt").write_text("".join(lines))
    return tmp_path / "glove.txt"


def tokens(in_process: InProcess, *arguments: str) -> list[str | None]:
    return [row["token"] for row in json.loads(in_process.ok(*arguments, "-f", "json").out)["rows"]]


# --- word vectors -----------------------------------------------------------------------------------------------------


def test_a_text_is_the_words_of_the_file_between_blanks(in_process: InProcess, glove: Path) -> None:
    ran = in_process(
        "lookup", " queen the\tking\nnaïve", "--from", str(glove), "--show", "token", "-f", "json"
    )
    document = json.loads(ran.out)
    assert [(row["id"], row["token"]) for row in document["tokens"]] == [
        *((2, "queen"), (0, "the"), (1, "king"), (4, "naïve"))
    ]
    assert_same_bits(np.array(document["matrices"]["token"], np.float32), VALUES[[2, 0, 1, 4]])
    assert (document["run"]["encoding"], document["run"]["guesses"]) == (str(glove), {})
    compared = json.loads(in_process.ok("compare", "king", "--from", str(glove), "-f", "json").out)
    assert compared["tokens"][0]["token"] == "king"


def test_words_without_a_row_are_named_with_what_is_there_in_small_letters(
    in_process: InProcess, glove: Path
) -> None:
    told = in_process.refused("lookup", "King the boo KING boo QUEEN", "--from", str(glove))
    assert told == (
        f"embcli: {str(glove)!r} has no row for 'King', 'boo', 'KING', 'QUEEN'\nin lower case it has 'king', 'queen'\n"
    )
    many = in_process.refused(
        "lookup", " ".join(f"x{place}" for place in range(2000)), "--from", str(glove)
    )
    assert many.endswith(
        "has no row for 'x0', 'x1', 'x2', 'x3', 'x4', 'x5', 'x6', 'x7' and 1,992 more\n"
    )
    evil = in_process.refused("lookup", "\x1b[2J\u202e", "--from", str(glove))
    assert "\x1b" not in evil + in_process.ok("weights", "--from", str(glove)).text


def test_the_words_of_the_rows_are_shown(in_process: InProcess, glove: Path) -> None:
    assert tokens(in_process, "weights", "--from", str(glove)) == WORDS
    assert "this model has no learned positions" in in_process.refused(
        "positions", "--from", str(glove)
    )
    page = in_process.ok("weights", "--from", str(glove), "--rows", "5:7").text
    assert " 5  two␣words  │" in page
    assert " 6  \\x1b[2J    │" in page


def test_a_tokenizer_beside_word_vectors_is_not_theirs_but_one_that_is_named_is(
    in_process: InProcess, glove: Path
) -> None:
    other = Tokenizer(
        models.WordLevel({"other": 0, **{str(place): place for place in range(1, 8)}}, "other")
    )
    other.save(str(glove.parent / "tokenizer.json"))
    assert tokens(in_process, "weights", "--from", str(glove), "--rows", "0") == ["the"]
    named = ("--encoding", str(glove.parent / "tokenizer.json"))
    assert tokens(in_process, "weights", "--from", str(glove), "--rows", "0", *named) == ["other"]


def test_words_are_found_by_their_first_ids(tmp_path: Path) -> None:
    """Against a dictionary; words of one length with equal first and last letters, empty ones, and the last one."""
    chance = np.random.default_rng(3)
    words = ["".join(chance.choice(["a", "b"], chance.integers(0, 5))) for _ in range(200)]
    known = OwnWords(tmp_path, [word.encode() for word in words])
    wanted = [word for word in ("abab", "b", "aaaa", "bbbb", "aba", words[-1]) if word]
    assert known.encode(" ".join(wanted)).tolist() == [words.index(word) for word in wanted]
    assert known.encode("").tolist() == []


def test_words_stand_where_they_stand_in_the_text(glove: Path) -> None:
    words, text = open_tensors(glove).own_words(), "  queen\u2003the\n"
    assert words is not None
    assert [text[start:end] for start, end in words.spans(text).tolist()] == ["queen", "the"]
    assert words.spans("").shape == (0, 2)
    assert words.decode(words.encode(text)) == b"queen the"
    assert (words.vocabulary_size, words.token_bytes(8), words.token_bytes(-1)) == (8, None, None)


# --- GGUF -------------------------------------------------------------------------------------------------------------


def test_the_tokens_of_a_gguf_stand_beside_its_rows(in_process: InProcess, tmp_path: Path) -> None:
    path = written(tmp_path / "m.gguf", "gpt2", ["<s>", "Ġthe", "Ġcat", "Ċ"], rows=6)
    assert tokens(in_process, "weights", "--from", path) == [
        "<s>",
        " the",
        " cat",
        "\n",
        None,
        None,
    ]
    page = " ".join(in_process.ok("weights", "--from", path).text.split())
    assert page.endswith(f"Padding: rows 4 to 5, for which {path} has no tokens")
    document = json.loads(in_process("lookup", "--ids", "1,5", "--from", path, "-f", "json").out)
    assert [row["token"] for row in document["tokens"]] == [" the", None]
    assert document["run"]["encoding"] == path
    pieces = written(tmp_path / "p.gguf", "llama", ["<s>", "▁the", "<0x0A>"])
    assert tokens(in_process, "weights", "--from", pieces) == ["<s>", " the", "\n"]


def test_control_tokens_and_those_that_were_added_stand_for_themselves(
    in_process: InProcess, tmp_path: Path
) -> None:
    words, kinds = ["éĠ"] * 3 + ["<|end|>"], [NORMAL, CONTROL, ADDED, CONTROL]
    own = encodings.get(written(tmp_path / "m.gguf", "gpt2", words, kinds=kinds))
    assert [own.token_bytes(place) for place in range(4)] == [
        b"\xe9 ",
        "éĠ".encode(),
        "éĠ".encode(),
        b"<|end|>",
    ]
    few = encodings.get(
        written(tmp_path / "f.gguf", "gpt2", ["Ġ", "Ġ"], kinds=[CONTROL])
    )  # which tells nothing
    assert (few.token_bytes(0), few.token_bytes(1)) == (b" ", b" ")
    pieces = written(tmp_path / "p.gguf", "llama", ["▁▁"] * 3, kinds=[NORMAL, CONTROL, ADDED])
    assert tokens(in_process, "weights", "--from", pieces) == ["  ", "▁▁", "  "]


def test_a_tokenizer_beside_a_gguf_comes_before_tokens_that_cannot_split_a_text(
    in_process: InProcess, tmp_path: Path
) -> None:
    path = written(tmp_path / "m.gguf", "gpt2", ["a", "b"])
    Tokenizer(models.WordLevel({"x": 0, "y": 1}, "x")).save(str(tmp_path / "tokenizer.json"))
    assert tokens(in_process, "weights", "--from", path) == ["x", "y"]
