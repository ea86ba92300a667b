"""Bad input: a command line, and what its error of one or two lines says; refused before anything is drawn or kept."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from embcli.formats import FORMATS, ContentKind, formats_for
from embcli.seeded_layers.source import SeededSource
from embcli.verbs.compare import layers
from tests.runners import TIMEOUT, InProcess, Process, Terminal

DIGITS = "9" * 5000
TOY = "--vocab 100 --dim 3"
CAT = "lookup 'the cat saw the dog'"
RATE = "--learning-rate must be a finite float32 of at least 0, not"
DATA_ONLY = "cannot be shown in npy; it needs --format table, markdown, svg, html or png"
HELP = "\nTry 'embcli {} --help' for help."
SLIPS = {  # the whole error
    "lookp x": "No such command 'lookp'. Did you mean 'lookup'?\nTry 'embcli --help' for help.",
    "lookup a --dimm 3": "No such option: --dimm (Possible options: --dim)" + HELP.format("lookup"),
    "lookup Every effort": "Got unexpected extra argument(s) (effort)\n"
    "Put a text of several words in quotes. Try 'embcli lookup --help' for help.",
    "tour 7": "Got unexpected extra argument(s) (7)\n--text takes a text in quotes, --step a number. "
    "Try 'embcli tour --help' for help.",
    "diff a b c": "Got unexpected extra argument(s) (c)" + HELP.format("diff"),
    "lookup --ids 2 3": "TEXT and --ids stand for the same input; give one of them\n"
    "Write the IDs as one word, with commas between: --ids 2,3,5,1",
    "decode 1 -5": "No such option: -5\nIDs are not negative; a text that begins with - goes after --. "
    "Try 'embcli decode --help' for help.",
    "weights --vocab six": "Invalid value for '--vocab': 'six' is not a valid int."
    + HELP.format("weights"),
    "strawberry": "'strawberry' is not a command\nFor a text: embcli tokenize strawberry; embcli --help",
    "gone.safetensors": "'gone.safetensors' is not a command\n"
    "embcli info gone.safetensors shows a model, embcli tokenize --file gone.safetensors a text",
    "org/model": "'org/model' is not a command\n"
    "embcli info org/model shows a model, embcli tokenize --file org/model a text",
    "'Every effort'": "'Every effort' is not a command\nFor a text: embcli tokenize 'Every effort'; embcli --help",
    "my.npy": "'my.npy' is a file, not a command\n"
    "embcli info my.npy shows a model, embcli tokenize --file my.npy a text",
    "positions rotory": "'rotory' is not a kind of positions; choose from learned, sinusoidal, relative, rotary",
    "explain strid": "WORD 'strid' is not explained; the nearest: stride, tied, input and pipes",
    "neighbors hi -k 0": "-k must be at least 1, not 0",
    "lookup hi --tensor x": "--tensor goes with --from, which names the file",
    "lookup hi --from m.npy --dim 3": "--dim is for seeded layers; --from takes what the file holds",
    "info m.npy --from m.npy": "'m.npy' and --from name the same thing, the model; give one of them",
    "help nonsense": "'nonsense' is not a command\nFor a text: embcli tokenize nonsense; embcli --help",
    "explain why is it so": "WORD 'why is it so' is not explained; explain without one lists all\n"
    "embcli explain questions answers whole questions",
    "rows --ids 1": "'rows' is not a command\nembcli explain rows explains the word; embcli --help",
    "/": "'/' is a folder, not a command\nembcli info / shows a model",
}
REFUSED = {  # a part of the error
    # IDs
    "lookup --ids 2,3,-5,1": "ID -5 at position 2 is negative",
    "lookup --ids 2,three": "'three' at position 1 is not a token ID",
    f"lookup --ids 1,{DIGITS}": f"ID {DIGITS[:60]} at position 1 is beyond any vocabulary",
    "lookup --ids 5,6 --vocab 6 --dim 3": "ID 6 at position 1 has no row",
    "lookup hello --vocab 6": "ID 31373 ('hello') at position 0",
    "tokenize --ids 1,50257": "ID 50257 at position 1 is not a token of gpt2",
    "tokenize --encoding cl100k_base --ids 100256": "ID 100256 at position 0",
    "decode 1 --from gpt2": "--encoding takes a model's folder or tokenizer",
    "decode 1 5:2": "'5:2' at position 1 has no IDs: a range ends after its start",
    "lookup --ids 0:99999999999": "the ranges have 99,999,999,999 IDs; at most 100,000,000 are possible",
    "compare --vocab 100 --ids 100": "ID 100 at position 0 has no row",
    "compare --vocab 3": "ID 3 at position 1 has no row: the token layer has V = 3 rows",
    "compare Every --vocab 100": "ID 6109 ('Every') at position 0 has no row",
    # sizes
    **{
        f"weights {flag} 0": f"{flag} must be at least 1, not 0"
        for flag in ("--vocab", "--dim", "--context-length")
    },
    **{f"weights --precision {value}": "--precision" for value in ("0", "-1", "17", "x")},
    **{f"weights --seed {value}": "'--seed'" for value in ("six", "1e3", "2.0", "nan", DIGITS)},
    "weights --vocab 99999999999": "a token layer of 99,999,999,999 x 256 takes 102.4 TB, and this machine has",
    "weights --context-length 99999999999": "a position layer of 99,999,999,999 x 256 takes 102.4 TB",
    f"compare --dim {'9' * 401}": "dim is out of range; no machine has that much memory",
    f"compare --vocab {10**12}": "takes 20.0 TB, and this machine has",
    "compare --vocab 99999999 --dim 99999": "a token layer of 99,999,999 x 99,999",
    "positions --kind sinusoidal --context-length 999999999 --dim 9998": "a position layer",
    **{
        f"compare --learning-rate {each}": f"{RATE} {each}"
        for each in ("nan", "inf", "-1", "3.5e+38")
    },
    "weights --seed 18446744073709551616": "seed must be from -2**63 to 2**64 - 1, as in torch",
    "lookup --ids 1,2,3 --context-length 2": "3 tokens are more than the context length of 2",
    # encodings, rows, columns and names
    "positions relative --kind rotary": "relative and --kind name the same thing, the kind; give one of them",
    "info --tensor x": "--tensor goes with --from, which names the file",
    "neighbors hi --plus=": "--plus '' has no tokens",
    "lookup a --from gone.npy": "'gone.npy' not found as a file, and the Hugging Face cache has no model of this name",
    "lookup a --encoding gpt-4oo": "gpt-4o",
    "weights --rows 60000": "row 60000 is out of range: there are 50,257, from 0 to 50256",
    "weights --rows 5:2": "rows 5:2",
    "weights --rows xyzzy": "--rows takes IDs and tokens, and 'xyzzy' is 2 tokens",
    "weights --rows -1": "'-1' does not choose rows",
    "weights --layer position --rows 1024": "row 1024 is out of range: there are 1,024, from 0 to 1023",
    "weights --columns 1:2:3": "'1:2:3' does not choose columns",
    "lookup a --columns 3 --dim 3": "column 3 is out of range: there are 3, from 0 to 2",
    f"lookup --ids 1,2 {TOY} --trace 9": "--trace 9 is not a token: there are 2 tokens",
    f"lookup --ids 1,2 {TOY} --show token,tokens": "--show 'tokens' is not known",
    "weights --map": "No such option: --map",
    f"weights --vocab 9999999 --dim 1 --rows {','.join(['0:9999999'] * 9999)}": "99,989,990,001 rows do not fit into",
    "compare --show ids,shares": "--show 'shares' is not known; choose from ids, one-hot, first, shared, outputs",
    "--show-completion tcsh": "'tcsh' is not one of 'bash', 'zsh', 'fish'",
    # what does not go together
    f"{CAT} --position none --show position": "has no rows that --show could name",
    f"{CAT} --position rotary": "choose from learned, sinusoidal, none",
    f"{CAT} --show token,sum": "--show 'sum' is not known; choose from token, position, input, hidden",
    f"{CAT} --position none --trace 0": "--trace writes out a sum; --position none adds nothing",
    f"{CAT} --only ' bird'": "--only ' bird': ID 6512 (' bird') does not occur",
    f"{CAT} --only ' the bird'": "ID 6512 (' bird') does not occur",
    f"{CAT} --only 262,7": "--only '262,7': ID 7 ('(') does not occur; embcli tokenize shows which tokens do; digi",
    f"{CAT} --only ' 262'": "--only ' 262': ID 35404 (' 262') does not occur",
    f"{CAT} --only ''": "--only '' has no tokens",
    **{
        f"{CAT} --{flag} 2": f"No such option: --{flag}"
        for flag in ("only-ids", "token-type", "theta")
    },
    "tokenize --ids 1,2 --merges": "only a text has merges, not its IDs",
    "tokenize --ids 1 --encoding gpt2,o200k_base": "only a text can be split by several tokenizers, not IDs",
    "tokenize x --merges --encoding gpt2,o200k_base": "--merges and --draw take one encoding, not several",
    "tokenize x --encoding gpt2,gpt2": "--encoding names gpt2 twice; give each tokenizer once",
    "tokenize x --encoding gpt-4o,o200k_base": "--encoding names o200k_base twice",
    "tokenize x --encoding gpt2,nonsense": "no encoding or model is named 'nonsense'",
    "decode 1 --encoding gpt2,o200k_base": "no encoding or model is named 'gpt2,o200k_base'",
    # formats and places
    f"lookup --ids 1,2 {TOY} --trace 0 -f json": "--trace cannot be shown in json",
    f"lookup --ids 1,2 {TOY} -f ids": "this result cannot be written as ids",
    f"lookup --ids 1 2 3 4 {TOY}": "Write IDs as one word: 2,3,5,1.",
    "tour -o x.pdf": "--output 'x.pdf' has no known extension; use .txt, .md, .svg, .html or .png",
    f"lookup --ids 1,2 {TOY} -o x.jpg": "'x.jpg' has no known extension; --format names one of table, markdown, svg",
    f"lookup --ids 1,2 {TOY} -o x.csv/": "'x.csv/' names a folder, and csv is one file",
    "lookup a --format yaml": "cannot be written as yaml; it can be written as table",
    "info -f npy": "cannot be written as npy; it can be written as table, markdown, svg, html, png, json",
    "cache -f safetensors": "cannot be written as safetensors; it can be written as table, markdown, svg, html, png",
    "tokenize x --encoding gpt2,o200k_base -f ids": "this result cannot be written as ids",
    "tokenize x --merges -f npy": "npy",
    **{
        f"lookup hi --show token,position -f {each}": "not token, position; choose"
        for each in ("csv", "tsv", "npy")
    },
    "tokenize hi --width 39": "--width 39 is out of range; it goes from 40 to 1000",
    "tokenize hi --width 80 -f npy": "--width cannot be shown in npy; it needs --format table, markdown, svg, ",
    "tokenize hi --theme dark": "--theme cannot be shown in table; it needs --format svg, html or png",
    "tokenize hi --theme grey -f svg": "'grey' is not one of 'light', 'dark'",
    **{
        f"{verb} --vocab {'9' * 20} --heat -f npy": f"--heat {DATA_ONLY}"
        for verb in ("weights", "lookup --ids 1", "compare --ids 1", "positions", "batch --ids 1,2")
    },
    "compare --gradient -f npy": "this result cannot be written as npy",
    "compare --learning-rate 1 -f csv": "this result cannot be written as csv",
    "compare --trace -f json": "--trace cannot be shown in json",
    "compare --show ids,shared -f csv": "this result cannot be written as csv",
    "compare --show embedding,linear -f csv": "this format holds one matrix, not embedding, linear",
    # the text
    "tokenize --file no/such/file": "cannot read 'no/such/file': No such file",
    "tokenize --file /dev/zero": "'/dev/zero': it gives more than 1.0 GB",
    "tokenize --text hi": "No such option: --text",
    "tour --text -": "--text '-' is not a text; give the text itself",
    "tour --text ''": "--text '' is not a text; give the text itself",
    "tour --text \ud800": "--text is not UTF-8: byte 0xed at offset 0",
    "tour --step 0": "--step must be from 1 to 12, not 0",
    "tokenize hi --format table -o x.unknown/y": "cannot write to 'x.unknown/y': No such file or directory: 'x",
}


@pytest.fixture
def _no_work(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Let nothing be opened and nothing be drawn, and look at an empty cache."""

    def worked(*_: object, **__: object) -> None:
        pytest.fail("worked before it refused")

    monkeypatch.setattr(SeededSource, "open", worked)
    monkeypatch.setattr(layers, "compare", worked)
    monkeypatch.setattr(torch.nn, "Embedding", worked)
    monkeypatch.setattr(torch.Tensor, "normal_", worked)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("line", SLIPS)
def test_a_slip_is_refused_in_one_or_two_lines(
    line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.npy").touch()
    assert InProcess().refused(*shlex.split(line)) == f"embcli: {SLIPS[line]}\n"


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("line", REFUSED, ids=lambda line: line[:60])
def test_it_is_refused_before_any_work_and_nothing_is_kept(tmp_path: Path, line: str) -> None:
    error = InProcess().refused(*shlex.split(line))
    assert REFUSED[line] in error
    assert len(error) < 500
    assert not [*tmp_path.iterdir()]


ALL = """
import json, sys
from embcli.__main__ import main
for sys.argv[1:] in json.loads(sys.argv[1]):
    main()
print("torch" in sys.modules)
"""


def test_torch_is_not_loaded_for_any_of_these() -> None:
    command = [sys.executable, "-c", ALL, json.dumps([*map(shlex.split, REFUSED)])]
    ran = subprocess.run(command, input=b"", capture_output=True, timeout=TIMEOUT, check=True)
    assert ran.stdout == b"False\n"


@pytest.mark.usefixtures("_no_work")
@pytest.mark.parametrize("form", ["npy", "safetensors", "parquet"])
@pytest.mark.parametrize("verb", ["lookup --ids 1,2", "weights"])
def test_binary_data_for_a_terminal_and_a_missing_package_are_refused_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, form: str
) -> None:
    words = (*verb.split(), *TOY.split(), "-f", form)
    assert "binary data is not for a terminal" in InProcess().refused(*words, terminal=True)
    if form == "parquet":
        monkeypatch.setitem(sys.modules, "pyarrow", None)
        told = "embcli: parquet needs a package that is missing: pip install 'embcli[arrow]'\n"
        assert InProcess().refused(*words, "-o", "out") == told
    assert not [*tmp_path.iterdir()]


def test_a_process_refuses_just_so_and_a_terminal_breaks_lines_between_words(
    process: Process,
) -> None:
    words = ("neighbors", " dog", "--from", "nowhere")
    sentences = InProcess().refused(*words)
    assert process.refused(*words) == sentences
    ran = Terminal()(*words, width=40)
    lines = ran.text.splitlines()
    assert (ran.status, max(map(len, lines)) <= 40, len(lines) > 2) == (2, True, True)
    assert " ".join(lines).split() == sentences.split()


@pytest.mark.parametrize(
    ("data", "byte", "offset"), [(b"caf\xe9 ole", "0xe9", 3), (b"ab\xed\xa0\x80", "0xed", 2)]
)
def test_bytes_that_are_no_utf8(
    process: Process, in_process: InProcess, data: bytes, byte: str, offset: int
) -> None:
    """An argument of bytes reaches Python as lone surrogates; U+D800 is the second one."""
    where = f"is not UTF-8: byte {byte} at offset {offset}"
    assert f"TEXT {where}" in process.refused("tokenize", data)
    assert f"standard input {where}" in in_process.refused("tokenize", stdin=data)
    assert f"standard input {where}" in in_process.refused("tokenize", "--ids", "-", stdin=data)


@pytest.mark.parametrize(
    "arguments", [["tokenize"], ["lookup", "-"], ["lookup", "--ids", "-"], ["decode"]]
)
def test_a_terminal_and_no_text(arguments: list[str]) -> None:
    ran = Terminal()(*arguments, width=200)
    first, second = ran.text.splitlines()
    assert ran.status == 2
    assert re.fullmatch(
        r"embcli: no .* given and nothing is piped in, as in: .*embcli \w+ .*", first
    )
    assert second == f"Try 'embcli {arguments[0]} --help' for help."


def test_empty_input_is_an_empty_result_with_a_note(in_process: InProcess) -> None:
    for words in (("tokenize", "-f", "json"), ("lookup", "--lines", *TOY.split(), "-f", "json")):
        ran = in_process(*words, stdin="")
        assert (ran.status, ran.err) == (0, "embcli: the input is empty: there are no tokens\n")
        assert json.loads(ran.out)["tokens"] == []
    assert in_process.ok("decode", stdin="").out == b""
    assert "line 2: 'x' at position 0 is not" in in_process.refused(
        "lookup", "--ids", "-", "--lines", stdin="1\nx\n"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="its file names are bytes")
@pytest.mark.parametrize(
    ("verb", "kind"), [("info", "list"), ("lookup --ids 1,2", "embeddings"), ("diff", "ranking")]
)
def test_lone_surrogates_are_escaped_in_all_formats(
    in_process: InProcess, tmp_path: Path, verb: str, kind: ContentKind
) -> None:
    """A path that is not UTF-8, a tensor's name, and a config.json can have them; text in UTF-8 cannot."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    with (folder / "m.bin").open("wb") as file:  # torch itself does not write to such a path
        torch.save(
            {"\ud800.wte.weight": torch.ones(3, 2), "\udcff.wpe.weight": torch.ones(4, 2)}, file
        )
    (folder / "config.json").write_text(
        json.dumps({"model_type": "\ud800", "architectures": ["\ud800ForCausalLM"]})
    )
    given = [str(folder / "m.bin")] * 2 if verb == "diff" else ["--from", str(folder / "m.bin")]
    for form in set(formats_for(kind)) - {"png"}:  # which is slow, and drawn from the same page
        path = tmp_path / f"out-{form}"
        ran = in_process(*verb.split(), *given, "--format", form, "--output", str(path))
        assert ran.status == 0, form
        assert "\ud800" not in ran.err
        found = b"".join(each.read_bytes() for each in (path, *path.glob("*")) if each.is_file())
        if not FORMATS[form].binary:
            found.decode()
        if form in ("json", "parquet", "safetensors") or (verb, form) == ("info", "csv"):
            assert re.search(rb"\\ud800", found), form
