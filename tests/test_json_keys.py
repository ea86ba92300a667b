"""The keys of each JSON document, and the types of their values: a contract with scripts.

They stand in tests/pages/VERB/keys.txt, below each command line.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors.numpy import save_file

from embcli.cli.app import COMMANDS, command_line
from embcli.names import ENCODINGS, FAULTS, LayerName, Unused
from embcli.verbs.explain import named
from tests.files import made
from tests.readers import from_json, from_ndjson
from tests.runners import InProcess
from tests.snapshots import PAGES
from tests.transcripts import answered, command_lines

FILES = sorted(path.relative_to(PAGES).as_posix() for path in PAGES.glob("*/keys.txt"))
VERBS = sorted({name.partition("/")[0] for name in FILES})
JSON = " -f json"
# A gradient has no lines.
NOT_BY_ROWS = ("compare --gradient", "compare --learning-rate")
# Keys that data need not have.
OF_DATA = {"score", *ENCODINGS, *FAULTS, *get_args(LayerName), *get_args(Unused)}
WITHOUT_DOCUMENT = {"cache", "decode", "explain", "explore", "tour"}


# --- the outline of a document --------------------------------------------------------------------


def typed_keys(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the path and the type of each value of a document; a list's items share one path."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from typed_keys(item, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and value:
        keys = {tuple(item) for item in value if isinstance(item, dict)}
        assert len(keys) <= 1, "the objects of a list have the same keys in the same order"
        for item in value:
            yield from typed_keys(item, f"{path}[]")
    else:
        yield path, type_name(value)


def type_name(value: Any) -> str:
    """Return the name of a value's type; it tells what is empty."""
    if value is None:
        return "null"
    if value == []:
        return "empty list"
    if value == {}:
        return "empty object"
    return type(value).__name__


def outline(document: Any) -> str:
    """Return a line for each key of a document, with the types that it has."""
    types: dict[str, set[str]] = {}
    for path, name in typed_keys(document):
        types.setdefault(path, set()).add(name)

    lines = []
    for path, names in types.items():
        alternatives = " or ".join(sorted(names))
        lines.append(f"{path}: {alternatives}\n")
    return "".join(lines)


# --- what the commands are run on -----------------------------------------------------------------


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with three models, of which one is also in the Hugging Face cache."""
    folder = tmp_path_factory.mktemp("keys")
    (folder / "own.txt").write_text("Every effort\n\nmoves you\n")
    ones = np.ones((2, 3), np.float32)
    np.savez(folder / "own.npz", token=ones, position=ones, token_type_embeddings=ones)

    rows = made.matrix(200, 3)
    infinite = np.full((1, 3), np.inf, np.float32)
    tuned = np.concatenate([rows[:150] * np.float32(2), infinite])
    save_file({"wte.weight": rows, "lm_head.weight": -rows}, folder / "model.safetensors")
    save_file({"wte.weight": tuned}, folder / "tuned.safetensors")

    commit = "0" * 40
    model = folder / "hub" / "models--o--m"
    snapshot = model / "snapshots" / commit
    snapshot.mkdir(parents=True)
    (snapshot / "model.safetensors").symlink_to(folder / "model.safetensors")
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(commit)
    return folder


@pytest.fixture(autouse=True)
def _in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder))
    monkeypatch.setenv("HF_HUB_CACHE", str(folder / "hub"))


def printed(in_process: InProcess, *words: str) -> bytes:
    """Return what a command prints; its answer may be no, as that of diff."""
    ran = in_process(*words)
    assert ran.status in (0, 1), ran
    return ran.out


# --- the keys -------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", FILES)
def test_documents_have_the_keys_of_the_snapshot_and_no_others(in_process, snapshot, name):
    def answer(words: list[str]) -> str:
        return outline(json.loads(printed(in_process, *words), parse_constant=pytest.fail))

    snapshot(name, answered(name, answer))


def test_every_verb_that_has_a_document_has_a_snapshot():
    assert {*VERBS} == COMMANDS.keys() - WITHOUT_DOCUMENT


@pytest.mark.parametrize("verb", VERBS)
def test_no_option_brings_a_key_that_the_snapshot_does_not_have(in_process, verb):
    """An option has one of its choices as value, or 1; what is refused has no document."""
    page = (PAGES / verb / "keys.txt").read_text()
    line = command_lines(f"{verb}/keys.txt")[0]
    own = inspect.signature(COMMANDS[verb][0].function).parameters
    for option in command_line().commands[verb].params:
        if option.name in own and f" {option.opts[0]} " not in page:
            for value in getattr(option.type, "choices", ["1"]):
                value_words = [] if getattr(option, "is_flag", True) else [value]
                ran = in_process(*line.split(), option.opts[0], *value_words)
                keys = typed_keys(json.loads(ran.out or "{}"))
                assert [path for path, _ in keys if f"\n{path}" not in page] == []


def commands_by_rows() -> list[str]:
    """Return the commands whose lines of ndjson are the rows of their document."""
    commands = []
    for name in FILES:
        for line in command_lines(name):
            if line.endswith(JSON) and not line.startswith(NOT_BY_ROWS):
                commands.append(line.removesuffix(JSON))
    return commands


def rows_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of a document, which come last, with the vectors of each row."""
    matrices = document.pop("matrices", {})
    unit = "tokens" if "tokens" in document else list(document)[-1]
    rows = document[unit]
    for name, matrix in matrices.items():
        for row, vector in zip(rows, matrix, strict=True):
            row.setdefault("vectors", {})[name] = vector
    return rows


@pytest.mark.parametrize("command", commands_by_rows())
def test_a_line_of_ndjson_is_a_row_of_the_document_with_its_vectors(in_process, command):
    words = command.split()
    document = from_json(printed(in_process, *words, "-f", "json"))
    lines = from_ndjson(printed(in_process, *words, "-f", "ndjson"))

    assert lines
    assert lines == rows_of(document)


def words_of(names: Iterable[str]) -> set[str]:
    """Return the parts of names such as `gradient.verdict.values`, or of paths."""
    return {*re.findall(r"[a-z][\w-]*", " ".join(names))}


def explained_keys(verb: str) -> set[str]:
    """Return the keys that `explain` has of this verb; of "" those that are of several.

    An item of a verb names it before its first colon.
    """
    found = []
    for block in [*named()["run"].blocks, *named()["fields"].blocks]:
        owners = words_of([block.text.partition(":")[0]]) & COMMANDS.keys()
        if verb in (owners or [""]):
            found.append(block.name)
    return words_of(found)


def keys_in_documents(verb: str) -> set[str]:
    """Return the keys of a verb in its snapshot."""
    page = (PAGES / verb / "keys.txt").read_text()
    return words_of(re.findall(r"^(\S+): ", page, re.MULTILINE))


@pytest.mark.parametrize("verb", VERBS)
def test_each_key_of_a_verb_is_explained_as_its_key_or_as_one_of_several(in_process, verb):
    matrices = {block.name: block.text for block in named()["matrices"].blocks}
    own = explained_keys(verb)
    explained = own | explained_keys("") | words_of([matrices.get(verb, "")])

    keys = keys_in_documents(verb)
    for line in command_lines(f"{verb}/keys.txt"):
        csv = in_process(*line.removesuffix(JSON).split(), "-f", "csv").text
        keys |= words_of(csv.splitlines()[:1])

    fields_of_rows = re.findall(r"\n\w+\[\]\.(\w+)", (PAGES / verb / "keys.txt").read_text())
    assert {*fields_of_rows} <= named()["fields"].items | {"vectors"}
    assert keys - explained - OF_DATA == set()
    assert own - keys - OF_DATA == set()


def test_what_is_explained_as_a_key_of_several_verbs_is_one():
    assert explained_keys("") - set().union(*map(keys_in_documents, VERBS)) == set()
