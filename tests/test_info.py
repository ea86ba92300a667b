"""`info` shows versions, a model's tensors and the models on this machine; text from outside is safe on a page."""

from __future__ import annotations

import json
import platform
import re
import sys
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

import embcli as package
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.seeded_layers import build
from tests.runners import InProcess


@pytest.fixture
def bert(tmp_path: Path) -> Path:
    """Return a small file of BERT's kind with a head that is a copy of the token matrix."""
    weight = np.arange(28, dtype=np.float32).reshape(7, 4)
    names = {
        "word_embeddings": weight,
        "position_embeddings": weight[:5],
        "token_type_embeddings": weight[:2],
    }
    tensors = {f"bert.embeddings.{name}.weight": rows for name, rows in names.items()}
    np.savez(
        tmp_path / "m.npz", **tensors, **{"lm_head.weight": weight, "bert.pooler.bias": weight[0]}
    )
    (tmp_path / "config.json").write_text('{"model_type": "bert", "max_position_embeddings": 5}')
    return tmp_path / "m.npz"


def test_the_page_shows_versions_capability_cache_and_encodings(
    in_process: InProcess, shared_cache: Path
) -> None:
    head, table = in_process.ok("info").text.split("\n\n")
    assert dict(re.split(" {2,}", line) for line in head.split("\n")) == {
        "embcli": package.__version__,
        "python": platform.python_version(),
        "torch": torch.__version__,
        **{name: version(name) for name in ("tiktoken", "numpy", "typer", "rich")},
        "CPU capability": torch.backends.cpu.get_cpu_capability(),
        "cache": str(shared_cache),
    }
    header, _, *rows = table.rstrip("\n").split("\n")
    assert header.split() == ["encoding", "tokens", "carried"]
    assert [row.split() for row in rows] == [
        [name, f"{definition.vocabulary_size:,}", "yes"] for name, definition in DEFINITIONS.items()
    ]


def test_torch_itself_is_asked_if_nothing_else_names_its_capability(
    in_process: InProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    wanted = in_process.ok("info").text
    monkeypatch.setattr(build, "CPU_FLAGS", str(tmp_path / "none"))
    assert build.cpu_capability() is None
    build.this_build.cache_clear()
    assert in_process.ok("info").text == wanted
    monkeypatch.setitem(sys.modules, "torch", None)
    build.this_build.cache_clear()
    run = json.loads(in_process.ok("info", "-f", "json").out)["run"]
    build.this_build.cache_clear()
    assert (run["torch"].startswith("torch is not installed"), run["cpu_capability"]) == (
        True,
        None,
    )


def test_the_page_of_a_model(
    in_process: InProcess, bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(bert.parent)
    page = """
m.npz: npz
m.npz
5 tensors; encoding: none

role        tensor                                        shape  dtype        bytes
───────────────────────────────────────────────────────────────────────────────────
token       bert.embeddings.word_embeddings.weight        7 x 4  float32  112 bytes
position    bert.embeddings.position_embeddings.weight    5 x 4  float32   80 bytes
token_type  bert.embeddings.token_type_embeddings.weight  2 x 4  float32   32 bytes
head        lm_head.weight                                7 x 4  float32  112 bytes
Left out: 1 other tensor.

output head: a copy of the token matrix: 7 rows compared, all equal
hidden = not known: cannot read 'm.npz': config.json says that it is a 'bert' model, and it has no LayerNorm
model_type: bert
max_position_embeddings: 5
"""
    assert in_process.ok("info", "m.npz", COLUMNS="120").text == page.removeprefix("\n")
    assert "\n--tensors lists all" in InProcess()("info", "m.npz", suggestions=True).text
    narrow = in_process.ok("info", "m.npz", "--width", "40").text
    assert "role        tensor                 shape\n" in narrow
    assert re.search("token       bert[.]\\w+…[.\\w]+  7 x 4\n", narrow)


def test_the_data_of_a_model(in_process: InProcess, bert: Path) -> None:
    document = json.loads(in_process.ok("info", "--from", str(bert), "-f", "json").out)
    first = {"role": "token", "tensor": "bert.embeddings.word_embeddings.weight", "shape": [7, 4]}
    assert document["tensors"][0] == {**first, "dtype": "float32", "bytes": 112}
    assert [each["role"] for each in document["tensors"]] == [
        "token",
        "position",
        "token_type",
        "head",
    ]
    head = {"tensor": "lm_head.weight", "relation": "equal", "rows_compared": 7}
    assert head.items() <= document["run"]["head"].items()
    assert document["run"]["positions"] == {"model_type": "bert", "max_position_embeddings": 5}
    assert (
        len(in_process.ok("info", "--from", str(bert), "--tensors", "-f", "csv").text.splitlines())
        == 6
    )
    position = "bert.embeddings.position_embeddings.weight"
    chosen = ("info", "--from", str(bert), "--tensor", position, "-f", "json")
    tensors = json.loads(in_process.ok(*chosen).out)["tensors"]
    assert {each["tensor"]: each["role"] for each in tensors}[position] == "position, chosen"
    np.savez(bert.with_name("bare.npz"), q=np.ones((7, 4)), k=np.ones((9, 4)))  # no name tells
    chosen = ("info", "--from", str(bert.with_name("bare.npz")), "--tensor", "q", "-f", "json")
    assert [each["role"] for each in json.loads(in_process.ok(*chosen).out)["tensors"]] == ["token"]


def test_other_tensors_are_counted_and_an_option_is_said_to_take_one(tmp_path: Path) -> None:
    path, hinting = str(tmp_path / "m.npz"), InProcess()
    for others, count in (({}, 0), ({"wpe": np.ones((2, 3))}, 1)):
        np.savez(path, wte=np.ones((4, 3)), **others)
        for command, what in ((["audit", path], "checked"), (["diff", path, path], "compared")):
            said = f"; 1 other tensor not {what}\n--tensor or --encoding name others; embcli explain {command[0]}"
            assert hinting(*command, suggestions=True).text.count(said) == count
