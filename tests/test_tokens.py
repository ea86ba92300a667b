"""Tokens: each knows its sequence and its place, and is shown in a way that is its own."""

from __future__ import annotations

import re
import unicodedata
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from rich.cells import cell_len
from wcwidth import wcswidth, wcwidth

from embcli import encodings
from embcli.encodings.merging import piece_to_bytes
from embcli.text import Sequences, encode_sequences
from embcli.tokens import Tokens, shown, token_text
from tests.cases import cases

GPT2 = encodings.get("gpt2")
HARMONY = encodings.get("o200k_harmony")
TRICKY = (
    "aé 日🤖\u0301\u200d🇨🇭👩\u0915\u093f\u1100\u1161\u202e\x00\x1b\x80\xa0\xad"
    "\\\n\r\t␣\U0010ffff[]/"
)
BIDI_CONTROLS = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}

texts = st.text(st.one_of(st.sampled_from(TRICKY), st.characters(codec="utf-8")), max_size=60)
id_lists = st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4)


def of_text(text: str, name: str = "gpt2", special: bool = False) -> Tokens:
    return encode_sequences(Sequences(texts=(text,)), encodings.get(name), special)


def of_lines(lines: list[str]) -> Tokens:
    return encode_sequences(Sequences(texts=tuple(lines), many=True), GPT2)


def id_sequences(lists: list[list[int]]) -> Sequences:
    arrays = [np.array(ids, np.int64) for ids in lists]
    return Sequences(ids=tuple(arrays), many=True)


@pytest.mark.parametrize("write", [shown, token_text])
def test_the_token_of_a_byte_does_not_look_like_that_of_a_letter(write):
    assert write(piece_to_bytes(b"A")) == "A"
    assert write(piece_to_bytes(b"<0x41>")) == r"\x41"
    assert piece_to_bytes(b"<0x41>") == b"A", "it decodes to the letter"


@given(st.lists(texts, max_size=4))
def test_sequences_are_those_of_the_lines(lines):
    ids = []
    places = []
    longest = 0
    for number, line in enumerate(lines):
        for position, token_id in enumerate(GPT2.tiktoken.encode_ordinary(line)):
            ids.append(token_id)
            places.append([number, position])
            longest = max(longest, position + 1)

    result = of_lines(lines)
    found = result.places(np.arange(len(result)))
    assert result.ids.tolist() == ids
    assert np.transpose(found).tolist() == places
    assert result.longest == longest
    assert result.sequences == len(lines)


@given(id_lists, st.integers(1, 5))
def test_windows_cut_each_sequence(lists, length):
    cut = encode_sequences(id_sequences(lists), None).window(length)

    expected = []
    for ids in lists:
        last = max(len(ids), 1)  # An empty sequence is a window, too.
        for start in range(0, last, length):
            expected.append(ids[start : start + length])
    bounds = pairwise(cut.starts.tolist())
    assert [cut.ids[start:stop].tolist() for start, stop in bounds] == expected


# --- the text of a token --------------------------------------------------------------------------


@given(st.lists(st.sampled_from([b"\\", b"x", b"ff", b"e2", b"\xff", b"\xe2", b"a"])).map(b"".join))
def test_the_text_of_a_token_tells_its_bytes(token):
    text = token_text(token) or ""

    if not re.fullmatch(r"\\+x[0-9a-f]{2}(\\x[0-9a-f]{2})*", text):
        assert text.encode() == token
    elif text.startswith("\\\\"):
        assert text[1:].encode() == token
    else:
        assert bytes.fromhex(text.replace("\\x", "")) == token


# --- what is shown --------------------------------------------------------------------------------

_ESCAPE = re.compile(
    rb"\\x(?P<byte>[0-9a-f]{2})|\\u(?P<four>[0-9a-f]{4})|\\U(?P<eight>[0-9a-f]{8})"
    rb"|\\(?P<letter>[ntr\\])|(?P<circle>" + "◌)|␣".encode()
)
_LETTERS = {b"n": b"\n", b"t": b"\t", b"r": b"\r", b"\\": b"\\"}


def unshown(text: str) -> bytes:
    """Turn what is shown back into the token's bytes."""

    def unescaped(match: re.Match[bytes]) -> bytes:
        if match["byte"]:
            return bytes.fromhex(match["byte"].decode())
        if match["letter"]:
            return _LETTERS[match["letter"]]
        if match["circle"]:
            return b""
        code = match["four"] or match["eight"]
        return chr(int(code, 16)).encode() if code else b" "

    return _ESCAPE.sub(unescaped, text.encode())


def is_harmless(text: str) -> bool:
    return text.isprintable() and " " not in text and not BIDI_CONTROLS & {*text}


def has_known_width(text: str) -> bool:
    return text.isascii() or cell_len(text) == wcswidth(text)


# All tokens of the first encoding of OpenAI, and some of the last one, which has four times more.
@cases
def test_every_token_is_shown_in_its_own_way_and_in_a_known_width(name, step):
    encoding = encodings.get(name)

    for token_id in range(0, encoding.vocabulary_size, step):
        token = encoding.token_bytes(token_id)
        view = shown(token)
        assert unshown(view) == (token or b"")
        assert is_harmless(view)
        assert has_known_width(view), view


@given(st.one_of(texts.map(str.encode), st.binary(max_size=12)))
@example(b"\xa0")
@example("\xa0".encode())
def test_what_is_shown_tells_the_bytes_and_its_width(token):
    view = shown(token)

    assert unshown(view) == token
    assert is_harmless(view)
    assert cell_len(view) == wcswidth(view)


def is_assigned(character: str) -> bool:
    """Whether a character is assigned; of ideographs and syllables, all alike, some count."""
    category = unicodedata.category(character)
    if category == "Lo" and wcwidth(character):
        return ord(character) % 16 == 0
    return category not in ("Cs", "Cn", "Co")


def test_every_character_is_shown_in_a_known_width():
    for character in filter(is_assigned, map(chr, range(0x110000))):
        for before in ("", "日"):
            view = shown((before + character).encode())
            assert is_harmless(view), view
            assert has_known_width(view), view


@cases
def test_bytes_are_shown(token, view):
    assert shown(token.encode("latin-1")) == view


@cases
def test_characters_are_shown(token, view):
    assert shown(token.encode()) == view


def test_an_id_without_a_token_is_shown_as_nothing():
    assert shown(None) == ""
