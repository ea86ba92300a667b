"""Files beside the weights: tokenizers that change or cannot be read, modules, a second matrix."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import embcli
from embcli import encodings
from embcli.errors import InputError
from tests import transcripts
from tests.cases import cases
from tests.files.made import save_words
from tests.oracles import normal
from tests.test_dialects import PAIR_MODEL, SCORED, sentencepiece

_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def save_matrix(path: str, matrix: np.ndarray, name: str = "wte.weight") -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    save_file({name: matrix}, path)


# --- tokenizers -----------------------------------------------------------------------------------


def test_a_tokenizer_that_changed_on_disk_is_read_anew():
    save_words("m/tokenizer.json", ["a", "b"])
    assert encodings.get("m/tokenizer.json").encode("b").tolist() == [1]

    save_words("m/tokenizer.json", ["a", "other", "b"])

    assert encodings.get("m/tokenizer.json").encode("b").tolist() == [2]


def test_ids_that_a_tokenizer_model_has_and_a_tokenizer_json_has_not_are_a_finding(in_process):
    """Reserved tokens can have other names."""
    words = [word for word, _, _ in SCORED]
    words[-3:] = ["<reserved>", words[-1], words[-2]]
    save_words("m/tokenizer.json", words)
    save_matrix("m/model.safetensors", normal(len(words), 3))
    told = "tokenizer.model and tokenizer.json, which is read, differ in "
    assert told not in in_process("audit", "m").text

    sentencepiece(Path("m"), PAIR_MODEL, SCORED)

    assert told in in_process("audit", "m").text


def test_the_words_of_sentence_transformers_stand_for_their_rows():
    matrix = np.concatenate([np.zeros((1, 4), np.float32), normal(2, 4)])
    save_matrix("m/model.safetensors", matrix, "emb_layer.weight")
    words = {"vocab": ["PADDING_TOKEN", "cat", "the"], "stop_words": ["the"]}
    Path("m/whitespacetokenizer_config.json").write_text(json.dumps(words))

    opened = embcli.open("m")

    assert opened.lookup("the cat").ids.tolist() == [2, 1]
    assert opened.audit().is_sound
    assert "stop words" in str(opened.audit().notes)


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer.model", "vocab.json"])
def test_a_tokenizer_that_cannot_be_read_is_noted_and_ids_go_on(in_process, name):
    matrix = normal(6, 3)
    save_matrix("m/model.safetensors", matrix)
    Path("m", name).write_text("{broken")

    ran = in_process("lookup", "--ids", "1,4", "--from", "m", "-f", "csv")

    assert ran.status == 0
    assert name in ran.err
    assert "ignored" in ran.err
    np.testing.assert_array_equal(embcli.open("m")[[1, 4]], matrix[[1, 4]])
    assert "encoding" in in_process("lookup", "text", "--from", "m").err


# --- modules of Sentence Transformers -------------------------------------------------------------


@pytest.mark.parametrize("module", ["", "0_Transformer", "parts/0_StaticEmbedding"])
def test_the_weights_and_the_tokenizer_of_a_module_are_found(module):
    matrix = normal(3, 4)
    save_matrix(f"m/{module}/model.safetensors", matrix, "embedding.weight")
    save_words(f"m/{module}/tokenizer.json", ["a", "b", "c"])
    modules = [{"idx": 0, "path": module}, {"idx": 1, "path": "1_Pooling"}]
    Path("m/modules.json").write_text(json.dumps(modules))

    model = embcli.open("m")

    np.testing.assert_array_equal(model["c"], matrix[[2]])
    assert encodings.get("./m").encode("b").tolist() == [1]


@cases
def test_a_list_of_modules_that_leads_nowhere_changes_no_error(content):
    save_matrix("elsewhere/model.safetensors", normal(3, 4))
    Path("m").mkdir()
    Path("m/modules.json").write_text(content)
    with pytest.raises(InputError, match="no file of weights"):
        embcli.open("m")


# --- adapters -------------------------------------------------------------------------------------


def test_an_adapter_is_named_as_not_applied(in_process, snapshot):
    module = "model.embed_tokens"
    matrix = {f"{module}.weight": normal(6, 3)}
    adapter = {f"{module}.lora_embedding_A": normal(2, 6)}
    adapter[f"{module}.lora_embedding_B"] = normal(3, 2)
    save_file(matrix, "base.safetensors")
    save_file(adapter, "adapter_model.safetensors")
    save_file(matrix | adapter, "both.safetensors")

    error = in_process.refused("diff", "base.safetensors", "adapter_model.safetensors")
    snapshot("diff/adapter.txt", error)
    assert "it is not applied: merge it" in in_process("weights", "both.safetensors").err


@cases
def test_an_adapter_says_what_it_changes_of_the_two_matrices(in_process, modules, changes):
    adapter = {f"base_model.model.{module}.weight": normal(2, 6) for module in modules.split()}
    save_file(adapter, "adapter_model.safetensors")
    Path("adapter_config.json").write_text('{"base_model_name_or_path": "org/base"}')
    error = in_process.refused("weights", "adapter_model.safetensors")
    assert f"an adapter, which {changes}" in error
    assert "Name its base model (org/base), or " in error

    save_file({"embed_tokens.weight": normal(6, 3), **adapter}, "both.safetensors")
    page = in_process("diff", "both.safetensors", "both.safetensors").text
    assert "equal in 6 rows; the adapter is not applied" in page


def test_an_adapter_that_lacks_a_matrix_it_was_to_save_is_not_sound():
    adapter = {"model.embed_tokens.weight": normal(6, 3), "model.q_proj.lora_A": normal(2, 6)}
    save_file(adapter, "adapter_model.safetensors")
    stated = {"modules_to_save": ["embed_tokens", "lm_head", "classifier"]}
    Path("adapter_config.json").write_text(json.dumps(stated))
    findings = embcli.open("adapter_model.safetensors").audit().findings
    (load,) = [finding for finding in findings if finding.kind == "load"]
    assert load.text.startswith("adapter_config.json has lm_head in modules_to_save")


@pytest.mark.parametrize("module", ["embed_tokens", "layers.0.q_proj"])
@pytest.mark.parametrize("other", ["lora_embedding_A", "lora_A.weight", "base_layer.bias"])
def test_base_layers_whose_adapter_was_not_merged_are_called_that(in_process, module, other):
    """They are no token matrix; beside one they get a note."""
    layers = {
        f"model.{module}.base_layer.weight": normal(6, 3),
        f"model.{module}.{other}": normal(2, 6),
    }
    save_file(layers, "base_layers.safetensors")
    error = in_process.refused("audit", "base_layers.safetensors")
    assert "it has base layers of PEFT, whose adapter was not merged" in error
    has_lora = other != "base_layer.bias"
    assert (f"changes {module.split('.')[-1]}, and" in error) == has_lora
    assert "merge_and_unload" in error

    save_file({"shared.weight": normal(6, 3), **layers}, "both.safetensors")
    note = in_process("audit", "both.safetensors").err
    assert "whose adapter was not merged" in note
    assert "it is not applied: merge it" in note


# --- an encoder's own matrix ----------------------------------------------------------------------


@pytest.mark.parametrize("is_equal", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_the_encoders_matrix_is_read_where_it_differs_from_the_shared_one(is_equal, tied):
    shared = normal(8, 4)
    encoder = shared if is_equal else normal(8, 4, seed=1)
    tensors = {"model.shared.weight": shared, "model.encoder.embed_tokens.weight": encoder}
    save_file(tensors, "model.safetensors")
    settings = {"model_type": "bart", "tie_word_embeddings": tied, "scale_embedding": False}
    Path("config.json").write_text(json.dumps(settings))

    model = embcli.open("model.safetensors")

    np.testing.assert_array_equal(model[:], encoder)
    assert any("differs" in reason for reason in model.audit().origin.guesses.values()) != is_equal


# --- padding positions ----------------------------------------------------------------------------


@pytest.mark.parametrize("padding", [0, 1, 2, 5])
def test_the_sinusoid_of_xglms_padding_position_is_zero(padding):
    """Its table begins at -2, and the row of the padding ID is zero."""
    dim = 8
    save_matrix("m/model.safetensors", normal(20, dim), "model.embed_tokens.weight")
    settings = {"model_type": "xglm", "pad_token_id": padding, "scale_embedding": False}
    Path("m/config.json").write_text(json.dumps(settings))

    rows = embcli.open("m").lookup(np.arange(7)).position

    is_zero = ~rows.any(axis=1)
    assert np.flatnonzero(is_zero).tolist() == [place for place in [padding - 2] if place >= 0]
    rates = np.exp(np.arange(dim // 2) * -(math.log(10000) / (dim // 2 - 1)))
    angles = (np.arange(7) + 2)[:, None] * rates
    expected = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    np.testing.assert_allclose(rows[~is_zero], expected[~is_zero], atol=1e-6)
