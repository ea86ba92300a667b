"""How a text becomes tokens: each step is a merge that the encoding knows, or one of its tokens."""

from __future__ import annotations

import re
from base64 import b64encode
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st
from rich.cells import cell_len
from tokenizers import Tokenizer, models, pre_tokenizers

import embcli
from embcli import encodings
from embcli.encodings.merging import Derivation
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.errors import InputError
from embcli.model import Model
from embcli.tokens import shown
from embcli.verbs.merges import Merges
from embcli.verbs.merges.tree import tree_rows
from tests.cases import cases
from tests.test_dialects import BYTES, PAIR_MODEL, UNIGRAM_MODEL, sentencepiece
from tests.test_huggingface import MADE, SENTENCES as TRAINED, saved
from tests.test_vocabularies import (
    ADDED,
    BYTE,
    BYTE_TOKENS,
    CONTROL,
    GPT2,
    NORMAL,
    TEXTS,
    UNKNOWN,
    WORDS,
    written,
)

__all__ = ["saved"]  # a fixture

MIXED = (
    "It's 12345 x==1;\r\n\t日本語 é 👋🏽 <|endoftext|>   aaaaaaaaaaaaaaaaa\u0301\u200b Straße ΑΒΓ "
)


def model(encoding: str | Path) -> Model:
    return embcli.seeded(encoding=str(encoding), vocab=1, dim=1)


def replayed(piece: Derivation) -> list[bytes]:
    """Apply the merges of a piece to its symbols, each at the first place where its pair stands."""
    parts = [*piece.symbols]
    for step in piece.steps:
        place = [*pairwise(parts)].index((step.left, step.right))
        parts[place : place + 2] = [step.token]
        assert step.token == step.left + step.right
    return parts


def assert_steps_lead_to_tokens(opened: Model, text: str) -> Merges:
    """Check the steps of a text: its tokens come of them, and they keep its bytes."""
    result = opened.merges(text)

    assert result.ids == opened.encoding.encode(text).tolist()
    for piece in result.pieces:
        if piece.steps:
            assert b"".join(replayed(piece)) == b"".join(piece.symbols)
    return result


# --- tiktoken's encodings -------------------------------------------------------------------------


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_merges_of_tiktokens_encodings_take_the_lowest_rank_and_lead_to_its_tokens(
    name,
):
    theirs = encodings.get(name).tiktoken  # test_encodings.py holds it against the package.
    ranks = theirs._mergeable_ranks

    result = model(name).merges(MIXED)
    assert result.ids == theirs.encode_ordinary(MIXED)
    for piece in result.pieces:
        parts = [*piece.symbols]
        for step in piece.steps:
            found = [ranks.get(left + right, 1 << 30) for left, right in pairwise(parts)]
            lowest = min(found)
            place = found.index(lowest)
            assert step.rank == lowest
            assert step.token_id == lowest
            assert [step.left, step.right] == parts[place : place + 2]
            parts[place : place + 2] = [step.token]
        if piece.steps:
            assert parts == [theirs.decode_single_token_bytes(token_id) for token_id in piece.ids]


# regex may know characters, such as those of Unicode 18, that the splitting inside tiktoken does
# not know yet.
KNOWN = st.characters(exclude_categories=["Cn", "Cs"])


@given(st.text(KNOWN, min_size=1, max_size=60), st.sampled_from(["gpt2", "o200k_base"]))
def test_any_text_becomes_the_tokens_that_it_has(text, name):
    assert model(name).merges(text).ids == encodings.get(name).encode(text).tolist()


def test_a_long_run_is_one_piece():
    (piece,) = model("gpt2").merges("a" * 20_000).pieces

    assert len(piece.steps) == 15_000
    assert len(piece.ids) == 5_000


def test_special_tokens_are_pieces_where_they_are_asked_for():
    text = "Hi<|endoftext|>Hi"
    result = model("gpt2").merges(text, special=True)

    assert result.ids == [17250, 50256, 17250]
    symbols = [piece.symbols for piece in result.pieces]
    assert symbols == [(b"H", b"i"), (b"<|endoftext|>",), (b"H", b"i")]


# --- tokenizer.json -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(MADE.keys() - {"pieces", "word_pieces"}))
def test_the_steps_of_a_tokenizer_json_lead_to_its_tokens(name, saved):
    opened = model(saved(name))

    for text in [*TRAINED[:3], "effort" * 30, "x日y 👋", MIXED]:
        assert_steps_lead_to_tokens(opened, text)


def save_words(path: Path, made: Any) -> None:
    """Save a model as a tokenizer.json that splits a text into words first."""
    tokenizer = Tokenizer(made)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.save(str(path))


def test_a_tokenizer_that_merges_nothing_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    for kind in (models.WordLevel, models.WordPiece):
        save_words(path, kind({"a": 0, "?": 1}, unk_token="?"))
        with pytest.raises(InputError, match=kind.__name__):
            model(path).merges("a a")


def test_word_vectors_have_no_steps(tmp_path):
    path = tmp_path / "words.vec"
    path.write_text("a 1 2\nb 2 3\n")

    with pytest.raises(InputError, match="without merges"):
        embcli.open(path).merges("a")


def test_the_last_symbol_of_a_word_has_the_suffix_of_words(tmp_path):
    path = tmp_path / "tokenizer.json"
    ids = {"a": 0, "b": 1, "b</w>": 2, "ab": 3, "ab</w>": 4}
    pairs = [("a", "b</w>"), ("a", "b")]
    save_words(path, models.BPE(ids, pairs, end_of_word_suffix="</w>"))

    (piece,) = model(path).merges("ab").pieces
    (step,) = piece.steps
    assert piece.symbols == (b"a", b"b</w>")
    assert piece.ids == (step.token_id,) == (4,)
    assert step.rank == 0


# --- the vocabularies of a GGUF and of a tokenizer.model ------------------------------------------

PIECES = ["<unk>", "<s>", "</s>", *BYTE_TOKENS, *"▁abcé", "▁a", "ab", "▁ab", "abc"]
SCORES = [0.0] * 259 + [-tenths / 10 for tenths in range(10, 19)]
KINDS = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 9]
SCORED = [*zip(PIECES, SCORES, KINDS, strict=True), ("abcabc", -3.0, ADDED)]
BERT = ["[UNK]", "▁a", "b", "▁ab", "bc", "c", "▁b"]


def vocabulary(kind: str, folder: Path) -> Model:
    """Return a model with a vocabulary of this kind, written into a folder."""
    path = folder / "model.gguf"
    scored = {"kinds": KINDS, "scores": SCORES}
    match kind:
        case "gpt2":
            return model(written(path, kind, WORDS, **GPT2))
        case "llama":
            return model(written(path, kind, PIECES, **scored, unknown_token_id=0))
        case "bert":
            return model(written(path, kind, BERT, unknown_token_id=0))
        case _:
            number = {"pairs": PAIR_MODEL, "unigrams": UNIGRAM_MODEL}[kind]
            return model(sentencepiece(folder, number, SCORED))


@cases
def test_the_steps_of_a_vocabulary_lead_to_its_tokens(kind, value, tmp_path):
    opened = vocabulary(kind, tmp_path)

    for text in [*TEXTS, "abcab ab cb", "ab<|end|>ab", "é日é日", "abcabcab"]:
        assert_steps_lead_to_tokens(opened, text)
    found = opened.merges("abcab ab").fields
    assert {*found} == {"piece", "step", "left", "right", value, "id", "token"}


@cases
def test_a_vocabulary_that_merges_nothing_is_refused(tmp_path, kind):
    with pytest.raises(InputError, match=r"has no merges; tokenize lists its tokens"):
        vocabulary(kind, tmp_path).merges("ab")


# --- the pages ------------------------------------------------------------------------------------


def test_a_long_page_leaves_out_rows_in_the_middle(in_process):
    page = in_process.ok("tokenize", " a" * 250, "--merges", "--no-draw").text
    assert "rows 100 to 149 (50 of 250)" in page


@cases
def test_pieces_are_drawn_as_trees_side_by_side(in_process, snapshot, options):
    page = in_process.ok("tokenize", "It's so unbelievable some…", *options, COLUMNS="60").text
    snapshot("merges/trees.txt", page)


@cases
def test_a_tree_that_is_wider_than_the_page_is_listed_in_every_format(in_process, format):
    for width, is_drawn in (("55", True), ("54", False)):
        words = ("tokenize", "channelAvailability", "--draw", "-f", format, "--width", width)
        assert ("drawn:" not in in_process.ok(*words).text) == is_drawn


@cases
def test_the_branches_of_a_tree_are_numbered_in_the_order_of_the_merges(text):
    (piece,) = model("gpt2").merges(text).pieces
    (lines,) = tree_rows(piece, [None] * len(piece.ids), 500)

    below = {}
    for branches, texts in pairwise(lines):
        for number in re.finditer(r"(?<=[╰─])\d+(?=[╯─])", branches):
            trunk = cell_len(branches[: number.start()])
            (word,) = [word for word in re.finditer(r"\S+", texts) if covers(texts, word, trunk)]
            below[int(number[0])] = word[0]
    assert below == {step: shown(merge.token) for step, merge in enumerate(piece.steps, 1)}


@cases
def test_trees_stand_in_rows_as_wide_as_the_page(text, width):
    (piece,) = model("gpt2").merges(text).pieces

    ids = []
    for lines in tree_rows(piece, [None] * len(piece.ids), width):
        assert max(map(cell_len, lines)) <= width
        ids += map(int, lines[-1].split())
    assert ids == [*piece.ids]


def test_a_long_text_is_listed(in_process):
    page = in_process.ok("tokenize", "a " * 251, "--draw").text
    assert "\nNot drawn: the text has 502 bytes; at most 500 are.\n" in page


def covers(line: str, word: re.Match[str], cell: int) -> bool:
    """Return whether a word of a line stands over a cell."""
    start = cell_len(line[: word.start()])
    return start <= cell < start + cell_len(word[0])


@cases
def test_the_numbers_below_a_tree_are_apart(kind, tmp_path):
    opened = vocabulary(kind, tmp_path)

    for text in ("aé日é", "ccccabcb" * 2):
        result = opened.merges(text)
        page = str(result.styled(width=500))
        (tree, _) = page.split("\n\n")
        assert [int(word) for word in tree.splitlines()[-1].split()] == [*result.pieces[0].ids]


def test_a_piece_that_no_merges_lead_to_is_drawn_as_one_node(tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    tokens = [*BYTES, b"xyz"]
    lines = [b"%b %d\n" % (b64encode(token), rank) for rank, token in enumerate(tokens)]
    path = Path("without-merges/gpt2.tiktoken")
    path.parent.mkdir()
    path.write_bytes(b"".join(lines))

    page = str(model(path).merges("xyz"))
    snapshot("merges/tree-without-merges.txt", page)


def test_a_byte_that_the_vocabulary_lacks_is_drawn_without_an_id(tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    words = [word for word in WORDS if word != "z"]
    known = GPT2 | {"kinds": GPT2["kinds"][1:]}
    opened = model(written(Path("without-z.gguf"), "gpt2", words, **known))

    pages = [str(opened.merges(text)) for text in ("abzab", "z")]
    snapshot("merges/trees-of-unknown-bytes.txt", "\n\n".join(pages))


def test_rows_are_the_steps_and_a_token_that_no_merge_made_is_step_0(in_process, snapshot):
    ran = in_process.ok("tokenize", "is a!", "--merges", "-f", "ndjson")
    snapshot("merges/steps.ndjson", ran.text)


def test_merging_stops_where_no_two_neighbours_have_a_merge(in_process):
    page = in_process.ok("tokenize", "so strawberry,strawberry", "--merges").text
    parts = ["st", "raw", "berry"]

    assert page.endswith(f"\nMerging stops when no merge is left, as at {' + '.join(parts)}.\n")
    for left, right in pairwise(parts):
        assert len(embcli.seeded().tokenize(left + right).ids) == 2
