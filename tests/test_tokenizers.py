"""One text under several tokenizers: sets of spans say which tokens and cuts are in common."""

from __future__ import annotations

import re
from itertools import accumulate, chain, pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models

import embcli
from embcli import encodings
from embcli.errors import InputError
from embcli.verbs.tokenizers import Tokenizers
from tests.readers import from_ndjson
from tests.test_huggingface import SENTENCES, saved
from tests.test_merges import MIXED, save_words

__all__ = ["saved"]  # a fixture

NAMES = ["gpt2", "p50k_base", "cl100k_base", "o200k_base"]
PAIR = "gpt2,o200k_base"
EFFORT = "Every effort moves you. "

Ends = list[int]  # where the tokens of a text end, in bytes


def ends_of(name: str, text: str) -> Ends:
    """Return where tiktoken's tokens of a text end."""
    theirs = encodings.get(name).tiktoken  # test_encodings.py holds it against the package.
    tokens = map(theirs.decode_single_token_bytes, theirs.encode_ordinary(text))
    return [*accumulate(map(len, tokens))]


def spans_of(ends: Ends) -> list[tuple[int, int]]:
    return [*pairwise([0, *ends])]


def assert_like_sets(result: Tokenizers, names: list[str]) -> None:
    """Hold what encodings have in common against sets of the spans of tiktoken's tokens."""
    expected: dict[str, list[bool]] = {name: [] for name in names}
    same = 0
    different = 0
    for text in result.texts:
        ends = [ends_of(name, text) for name in names]
        spans = [spans_of(own) for own in ends]
        common = set.intersection(*map(set, spans))
        cuts = set.intersection(*map(set, ends))
        same += len(common)
        different += len({*spans_of(sorted(cuts))} - common)
        for flags, own in zip(expected.values(), spans, strict=True):
            flags += [span in common for span in own]

    assert result.same == same
    assert result.different == different
    found = []
    for piece in result.records().pieces(("common",), ()):
        found += [*piece.fields["common"]]
    assert found == [*chain.from_iterable(expected.values())]


def assert_segments(result: Tokenizers) -> None:
    """Check that the segments have all tokens, and are as many as the result counts."""
    segments = [*result.segments()]
    differing = [segment for segment in segments if not segment.is_same]

    assert len(segments) == result.same + result.different
    assert len(differing) == result.different
    found = result.segments(different=True)
    assert [segment.start for segment in found] == [segment.start for segment in differing]
    for number, tokens in enumerate(result.tokens):
        joined = []
        for segment in segments:
            joined += segment.tokens[number]
        assert joined == tokens.bytes_of(tokens.ids)


@given(st.lists(st.text("ab eé日👋\n1,'", max_size=12), min_size=1, max_size=3), st.integers(2, 4))
def test_common_tokens_and_cuts_are_those_of_sets(texts, count):
    names = NAMES[:count]
    result = embcli.tokenizers(texts, names)

    assert_like_sets(result, names)
    assert_segments(result)
    before = [b""] * len(texts)
    for segment in result.segments():
        own = b"".join(segment.tokens[0])
        assert segment.start == len(before[segment.sequence].decode(errors="ignore"))
        assert segment.ends[0][-1] == len(own)
        before[segment.sequence] += own


def test_a_long_text_of_many_kinds_is_cut_as_by_sets():
    text = (MIXED + "Unbelievable internationalization\n") * 40
    result = embcli.tokenizers(text, NAMES)

    assert_like_sets(result, NAMES)
    assert_segments(result)


def test_special_tokens_are_found_where_they_are_asked_for_and_end_where_their_names_end():
    text = "<|reserved_200018|>a<|endofprompt|>"
    names = ["o200k_harmony", "o200k_base"]  # One of them has two names for one ID.
    result = embcli.tokenizers(text, names, special=True)

    assert result.counts[0] == 3
    assert [ends[-1] for ends in result.ends] == [len(text), len(text)]
    assert min(embcli.tokenizers(text, names).counts) > 3


@pytest.mark.parametrize("text", [SENTENCES[0], "É effort  moves ", "日本\n\nx"])
@pytest.mark.parametrize("kind", ["byte_level", "pieces", "metaspace", "word_pieces"])
def test_a_tokenizer_json_stands_beside_gpt2(kind, text, saved):
    path = str(saved(kind))
    known = encodings.get(path)
    ids = known.encode(text).tolist()
    tokens = [known.token_bytes(token_id) or b"" for token_id in ids]
    ends = [*accumulate(map(len, tokens))]
    spelled = b"".join(tokens)
    if spelled == b" " + text.encode():  # The tokenizer adds a space.
        ends = [end - 1 for end in ends]
    elif spelled != text.encode():
        ends = [len(text[:end].encode()) for _, end in known.spans(text).tolist()]

    result = embcli.tokenizers(text, [path, "gpt2"])
    assert result.tokens[0].ids.tolist() == ids
    assert result.ends[0].tolist() == ends
    assert_segments(result)


def test_tokens_without_text_stay_with_their_text(saved):
    """One encoding drops spaces at the end of a text, the other adds a token before the next."""
    names = [str(saved("word_pieces")), str(saved("pieces"))]
    texts = ["moves  ", "日", "", "you"]
    result = embcli.tokenizers(texts, names)

    for number, tokens in enumerate(result.tokens):
        found: list[list[bytes]] = [[] for _ in texts]
        for segment in result.segments():
            found[segment.sequence] += segment.tokens[number]
            counts = [len(own) for own in segment.tokens]
            assert segment.is_same == (counts == [1, 1])
        bounds = pairwise(tokens.starts.tolist())
        assert found == [tokens.bytes_of(tokens.ids[first:last]) for first, last in bounds]


# --- the page -------------------------------------------------------------------------------------


def test_the_page_marks_cuts(in_process, snapshot):
    text = "Unbelievable 日本!"
    words = ("tokenize", text, "--encoding", PAIR)
    page = in_process.ok(*words, COLUMNS="85", suggestions=True).text
    snapshot("tokenizers/cuts.txt", page)


@pytest.mark.parametrize(
    ("name", "pair", "text"),
    [
        ("lines-cut-alike", "gpt2,cl100k_base", "a b\n\n123\n"),
        ("lines-cut-differently", PAIR, "a\nUnbelievable \n"),
    ],
)
def test_lines_begin_rows(in_process, snapshot, name, pair, text):
    ran = in_process.ok("tokenize", "--lines", "--encoding", pair, stdin=text, COLUMNS="40")
    snapshot(f"tokenizers/{name}.txt", ran.text)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("long-text-with-one-place", EFFORT * 40 + "Unbelievable! " + EFFORT * 40),
        ("long-text-with-many-places", "Unbelievable! " * 400),
        ("long-text-with-no-place", EFFORT * 400),
    ],
)
def test_of_a_long_text_the_page_has_what_is_cut_differently(in_process, snapshot, name, text):
    ran = in_process.ok("tokenize", text, "--encoding", PAIR, COLUMNS="60")
    snapshot(f"tokenizers/{name}.txt", ran.text)


@pytest.mark.parametrize(
    ("name", "text"), [("long-names", "effort moves"), ("long-stretches", "Þ" * 80)]
)
def test_long_names_are_numbers_and_long_stretches_end_in_dots(
    in_process,
    tmp_path,
    monkeypatch,
    snapshot,
    name,
    text,
):
    monkeypatch.chdir(tmp_path)
    ids = {"[UNK]": 0, "effort": 1, "move": 2, "##s": 3}
    save_words(Path("words-of-effort.json"), models.WordPiece(ids, unk_token="[UNK]"))

    words = ("tokenize", text, "--encoding", "words-of-effort.json,gpt2")
    snapshot(f"tokenizers/{name}.txt", in_process.ok(*words, COLUMNS="40").text)


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


def test_a_path_with_a_comma_is_one_name(in_process, tmp_path):
    path = tmp_path / "a,b.json"
    save_words(path, models.WordPiece({"[UNK]": 0, "effort": 1}, unk_token="[UNK]"))
    words = ("tokenize", "effort", "-f", "ndjson", "--encoding", str(path))

    (row,) = from_ndjson(in_process.ok(*words).out)
    assert row["token"] == "effort"
    rows = from_ndjson(in_process.ok(*words, "--encoding", "gpt2").out)
    assert {row["encoding"] for row in rows} == {str(path), "gpt2"}
