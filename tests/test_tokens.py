"""Tokens: any text comes back from them, their spans tile it, and each is shown in a way that is its own."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcswidth

from embcli import encodings, tokens
from embcli.errors import InputError
from embcli.text import Given
from embcli.tokens import Tokenization, Tokens, shown, token_text, tokenize

GPT2 = encodings.get("gpt2")
untimed = settings(deadline=None)
RANK_FILES = ("gpt2", "p50k_base", "cl100k_base", "o200k_harmony")  # every rank file and every special token
TRICKY = "aé 日🤖\u0301\u200d🇨🇭👩\u0915\u093f\u1100\u1161\u202e\x00\x1b\x80\xa0\xad\\\n\r\t␣\U0010ffff[]/"
texts = st.text(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=60)
BIDI_CONTROLS = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def of_text(text: str, name: str = "gpt2") -> Tokens:
    return tokenize(Given(texts=(text,)), encodings.get(name))


def of_lines(lines: list[str]) -> Tokens:
    return tokenize(Given(texts=tuple(lines), lines=True), GPT2)


def spans(result: Tokens) -> list[tuple[int, int]]:
    stretches = list(Tokenization(result).stretches())
    return [(int(start), int(end)) for each in stretches for start, end in zip(each.start, each.end, strict=True)]


def slow_spans(sequence: list[bytes]) -> list[tuple[int, int]]:
    """Number the characters byte by byte: each token goes from the one of its first byte to that of its last."""
    character, numbers = -1, []
    for byte in b"".join(sequence):
        character += not 0x80 <= byte <= 0xBF
        numbers.append(character)
    found, place = [], 0
    for token in sequence:
        found.append((max(numbers[place], 0), numbers[place + len(token) - 1] + 1))
        place += len(token)
    return found


@untimed
@given(texts, st.sampled_from(list(encodings.DEFINITIONS)))
def test_any_text_comes_back_from_its_tokens(text: str, name: str) -> None:
    result = of_text(text, name)
    assert tokens.decode(result.ids, encodings.get(name)) == text.encode()
    assert b"".join(token or b"" for token in result.bytes_of(result.ids)) == text.encode()


@untimed
@given(texts, st.sampled_from(["gpt2", "o200k_base"]), st.integers(1, 5))
@example("🤖 日本 e\u0301 🇨🇭", "gpt2", 1)
def test_spans_tile_the_text(text: str, name: str, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "PIECE", piece)
        stretches = list(Tokenization(of_text(text, name)).stretches())
    found = [span for each in stretches for span in zip(each.start.tolist(), each.end.tolist(), strict=True)]
    parts = [token for each in stretches for token in each.tokens]
    joined = [flag for each in stretches for flag in each.joined.tolist()]
    assert sum(each.characters for each in stretches) == len(text)
    end = 0
    for (start, stop), token, shares in zip(found, parts, joined, strict=True):
        assert start == end - shares  # in order, without a gap, and shared is just the one character that is split
        assert token in text[start:stop].encode()
        assert shares == (0x80 <= token[0] <= 0xBF)
        end = stop
    assert end == len(text)


@untimed
@given(st.lists(texts, max_size=4), st.integers(1, 9))
def test_spans_start_anew_in_each_line(lines: list[str], piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "PIECE", piece)
        found = spans(of_lines(lines))
    encoded = [[GPT2.tiktoken.decode_single_token_bytes(i) for i in GPT2.tiktoken.encode_ordinary(s)] for s in lines]
    assert found == [span for sequence in encoded for span in slow_spans(sequence)]


@untimed
@given(
    st.lists(st.lists(st.sampled_from([64, 97, 244, 10545, 12520, 50169]), max_size=8), max_size=4), st.integers(1, 5)
)
@example([[64], [97, 12520, 97, 244, 64]], 1)
def test_spans_of_ids_that_begin_or_end_within_a_character(ids: list[list[int]], piece: int) -> None:
    result = tokenize(Given(ids=tuple(np.array(each, np.int64) for each in ids), lines=True), GPT2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokens, "PIECE", piece)
        found = spans(result)
    parts = [[GPT2.tiktoken.decode_single_token_bytes(token) for token in each] for each in ids]
    assert found == [span for sequence in parts for span in slow_spans(sequence)]


def test_spans_across_the_real_stretches() -> None:
    text = "日🤖 word\n" * 2500
    result = of_text(text)
    stretches = list(Tokenization(result).stretches())
    assert len(stretches) > 3
    assert {len(each.tokens) for each in stretches[:-1]} == {tokens.PIECE}
    assert any(each.joined[0] for each in stretches[1:])  # a border within a character
    assert spans(result) == slow_spans([token for each in stretches for token in each.tokens])


@untimed
@given(st.lists(texts, max_size=4))
def test_sequences_are_those_of_the_lines(lines: list[str]) -> None:
    result = of_lines(lines)
    encoded = [GPT2.tiktoken.encode_ordinary(line) for line in lines]
    sequence, position = result.places(np.arange(len(result)))
    assert result.ids.tolist() == [token for each in encoded for token in each]
    assert sequence.tolist() == [place for place, each in enumerate(encoded) for _ in each]
    assert position.tolist() == [place for each in encoded for place in range(len(each))]
    assert result.longest == max(map(len, encoded), default=0)


@untimed
@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4), st.integers(1, 5))
def test_windows_cut_each_sequence(ids: list[list[int]], length: int) -> None:
    cut = tokenize(Given(ids=tuple(np.array(each, np.int64) for each in ids), lines=True), None).window(length)
    slices = [each[start : start + length] for each in ids for start in range(0, max(len(each), 1), length)]
    starts = cut.starts.tolist()
    assert [cut.ids[start:stop].tolist() for start, stop in pairwise(starts)] == slices


def test_rows_say_what_the_tokens_are() -> None:
    (piece,) = Tokenization(of_lines(["a 日", "", "b"])).pieces()
    assert {name: np.asarray(values).tolist() for name, values in piece.fields().items()} == {
        "sequence": [0, 0, 0, 0, 2],
        "position": [0, 1, 2, 3, 0],
        "id": [64, 10545, 245, 98, 65],
        "token": ["a", r"\x20\xe6", r"\x97", r"\xa5", "b"],
        "bytes": ["61", "20e6", "97", "a5", "62"],
        "start": [0, 1, 2, 2, 0],
        "end": [1, 3, 3, 3, 1],
    }


@pytest.mark.parametrize(
    ("token", "text"),
    [(None, None), (b"", ""), (b" the\x00", " the\x00"), ("é".encode(), "é"), (b"\xe2\x80", r"\xe2\x80")],
)
def test_token_text(token: bytes | None, text: str | None) -> None:
    assert token_text(token) == text


@pytest.mark.parametrize(
    ("name", "wrong", "why"),
    [
        ("gpt2", 50257, "IDs go from 0 to 50256"),
        ("gpt2", -1, "IDs go from 0 to 50256"),
        ("cl100k_base", 100256, "this ID is not used"),
        ("o200k_base", 200019, "IDs go from 0 to 200018"),
    ],
)
def test_ids_without_a_token_are_refused(name: str, wrong: int, why: str) -> None:
    encoding, ids = encodings.get(name), np.array([1, 2, wrong, wrong])
    for use in (
        lambda: tokens.decode(ids, encoding),
        lambda: Tokenization(tokenize(Given(ids=(ids,)), encoding)),
    ):
        with pytest.raises(InputError, match=f"^ID {wrong} at position 2 is no token of {name}: {why}$"):
            use()


_ESCAPE = re.compile(
    r"(?P<byte>\\x(?P<two>[0-9a-f]{2}))|\\u(?P<four>[0-9a-f]{4})|\\U(?P<eight>[0-9a-f]{8})|\\(?P<one>[ntr\\])|(?P<space>␣)",
)
_ONE = {"n": b"\n", "t": b"\t", "r": b"\r", "\\": b"\\"}


def unshown(text: str) -> bytes:
    """Turn what is shown back into the token's bytes."""
    found, end = b"", 0
    for match in _ESCAPE.finditer(text):
        found += text[end : match.start()].encode()
        if match["byte"]:
            found += bytes.fromhex(match["two"])
        elif match["space"]:
            found += b" "
        else:
            found += _ONE[match["one"]] if match["one"] else chr(int(match["four"] or match["eight"], 16)).encode()
        end = match.end()
    return found + text[end:].encode()


def harmless(text: str) -> bool:
    return text.isprintable() and " " not in text and not BIDI_CONTROLS & {*text}


@pytest.mark.parametrize("name", RANK_FILES)
def test_every_token_is_shown_in_its_own_way_and_in_a_known_width(name: str) -> None:
    encoding = encodings.get(name)
    every = [encoding.token_bytes(token_id) for token_id in range(encoding.vocabulary_size)]
    views = [shown(token) for token in every]
    assert [unshown(view) if token is not None else None for token, view in zip(every, views, strict=True)] == every
    odd = [view for view in {*views} if not view.isascii()]
    assert [view for view in odd if cell_len(view) != wcswidth(view)] == []
    assert all(map(harmless, views))


@untimed
@given(st.one_of(texts.map(str.encode), st.binary(max_size=12)))
@example(b"\xa0")
@example("\xa0".encode())
def test_what_is_shown_tells_the_bytes_and_its_width(token: bytes) -> None:
    view = shown(token)
    assert unshown(view) == token
    assert harmless(view)
    assert cell_len(view) == wcswidth(view)


@pytest.mark.parametrize("before", ["", "a", " ", "日"])
def test_every_character_is_shown_in_a_known_width(before: str) -> None:
    assigned = [code for code in range(0x110000) if unicodedata.category(chr(code)) not in ("Cs", "Cn", "Co")]
    views = [shown((before + chr(code)).encode()) for code in assigned]
    assert [view for view in views if not harmless(view)] == []
    assert [view for view in views if not view.isascii() and cell_len(view) != wcswidth(view)] == []


@pytest.mark.parametrize(
    ("token", "view"),
    [
        (None, ""),
        (b" effort", "␣effort"),
        (b"[bold red]x[/]", "[bold␣red]x[/]"),
        (b"\x1b[2J\x00\x7f", r"\x1b[2J\x00\x7f"),
        (b"a\\n\n\r\t", r"a\\n\n\r\t"),
        ("␣".encode(), r"\u2423"),
        (b"\xa0", r"\xa0"),
        ("\xa0\x85\xad".encode(), r"\u00a0\u0085\u00ad"),
        ("e\u0301".encode(), "e\u0301"),
        ("\u0301".encode(), r"\u0301"),
        (" \u0301".encode(), r"␣\u0301"),
        ("日本語🤖".encode(), "日本語🤖"),
        ("👩\u200d💻".encode(), r"👩\u200d💻"),
        ("🇨🇭".encode(), r"\U0001f1e8\U0001f1ed"),
        ("👍🏽".encode(), r"👍\U0001f3fd"),
        ("❤\ufe0f".encode(), r"❤\ufe0f"),
        ("का".encode(), r"क\u093e"),
        ("क्ष".encode(), r"क\u094dष"),
        (b"\xe2\x80", r"\xe2\x80"),
    ],
)
def test_shown(token: bytes | None, view: str) -> None:
    assert shown(token) == view


def test_windows_keep_empty_sequences_and_their_order() -> None:
    windows = of_lines(["a b c", "", "d"]).window(2)
    assert windows.starts.tolist() == [0, 2, 3, 3, 4]
    assert windows.places(np.arange(4))[0].tolist() == [0, 0, 1, 3]
