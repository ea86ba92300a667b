"""One text under several tokenizers: tokens, common ones and cuts are those of a slow comparison of sets."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable
from itertools import accumulate, pairwise
from pathlib import Path

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from wcwidth import wcswidth

import embcli
from embcli import encodings
from embcli.errors import InputError
from embcli.verbs.tokenizers import Tokenizers
from tests.runners import InProcess
from tests.test_huggingface import SENTENCES, saved
from tests.test_merges import MIXED

__all__ = ["saved"]  # a fixture

run = InProcess()
NAMES = ["gpt2", "p50k_base", "cl100k_base", "o200k_base"]
PAIR = "gpt2,o200k_base"


def ends_of(name: str, text: str) -> list[int]:
    """Return where tiktoken's tokens of a text end, in bytes."""
    theirs: tiktoken.Encoding = encodings.get(
        name
    ).tiktoken  # which a test of its own holds against the package
    return [
        *accumulate(
            len(theirs.decode_single_token_bytes(each)) for each in theirs.encode_ordinary(text)
        )
    ]


def check(result: Tokenizers, ends: list[list[list[int]]]) -> None:
    """Compare a result with where the tokens of each text end in each encoding."""
    same = different = 0
    common: list[list[bool]] = [[] for _ in ends]
    for each in zip(*ends, strict=True):
        spans = [{*pairwise([0, *of_text])} for of_text in each]
        in_all = set.intersection(*spans)
        same += len(in_all)
        shared = sorted(set.intersection(*({0, *of_text} for of_text in each)))
        different += sum(pair not in in_all for pair in pairwise(shared))
        for flags, of_text in zip(common, each, strict=True):
            flags += [span in in_all for span in pairwise([0, *of_text])]
    assert (result.same, result.different) == (same, different)
    rows = [
        row for piece in result.records().pieces(("common",), ()) for row in piece.fields["common"]
    ]
    assert rows == [flag for flags in common for flag in flags]
    parts = [*result.segments()]
    assert [sum(part.is_same for part in parts), len(parts)] == [same, same + different]
    assert [part.start for part in result.segments(different=True)] == [
        part.start for part in parts if not part.is_same
    ]
    for number, tokens in enumerate(result.tokens):
        assert [token for part in parts for token in part.tokens[number]] == tokens.bytes_of(
            tokens.ids
        )


@given(st.lists(st.text("ab eé日👋\n1,'", max_size=12), min_size=1, max_size=3), st.integers(2, 4))
def test_common_tokens_and_cuts_are_those_of_sets(texts: list[str], count: int) -> None:
    result = embcli.tokenizers(texts, NAMES[:count])
    check(result, [[ends_of(name, text) for text in texts] for name in NAMES[:count]])
    before = [b""] * len(texts)
    for part in result.segments():
        assert part.start == len(before[part.sequence].decode(errors="ignore"))
        before[part.sequence] += b"".join(part.tokens[0])
        assert part.ends[0][-1] == len(b"".join(part.tokens[0]))


def test_a_long_text_of_many_kinds() -> None:
    text = (MIXED + "Unbelievable internationalization\n") * 40
    check(embcli.tokenizers(text, NAMES), [[ends_of(name, text)] for name in NAMES])


def test_special_tokens_where_they_are_asked_for() -> None:
    text = "a<|endoftext|>b"
    assert embcli.tokenizers(text, NAMES[2:], special=True).counts == [3, 3]
    assert min(embcli.tokenizers(text, NAMES[2:]).counts) > 3
    named = "<|reserved_200018|>a<|endofprompt|>"  # one ID with two names
    result = embcli.tokenizers(named, ["o200k_harmony", "o200k_base"], special=True)
    assert [len(named) for _ in "ab"] == [int(ends[-1]) for ends in result.ends]


@pytest.mark.parametrize("kind", ["byte_level", "pieces", "metaspace", "word_pieces"])
def test_a_tokenizer_json_beside_gpt2(kind: str, saved: Callable[[str], Path]) -> None:
    path = str(saved(kind))
    known = encodings.get(path)
    for text in [SENTENCES[0], "É effort  moves ", "日本\n\nx"]:
        result = embcli.tokenizers(text, [path, "gpt2"])
        ids, spans = known.encode(text), known.spans(text)
        tokens = [known.token_bytes(each) or b"" for each in ids.tolist()]
        assert result.tokens[0].ids.tolist() == ids.tolist()
        exact = [*accumulate(map(len, tokens))]
        by_character = [len(text[:end].encode()) for _, end in spans.tolist()]
        spelled = b"".join(tokens)
        lead = spelled == b" " + text.encode()
        ends = [end - lead for end in exact] if lead or spelled == text.encode() else by_character
        assert result.ends[0].tolist() == ends
        assert [token for part in result.segments() for token in part.tokens[0]] == tokens


def test_tokens_without_text_stay_with_their_text(saved: Callable[[str], Path]) -> None:
    """One encoding drops the spaces at the end of a text, the other one adds a token before the next."""
    names = [str(saved("word_pieces")), str(saved("pieces"))]
    result = embcli.tokenizers(["moves  ", "日", "", "you"], names)
    for part in result.segments():
        assert part.is_same == all(len(tokens) == 1 for tokens in part.tokens)
    for number, tokens in enumerate(result.tokens):
        found: dict[int, list[bytes]] = {}
        for part in result.segments():
            found.setdefault(part.sequence, []).extend(part.tokens[number])
        for sequence, (first, last) in enumerate(pairwise(tokens.starts.tolist())):
            assert found.get(sequence, []) == tokens.bytes_of(tokens.ids[first:last])


def test_the_page() -> None:
    assert run.ok("tokenize", "Unbelievable 日本!", "--encoding", PAIR, COLUMNS="80").text == (
        "The text under 2 tokenizers: │ marks a cut that only some of them make\n"
        "char              5        12\n"
        "gpt2       Un bel iev│able \\x20\\xe6│\\x97│\\xa5│\\xe6\\x9c│\\xac !\n"
        "o200k_base Un bel ievable  ␣日本                            !\n"
        "\n"
        "encoding      vocab  tokens  chars/token  IDs\n"
        "────────────────────────────────────────────────────────────────────────────\n"
        "gpt2         50,257      10         1.60  3118 6667 11203 540 10545 245 98 …\n"
        "o200k_base  200,019       5         3.20  2265 9880 45794 17428 0\n"
        "\n"
        "16 characters, 20 bytes; 3 tokens in common, 2 places cut differently\n"
    )
    hinting = InProcess()
    for columns in (85, 86):
        page = hinting.ok(
            "tokenize",
            "Unbelievable 日本!",
            "--encoding",
            PAIR,
            COLUMNS=str(columns),
            suggestions=True,
        ).text
        assert ("105 0" in page, page.endswith("\n-f ndjson has all.\n")) == (
            columns == 86,
            columns == 85,
        )


def test_lines_begin_rows_and_texts_that_are_cut_alike_have_no_marks() -> None:
    ran = run.ok(
        "tokenize",
        "--lines",
        "--encoding",
        "gpt2",
        "--encoding",
        "cl100k_base",
        stdin="a b\n\n123\n",
    )
    assert ran.text.splitlines()[:7] == [
        "The text under 2 tokenizers",
        "line 1",
        "gpt2        a ␣b",
        "cl100k_base a ␣b",
        "line 3",
        "gpt2        123",
        "cl100k_base 123",
    ]
    assert ran.text.endswith("\n6 characters, 6 bytes; all cut it the same way\n")
    ran = run.ok(
        "tokenize", "--lines", "--encoding", PAIR, stdin="a\nUnbelievable \n", COLUMNS="40"
    )
    assert "line 2, char        5" in ran.text.splitlines()
    assert max(map(len, ran.text.splitlines())) <= 40


def test_of_a_long_text_the_page_has_what_is_cut_differently() -> None:
    text = "Every effort moves you. " * 40 + "Unbelievable!" + " Every effort moves you." * 40
    lines = run.ok("tokenize", text, "--encoding", PAIR, COLUMNS="60").text.splitlines()
    assert [line.split() for line in lines[2:5]] == [
        ["char", "965"],
        ["gpt2", "iev│able"],
        ["o200k_base", "ievable"],
    ]
    assert lines[-1] == "Left out: where all agree."
    for width in range(40, 60):
        page = run.ok("tokenize", MIXED, "--encoding", ",".join(NAMES), COLUMNS=str(width)).text
        assert max(map(wcswidth, page.splitlines())) <= width
    lines = run.ok(
        "tokenize", "Every effort moves you. " * 400, "--encoding", PAIR, COLUMNS="60"
    ).text.splitlines()
    assert lines[-1] == "Left out: the rest of the text."
    lines = run.ok(
        "tokenize", "Unbelievable! " * 400, "--encoding", PAIR, COLUMNS="60"
    ).text.splitlines()
    assert re.fullmatch(r"Left out: where all agree and \d+ more places\.", lines[-1])


def test_long_names_are_numbers_and_long_stretches_end_in_dots(
    saved: Callable[[str], Path],
) -> None:
    path = str(saved("word_pieces"))
    lines = run.ok(
        "tokenize", "effort moves", "--encoding", f"{path},gpt2", COLUMNS="40"
    ).text.splitlines()
    assert [line[:2] for line in lines[3:5]] == ["1 ", "2 "]
    assert [line.split()[0] for line in lines[6:10]] == ["encoding", lines[7].split()[0], "1", "2"]
    lines = run.ok(
        "tokenize", "Þ" * 80, "--encoding", f"{path},gpt2", COLUMNS="40"
    ).text.splitlines()
    assert [lines[3], lines[4][-1]] == ["1    [UNK]…", "…"]
    assert max(map(len, lines)) <= 40


def test_hostile_text_stays_in_its_cells() -> None:
    ran = run.ok("tokenize", "\x1b[31m\u202e[bold]│\x00\r\n\u0301", "--encoding", PAIR)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\u202e]", ran.text)
    assert "bold" in ran.text


def test_rows() -> None:
    document = json.loads(run.ok("tokenize", "a é", "--encoding", PAIR, "-f", "json").text)
    assert document["encodings"][1] == {
        "encoding": "o200k_base",
        "vocabulary_size": 200019,
        "tokens": 2,
        "characters_per_token": 1.5,
    }
    rows = [
        *csv.DictReader(
            io.StringIO(run.ok("tokenize", "a é", "--encoding", PAIR, "-f", "csv").text)
        )
    ]
    assert [
        (row["encoding"], row["token"], row["start"], row["end"], row["common"]) for row in rows
    ] == [
        ("gpt2", "a", "0", "1", "true"),
        ("gpt2", " é", "1", "3", "true"),
        ("o200k_base", "a", "0", "1", "true"),
        ("o200k_base", " é", "1", "3", "true"),
    ]


def test_rows_of_a_long_text_say_what_is_in_common() -> None:
    ran = run.ok("tokenize", "--encoding", PAIR, "-f", "csv", stdin=" Unbelievable" * 20_000)
    common = [
        row["common"] for row in csv.DictReader(io.StringIO(ran.text)) if row["encoding"] == "gpt2"
    ]
    assert {*common} == {"true", "false"}
    assert common == common[: len(common) // 20_000] * 20_000


def test_the_library_refuses_ids_and_no_names() -> None:
    with pytest.raises(InputError, match="only a text can be split"):
        embcli.tokenizers([1, 2], ["gpt2"])
    with pytest.raises(InputError, match="must name from 1 to 100 tokenizers, not 0"):
        embcli.tokenizers("x", [])
    assert embcli.tokenizers("Every effort", "gpt2").counts == [2]
    assert [*embcli.tokenizers("", ["gpt2"]).notes] == ["the input is empty: there are no tokens"]


def test_a_path_with_a_comma_is_one_name(saved: Callable[[str], Path], tmp_path: Path) -> None:
    path = tmp_path / "a,b.json"
    path.write_bytes(saved("word_pieces").read_bytes())
    assert run.ok("tokenize", "effort", "--encoding", str(path)).text.endswith(f"({path})\n")
    assert (
        "under 2 tokenizers"
        in run.ok("tokenize", "x", "--encoding", str(path), "--encoding", "gpt2").text
    )
