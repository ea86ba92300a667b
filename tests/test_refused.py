"""Bad input: what is refused, before anything is drawn or kept.

The sentences stand in tests/pages/errors.txt, each below its command line.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from embcli.cli.app import COMMANDS
from embcli.cli.hints import cure_of_words, refuse_slips
from embcli.errors import InputError
from embcli.formats import ALIASES, CONTENTS, FORMATS, formats_for
from embcli.positions import KINDS, NAMES as KIND_NAMES
from embcli.seeded_layers.source import SeededSource
from embcli.wording import load_facts
from tests.cases import cases
from tests.runners import PARSERS, TIMEOUT, built_once
from tests.transcripts import answered, command_lines, document_of

DIGITS = "9" * 5000
BILLIONS_OF_ROWS = ",".join(["0:9999999"] * 9999)
UNPRINTABLE = {  # command lines that cannot stand in a file, and a telling word of their errors
    "an ID of 5,000 digits": (["lookup", "--ids", f"1,{DIGITS}"], "of up to 18 digits"),
    "a seed of 5,000 digits": (["weights", "--seed", DIGITS], "--seed"),
    "a size of 401 digits": (["compare", "--dim", "9" * 401], "must be from 1 to"),
    "a list of 100 billion rows": (
        ["weights", "--vocab", "9999999", "--dim", "1", "--rows", BILLIONS_OF_ROWS],
        "99,989,990,001 rows",
    ),
    "half of a character": (["tour", "--text", "\ud800"], "--text is not UTF-8"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with a few empty files, on a machine with 16 GB of memory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("embcli.errors.memory_of_machine", lambda: 16 * 10**9)
    Path("folder").mkdir()
    for name in ("my.npy", "other.npy", "tokenizer.json", "folder/notes.txt"):
        Path(name).touch()
    Path("link.npy").symlink_to("my.npy")
    return tmp_path


def work(*_: object, **__: object) -> None:
    """Fail in place of what is only done when nothing is refused."""
    pytest.fail("worked before it refused")


@pytest.fixture
def _idle_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let a test fail if anything is opened or drawn, or written, to a cache in this folder too."""
    monkeypatch.setattr(SeededSource, "open", work)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(folder / "cache"))
    before = contents(folder)
    yield
    assert contents(folder) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Return what the files of a folder contain, by their paths."""
    found = {}
    for path in folder.rglob("*"):
        if path.is_file():
            found[str(path)] = path.read_bytes()
    return found


# --- what is refused ------------------------------------------------------------------------------


REFUSE_ALL = """
import json, sys
*sys.path, runs = json.loads(sys.argv[1])
from embcli import errors
from embcli.seeded_layers.source import SeededSource
from tests.runners import InProcess
errors.memory_of_machine = lambda: 16 * 10**9
del SeededSource.open
print(json.dumps([InProcess().refused(*words) for words in runs]))
assert "torch" not in sys.modules
"""


@pytest.mark.usefixtures("_idle_folder")
def test_each_error_says_what_the_snapshot_says_before_any_work_and_before_torch(snapshot):
    lines = [shlex.split(line) for line in command_lines("errors.txt")]
    runs = lines + [words for words, _ in UNPRINTABLE.values()]
    command = [sys.executable, "-c", REFUSE_ALL, json.dumps([*sys.path, runs])]
    ran = subprocess.run(command, input=b"", stdout=subprocess.PIPE, timeout=TIMEOUT, check=True)
    errors = iter(json.loads(ran.stdout))

    snapshot("errors.txt", answered("errors.txt", lambda _: next(errors)))
    for (_, telling), error in zip(UNPRINTABLE.values(), errors, strict=True):
        assert telling in error
    assert max(map(len, json.loads(ran.stdout))) < 500


FLAGS = {name: set().union(*(each.opts for each in PARSERS[name].params)) for name in COMMANDS}
ALL_FLAGS = set().union(*FLAGS.values(), ("--help", "--version", "--no-draw"))
HINTS = load_facts("hints.json")
SUGGESTIONS = [
    (text, "") for table in load_facts("suggestions.json").values() for text in table.values()
]
CURES = [(f"embcli {line}", "") for line in dict.fromkeys(HINTS["commands"].values())]
for table in HINTS.values():
    for row in table if isinstance(table, list) else ():
        cure = row["cure"].replace(" {word}", f" {row.get('words', 'x')[0]}")
        CURES += [(cure, name) for name in row.get("commands", [""])]


def test_hints_name_options_that_there_are_and_know_each_command():
    assert HINTS["commands"].keys() >= COMMANDS.keys()
    assert HINTS["options"].keys() >= {*FORMATS, *ALIASES, *KIND_NAMES}
    assert set().union(*HINTS["options"].values()) <= ALL_FLAGS
    assert [kind for kind in KINDS if kind not in PARSERS["positions"].help] == []
    of_text = next(row for row in HINTS["cures"] if "text" in row["words"])
    assert {*of_text["commands"]} == {name for name in COMMANDS if "text" in FLAGS[name]}


@pytest.mark.parametrize(("cure", "command"), CURES + SUGGESTIONS)
def test_a_cure_names_options_of_its_command_and_lines_that_can_be_parsed(cure, command):
    cure = cure.replace("{command}", command)
    assert {*re.findall(r"(?<!\S)--?[a-z][a-z-]*", cure)} <= {"--help"} | FLAGS.get(
        command, ALL_FLAGS
    )
    for line in re.findall(r"embcli ((?:[^:;.]|\.\d)*)", cure):
        words = [*shlex.split(line), "--help"]  # without which arguments could be missing
        built_once(words)(words, standalone_mode=False)


@pytest.mark.parametrize("verb", COMMANDS)
def test_the_cure_of_a_format_is_that_of_commands_that_can_write_it(in_process, verb):
    for form in sorted({*FORMATS} - {"ids"}):
        is_cured = f"-o FILE.{form} writes" in in_process.refused(verb, f"--{form}")
        assert is_cured == (form in formats_for(CONTENTS.get(verb, "text"))), form


def test_an_option_that_a_command_does_not_have_is_cured_once():
    cured = []
    for row in HINTS["cures"]:
        cured += [(name, word) for name in row.get("commands", COMMANDS) for word in row["words"]]
    assert len(cured) == len(set(cured))
    assert {("positions", name) for name in KIND_NAMES} <= {*cured}

    taken = {(name, word) for name, word in cured if f"--{word}" in FLAGS[name]}
    assert taken == {("tokenize", "ids"), ("batch", "shuffle"), ("neighbors", "metric")}


@pytest.mark.parametrize("name", COMMANDS)
def test_an_option_is_no_value_unless_it_is_joined_to_its_own(name):
    for parameter in PARSERS[name].params:
        if getattr(parameter, "is_flag", True):
            continue
        for flag in parameter.opts:
            refuse_slips([f"{flag}={flag}", "--", flag, flag], PARSERS[name].params)
            for option in (flag, f"{flag}=1"):
                with pytest.raises(InputError, match=f"{flag} takes a value, and {flag} stands"):
                    refuse_slips([flag, option], PARSERS[name].params)


@pytest.mark.parametrize("line", ["text --plus text", "a --minus -king --minus -king -k 2"])
def test_a_text_is_no_option_though_it_is_like_one(line):
    refuse_slips(line.split(), PARSERS["neighbors"].params)


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_a_cure_for_a_word_too_many(name):
    is_any = any(each.nargs == -1 for each in PARSERS[name].params)
    assert is_any or cure_of_words("extra", ["Hello"], name)


def test_help_is_shown_whatever_words_are_beside_it(in_process):
    assert "Usage: embcli weights" in in_process.ok("weights", "6", "3", "--help").text


@cases
def test_a_token_in_place_of_a_model_has_a_hint_of_its_own(in_process, line, hint):
    *_, last_line = in_process.refused(*line.split()).splitlines()
    assert hint in last_line


@pytest.mark.usefixtures("_idle_folder")
@pytest.mark.parametrize("verb", ["lookup hi", "weights"])
def test_a_place_is_refused_before_a_text_or_a_shape_is_read(in_process, monkeypatch, verb):
    monkeypatch.setattr(SeededSource, "shape", work)
    monkeypatch.setattr("embcli.cli.groups.read", work)

    in_process.refused(*verb.split(), "-o", "none/out.npy")


TOY = ("--vocab", "100", "--dim", "3")
VERBS = [
    ("lookup", "--ids", "1,2", *TOY),
    ("weights", *TOY),
]


@pytest.mark.usefixtures("_idle_folder")
@pytest.mark.parametrize("form", ["npy", "safetensors", "parquet", "png"])
@pytest.mark.parametrize("verb", VERBS, ids=["lookup", "weights"])
def test_binary_data_for_a_terminal_is_refused_before_any_work(in_process, verb, form):
    assert "binary data" in in_process.refused(*verb, "-f", form, terminal=True)


@pytest.mark.usefixtures("_idle_folder")
@pytest.mark.parametrize("verb", VERBS, ids=["lookup", "weights"])
def test_a_missing_package_is_refused_before_any_work(in_process, monkeypatch, verb):
    monkeypatch.setitem(sys.modules, "pyarrow", None)

    assert "pip install 'embcli[arrow]'" in in_process.refused(*verb, "-f", "parquet", "-o", "out")


# --- how it is refused ----------------------------------------------------------------------------


def test_each_error_on_a_terminal_says_what_the_snapshot_says(terminal, snapshot):
    """A terminal breaks the lines between words."""

    def answer(words: list[str]) -> str:
        ran = terminal(*words, width=80)
        assert ran.status == 2
        return ran.text.replace("\r\n", "\n")

    snapshot("errors-on-a-terminal.txt", answered("errors-on-a-terminal.txt", answer))


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"caf\xe9 ole", "0xe9 at offset 3"),
        (b"ab\xed\xa0\x80", "0xed at offset 2"),
    ],
)
def test_bytes_that_are_not_utf8_are_refused(process, in_process, data, place):
    """An argument of bytes reaches Python as lone surrogates; U+D800 is the second one."""
    assert f"TEXT is not UTF-8: byte {place}" in process.refused("tokenize", data)

    piped = f"standard input is not UTF-8: byte {place}"
    assert piped in in_process.refused("tokenize", stdin=data)
    assert piped in in_process.refused("tokenize", "--ids", "-", stdin=data)


def test_an_id_of_a_line_is_named_with_its_line(in_process):
    error = in_process.refused("lookup", "--ids", "-", "--lines", stdin="1\nx\n")
    assert "line 2: 'x' at position 0" in error


def test_a_range_with_a_dash_in_a_line_is_written_with_a_colon(in_process):
    error = in_process.refused("lookup", "--ids", "-", "--lines", stdin="1\n3-7\n")
    assert error.endswith("A range has a colon and ends before its stop: 3:7.\n")


# --- what is not refused --------------------------------------------------------------------------


def test_empty_input_is_an_empty_result(in_process):
    """Its note stands in notes.txt."""
    assert document_of(in_process, "tokenize")["tokens"] == []


@pytest.fixture
def surrogate_model(tmp_path: Path) -> str:
    """Return a model whose path, tensors and config.json have lone surrogates; a text has none."""
    folder = tmp_path / os.fsdecode(b"caf\xe9")
    folder.mkdir()
    config = {"model_type": "\ud800", "architectures": ["\ud800ForCausalLM"]}
    (folder / "config.json").write_text(json.dumps(config))

    ones = torch.ones(3, 2)
    tensors = {"\ud800.wte.weight": ones, "\udcff.wpe.weight": ones}
    path = folder / "m.bin"
    with path.open("wb") as file:  # torch itself does not write to such a path.
        torch.save(tensors, file)
    return str(path)


@pytest.mark.skipif(sys.platform != "linux", reason="its file names are bytes")
@cases
def test_lone_surrogates_are_escaped_in_all_formats(
    in_process, tmp_path, surrogate_model, verb, kind
):
    words = [surrogate_model if word == "MODEL" else word for word in verb.split()]
    forms = set(formats_for(kind)) - {"png"}  # It is slow, and drawn from the same page.

    for form in forms:
        place = tmp_path / form
        place.mkdir()
        ran = in_process(*words, "--format", form, "--output", str(place / "out"))
        assert ran.status == 0, form

        written = b"".join(contents(place).values())
        if not FORMATS[form].binary:
            written.decode()
        has_names = form in ("json", "parquet", "safetensors")
        if has_names or (kind == "list" and form == "csv"):
            assert rb"\ud800" in written, form
