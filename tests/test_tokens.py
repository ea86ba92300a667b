"""Tokens: any text comes back from them, in sequences, and each is shown in a way that is its own."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len
from wcwidth import wcswidth

from embcli import encodings
from embcli.names import ENCODINGS
from embcli.text import Sequences
from embcli.tokens import Tokens, shown, token_text, tokenize

GPT2 = encodings.get("gpt2")
RANK_FILES = (
    "gpt2",
    "o200k_harmony",
)  # the first of OpenAI's, and the last with the most special tokens
TRICKY = "aé 日🤖\u0301\u200d🇨🇭👩\u0915\u093f\u1100\u1161\u202e\x00\x1b\x80\xa0\xad\\\n\r\t␣\U0010ffff[]/"
texts = st.text(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=60)
BIDI_CONTROLS = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}
HARMONY = encodings.get("o200k_harmony")
NUMBER_FORMATS = ["<|endofprompt|>", "<|reserved_200018|>", "<|return|>", " é", "🤖", "<|"]
named = st.lists(st.sampled_from(NUMBER_FORMATS)).map("".join)


def of_text(text: str, name: str = "gpt2", special: bool = False) -> Tokens:
    return tokenize(Sequences(texts=(text,)), encodings.get(name), special)


def of_lines(lines: list[str]) -> Tokens:
    return tokenize(Sequences(texts=tuple(lines), many=True), GPT2)


@given(texts, st.sampled_from(ENCODINGS))
def test_any_text_comes_back_from_its_tokens(text: str, name: str) -> None:
    result = of_text(text, name)
    assert b"".join(token or b"" for token in result.bytes_of(result.ids)) == text.encode()


@given(st.lists(texts, max_size=4))
def test_sequences_are_those_of_the_lines(lines: list[str]) -> None:
    result = of_lines(lines)
    encoded = [GPT2.tiktoken.encode_ordinary(line) for line in lines]
    sequence, position = result.places(np.arange(len(result)))
    assert result.ids.tolist() == [token for each in encoded for token in each]
    assert sequence.tolist() == [place for place, each in enumerate(encoded) for _ in each]
    assert position.tolist() == [place for each in encoded for place in range(len(each))]
    assert result.longest == max(map(len, encoded), default=0)
    assert result.sequences == len(lines)


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4), st.integers(1, 5))
def test_windows_cut_each_sequence(ids: list[list[int]], length: int) -> None:
    cut = tokenize(
        Sequences(ids=tuple(np.array(each, np.int64) for each in ids), many=True), None
    ).window(length)
    slices = [
        each[start : start + length]
        for each in ids
        for start in range(0, max(len(each), 1), length)
    ]
    starts = cut.starts.tolist()
    assert [cut.ids[start:stop].tolist() for start, stop in pairwise(starts)] == slices


@given(st.lists(st.sampled_from([b"\\", b"x", b"ff", b"e2", b"\xff", b"\xe2", b"a"])).map(b"".join))
def test_the_text_of_a_token_tells_its_bytes(token: bytes) -> None:
    text = token_text(token) or ""
    if not re.fullmatch(r"\\+x[0-9a-f]{2}(\\x[0-9a-f]{2})*", text):
        assert text.encode() == token
    elif text.startswith("\\\\"):
        assert text[1:].encode() == token
    else:
        assert bytes.fromhex(text.replace("\\x", "")) == token


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
            found += (
                _ONE[match["one"]]
                if match["one"]
                else chr(int(match["four"] or match["eight"], 16)).encode()
            )
        end = match.end()
    return found + text[end:].encode()


def harmless(text: str) -> bool:
    return text.isprintable() and " " not in text and not BIDI_CONTROLS & {*text}


@pytest.mark.parametrize("name", RANK_FILES)
def test_every_token_is_shown_in_its_own_way_and_in_a_known_width(name: str) -> None:
    encoding = encodings.get(name)
    every = [encoding.token_bytes(token_id) for token_id in range(encoding.vocabulary_size)]
    views = [shown(token) for token in every]
    assert [
        unshown(view) if token is not None else None
        for token, view in zip(every, views, strict=True)
    ] == every
    odd = [view for view in {*views} if not view.isascii()]
    assert [view for view in odd if cell_len(view) != wcswidth(view)] == []
    assert all(map(harmless, views))


@given(st.one_of(texts.map(str.encode), st.binary(max_size=12)))
@example(b"\xa0")
@example("\xa0".encode())
def test_what_is_shown_tells_the_bytes_and_its_width(token: bytes) -> None:
    view = shown(token)
    assert unshown(view) == token
    assert harmless(view)
    assert cell_len(view) == wcswidth(view)


@pytest.mark.parametrize("before", ["", "日"])
def test_every_character_is_shown_in_a_known_width(before: str) -> None:
    assigned = [
        code
        for code in range(0x110000)
        if unicodedata.category(chr(code)) not in ("Cs", "Cn", "Co")
    ]
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
