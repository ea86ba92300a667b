"""The page of `tokenize`: one row per token that fits, and below it the text as one reads it, with the IDs under it."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
import tiktoken
from wcwidth import wcswidth

from embcli import encodings
from embcli.oldpage import TOKEN_TONES
from embcli.tokens import shown
from tests.conftest import Embcli
from tests.inside import Inside
from tests.screen import Styled, bare, drawn, styled, words

TRUECOLOR = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
LONG = "Every internationalization effort, antidisestablishmentarianism aside, moves you 日本語 🤖\x1b[2J\n" * 3


@pytest.fixture(scope="module")
def gpt2() -> tiktoken.Encoding:
    return encodings.get("gpt2").tiktoken


def on_screen(*arguments: str, width: int = 80, stdin: str = "") -> str:
    return Inside(terminal=True).ok("tokenize", *arguments, stdin=stdin, COLUMNS=str(width), **TRUECOLOR).text


def text_part(printed: str) -> list[str]:
    """Return the lines of the text with its IDs: what stands below the last blank line."""
    return printed.rstrip("\n").rpartition("\n\n")[2].split("\n")


def row_part(printed: str) -> list[str]:
    return printed.partition("\n\n")[0].partition("\nLeft out")[0].split("\n")[2:]


def of_rows(printed: str) -> list[Styled]:
    """Return the token of each row, in the colour it has there."""
    tokens = [[word for word in styled(row) if word.color] for row in row_part(printed)]
    assert all(len(each) == 1 for each in tokens)
    return [Styled(word.text.strip(), word.codes) for ((word),) in tokens]


def of_text(printed: str) -> tuple[list[Styled], list[Styled]]:
    """Return the words of the text and the numbers under them."""
    lines = text_part(printed)
    return words("\n".join(lines[::2]), ".+"), words("\n".join(lines[1::2]), r"[0-9 ]+")


def test_the_text_stands_below_in_the_colours_of_the_rows_with_its_ids(gpt2: tiktoken.Encoding) -> None:
    printed = on_screen("Every effort moves you, the more the better")
    ids = gpt2.encode_ordinary("Every effort moves you, the more the better")
    tokens, numbers = of_text(printed)
    assert tokens == of_rows(printed)
    assert [word.text for word in tokens] == [shown(gpt2.decode_single_token_bytes(each)) for each in ids]
    assert [word.text for word in numbers] == [*map(str, ids)]
    assert [word.codes for word in numbers] == [word.codes for word in tokens]
    assert len({word.color for word in tokens}) == len(TOKEN_TONES) >= 4
    assert all(one.color != other.color for one, other in pairwise(tokens))


def test_each_id_stands_under_the_beginning_of_its_token() -> None:
    above, under = text_part(bare(on_screen("Every effort moves you")))
    starts = [match.start() for match in re.finditer(r"\S+", above)]
    assert starts == [match.start() for match in re.finditer(r"\S+", under)]


def test_tokens_that_share_a_character_stand_as_one(gpt2: tiktoken.Encoding) -> None:
    printed = on_screen("Hi 日本!")
    tokens, numbers = of_text(printed)
    assert [word.text for word in tokens] == ["Hi", "␣日", "本", "!"]
    assert " ".join(word.text for word in numbers).split() == [*map(str, gpt2.encode_ordinary("Hi 日本!"))]
    assert [word.text for word in numbers][1] == "10545 245 98"
    assert [word.codes for word in numbers] == [word.codes for word in tokens]


@pytest.mark.parametrize("width", [40, 57, 80, 200])
def test_nothing_is_wider_than_the_terminal_and_all_tokens_are_there(width: int, gpt2: tiktoken.Encoding) -> None:
    printed = on_screen("-", width=width, stdin=LONG)
    terminal = drawn(printed.replace("\n", "\r\n"), width, 400)
    assert terminal.text.split() == bare(printed).split()  # the terminal broke no line
    assert "\x1b" not in bare(printed)
    ids = gpt2.encode_ordinary(LONG)
    assert " ".join(word.text for word in of_text(printed)[1]).split() == [*map(str, ids)]
    assert len(row_part(printed)) == len(ids)
    # On a narrow page a word or a number alone may be wider, and only then.
    for line in text_part(bare(printed)):
        assert wcswidth(line.rstrip()) <= width or " " not in line.strip()


def test_columns_are_shortened_where_they_are_too_wide(gpt2: tiktoken.Encoding) -> None:
    text = "antidisestablishmentarianism                                        internationalization " + "=" * 64
    ids = gpt2.encode_ordinary(text)
    narrow, wide = (Inside().ok("tokenize", text, COLUMNS=str(width)).text for width in (40, 300))
    rows = [row_part(narrow), row_part(wide)]
    assert max(map(wcswidth, narrow.split("\n\n")[0].split("\n"))) <= 40
    for (short, long), token_id in zip(zip(*rows, strict=True), ids, strict=True):
        token = gpt2.decode_single_token_bytes(token_id)
        assert shown(token) in long
        assert token.hex(" ") in long
        assert str(token_id) in short.split()  # numbers are never shortened
        assert re.search(r"\d+:\d+$", short)[0] == re.search(r"\d+:\d+$", long)[0]
    assert "…" in narrow
    assert "…" not in wide


def test_a_shortened_row_of_bytes_has_whole_bytes() -> None:
    (row,) = row_part(Inside().ok("tokenize", "=" * 64, COLUMNS="60").text)
    *_, size, cut, span = re.split(" {2,}", row)
    assert (size, span) == (str(encodings.get("gpt2").tiktoken.encode_ordinary("=" * 64)[0]), "0:64")
    assert re.fullmatch("(3d )+…(3d ?)+", cut)


@pytest.mark.parametrize("count", [10, 300, 2000])
def test_a_long_text_is_cut_and_says_so(count: int) -> None:
    printed = bare(on_screen("-", stdin="word " * count))
    words, numbers = (" ".join(text_part(printed)[part::2]).split() for part in (0, 1))
    cells = sum(map(wcswidth, text_part(printed)[::2]))
    assert cells <= 2000 + 80
    assert ("rows" in printed) == (count > 200)
    if count <= 200:
        assert (len(words), len(numbers)) == (count + 1, count + 1)
    else:
        assert words == ["word", *["␣word"] * 99, "…", *["␣word"] * 99, "␣"]  # what is left out is told here, too
        assert len(numbers) == 200
        assert len(row_part(printed)) == 201  # one of them dots
        assert f"({count - 199:,} of {count + 1:,})." in printed
    assert f"{5 * count:,} characters, {5 * count:,} bytes, {count + 1:,} tokens" in printed


def test_a_text_of_long_tokens_is_cut_before_its_rows_are() -> None:
    printed = bare(on_screen("-", stdin=" internationalization" * 90))
    assert len(row_part(printed)) == 180
    lines = text_part(printed)
    assert lines[-2].rstrip().endswith("…")
    assert sum(map(wcswidth, lines[::2])) <= 2000 + 80


def test_a_character_is_not_joined_over_what_is_left_out() -> None:
    printed = bare(on_screen("-", stdin=" 日" * 90))  # three tokens each, of which the 100 in the middle are not shown
    words, numbers = (" ".join(text_part(printed)[part::2]).split() for part in (0, 1))
    assert words == [*["␣日"] * 33, "\\x20\\xe6", "…", "\\xa5", *["␣日"] * 33]
    assert len(numbers) == 200


def test_a_sequence_begins_a_line_of_its_own() -> None:
    printed = bare(on_screen("--lines", stdin="Every effort\nthe\n\nyou too\n"))
    assert [line.split() for line in text_part(printed)[::2]] == [["Every", "␣effort"], ["the"], ["you", "␣too"]]
    assert [row.split()[:2] for row in row_part(printed)] == [
        ["0", "0"],
        ["0", "1"],
        ["1", "0"],
        ["3", "0"],
        ["3", "1"],
    ]


def test_a_pipe_has_the_rows_and_not_the_text(inside: Embcli) -> None:
    printed = inside.ok("tokenize", "Every effort").text
    assert printed.rstrip("\n").endswith("2 tokens, 6.00 characters per token (gpt2)")
    assert bare(on_screen("Every effort")).startswith(printed)


def test_no_tokens_have_no_text() -> None:
    ran = Inside(terminal=True)("tokenize", "--ids", "", COLUMNS="80", **TRUECOLOR)
    printed = bare(ran.text)
    assert ran.status == 0
    assert "0 characters, 0 bytes, 0 tokens (gpt2)" in printed
    assert len(printed.split("\n\n")) == 2
