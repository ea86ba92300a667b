"""Counting tokens: the libraries that split texts say how many, and files of all kinds occur."""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections.abc import Callable
from functools import partial
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer

import embcli
from embcli import encodings
from embcli.errors import InputError
from embcli.text import lines_of
from embcli.verbs.count import Count, Counting, CountInput
from tests.cases import cases
from tests.readers import from_ndjson
from tests.runners import TIMEOUT
from tests.test_huggingface import SENTENCES, Saved, loaded, saved
from tests.test_vocabularies import GPT2, WORDS as OF_GGUF, bytes_level, written
from tests.transcripts import in_a_folder_of_its_own, session

__all__ = ["in_a_folder_of_its_own", "saved"]  # fixtures

OF_TIKTOKEN = ["gpt2", "p50k_base", "cl100k_base", "o200k_base"]
GPT2_ENCODING = encodings.get("gpt2")
WORDS = [
    *("every", "Effort", "moves", "you", "don't", "WE'LL", "naïve", "Straße", "12,345", "3.14"),
    *("日本語", "どんな", "Усилие", "👋🏽", "e\u0301", "<|endoftext|>", "<s>", "\\x", "{}", "\0"),
]
BLANKS = [*[" "] * 8, "\n", "\n", "\r\n", "  ", "\t", ".\n\n", "", "\u00a0", " \n ", "\r", "。"]


def random_text(chance: random.Random, words: int) -> str:
    """Return a text of words in several scripts, with blanks and line ends of all kinds."""
    parts = []
    for _ in range(words):
        parts += [chance.choice(WORDS), chance.choice(BLANKS)]
    return "".join(parts)


def write_files(folder: Path, count: int, seed: int, most_words: int = 300) -> list[str]:
    """Write files of different lengths; one in six has bytes that are mostly not UTF-8."""
    chance = random.Random(seed)
    paths = []
    for number in range(count):
        words = chance.choice((0, 1, 20, most_words))
        data = random_text(chance, words).encode()
        if chance.random() < 1 / 6:
            place = chance.randrange(len(data) + 1)
            data = data[:place] + chance.randbytes(3) + data[place:]
        path = folder / f"{number}.txt"
        path.write_bytes(data)
        paths.append(str(path))
    return paths


def text_of(path: str) -> str:
    return Path(path).read_bytes().decode("utf-8", "replace")


# --- against the libraries ------------------------------------------------------------------------


Oracle = Callable[[str], int]  # how many tokens a library makes of a text


def libraries(saved: Saved, folder: Path) -> dict[str, Oracle]:
    """Return tokenizers of six kinds, each with the count of its library."""
    found: dict[str, Oracle] = {}
    for name in OF_TIKTOKEN:
        theirs = encodings.get(name).tiktoken  # test_encodings.py holds it against the package.
        found[name] = lambda text, theirs=theirs: len(theirs.encode_ordinary(text))
    for kind in ("byte_level", "word_pieces", "metaspace"):
        path = saved(kind)
        tokenizer = loaded(path)
        tokenizer.encode_special_tokens = True
        found[str(path)] = lambda text, tokenizer=tokenizer: len(
            tokenizer.encode(text, add_special_tokens=False).ids
        )

    model = BytesIO()
    SentencePieceTrainer.train(
        sentence_iterator=iter(SENTENCES * 9), model_writer=model, vocab_size=31, minloglevel=9
    )
    path = folder / "tokenizer.model"
    path.write_bytes(model.getvalue())
    processor = SentencePieceProcessor(model_proto=model.getvalue())
    found[str(path)] = lambda text: len(processor.encode(text))

    gguf = written(folder / "v.gguf", "gpt2", OF_GGUF[:-2], **{**GPT2, "kinds": None})
    of_merges = bytes_level(ignore_merges=False, pattern=None)
    found[gguf] = lambda text: len(of_merges.encode(text).ids)
    return found


def test_the_counts_are_those_of_the_libraries(saved, tmp_path):
    oracles = libraries(saved, tmp_path)
    assert len(oracles) == 9
    paths = write_files(tmp_path, 40, seed=48)

    counts = embcli.count(paths=paths, encodings=oracles)

    for row, path in zip(counts.rows, paths, strict=True):
        text = text_of(path)
        expected = {name: oracle(text) for name, oracle in oracles.items()}
        assert row == Count(path, 1, expected, len(text), Path(path).stat().st_size)
    assert counts.total.tokens["gpt2"] == sum(row.tokens["gpt2"] for row in counts.rows)


def test_the_lines_have_the_counts_of_the_libraries(saved, tmp_path):
    oracles = libraries(saved, tmp_path)
    paths = write_files(tmp_path, 12, seed=49)

    counts = embcli.count(paths=paths, encodings=oracles, lines=True)

    expected = []
    for path in paths:
        for number, line in enumerate(lines_of(text_of(path)), 1):
            tokens = {name: oracle(line) for name, oracle in oracles.items()}
            expected.append((path, number, tokens, len(line)))
    assert [row[:4] for row in counts.rows] == expected


@given(st.binary(max_size=60))
def test_the_lines_of_bytes_are_those_of_their_text(data):
    data = data.replace(b"\1", b"\n").replace(b"\2", b"\r\n").replace(b"\3", "é日👋".encode())
    source = CountInput("a.txt", partial(BytesIO, data))
    text = data.decode("utf-8", "replace")
    (row,) = Counting((GPT2_ENCODING,)).rows([source])
    rows = [*Counting((GPT2_ENCODING,), lines=True).rows([source])]

    assert row[2:] == ({"gpt2": len(GPT2_ENCODING.encode(text))}, len(text), len(data))
    *lines, rest = data.split(b"\n")
    if rest:
        lines.append(rest)
    lines = [line.removesuffix(b"\r") for line in lines]
    texts = [line.decode("utf-8", "replace") for line in lines]
    assert [row.bytes for row in rows] == [*map(len, lines)]
    assert [row.characters for row in rows] == [*map(len, texts)]


# --- special tokens -------------------------------------------------------------------------------


def test_the_tokens_around_a_text_count_with_special(tmp_path):
    path = written(
        tmp_path / "m.gguf", "llama", ["<unk>", "<s>", "a"], add_bos_token=True, bos_token_id=1
    )
    for lines, texts in ((False, 1), (True, 3)):
        plain = embcli.count("a\n\na", encodings=path, lines=lines).total.tokens[path]
        special = embcli.count("a\n\na", encodings=path, lines=lines, special=True)
        assert special.total.tokens[path] == plain + texts


# --- files of all kinds ---------------------------------------------------------------------------


FILES = {
    "empty.txt": b"",
    "without-end.txt": b"Every effort\nmoves you",
    "crlf.txt": b"Every effort\r\n\r\nmoves you\r\n",
    "returns.txt": b"a\rb\r\r\nc\r",
    "nul.txt": b"a\0b\n\0\n",
    "bom.txt": b"\xef\xbb\xbfEvery\n",
    "latin.txt": b"na\xefve caf\xe9\n",
    "cut-off.txt": b"\xf0\x9f\x91",
}


def write_all() -> None:
    for name, data in FILES.items():
        Path(name).write_bytes(data)


def test_files_of_all_kinds_are_counted(in_process, snapshot):
    write_all()
    lines = [
        f"count {' '.join(FILES)}",
        f"count {' '.join(FILES)} --lines",
        "count empty.txt --lines",
        "count crlf.txt --lines -f tsv",
        "count latin.txt --encoding gpt2,cl100k_base,o200k_base --fail-above 4",
        f"count crlf.txt bom.txt --width 60 --encoding {','.join(OF_TIKTOKEN)}",
        "count without-end.txt --width 60 --encoding gpt2,cl100k_base,o200k_base",
        "count --text 'Every effort' --bare",
        "count missing.txt crlf.txt . --fail-above 2",
        "count missing.txt",
        "count missing.txt -f csv",
        "count 'Every effort'",
    ]
    snapshot("count/files.txt", session(in_process, *lines))


def test_an_unreadable_file_is_noted_and_the_others_are_counted(in_process, monkeypatch):
    for name in ("a.txt", "b.txt", "c.txt"):
        Path(name).write_text("Every effort\n")
    opened = Path.open

    def refuse(path: Path, *arguments: object, **options: object) -> object:
        if path.name == "b.txt":
            raise PermissionError(13, "Permission denied")
        return opened(path, *arguments, **options)

    monkeypatch.setattr(Path, "open", refuse)
    ran = in_process("count", "a.txt", "b.txt", "c.txt", "-f", "ndjson")

    assert ran.status == 2
    assert ran.err == "embcli: cannot count 'b.txt': Permission denied\n"
    assert [row["file"] for row in from_ndjson(ran.out)] == ["a.txt", "c.txt"]
    counts = embcli.count(paths=["a.txt", "b.txt", "c.txt"])
    assert (counts.status, len(counts.rows)) == (2, 2)
    assert [*counts.notes] == ["cannot count 'b.txt': Permission denied"]


@cases
def test_a_text_without_an_end_is_noted(options, in_process, monkeypatch):
    monkeypatch.setattr("embcli.verbs.count.LONGEST_TEXT", 1000)
    ran = in_process("count", "/dev/zero", *options, "-f", "csv")
    assert ran.status == 2
    assert "cannot count '/dev/zero': it gives more than 1.0 kB without an end\n" in ran.err


def test_a_name_that_is_not_utf8_is_counted(in_process):
    Path(os.fsdecode(b"fol\xe9der")).mkdir()
    Path(os.fsdecode(b"fol\xe9der/na\xefve.txt")).write_text("Every effort\n")
    row = json.loads(in_process.ok("count", b"fol\xe9der/na\xefve.txt", "-f", "ndjson").out)
    assert row["file"] == r"fol\xe9der/na\xefve.txt"
    assert row["tokens"] == {"gpt2": 3}


def test_hostile_names_reach_no_terminal_raw(in_process):
    name = "[bold]\x1b[31m\u202e.txt"
    Path(name).write_text("a")
    ran = in_process("count", name, f"{name}x", terminal=True, error_terminal=True)
    assert "[bold]\\u001b[31m\\u202e.txt" in ran.text
    assert "\x1b[31m" not in ran.text + ran.err
    assert "\u202e" not in ran.text + ran.err


# --- what is given --------------------------------------------------------------------------------


def test_standard_input_is_counted_by_default_and_for_a_dash(in_process):
    text = "Every effort\r\nmoves you"
    for words in ([], ["-"]):
        (row,) = from_ndjson(in_process.ok("count", *words, "-f", "ndjson", stdin=text).out)
        assert row == {"file": "-", "tokens": {"gpt2": 7}, "characters": 23, "bytes": 23}


def test_a_text_may_have_bytes_that_are_not_utf8(in_process):
    ran = in_process("count", "--text", b"caf\xe9", "-f", "ndjson")
    assert json.loads(ran.out) == {
        "file": None,
        "tokens": {"gpt2": len(encodings.get("gpt2").encode("caf\ufffd"))},
        "characters": 4,
        "bytes": 4,
    }
    assert ran.err == "embcli: the text is not UTF-8: it is counted with replacement characters\n"


def test_rows_are_written_while_lines_come(process):
    """They fill the pipe's buffer long before the last line."""
    count = process.start(
        "count", "--lines", "-f", "ndjson", stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    count.stdin.write(b"Every effort moves you\n" * 1000)
    count.stdin.flush()
    first = count.stdout.readline()
    out, _ = count.communicate(b"the last\n", timeout=TIMEOUT)
    assert json.loads(first)["line"] == 1
    assert json.loads(out.splitlines()[-1])["line"] == 1001


def test_many_lines_are_a_piece_of_data():
    counts = embcli.count("a b\n" * 600, lines=True)
    pieces = [*counts._records().pieces(("line", "tokens"), ())]
    assert len(pieces) < 10
    lines = [line for piece in pieces for line in piece.fields["line"]]
    assert lines == [*range(1, 601)]


def test_a_command_without_files_on_a_terminal_is_refused(terminal):
    ran = terminal("count")
    assert ran.status == 2
    assert "no FILE given and nothing is piped in, as in: embcli count book.txt" in ran.text


@cases
def test_a_long_page_leaves_out_rows_in_the_middle(in_process, files):
    lines = "".join(f"{number} effort\n" for number in range(files))
    page = in_process.ok("count", "--lines", stdin=lines).text
    rows = [line.split() for line in page.splitlines() if line.startswith("-")]
    numbers = [int(row[1]) for row in rows]
    expected = [*range(1, files + 1)]
    assert numbers == (expected if files <= 200 else expected[:100] + expected[-100:])
    total = [line.split()[2] for line in page.splitlines() if line.startswith("total")]
    tokens = embcli.count(lines, lines=True).total.tokens["gpt2"]
    assert total == ([f"{tokens:,}"] if files > 1 else [])
    assert ("Left out: 100 rows." in page) == (files == 300)


@cases
def test_the_status_says_whether_a_row_has_more_tokens(in_process, limit, status):
    Path("a.txt").write_text("Every effort\n\nmoves")
    ran = in_process("count", "a.txt", "--lines", "--fail-above", str(limit), "-f", "csv")
    counts = embcli.count(paths="a.txt", lines=True, fail_above=limit)
    note = "2 lines with more than 1 token" if limit else "2 lines with more than 0 tokens"
    assert ran.status == counts.status == status
    assert ran.err == (f"embcli: {note}\n" if status else "")
    assert [*counts.notes] == ([note] if status else [])


def test_wrong_values_are_refused(in_process):
    Path("a.txt").write_text("a")
    refused = in_process.refused("count", "a.txt", "--fail-above", "-1")
    assert refused == "embcli: --fail-above must be at least 0, not -1\n"
    refused = in_process.refused("count", "a.txt", "--text", "a")
    assert "FILE and --text stand for the same input" in refused
    refused = in_process.refused("count", "a.txt", "--encoding", "gpt2,gpt2")
    assert "names gpt2 twice" in refused
    refused = in_process.refused("count", "a.txt", "-o", "a.txt")
    assert "is read by this command" in refused
    with pytest.raises(InputError, match="must name a tokenizer"):
        embcli.count("a", encodings=[])


def test_an_encoding_that_cannot_split_is_refused_before_any_file_is_read(
    in_process,
):
    written(Path("m.gguf"), "rwkv", ["a", "b"])
    refused = in_process.refused("count", "missing.txt", "--encoding", "./m.gguf")
    assert "cannot split a text" in refused
    assert "missing.txt" not in refused
