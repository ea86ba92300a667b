"""`info` shows versions, encodings, and a model's tensors with their roles."""

from __future__ import annotations

import platform
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import torch

import embcli
from embcli.seeded_layers import build
from tests import transcripts
from tests.cases import cases
from tests.transcripts import document_of, session

# Each test writes its model there.
_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


# --- this installation ----------------------------------------------------------------------------


def test_the_data_has_versions_capability_and_cache(in_process, shared_cache):
    run = document_of(in_process, "info")["run"]

    assert run["embcli"] == embcli.__version__
    assert run["python"] == platform.python_version()
    assert run["torch"] == torch.__version__
    for package in ("tiktoken", "numpy", "typer", "rich"):
        assert run[package] == version(package)
    assert run["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert run["cache"] == str(shared_cache)


def test_the_page_has_the_facts_of_the_data(in_process, snapshot):
    """Those of the machine are on top; the encodings below are the same everywhere."""
    facts, encodings = in_process.ok("info").text.split("\n\n")

    values = [line.split()[-1] for line in facts.splitlines()]
    assert values == [*document_of(in_process, "info")["run"].values()]
    snapshot("info/encodings.txt", encodings)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("CPU_FLAGS", "none", {"cpu_capability": platform.machine()}),
        ("find_spec", None, {"torch": "none"}),
    ],
)
def test_what_cannot_be_known_without_torch_is_named(
    in_process,
    monkeypatch,
    name,
    value,
    expected,
):
    """The flags of the processor are missing, or torch is."""
    monkeypatch.setattr(build, name, value if isinstance(value, str) else lambda _: None)
    build.this_build.cache_clear()

    run = document_of(in_process, "info")["run"]

    build.this_build.cache_clear()
    assert run == {**run, **expected}


# --- a model --------------------------------------------------------------------------------------


@pytest.fixture
def _bert() -> None:
    """Write `m.npz`, of BERT's kind, with a head that is a copy of the token matrix."""
    weight = np.arange(28, dtype=np.float32).reshape(7, 4)
    tensors = {
        "bert.embeddings.word_embeddings.weight": weight,
        "bert.embeddings.position_embeddings.weight": weight[:5],
        "bert.embeddings.token_type_embeddings.weight": weight[:2],
        "lm_head.weight": weight,
        "bert.pooler.bias": weight[0],
    }
    np.savez("m.npz", **tensors)
    Path("config.json").write_text('{"model_type": "bert", "max_position_embeddings": 5}')


@pytest.mark.usefixtures("_bert")
def test_the_page_of_a_model_has_its_tensors_and_their_roles(in_process, snapshot):
    pages = session(in_process, "info m.npz --width 120", "info m.npz --width 40")

    snapshot("info/bert.txt", pages)
    assert "--tensors" in in_process("info", "m.npz", suggestions=True).text


@pytest.mark.usefixtures("_bert")
def test_the_data_of_a_model_has_its_tensors_and_their_roles(in_process):
    document = document_of(in_process, "info", "m.npz")

    assert document["tensors"][0] == {
        "role": "token",
        "tensor": "bert.embeddings.word_embeddings.weight",
        "shape": [7, 4],
        "dtype": "float32",
        "bytes": 112,
    }
    assert document["run"]["head"]["relation"] == "equal"
    assert len(document_of(in_process, "info", "m.npz", "--tensors")["tensors"]) == 5


@pytest.mark.usefixtures("_bert")
def test_a_tensor_is_chosen_only_in_a_file_without_a_known_token_matrix(in_process):
    ones = np.ones((7, 4))
    np.savez("unknown.npz", q=ones, k=ones)

    name = "bert.embeddings.position_embeddings.weight"
    assert "leave out --tensor" in in_process.refused("info", "m.npz", "--tensor", name)
    tensors = document_of(in_process, "info", "unknown.npz", "--tensor", "q")["tensors"]
    assert tensors[0]["role"] == "token"


@cases
def test_other_tensors_are_counted_and_an_option_is_said_to_take_one(
    in_process, snapshot, verb, files
):
    matrix = np.eye(4, 3) + 1
    np.savez("m.npz", wte=matrix, wpe=matrix)
    page = in_process(verb, *files, suggestions=True, COLUMNS="80").text
    snapshot(f"{verb}/other-tensors.txt", page)
