"""Bad input is refused in a line or two that name what is wrong; strange but good input is not."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pexpect
import pytest
import safetensors.numpy
import torch

from embcli import encodings
from embcli.formats import FORMATS, Kind, able
from tests.conftest import TIMEOUT, Embcli
from tests.inside import Inside

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = "9" * 5000
TOY = ("--vocab", "6", "--dim", "3")


@pytest.fixture
def inside() -> Embcli:
    return Inside()


BAD = [
    # IDs: negative, no numbers, beyond V
    ("lookup --ids -1", "ID -1 at position 0 is negative"),
    ("lookup --ids 2,3,-5,1", "ID -5 at position 2 is negative"),
    ("lookup --ids 2,three", "'three' at position 1 is not a token ID"),
    ("lookup --ids 2.5", "'2.5' at position 0 is not a token ID"),
    (f"lookup --ids 1,{DIGITS}", f"ID {DIGITS[:60]} at position 1 is beyond any vocabulary"),
    ("lookup --ids 5,6 --vocab 6 --dim 3", "ID 6 at position 1 has no row", "V = 6", "from 0 to 5", "--vocab 7"),
    ("lookup --ids 50257", "ID 50257 at position 0", "V = 50,257", "from 0 to 50256"),
    ("lookup --ids 9223372036854775807 --vocab 6", "ID 9223372036854775807 at position 0"),
    ("tokenize --ids 1,50257", "ID 50257 at position 1 is not a token of gpt2", "0 to 50256"),
    ("tokenize --encoding cl100k_base --ids 100256", "ID 100256 at position 0", "not used"),
    ("decode 1 x", "'x' at position 1"),
    ("decode -1", "ID -1 at position 0"),
    ("decode 1 -5", "ID -5 at position 1"),
    ("decode 50257", "ID 50257 at position 0", "50256"),
    # text whose IDs are beyond a small V
    ("lookup hello --vocab 6", "ID 31373 ('hello') at position 0", "V = 6", "from 0 to 5", "--vocab 31374"),
    # sizes
    *(
        (f"{verb} {flag} {value}", f" must be at least 1, not {value}")
        for verb in ("lookup a", "weights")
        for flag in ("--vocab", "--dim", "--context-length")
        for value in ("0", "-5")
    ),
    *((f"weights --precision {value}", f"--precision {value}", "1 to 16") for value in ("0", "-1", "17", "1000000")),
    *(
        (
            f"weights {flag} {value}",
            f"'{flag}'",
            "is not a valid int",
        )
        for flag in ("--vocab", "--dim", "--context-length", "--precision", "--seed")
        for value in ("six", "1e3", "2.0", "nan", DIGITS)
    ),
    ("weights --vocab 99999999999", "99,999,999,999 x 256 takes 102.4 TB", "of memory"),
    ("weights --dim 99999999999", "50,257 x 99,999,999,999", "PB"),
    *(
        (f"{verb} {'9' * 401}", "dim is out of range; no machine has that much memory")
        for verb in ("weights --dim", "compare --dim")
    ),
    ("lookup a --trace 0 -f csv", "--trace cannot be shown in csv", "table"),
    ("compare --show first -f npy", "--show first cannot be shown in npy", "json"),
    ("compare --gradient -f csv", "--gradient cannot be shown in csv", "json"),
    ("weights --context-length 99999999999", "a position layer of 99,999,999,999 x 256 takes 102.4 TB"),
    ("lookup a --vocab 123456789012345678901234567890", "123,456,789,012,345,678,901,234,567,890 x 256"),
    # seeds
    (
        "lookup a --seed -9223372036854775809",
        "seed must be from -2**63 to 2**64 - 1, as in torch, not -9223372036854775809",
    ),
    ("weights --seed 18446744073709551616", "2**64 - 1, as in torch, not 18446744073709551616"),
    # encodings and models
    ("tokenize a --encoding gpt3", "'gpt3'", "gpt2"),
    ("lookup a --encoding gpt-4oo", "'gpt-4oo'", "gpt-4o"),
    ("weights --encoding zzz", "'zzz'", "cl100k_base"),
    ("decode 1 --encoding zzz", "'zzz'", "cl100k_base"),
    # more tokens than C
    ("lookup --ids 1,2,3 --context-length 2", "3 tokens", "context length of 2", "--context-length 3", "--window"),
    # rows and columns
    ("weights --rows 60000", "row 60000 is out of range: there are 50,257, from 0 to 50256"),
    ("weights --rows 0:50258", "row 50257 is out of range"),
    ("weights --rows 5:2", "rows 5:2"),
    ("weights --rows xyzzy", "--rows takes IDs and tokens, and 'xyzzy' is 2 tokens"),
    ("weights --rows -1", "'-1' does not choose rows"),
    (f"weights --rows 1:{DIGITS}", "out of range", "50256"),
    ("weights --layer position --rows 1024", "row 1024 is out of range: there are 1,024, from 0 to 1023"),
    ("weights --sort norm --map", "--sort is for rows; --map shows them as one picture"),
    ("weights --columns 256", "column 256 is out of range: there are 256, from 0 to 255"),
    ("weights --columns 1:2:3", "'1:2:3' does not choose columns"),
    ("lookup a --columns 3 --dim 3", "column 3 is out of range: there are 3, from 0 to 2"),
    *(
        (f"lookup --ids 1,2 --vocab 6 --dim 3 --trace {value}", f"--trace {value} is not a token", "there are 2 tokens")
        for value in (2, -1, 10**30)
    ),
    # names
    ("weights --layer sum", "'sum'", "token", "position"),
    ("lookup a --show token,sum", "'sum'", "token, position, input"),
    ("lookup a --format yaml", "as yaml", "ndjson"),
    ("lookup a --color red", "'red'", "auto"),
    ("nonsense", "'nonsense'"),
    ("lookup --nonsense", "--nonsense"),
    ("lookup one two", "two"),
    # two inputs, or one that is not there
    ("lookup a --ids 1", "TEXT and --ids"),
    ("tokenize --file no/such/file", "'no/such/file'", "No such file"),
    ("tokenize --file /", "cannot read '/'", "directory"),
]


@pytest.mark.parametrize("case", BAD, ids=lambda case: case[0][:60])
def test_bad_input_is_refused_by_name(inside: Embcli, case: tuple[str, ...]) -> None:
    command, *named = case
    error = inside.refused(*command.split(" "))
    for part in named:
        assert part in error
    assert len(error) < 500


@pytest.mark.parametrize(
    "arguments", [("lookup", "--ids", "2,x"), ("weights", "--vocab", "99999999999"), ("lookup", "--nonsense")]
)
def test_a_process_refuses_just_so(embcli: Embcli, inside: Embcli, arguments: tuple[str, ...]) -> None:
    assert embcli.refused(*arguments) == inside.refused(*arguments)


@pytest.mark.parametrize(("data", "byte", "offset"), [(b"caf\xe9 ole", "0xe9", 3), (b"ab\xed\xa0\x80", "0xed", 2)])
def test_bytes_that_are_no_utf8(embcli: Embcli, inside: Embcli, data: bytes, byte: str, offset: int) -> None:
    """An argument of bytes reaches Python as lone surrogates; U+D800 is the second one."""
    where = f"is not UTF-8: byte {byte} at offset {offset}"
    assert f"TEXT {where}" in embcli.refused("tokenize", data)
    assert f"standard input {where}" in inside.refused("tokenize", stdin=data)
    assert f"standard input {where}" in inside.refused("tokenize", "--ids", "-", stdin=data)


@pytest.mark.parametrize("arguments", [["tokenize"], ["lookup", "-"], ["lookup", "--ids", "-"], ["decode"]])
def test_a_terminal_and_no_text(arguments: list[str]) -> None:
    command, *rest = Embcli.command
    terminal = pexpect.spawn(command, [*rest, *arguments], encoding="utf-8", timeout=TIMEOUT, dimensions=(24, 200))
    terminal.expect(pexpect.EOF)
    terminal.close()
    lines = (terminal.before or "").splitlines()
    assert terminal.exitstatus == 2
    assert 1 <= len(lines) <= 2
    assert lines[0].startswith("embcli: no ")
    assert "nothing is piped in" in lines[0]


def json_rows(data: bytes) -> int:
    document = json.loads(data)
    assert {len(document["tokens"])} >= {len(matrix) for matrix in document.get("matrices", {}).values()}
    return len(document["tokens"])


def table_rows(data: bytes) -> int:
    """Count the rows under the rule; a lookup has a band of them for each of its three matrices."""
    below = data.decode().split("─\n")[1]
    rows = below.partition("\n\n")[0].splitlines() if below[0] != "\n" else []
    grid = [row for row in rows if "│" in row]
    return len(grid) // 3 if data.startswith(b"Input") else len(rows)


ROWS: dict[str, Callable[[bytes], int]] = {
    "table": table_rows,
    "json": json_rows,
    "ndjson": lambda data: len(data.splitlines()),
    "csv": lambda data: len(data.splitlines()) - 1,
    "tsv": lambda data: len(data.splitlines()) - 1,
    "npy": lambda data: len(np.load(io.BytesIO(data))),
    "safetensors": lambda data: max(map(len, safetensors.numpy.load(data).values())),
    "ids": lambda data: len(data.split()),
}


EMPTY = "embcli: the input is empty: there are no tokens\n"


@pytest.mark.parametrize("form", ROWS)
@pytest.mark.parametrize("count", [0, 1])
def test_empty_text_is_an_empty_result(inside: Embcli, form: str, count: int) -> None:
    text = "!" * count
    runs = [inside("tokenize", text, "-f", form), inside("tokenize", "-f", form, stdin=text)]
    if form != "ids":
        runs += [inside("lookup", text, *TOY, "-f", form), inside("lookup", "--ids", "0" * count, *TOY, "-f", form)]
    for ran in runs:
        assert (ran.status, ROWS[form](ran.out), ran.err) == (0, count, EMPTY if count == 0 else "")


def test_no_lines_and_empty_lines_are_empty_results(inside: Embcli) -> None:
    for stdin in ("", "\n\n"):
        ran = inside("lookup", "--lines", *TOY, "-f", "json", stdin=stdin)
        assert (ran.status, json_rows(ran.out), ran.err) == (0, 0, EMPTY)
        ran = inside("tokenize", "--lines", "-f", "ids", stdin=stdin)
        assert (ran.status, ran.text, ran.err) == (0, stdin, EMPTY)
    assert inside.ok("decode", stdin="").out == b""


@pytest.mark.parametrize(
    "text", ["x" * 200_000, " " * 200_000, "\x00" * 200_000, "\n" * 200_000, "\u0301" * 200_000, "\u202e" * 9]
)
def test_long_runs_of_one_character(inside: Embcli, text: str) -> None:
    expected = encodings.get("gpt2").tiktoken.encode_ordinary(text)
    assert [*map(int, inside.ok("tokenize", "-f", "ids", stdin=text).out.split())] == expected
    view = inside.ok("tokenize", stdin=text).text
    assert f"{len(text):,} characters, {len(text.encode()):,} bytes, {len(expected):,} tokens" in view
    assert all(line.isprintable() for line in view.split("\n"))


@pytest.mark.skipif(sys.platform != "linux", reason="its file names are bytes")
@pytest.mark.parametrize(
    ("verb", "kind"),
    [
        ("info", "list"),
        ("weights", "embeddings"),
        ("lookup --ids 1,2", "embeddings"),
        ("neighbors --ids 1", "ranking"),
        ("diff", "ranking"),
    ],
)
def test_lone_surrogates_are_escaped_in_all_formats(inside: Embcli, tmp_path: Path, verb: str, kind: Kind) -> None:
    """A path that is not UTF-8, a tensor's name, and a config.json can have them; text in UTF-8 cannot."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with (folder / "m.bin").open("wb") as file:  # torch itself does not write to such a path
        torch.save({"\ud800.wte.weight": torch.ones(3, 2), "\udcff.wpe.weight": torch.ones(4, 2)}, file)
    (folder / "config.json").write_text(json.dumps({"model_type": "\ud800", "architectures": ["\ud800ForCausalLM"]}))
    given = [str(folder / "m.bin")] * 2 if verb == "diff" else ["--from", str(folder / "m.bin")]
    for form in set(able(kind)) - {"png"}:  # which is slow, and drawn from the same page
        path = tmp_path / f"out-{form}"
        ran = inside(*verb.split(), *given, "--format", form, "--output", str(path))
        assert ran.status == 0, form
        assert "\ud800" not in ran.err
        found = b"".join(each.read_bytes() for each in (path, *path.glob("*")) if each.is_file())
        if not FORMATS[form].binary:
            found.decode()
        if form in ("json", "parquet", "safetensors") or (verb, form) == ("info", "csv"):
            assert re.search(rb"\\ud800", found), form
