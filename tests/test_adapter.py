"""A LoRA adapter of embeddings is applied to its base as PEFT does, or is said not to be."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

import embcli
from tests.runners import InProcess
from tests.snapshots import Snapshot

ROWS = 30
DIM = 6
RANK = 2
MODULE = "base_model.model.model.embed_tokens"


def random(*shape: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


FIRST = random(RANK, ROWS, seed=2)
SECOND = random(DIM, RANK, seed=3)
FIRST[:, 10:] = 0  # these rows are as they were


@pytest.fixture(autouse=True)
def _in_a_folder_with_a_base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_file({"model.embed_tokens.weight": random(ROWS, DIM, seed=1)}, "base.safetensors")


def written_adapter(module: str = MODULE, first: np.ndarray = FIRST, **config: Any) -> str:
    Path("adapter").mkdir()
    tensors = {f"{module}.lora_embedding_A": first, f"{module}.lora_embedding_B": SECOND}
    save_file(tensors, "adapter/adapter_model.safetensors")
    Path("adapter/adapter_config.json").write_text(json.dumps({"peft_type": "LORA"} | config))
    return "adapter"


def rows_by_torch(scale: float) -> np.ndarray:
    """Return the rows of the layer that PEFT's Embedding.forward gives, one by one."""
    base = torch.nn.Embedding.from_pretrained(torch.from_numpy(random(ROWS, DIM, seed=1)))
    ids = torch.arange(ROWS)
    after_first = torch.nn.functional.embedding(ids, torch.from_numpy(FIRST).T)
    added = after_first @ torch.from_numpy(SECOND).T
    return (base(ids) + added * scale).numpy()


@pytest.mark.parametrize(
    ("config", "scale"),
    [
        ({"lora_alpha": 8}, 8 / RANK),
        ({"lora_alpha": 8, "use_rslora": True}, 8 / RANK**0.5),
        ({"lora_alpha": 8, "alpha_pattern": {"embed_tokens": 3}}, 3 / RANK),
        ({"lora_alpha": 8, "alpha_pattern": {"lm_head": 3}}, 8 / RANK),
    ],
)
def test_an_adapter_is_applied_to_its_base(config: dict[str, Any], scale: float) -> None:
    base = embcli.open("base.safetensors")
    tuned = embcli.open(written_adapter(**config), base=base)

    np.testing.assert_allclose(tuned[:], rows_by_torch(scale), rtol=1e-5, atol=1e-6)
    assert base.diff(tuned).counts == {"equal": 20, "changed": 10, "removed": 0, "added": 0}
    again = pickle.loads(pickle.dumps(tuned.weights()))
    np.testing.assert_array_equal(again.token, tuned[:])


def test_diff_applies_an_adapter(in_process: InProcess, snapshot: Snapshot) -> None:
    written_adapter(lora_alpha=8)

    ran = in_process("diff", "base.safetensors", "adapter")

    assert ran.status == 1
    snapshot("diff/adapter.txt", ran.text)


def test_an_adapter_beside_a_matrix_is_said_not_to_be_applied(in_process: InProcess) -> None:
    tensors = {"model.embed_tokens.weight": random(ROWS, DIM, seed=1)}
    tensors["model.embed_tokens.lora_embedding_A"] = FIRST
    tensors["model.embed_tokens.lora_embedding_B"] = SECOND
    save_file(tensors, "both.safetensors")

    ran = in_process("weights", "both.safetensors")

    assert ran.status == 0
    assert "lora_embedding_A and lora_embedding_B are not applied" in ran.err


@pytest.mark.parametrize(
    "wrong",
    [
        {"lora_alpha": 8, "module": "base_model.model.transformer.wpe"},
        {"lora_alpha": 8, "first": FIRST[:, :9].copy()},
        {"lora_alpha": 8, "use_dora": True},
        {"lora_alpha": "8"},
        {"lora_alpha": 8, "alpha_pattern": {"(": 3}},
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(
    in_process: InProcess, wrong: dict[str, Any]
) -> None:
    written_adapter(**wrong)

    in_process.refused("diff", "base.safetensors", "adapter")


def test_an_adapter_alone_is_refused_with_the_command_that_applies_it(
    in_process: InProcess, snapshot: Snapshot
) -> None:
    written_adapter(lora_alpha=8)

    snapshot("diff/adapter-alone.txt", in_process.refused("weights", "adapter"))
