"""The verb `tokenize`: spans tile the text, rows say what tokens are, and the page shows them."""

from __future__ import annotations

import re
from itertools import accumulate

import numpy as np
import pytest
from hypothesis import example, given, strategies as st

import embcli
from embcli.errors import InputError
from embcli.page import export
from embcli.text import encode_sequences
from embcli.tokens import Tokens
from embcli.verbs.tokenize import Tokenization
from tests.cases import cases
from tests.readers import from_ndjson, written
from tests.test_huggingface import saved
from tests.test_tokens import GPT2, HARMONY, id_sequences, of_lines, of_text, texts

__all__ = ["saved"]  # a fixture


def gpt2_tokens(text: str) -> list[bytes]:
    """Return tiktoken's tokens of a text."""
    ids = GPT2.tiktoken.encode_ordinary(text)
    return GPT2.tiktoken.decode_tokens_bytes(ids)


# --- spans ----------------------------------------------------------------------------------------


def spans(result: Tokens) -> list[tuple[int, int]]:
    return [tuple(span) for span in Tokenization(result).spans.tolist()]


def slow_spans(sequence: list[bytes]) -> list[tuple[int, int]]:
    """Number the characters byte by byte: each token extends over those of its bytes."""
    begins = [not 0x80 <= byte <= 0xBF for byte in b"".join(sequence)]
    numbers = [count - 1 for count in accumulate(begins)]
    found = []
    place = 0
    for token in sequence:
        own = numbers[place : place + len(token)]
        found.append((max(own[0], 0), own[-1] + 1))
        place += len(token)
    return found


PARTS = ["<|endofprompt|>", "<|reserved_200018|>", "<|return|>", " é", "🤖", "<|"]


@given(st.lists(st.sampled_from(PARTS)).map("".join))
@example("a<|reserved_200018|>b<|endofprompt|>c")
def test_spans_tile_a_text_with_special_tokens_whichever_name_they_have(text):
    expected = []
    place = 0
    for part in re.split(r"(<\|\w+\|>)", text):
        if part.endswith("|>"):
            own = [(0, len(part))]
        else:
            ids = HARMONY.tiktoken.encode_ordinary(part)
            own = slow_spans([HARMONY.token_bytes(token_id) or b"" for token_id in ids])
        expected += [(place + start, place + end) for start, end in own]
        place += len(part)

    assert spans(of_text(text, "o200k_harmony", special=True)) == expected


@given(st.lists(texts, max_size=4))
def test_spans_start_anew_in_each_line(lines):
    expected = []
    for line in lines:
        expected += slow_spans(gpt2_tokens(line))

    assert spans(of_lines(lines)) == expected


@given(
    st.lists(st.lists(st.sampled_from([64, 97, 244, 10545, 12520, 50169]), max_size=8), max_size=4)
)
@example([[64], [97, 12520, 97, 244, 64]])
def test_spans_of_ids_that_begin_or_end_within_a_character(lists):
    expected = []
    for ids in lists:
        expected += slow_spans(GPT2.tiktoken.decode_tokens_bytes(ids))

    assert spans(encode_sequences(id_sequences(lists), GPT2)) == expected


# --- rows -----------------------------------------------------------------------------------------


def test_rows_say_what_the_tokens_are(in_process, snapshot):
    ran = in_process.ok("tokenize", "--lines", "-f", "ndjson", stdin="a 日\n\nb\n")
    snapshot("tokenize/rows-of-lines.ndjson", ran.text)


NASTY = [
    "\x00",
    "\r\n",
    "\t",
    '"',
    "\\",
    "\\n",
    " ",
    "\\t \\ \\\\n",
    "\u202eשלום\u202c عربى",
    "\u0301",
    "e\u0301\u0302 \u0301",
    "\ufeff\u2028\u2029\x85\x0b\x0c\x1b[31m",
    "🏳️‍🌈👩‍👩‍👧‍👦",
]


@given(st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=4)), max_size=8).map("".join))
def test_rows_have_the_bytes_and_the_place_of_any_text(text):
    records = Tokenization(of_text(text))._records()
    rows = from_ndjson(written(records, "ndjson"))

    assert [row["id"] for row in rows] == GPT2.tiktoken.encode_ordinary(text)
    for row, token in zip(rows, gpt2_tokens(text), strict=True):
        assert row["bytes"] == token.hex()
        assert token in text[row["start"] : row["end"]].encode()
        try:
            assert row["token"] == token.decode()
        except UnicodeDecodeError:
            assert row["token"] == "".join(f"\\x{byte:02x}" for byte in token)


# --- errors and notes -----------------------------------------------------------------------------


def test_an_id_without_a_token_is_refused():
    with pytest.raises(InputError, match=r"-1 at position 2 .* to 50256"):
        embcli.seeded().decode_bytes(np.array([1, 2, -1, -1]))


def test_a_special_token_that_is_read_as_text_is_named(in_process, snapshot):
    words = ("tokenize", "a <|endoftext|> <|unk|>")

    snapshot("tokenize/note-on-a-special-token.txt", in_process(*words).err)
    in_process.ok(*words, "--special")


# --- the page -------------------------------------------------------------------------------------


def page(given: str | list[str], width: int = 80) -> str:
    """Return the page as a terminal of that width shows it, without its colours."""
    return export.text(embcli.seeded().tokenize(given), width, 24)


@cases
def test_the_page_has_rows_and_shared_characters(snapshot, name, given, width):
    snapshot(f"tokenize/{name}.txt", page(given, width))


@cases
def test_a_long_text_is_cut_in_the_middle_and_says_so(unit):
    text = unit * 300
    _, note, _ = page(text).split("\n\n", 2)
    total = len(GPT2.tiktoken.encode_ordinary(text))

    assert f"({total - 200:,} of {total:,})" in note


def test_a_character_whose_first_tokens_are_left_out_has_no_name():
    lines = page(" 日" * 100 + " a b").splitlines()
    (row,) = [line.split() for line in lines if line.startswith("203  ╰")]
    assert row[2] == r"\xa5"


def test_it_is_a_sequence_of_ids():
    result = embcli.seeded().tokenize("Every effort")
    assert len(result) == 2
    assert list(result) == [6109, 3626]


def test_the_last_line_counts_the_text_and_not_the_tokens(saved):
    """A tokenizer of word pieces drops spaces."""
    model = embcli.seeded(encoding=str(saved("word_pieces")))

    assert "19 characters, 20 bytes" in str(model.tokenize("Évery effort  moves"))


def test_ids_are_of_the_encoding_even_if_the_rows_of_the_model_are_not():
    model = embcli.seeded(vocab=6, dim=3)
    assert list(model.tokenize(5).tokens) == ["&"]
    with pytest.raises(embcli.IdError, match="99999"):
        model.tokenize(99999)
