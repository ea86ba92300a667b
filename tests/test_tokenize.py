"""The verb `tokenize`: spans tile the text, rows say what tokens are, and only what is asked for is worked out."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from wcwidth import wcswidth

import embcli
from embcli import encodings
from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.page import export
from embcli.text import Sequences
from embcli.tokens import Tokens, tokenize
from embcli.verbs.tokenize import Tokenization
from tests.readers import from_ndjson, written
from tests.runners import InProcess
from tests.test_huggingface import MADE
from tests.test_tokens import GPT2, HARMONY, named, of_lines, of_text, texts


def decode(ids: np.ndarray, encoding: Encoding) -> bytes:
    return embcli.seeded(encoding=encoding.name).decode_bytes(ids)


def spans(result: Tokens) -> list[tuple[int, int]]:
    return [tuple(span) for span in Tokenization(result).spans.tolist()]


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


@given(named)
@example("a<|reserved_200018|>b<|endofprompt|>c")
def test_spans_tile_a_text_with_special_tokens_whichever_name_they_have(text: str) -> None:
    parts = re.split(r"(<\|\w+\|>)", text)  # a special token is a part
    ends = np.cumsum([0, *map(len, parts)])
    wanted: list[tuple[int, int]] = []
    for part, start in zip(parts, ends, strict=False):
        own = [HARMONY.token_bytes(at) or b"" for at in HARMONY.tiktoken.encode_ordinary(part)]
        inside = (
            [(0, len(part))] if part.startswith("<|") and part.endswith("|>") else slow_spans(own)
        )
        wanted += [(int(start) + first, int(start) + end) for first, end in inside]
    assert spans(of_text(text, "o200k_harmony", special=True)) == wanted


def test_a_special_token_that_is_read_as_text_is_named(in_process: InProcess) -> None:
    text, told = (
        "a <|endoftext|> <|unk|>",
        "embcli: <|endoftext|> is read as plain text; --special makes it one token\n",
    )
    assert [in_process("tokenize", text, *more).err for more in ((), ("--special",))] == [told, ""]


@given(st.lists(texts, max_size=4))
def test_spans_start_anew_in_each_line(lines: list[str]) -> None:
    encoded = [
        [GPT2.tiktoken.decode_single_token_bytes(i) for i in GPT2.tiktoken.encode_ordinary(s)]
        for s in lines
    ]
    assert spans(of_lines(lines)) == [span for sequence in encoded for span in slow_spans(sequence)]


@given(
    st.lists(st.lists(st.sampled_from([64, 97, 244, 10545, 12520, 50169]), max_size=8), max_size=4)
)
@example([[64], [97, 12520, 97, 244, 64]])
def test_spans_of_ids_that_begin_or_end_within_a_character(ids: list[list[int]]) -> None:
    result = tokenize(
        Sequences(ids=tuple(np.array(each, np.int64) for each in ids), many=True), GPT2
    )
    parts = [[GPT2.tiktoken.decode_single_token_bytes(token) for token in each] for each in ids]
    assert spans(result) == [span for sequence in parts for span in slow_spans(sequence)]


ROWS = {
    "sequence": [0, 0, 0, 0, 2],
    "position": [0, 1, 2, 3, 0],
    "id": [64, 10545, 245, 98, 65],
    "token": ["a", r"\x20\xe6", r"\x97", r"\xa5", "b"],
    "bytes": ["61", "20e6", "97", "a5", "62"],
    "start": [0, 1, 2, 2, 0],
    "end": [1, 3, 3, 3, 1],
}


def test_rows_say_what_the_tokens_are() -> None:
    records = Tokenization(of_lines(["a 日", "", "b"])).records()
    assert [*ROWS] == [*records.fields]
    (piece,) = records.pieces(records.fields, ())
    assert (
        piece.rows,
        {name: np.asarray(values).tolist() for name, values in piece.fields.items()},
    ) == (5, ROWS)
    assert records.run == {"embcli": embcli.__version__, "encoding": "gpt2", "sequences": 3}
    assert (records.rows, records.sequences) == (5, 3)


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
        lambda: decode(ids, encoding),
        lambda: Tokenization(tokenize(Sequences(ids=(ids,)), encoding)),
    ):
        with pytest.raises(
            InputError, match=f"^ID {wrong} at position 2 is not a token of {name}: {why}$"
        ):
            use()


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
]
NASTY += ["e\u0301\u0302 \u0301", "\ufeff\u2028\u2029\x85\x0b\x0c\x1b[31m", "🏳️‍🌈👩‍👩‍👧‍👦"]


@given(st.lists(st.one_of(st.sampled_from(NASTY), st.text(max_size=4)), max_size=8).map("".join))
def test_rows_have_the_bytes_and_the_place_of_any_text(text: str) -> None:
    records = Tokenization(of_text(text)).records()
    ids = GPT2.tiktoken.encode_ordinary(text)
    pieces = [GPT2.tiktoken.decode_single_token_bytes(token_id) for token_id in ids]
    rows = from_ndjson(written(records, "ndjson"))
    assert [(row["id"], row["bytes"]) for row in rows] == [
        (i, b.hex()) for i, b in zip(ids, pieces, strict=True)
    ]
    for row, piece in zip(rows, pieces, strict=True):
        is_whole = piece.decode(errors="ignore").encode() == piece
        assert row["token"] == (
            piece.decode() if is_whole else "".join(f"\\x{byte:02x}" for byte in piece)
        )
        assert piece in text[row["start"] : row["end"]].encode()


# --- the page ---------------------------------------------------------------------------------------------------------


def page(given: str | list[str], width: int = 80) -> str:
    """Return the page as a terminal of that width shows it, without its colours."""
    return export.text(embcli.seeded().tokenize(given), width, 24)


def test_the_page_has_rows_shared_characters_and_the_text_with_its_ids() -> None:
    assert page("Hi 日本!") == (
        "pos     token        ID  bytes  span\n"
        "────────────────────────────────────\n"
        "  0     Hi        17250  48 69  0:2\n"
        "  1  ╭  \\x20\\xe6  10545  20 e6  2:4\n"
        "  2  │  \\x97        245  97     3:4\n"
        "  3  ╰  \\xa5         98  a5     3:4\n"
        "  4  ╭  \\xe6\\x9c  17312  e6 9c  4:5\n"
        "  5  ╰  \\xac        105  ac     4:5\n"
        "  6     !             0  21     5:6\n"
        "\n"
        "6 characters, 10 bytes, 7 tokens, 0.86 characters per token (gpt2)\n"
        "日 is in tokens 1 to 3: \\x20\\xe6 + \\x97 + \\xa5\n"
        "本 is in tokens 4 to 5: \\xe6\\x9c + \\xac\n"
        "\n"
        "Hi    ␣日          本        !\n"
        "17250 10545 245 98 17312 105 0\n"
    )


def test_a_narrow_page_shortens_bytes_and_tokens_but_no_number_and_lines_begin_lines() -> None:
    printed = page(["Every effort", "", "you " + "=" * 32], 40)
    assert max(map(wcswidth, printed.splitlines())) <= 40
    table = printed.partition("\n\n")[0].splitlines()[2:]
    assert [row.split()[:2] for row in table[:3]] == [["0", "0"], ["0", "1"], ["2", "0"]]
    assert "…" in table[-1]
    assert table[-1].endswith(":36")
    text = printed.rstrip("\n").rpartition("\n\n")[2].splitlines()
    assert [line.split() for line in text[:4:2]] == [["Every", "␣effort"], text[2].split()]
    assert text[2].split()[0] == "you"


@pytest.mark.parametrize("width", [40, 57, 200])
def test_all_ids_of_a_text_stand_below_the_beginnings_of_their_tokens(width: int) -> None:
    text = (
        "Every internationalization effort, antidisestablishmentarianism aside, moves you 日本語 🤖\x1b[2J\n"
        * 3
    )
    *_, lines = page(text, width).rstrip("\n").rpartition("\n\n")
    above, below = lines.split("\n")[::2], lines.split("\n")[1::2]
    assert " ".join(below).split() == [*map(str, GPT2.tiktoken.encode_ordinary(text))]
    assert all(wcswidth(line) <= width for line in [*above, *below])
    for names, numbers in zip(above, below, strict=True):
        starts = {wcswidth(names[: match.start()]) for match in re.finditer(r"\S+", names)}
        assert starts <= {match.start() for match in re.finditer(r"\S+", numbers)}


@pytest.mark.parametrize(
    ("unit", "words", "rows"), [("word ", ["␣word"] * 99, 200), (" 日", ["␣日"] * 33, 200)]
)
def test_a_long_text_is_cut_in_the_middle_and_says_so(
    unit: str, words: list[str], rows: int
) -> None:
    printed = page(unit * 300)
    table, *_, text = printed.rstrip("\n").split("\n\n")
    above, below = (" ".join(text.split("\n")[part::2]).split() for part in (0, 1))
    total = len(GPT2.tiktoken.encode_ordinary(unit * 300))
    assert len(below) == rows
    assert f"({total - rows:,} of {total:,})." in table
    place = above.index("…")
    assert (
        above[place + 1 :][-len(words) - 1 :][: len(words)] == words
        or above[-len(words) :] == words
    )
    assert f"{total:,} tokens" in printed


def test_a_text_of_long_tokens_is_cut_before_its_rows_are() -> None:
    printed = page(" internationalization" * 90)
    lines = printed.rstrip("\n").rpartition("\n\n")[2].split("\n")
    assert lines[-2].endswith("…")
    assert sum(map(wcswidth, lines[::2])) <= 2000 + 80


def test_a_pipe_has_the_rows_and_not_the_text() -> None:
    result = embcli.seeded().tokenize("Every effort")
    assert str(result).endswith("2 tokens, 6.00 characters per token (gpt2)")
    assert page("Every effort").startswith(str(result))
    assert "0 characters, 0 bytes, 0 tokens (gpt2)" in page("")


def test_the_last_line_counts_the_text_and_not_the_tokens(tmp_path: Path) -> None:
    """A tokenizer of word pieces drops spaces."""
    MADE["word_pieces"]().save(str(tmp_path / "tokenizer.json"))
    result = embcli.seeded(encoding=str(tmp_path / "tokenizer.json")).tokenize(
        "Évery effort  moves"
    )
    assert "\n19 characters, 20 bytes, " in str(result)
