"""How a text becomes tokens: every step is a merge that the encoding knows, and the last ones are its own tokens."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece import SentencePieceProcessor
from tokenizers import Tokenizer, models, pre_tokenizers

import embcli
from embcli import encodings
from embcli.encodings.merging import Derivation
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.errors import InputError
from embcli.model import Model
from tests.runners import InProcess
from tests.test_dialects import sentencepiece
from tests.test_huggingface import MADE, saved
from tests.test_huggingface import SENTENCES as TRAINED
from tests.test_vocabularies import KINDS, MERGES, TEXTS, WORDS, written

__all__ = ["saved"]  # a fixture

run = InProcess()
MIXED = (
    "It's 12345 x==1;\r\n\t日本語 é 👋🏽 <|endoftext|>   aaaaaaaaaaaaaaaaa\u0301\u200b Straße ΑΒΓ "
)


def model(encoding: str) -> Model:
    return embcli.seeded(encoding=encoding, vocab=1, dim=1)


def replayed(piece: Derivation) -> list[bytes]:
    """Apply the merges of a piece to its symbols, one after the other, at the first place where the pair stands."""
    parts = [*piece.symbols]
    for step in piece.steps:
        place = [*pairwise(parts)].index((step.left, step.right))
        parts[place : place + 2] = [step.token]
        assert step.token == step.left + step.right
    return parts


@pytest.mark.parametrize("name", DEFINITIONS)
def test_the_merges_of_tiktokens_encodings_take_the_lowest_rank_and_lead_to_its_tokens(
    name: str,
) -> None:
    theirs = encodings.get(name).tiktoken  # which a test of its own holds against the package
    result = model(name).merges(MIXED)
    assert result.ids == theirs.encode_ordinary(MIXED)
    for piece in result.pieces:
        parts = [*piece.symbols]
        for step in piece.steps:
            ranks = [
                theirs._mergeable_ranks.get(left + right, 1 << 30)
                for left, right in pairwise(parts)
            ]
            assert step.rank == step.token_id == min(ranks)
            place = ranks.index(min(ranks))
            assert (step.left, step.right) == (*parts[place : place + 2],)
            parts[place : place + 2] = [step.token]
        if piece.steps:
            assert parts == [theirs.decode_single_token_bytes(token_id) for token_id in piece.ids]


# regex may know characters, such as those of Unicode 18, that the splitting inside tiktoken does not know yet.
KNOWN = st.characters(exclude_categories=["Cn", "Cs"])


@given(st.text(KNOWN, max_size=60), st.sampled_from(["gpt2", "o200k_base"]))
def test_any_text_becomes_the_tokens_that_it_has(text: str, name: str) -> None:
    if text:
        assert model(name).merges(text).ids == encodings.get(name).encode(text).tolist()


@pytest.mark.parametrize("name", MADE)
def test_the_steps_of_a_tokenizer_json_lead_to_its_tokens(
    name: str, saved: Callable[[str], Path]
) -> None:
    opened = model(str(saved(name)))
    for text in [*TRAINED[:3], "effort" * 30, "x日y 👋", MIXED]:
        result = opened.merges(text)
        assert result.ids == opened.encoding.encode(text).tolist()
        for piece in result.pieces:
            if piece.merges and piece.steps:
                assert b"".join(replayed(piece)) == b"".join(piece.symbols)
            elif not piece.merges:
                assert [step.token_id for step in piece.steps] == [*piece.ids]


def test_a_tokenizer_whose_model_has_words_only_is_refused(tmp_path: Path) -> None:
    made = Tokenizer(models.WordLevel({"a": 0, "?": 1}, unk_token="?"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "words.vec").write_text("a 1 2\nb 2 3\n")
    with pytest.raises(InputError, match="its model is WordLevel, whose tokens are whole words"):
        model(str(tmp_path / "tokenizer.json")).merges("a a")
    with pytest.raises(InputError, match="does not tell how it splits a text"):
        embcli.open(tmp_path / "words.vec").merges("a")


def test_the_last_symbol_of_a_word_has_the_suffix_of_words(tmp_path: Path) -> None:
    ids = {"a": 0, "b": 1, "b</w>": 2, "ab": 3, "ab</w>": 4}
    made = Tokenizer(models.BPE(ids, [("a", "b</w>"), ("a", "b")], end_of_word_suffix="</w>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    made.save(str(tmp_path / "tokenizer.json"))
    (piece,) = model(str(tmp_path / "tokenizer.json")).merges("ab").pieces
    (step,) = piece.steps
    assert (piece.symbols, step.token_id, step.rank, piece.ids) == ((b"a", b"b</w>"), 4, 0, (4,))


# The types of vocabularies: what a GGUF's is written with, or the number of a tokenizer.model's; the fields of a row.
PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *"▁abcé",
    "▁a",
    "ab",
    "▁ab",
    "abc",
]
SCORES = [0.0] * 259 + [-1.0 - place / 10 for place in range(len(PIECES) - 259)]
BYTES = [2, 3, 3, *[6] * 256, *[1] * (len(PIECES) - 259)]
VOCABULARIES = {
    "gpt2": (
        {"words": WORDS, "kinds": KINDS, "merges": MERGES, "pre": "gpt-2"},
        {"left", "right", "rank"},
    ),
    "llama": ({"words": PIECES, "kinds": BYTES, "scores": SCORES}, {"left", "right", "score"}),
    "t5": ({"words": PIECES, "kinds": BYTES, "scores": SCORES, "unknown_token_id": 0}, {"score"}),
    "bert": ({"words": ["[UNK]", "▁a", "b", "▁ab", "bc", "c", "▁b"], "unknown_token_id": 0}, set()),
    "unigrams": (1, {"score"}),
    "pairs": (2, {"left", "right", "score"}),
}
SCORED = [
    *zip(PIECES, SCORES, BYTES, strict=True),
    ("abcabc", -3.0, 4),
]  # the last is the user's own


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_the_steps_of_a_vocabulary_lead_to_its_tokens(kind: str, tmp_path: Path) -> None:
    given, fields = VOCABULARIES[kind]
    is_gguf = isinstance(given, dict)
    path = tmp_path / ("model.gguf" if is_gguf else "tokenizer.model")
    opened = model(
        written(path, kind, **given)
        if is_gguf
        else sentencepiece(path, given, SCORED, by_bytes=True)
    )
    for text in [*TEXTS, "abcab ab cb", "ab<|end|>ab", "é日é日", "abcabcab"]:
        result = opened.merges(text)
        assert result.ids == opened.encoding.encode(text).tolist()
        for piece in result.pieces:
            if piece.merges and piece.steps:
                assert b"".join(replayed(piece)) == b"".join(piece.symbols)
            if not piece.merges:  # also of what is unknown
                tokens = [opened.encoding.token_bytes(token_id) for token_id in piece.ids]
                assert [result.token_of(step) for step in piece.steps] == tokens
    assert {*opened.merges("abcab ab").fields} - {"piece", "step", "id", "token"} == fields


def test_an_unknown_token_scores_10_less_than_the_worst(tmp_path: Path) -> None:
    (piece,) = (
        model(written(tmp_path / "model.gguf", "t5", **VOCABULARIES["t5"][0])).merges("日").pieces
    )
    assert [step.score for step in piece.steps if step.token_id == 0] == [
        pytest.approx(min(SCORES) - 10)
    ]


@pytest.mark.parametrize("by_bytes", [True, False])
def test_scores_add_up_to_those_of_sentencepiece(tmp_path: Path, by_bytes: bool) -> None:
    scored = [each for each in SCORED if by_bytes or each[2] != 6]
    path = sentencepiece(tmp_path / "tokenizer.model", 1, scored, by_bytes=by_bytes)
    for text in ("ab cab", "日 a", "abcabcab"):
        ways = SentencePieceProcessor(model_file=path).nbest_encode(
            text, nbest_size=2, return_type="serialized_proto"
        )
        (score,) = struct.unpack(
            "<f", ways[ways[1] - 2 : ways[1] + 2]
        )  # the end of the first message
        steps = [step for piece in model(path).merges(text).pieces for step in piece.steps]
        assert sum(step.score for step in steps) == pytest.approx(score), text


def test_a_long_run_is_one_piece() -> None:
    (piece,) = model("gpt2").merges("a" * 20_000).pieces
    assert len(piece.steps) == 15_000
    assert len(piece.ids) == 5_000


def test_special_tokens_are_pieces_where_they_are_asked_for() -> None:
    text = "Hi<|endoftext|>Hi"
    assert len(model("gpt2").merges(text).ids) > 3
    result = model("gpt2").merges(text, special=True)
    assert result.ids == [17250, 50256, 17250]
    assert [piece.symbols for piece in result.pieces] == [
        (b"H", b"i"),
        (b"<|endoftext|>",),
        (b"H", b"i"),
    ]


def test_the_page() -> None:
    assert run.ok("tokenize", "This is", "--merges", COLUMNS="80").text == (
        "Each piece of the text, merged pair by pair: the pair of the lowest rank first\n"
        "piece  step  left  right   rank  token    ID\n"
        "────────────────────────────────────────────\n"
        "This      1     i  s        271  is      271\n"
        "          2     T  h        817  Th      817\n"
        "          3    Th  is     1,212  This   1212\n"
        "␣is       1     i  s        271  is      271\n"
        "          2     ␣  is       318  ␣is     318\n"
        "\n"
        "7 bytes in 2 pieces become 2 tokens (gpt2)\n"
    )


def test_the_trees() -> None:
    assert run.ok("tokenize", " some…", "--merges", "--draw", COLUMNS="80").text == (
        "Each piece of the text, merged pair by pair: the pair of the lowest rank first\n"
        "␣  s  o  m  e    \\xe2  \\x80  \\xa6\n"
        "╰┬─╯  ╰┬─╯  │     ╰──┬──╯     │\n"
        " ␣s    om   │     \\xe2\\x80    │\n"
        " │     ╰─┬──╯        ╰───┬────╯\n"
        " │      ome              …\n"
        " ╰───┬───╯              1399\n"
        "   ␣some\n"
        "    617\n"
        "\n"
        "8 bytes in 2 pieces become 2 tokens (gpt2)\n"
    )


def test_the_trees_of_other_kinds_and_of_long_pieces(saved: Callable[[str], Path]) -> None:
    words = run.ok(
        "tokenize", "efforts", "--merges", "--draw", "--encoding", str(saved("word_pieces"))
    ).text
    assert words.splitlines()[1].startswith("efforts → ")
    wide = run.ok("tokenize", "a" * 100, "--merges", "--draw", COLUMNS="80").text
    assert "100 symbols are wider than this page" in wide
    in_a_file = run.ok("tokenize", "a" * 100, "--draw", "-f", "html", "--width", "80").text
    assert "  ".join("a" * 100) in in_a_file
    several = run.ok(
        "tokenize", "It's so unbelievable", "--merges", "--draw", COLUMNS="60"
    ).text.splitlines()
    assert several[2] == "I  t    '  s    ␣  s  o"
    assert "u  n  b  e  l  i  e" in several[several.index("") + 1]
    assert max(map(len, several[1:])) <= 60
    assert (
        run.ok("tokenize", "It's so unbelievable", "--draw", COLUMNS="60").text.splitlines()
        == several
    )


@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_the_numbers_below_a_tree_are_apart(kind: str, tmp_path: Path) -> None:
    opened = model(written(tmp_path / "model.gguf", kind, **VOCABULARIES[kind][0]))
    for text in ("aé日é", "ccccabcb" * 2):
        result = opened.merges(text, draw=True).styled(width=500)
        assert str(result).splitlines()[-3].split() == [*map(str, result.pieces[0].ids)]


def test_a_piece_that_no_merges_lead_to_is_drawn_as_one_node(tmp_path: Path) -> None:
    lines = [
        b"%b %d\n" % (b64encode(token), rank)
        for rank, token in enumerate([*map(bytes, zip(range(256))), b"xyz"])
    ]
    (tmp_path / "gpt2.tiktoken").write_bytes(b"".join(lines))
    opened = embcli.seeded(vocab=1, dim=1, encoding=str(tmp_path / "gpt2.tiktoken"))
    drawn = str(opened.merges("xyz", draw=True)).splitlines()
    assert drawn[1:5] == ["x  y  z", "╰──┼──╯", "  xyz", "  256"]


def test_a_byte_that_the_vocabulary_lacks_is_drawn_without_an_id(tmp_path: Path) -> None:
    known = {
        "merges": MERGES,
        "pre": "gpt-2",
        "words": [word for word in WORDS if word != "z"],
        "kinds": KINDS[1:],
    }
    opened = model(written(tmp_path / "model.gguf", "gpt2", **known))
    drawn = ["a  b  z  a  b", "╰┬─╯  │  ╰┬─╯", " ab   │   ab", "259      259"]
    for text, lines in (("abzab", drawn), ("z", ["z", ""])):
        found = str(opened.merges(text, draw=True)).splitlines()
        assert found[1 : len(lines) + 2] == [
            *lines,
            "",
        ]  # the name of the file below can be of two lines


def test_a_long_page_leaves_out_rows_in_the_middle() -> None:
    assert (
        "\nLeft out: rows 100 to 149 (50 of 250).\n"
        in run.ok("tokenize", " a" * 250, "--merges").text
    )


def test_rows() -> None:
    rows = json.loads(run.ok("tokenize", "is a", "--merges", "-f", "json").text)["steps"]
    assert rows == [
        {"piece": 0, "step": 1, "left": "i", "right": "s", "rank": 271, "id": 271, "token": "is"},
        {"piece": 1, "step": 1, "left": " ", "right": "a", "rank": 257, "id": 257, "token": " a"},
    ]
    single = json.loads(run.ok("tokenize", "!", "--merges", "-f", "ndjson").text)
    assert (single["step"], single["left"], single["right"], single["id"]) == (0, None, None, 0)
