"""`audit` of an adapter of PEFT finds what PEFT does not load, and what was not trained."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
from safetensors.numpy import save_file

import embcli
from embcli.verbs.audit import audit_adapter
from tests import transcripts
from tests.cases import cases, data
from tests.files.made import save_words
from tests.oracles import normal

SETTINGS = data(__name__)["adapter_config.json"]
_in_a_folder_of_its_own = transcripts.in_a_folder_of_its_own


def save_adapter(tensors: dict[str, np.ndarray], settings: dict[str, object]) -> None:
    """Write an adapter of one module, by the ends of names, and a base model with 6 tokens."""
    shapes = {"layers.0.q_proj": (8, 4), "layers.0.qkv": (5, 5), "embed_tokens": (6, 4)}
    base = {f"{name}.weight": normal(*shape) for name, shape in shapes.items()}
    Path("base").mkdir()
    save_file(base, "base/model.safetensors")
    Path("base/config.json").write_text(json.dumps(settings))
    save_words("m/tokenizer.json", "abcdefg" if "trainable_token_indices" in settings else "abcdef")
    module = "base_model.model.model.layers.0.q_proj"
    named = {f"{module}.{name}": matrix for name, matrix in tensors.items()}
    save_file(named, "m/adapter_model.safetensors")
    Path("m/adapter_config.json").write_text(json.dumps(SETTINGS | settings))


@cases
def test_an_adapter_has_only_the_faults_that_peft_finds(settings, shapes, faults):
    save_adapter({name: normal(*shape) for name, shape in shapes.items()}, settings)
    *findings, _ = audit_adapter("m").findings  # transformers is not asked
    assert [finding.text.partition(":")[0] for finding in findings] == faults


def test_an_adapter_without_a_token_matrix_has_a_page(in_process, snapshot):
    tensors = {
        "lora_A.weight": normal(3, 4),
        "lora_B.weight": np.zeros((8, 2), np.float32),
        "lora_magnitude_vector": np.full(8, np.nan, np.float32),
    }
    save_adapter(tensors, {})
    save_words("m/tokenizer.json", "abcdefg")
    ran = in_process("audit", "m")
    snapshot("audit/adapter.txt", ran.text)
    assert ran.status == 1
    assert "token matrix" in in_process.refused("audit", "m", "--layer", "head")


def test_an_adapter_with_a_token_matrix_is_checked_as_well():
    save_adapter({"lora_A": normal(3, 4), "embed_tokens.weight": normal(6, 4)}, {})
    assert embcli.open("m").audit().broken == ("load",)
