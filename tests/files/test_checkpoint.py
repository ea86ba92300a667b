"""A model's tensors are found by what they are for, or named; a real model's rows are its own."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.numpy import save_file
from safetensors.torch import save_model

import embcli
from embcli.errors import InputError, Notes
from embcli.files import roles
from embcli.files.checkpoint import Checkpoint
from tests.cases import cases
from tests.files.made import assert_rows, closed, matrix, written


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def opened(
    tensors: dict[str, np.ndarray],
    config: dict[str, Any] | None = None,
    **given: Any,
) -> Checkpoint:
    """Save tensors and a config.json beside them, and open them."""
    save_file(tensors, "model.safetensors")
    if config is not None:
        Path("config.json").write_text(json.dumps(config))
    return Checkpoint("model.safetensors", **given)


def tensor_name(source: Checkpoint, role: str) -> str | None:
    tensor = source.roles.find(role)
    return tensor.name if tensor else None


# --- tensors by their names -----------------------------------------------------------------------


@cases
def test_the_matrices_of_each_family_are_found(token, position, other, shape):
    tensors = {token: matrix(50, 7)}
    if position:
        tensors[position] = matrix(12, 7, seed=2)
    if other:
        tensors[other] = zeros(*shape)

    source = opened(tensors)

    assert_rows(source.open({"token": None}, Notes())["token"], matrix(50, 7))
    assert tensor_name(source, "position") == position
    if position:
        assert_rows(source.open({"position": None}, Notes())["position"], matrix(12, 7, seed=2))


def test_a_name_is_matched_as_a_whole():
    names = ["xwte.weight", "wte.bias", "wte.weight.scale", "wte2", "a.wte.weight"]
    source = opened(dict.fromkeys(names, zeros(9, 7)))
    assert tensor_name(source, "token") == "a.wte.weight"


def test_what_does_not_fit_in_shape_is_passed_over():
    tensors = {
        "wte.weight": zeros(5, 7, 1),
        "model.embed_tokens.weight": zeros(5, 7),
        "wpe.weight": zeros(9, 8),
        "position_embeddings": zeros(9, 7),
        "head.weight": zeros(2, 7),
    }
    source = opened(tensors)
    assert tensor_name(source, "token") == "model.embed_tokens.weight"
    assert tensor_name(source, "position") == "position_embeddings"
    assert tensor_name(source, "head") is None


def test_values_that_float32_cannot_hold_are_counted_over_all_layers():
    source = opened({"wte": np.full((5, 7), 0.1), "roberta.wpe": np.full((6, 7), 0.1)})
    notes = Notes()
    layers = source.open({"token": None, "position": None}, notes)
    layers["token"].rows(np.array([1]))
    layers["position"].rows(np.array([1]))
    (note,) = notes
    assert str(note).startswith("14 values")


# --- guesses and flags ----------------------------------------------------------------------------


def test_the_only_matrix_is_the_token_matrix_whatever_its_name_and_that_is_said():
    source = opened({"\x1b[2Jodd": matrix(5, 7), "bias": zeros(7)})
    assert source.reasons["token"] == r"'\x1b[2Jodd' is the only matrix"


def test_without_a_known_name_the_candidates_are_listed():
    tensors = {f"{number}.w": zeros(number + 2, 7) for number in range(11)}
    tensors |= {"b": zeros(7), "\x1b[2J": zeros(40, 7)}
    with pytest.raises(InputError, match="no tensor has the name of a token matrix") as caught:
        opened(tensors)
    first, *others = str(caught.value.hint).split("; ")
    assert first == r"'\x1b[2J' (40, 7) float32"
    assert others[-1] == "..."


@cases
def test_a_file_with_a_part_of_each_matrix_is_refused(params, reason):
    name = "consolidated.00.pth"
    torch.save({"wte": torch.zeros(50, 7)}, name)
    Path("params.json").write_text(json.dumps(params))
    if reason:
        with pytest.raises(InputError, match=reason):
            Checkpoint(name)
    assert Checkpoint(name, "wte" if reason else None).shape("token") == (50, 7)


def test_the_only_matrix_of_a_file_of_several_is_not_guessed_to_be_the_token_matrix():
    torch.save({"odd": torch.zeros(50, 7)}, "pytorch_model-00002-of-00003.bin")
    with pytest.raises(InputError, match="no tensor has the name"):
        Checkpoint("pytorch_model-00002-of-00003.bin")


ENCODER_S = "encoder.embed_tokens.weight"
DECODER_S = "model.decoder.embed_tokens.weight"


@cases
def test_without_one_token_matrix_a_file_is_refused(shapes, token, reason):
    random = np.random.default_rng(1)
    tensors = {name: random.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    with pytest.raises(InputError, match=reason):
        opened(tensors, token=token)


@cases
def test_of_several_names_that_of_the_model_s_type_counts(model_type, own, stray):
    source = opened({own: matrix(), stray: matrix(seed=2)}, {"model_type": model_type})
    assert tensor_name(source, "token") == own


def test_several_that_are_equal_are_one():
    equal = {ENCODER_S: matrix(), DECODER_S: matrix()}
    source = opened(equal)
    assert tensor_name(source, "token") == ENCODER_S
    assert "one of 2 equal tensors" in source.reasons["token"]
    source = opened({**equal, "shared.weight": matrix()})
    assert tensor_name(source, "token") == "shared.weight"


def test_several_position_matrices_are_an_error_only_where_one_is_asked_for():
    tensors = {
        "model.shared.weight": matrix(),
        "model.a.embed_positions.weight": matrix(seed=2),
        "model.b.embed_positions.weight": matrix(seed=3),
    }
    source = opened(tensors)
    assert_rows(source.open({"token": None}, Notes())["token"], matrix())
    with pytest.raises(InputError, match="several tensors could be the position matrix"):
        source.shape("position")


@cases
def test_of_an_encoder_s_and_a_decoder_s_matrix_the_encoder_s_counts(config, part):
    tensors = {
        "model.shared.weight": matrix(),
        "model.encoder.embed_positions.weight": matrix(seed=2),
        "model.decoder.embed_positions.weight": matrix(seed=3),
    }
    source = opened(tensors, config)
    assert_rows(source.open({"position": None}, Notes())["position"], matrix(seed=2))
    assert source.roles.part == part


def test_tensors_can_be_named():
    assert opened({"wte": matrix(), "a": zeros(20, 5)}, token="a").shape("token") == (20, 5)


@pytest.mark.parametrize("role", ["position", "token_type"])
def test_a_layer_that_is_not_there_is_none_and_cannot_be_opened(role):
    source = opened({"wte": matrix()})
    assert source.shape(role) is None
    with pytest.raises(InputError, match="it has no"):
        source.open({role: None}, Notes())


def test_a_head_that_is_not_there_is_refused():
    source = opened({"wte": matrix()})
    with pytest.raises(InputError, match="it has no output head"):
        source.shape("head")
    with pytest.raises(InputError, match="it has no output head"):
        source.open({"head": None}, Notes())


# --- positions ------------------------------------------------------------------------------------


@cases
def test_position_0_is_the_row_that_the_model_picks_for_it(name, rows, config, first):
    source = opened({"embed_tokens": matrix(), name: matrix(rows, 7, seed=2)}, config)
    layers = source.open({"position": None}, Notes())
    assert_rows(layers["position"], matrix(rows, 7, seed=2)[first:])
    assert layers.origin.first_position == first
    assert "first_position" not in source.reasons


@cases
def test_position_0_is_guessed_by_a_name_or_a_size_and_that_is_said(name, rows, reason):
    source = opened({"embed_tokens": matrix(), name: matrix(rows, 7, seed=2)})
    layers = source.open({"position": None}, Notes())
    assert_rows(layers["position"], matrix(rows, 7, seed=2)[2:])
    assert reason in source.reasons["first_position"]


@cases
def test_what_config_json_says_of_positions_is_told(config, told):
    assert opened({"embed_tokens": matrix()}, config).positions == told


def test_what_a_gguf_file_says_of_positions_is_told():
    written("m.gguf", {"token_embd.weight": matrix()})
    told = {"model_type": "llama", "max_position_embeddings": 77, "n_positions": 77}
    assert Checkpoint("m.gguf").positions == told


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", '{"a":' * 100_000])
def test_a_config_that_cannot_be_read_is_refused_except_for_token_rows(text):
    opened({"wte": matrix(), "wpe": matrix()})
    Path("config.json").write_text(text)
    model = embcli.open(".")

    model.diff(model)
    model.neighbors([3])
    assert "config.json" in str(model.info().recipe)
    (note,) = model.weights().notes
    assert re.search(r"config\.json.*; it is ignored$", str(note))

    with pytest.raises(InputError, match=r"config\.json"):
        model.audit()
    with pytest.raises(InputError, match=r"config\.json"):
        model.lookup([3])
    with pytest.raises(InputError, match=r"config\.json"):
        model.positions()
    with pytest.raises(InputError, match=r"config\.json"):
        model.weights(layer="position")


# --- the output head ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "out_head.weight", "output.weight", "cls.predictions.decoder.weight"]
)
def test_a_head_of_equal_rows_is_equal_to_the_token_matrix(name):
    head = opened({"embed_tokens": matrix(), name: matrix()}).head
    assert head.relation == "equal"
    assert head.rows == 50
    assert head.tensor.name == name


WIDE = matrix().astype(np.float64)
OTHER_AT_THE_END = matrix()
OTHER_AT_THE_END[49, 6] += 1


@pytest.mark.parametrize(
    ("token", "rows"),
    [
        (matrix(), OTHER_AT_THE_END),
        (matrix(), matrix(51, 7)),
        (WIDE, np.nextafter(WIDE, 9)),
    ],
    ids=["at its end", "one row more", "behind the digits of float32"],
)
def test_a_head_of_other_rows_is_another(token, rows):
    head = opened({"embed_tokens": token, "lm_head.weight": rows}).head
    assert head.relation == "other"


def test_of_large_matrices_some_rows_are_compared_and_how_many_is_told(
    monkeypatch,
):
    monkeypatch.setattr(roles, "COMPARED", 8 * 7 * 10)
    assert opened({"embed_tokens": matrix(), "lm_head": matrix()}).head.rows == 10


def test_a_head_that_is_the_same_tensor_is_told():
    weight = torch.from_numpy(matrix())
    torch.save({"wte.weight": weight, "lm_head.weight": weight}, "m.pt")
    assert Checkpoint("m.pt").head.relation == "same"


@cases
def test_a_head_that_is_in_no_file_is_what_config_json_states(config, relation, stated):
    head = opened({"wte": matrix()}, config).head
    assert head.tensor is None
    assert head.relation == relation
    reason = f"config.json states tie_word_embeddings {stated}" if stated else ""
    assert head.reason == reason


@cases
def test_a_gguf_file_without_a_head_is_tied_if_it_is_of_a_causal_model(
    architecture, causal, relation, reason
):
    writer = GGUFWriter("m.gguf", architecture)
    if causal is not None:
        writer.add_causal_attention(causal)
    writer.add_tensor("token_embd.weight", matrix())
    closed(writer)
    head = Checkpoint("m.gguf").head
    assert head.relation == relation
    assert head.reason == reason


@pytest.mark.parametrize("token", ["tok_emb", "lookup"])
def test_the_names_that_save_model_drops_are_names_of_the_tensor(token):
    model = torch.nn.ModuleDict(
        {token: torch.nn.Embedding(50, 7), "out_head": torch.nn.Linear(7, 50, bias=False)}
    )
    model["out_head"].weight = model[token].weight
    save_model(model, "model.safetensors")
    source = Checkpoint("model.safetensors")
    assert_rows(
        source.open({"token": None}, Notes())["token"], model[token].weight.detach().numpy()
    )
    assert source.head.relation == "same"
    assert len({tensor.stored_at for tensor in source.tensors.values()}) == 1
    assert len(source.tensors) == 2


def test_the_head_of_rembert_has_columns_of_its_own():
    tensors = {
        "rembert.embeddings.word_embeddings.weight": matrix(50, 3),
        "cls.predictions.decoder.weight": matrix(),
    }
    head = opened(tensors, {"model_type": "rembert", "tie_word_embeddings": False}).head
    assert head.relation == "other"
    assert head.tensor.shape == (50, 7)
    assert opened(tensors, {"model_type": "albert"}).head.tensor is None
