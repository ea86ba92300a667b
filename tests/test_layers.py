"""`--layer head` shows of an output head what other commands show of a token matrix."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from safetensors.numpy import save_file

import embcli
from embcli.errors import InputError
from embcli.explore.explored import ExploredMatrix
from embcli.names import Metric
from tests.files.made import matrix

ROWS = 40
DIM = 6


@pytest.fixture(autouse=True)
def _models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write a model with a head of its own, its head as a model, a tied model and an encoder."""
    monkeypatch.chdir(tmp_path)
    token = vectors(1)
    head = vectors(2)
    head[3] = 0
    head[5] = head[4]
    save_file({"wte.weight": token, "lm_head.weight": head}, "own.safetensors")
    save_file({"wte.weight": head}, "head.safetensors")
    written("tied", {"wte.weight": token}, tie_word_embeddings=True)
    written("encoder", {"embeddings.word_embeddings.weight": token}, architectures=["BertModel"])


def vectors(seed: int) -> np.ndarray:
    return matrix(ROWS, DIM, seed)


def written(folder: str, tensors: dict[str, np.ndarray], **config: Any) -> None:
    Path(folder).mkdir()
    save_file(tensors, f"{folder}/model.safetensors")
    Path(folder, "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("metric", get_args(Metric))
def test_the_neighbours_in_a_head_are_those_in_a_matrix_of_its_rows(metric):
    found = embcli.open("own.safetensors").neighbors([7], layer="head", metric=metric, top=5)
    wanted = embcli.open("head.safetensors").neighbors([7], metric=metric, top=5)

    assert found.ids.tolist() == wanted.ids.tolist()
    assert found.scores.tolist() == wanted.scores.tolist()


def test_an_audit_of_a_layer_has_the_rows_of_no_other():
    model = embcli.open("own.safetensors")
    both = model.audit()
    head = model.audit(layer="head")
    token = model.audit(layer="token")
    alone = embcli.open("head.safetensors").audit()

    assert [matrix.name for matrix in both.matrices] == ["token", "head"]
    assert [matrix.name for matrix in head.matrices] == ["head"]
    assert [*head.main.broken["zero"]] == [*alone.main.broken["zero"]] == [3]
    assert head.main.scan.equal == alone.main.scan.equal == ((4, 5),)
    np.testing.assert_array_equal(head.main.norms, alone.main.norms)
    assert head.broken == both.broken == ("head",)
    assert [matrix.name for matrix in token.matrices] == ["token"]
    assert token.broken == ()


def test_a_copied_head_is_no_contradiction_if_one_layer_is_audited():
    tensors = {"wte.weight": vectors(1), "lm_head.weight": vectors(1)}
    written("copy", tensors, tie_word_embeddings=True)
    model = embcli.open("copy")

    for layer in (None, "token", "head"):
        kinds = [finding.kind for finding in model.audit(layer=layer).findings]
        assert "tied" not in kinds, layer


def test_the_head_of_a_tied_model_is_its_token_matrix():
    model = embcli.open("tied")

    np.testing.assert_array_equal(model.weights(layer="head").head, vectors(1))
    assert model.audit(layer="head").main.name == "head"
    assert not model.diff(model, layer="head").different


def test_the_pages_say_that_they_show_a_head(in_process, snapshot):
    pages = []
    for verb in ("weights", "audit"):
        pages.append(in_process(verb, "own.safetensors", "--layer", "head").text)
    pages.append(in_process.ok("weights", "tied", "--layer", "head").text)
    pages.append(in_process("diff", "own.safetensors", "tied", "--layer", "head").text)
    snapshot("weights/heads.txt", "\n".join(pages))


def test_a_model_without_a_head_is_refused(in_process, snapshot):
    layer = ("--layer", "head")
    errors = [
        in_process.refused("weights", *layer),
        in_process.refused("audit", "--vocab", "6", *layer),
        in_process.refused("weights", "encoder", *layer),
        in_process.refused("audit", "encoder", *layer),
        in_process.refused("neighbors", "--ids", "2", "--from", "encoder", *layer),
        in_process.refused("diff", "encoder", "own.safetensors", *layer),
        in_process.refused("diff", "own.safetensors", "encoder", *layer),
        in_process.refused("weights", "own.safetensors", "--tensor", "lm_head.weight", *layer),
        in_process.refused("audit", "encoder", "--layer", "position"),
    ]
    snapshot("weights/no-head.txt", "".join(errors))


def test_the_full_screen_of_a_head_names_it_in_its_commands():
    options = {"layer": "head"}
    name = "own.safetensors"
    matrix = ExploredMatrix(embcli.open(name), name, options, "head")
    wanted, _ = matrix.nearest(7, "cosine", embcli.errors.unwatched)

    np.testing.assert_array_equal(matrix.row(8), vectors(2)[8])
    nearest = embcli.open("head.safetensors").neighbors([7], top=50)
    assert wanted.tolist() == nearest.ids.tolist()
    assert matrix.spell("weights") == "embcli weights own.safetensors --layer head"
    with pytest.raises(InputError):
        ExploredMatrix(embcli.open("encoder"), None, {}, "head")
