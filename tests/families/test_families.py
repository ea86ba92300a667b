"""What the first block of a real model reads, family by family, bit for bit against transformers."""

from __future__ import annotations

import inspect
from pathlib import Path

import numpy as np
import pytest
import torch

import embcli
from embcli.positions.biases import Alibi, Buckets
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.models import MODELS, read_by_first_blocks, saved

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN, WITH_PADDING = [5, 9, 17, 9, 40, 77, 3, 8], [5, 1, 9, 1, 2, 8, 1, 6]


@pytest.mark.parametrize("name", MODELS)
def test_hidden_is_what_the_first_block_reads(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    for ids in (PLAIN, WITH_PADDING):
        read = read_by_first_blocks(model, ids)
        assert read
        for part, rows in read.items():
            found = embcli.open(tmp_path, part=part).lookup(ids, show="hidden")
            assert_same_bits(found.hidden, rows)


LONG = {"factor": 4.0, "original_max_position_embeddings": 32}
SCALINGS = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {**LONG, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {**LONG, "beta_fast": 8.0, "beta_slow": 1.0},
    "longrope": {**LONG, "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 5.0]},
}


@pytest.mark.parametrize("kind", SCALINGS)
def test_angles_are_those_of_each_scaling(kind: str, tmp_path: Path) -> None:
    given = {"rope_type": kind, "rope_theta": 500000.0, **SCALINGS[kind]}
    model = saved("Llama", tmp_path, rope_parameters=given)
    positions = embcli.open(tmp_path).positions("rotary", rows="0:30")
    angles = np.arange(30)[:, None] * model.model.rotary_emb.inv_freq.numpy().astype(np.float64)
    np.testing.assert_allclose(positions.position, angles, rtol=1e-6)


ROTARY = ("Llama", "Phi", "GPT-NeoX", "GLM", "Cohere", "Gemma", "Qwen3", "StableLM", "Persimmon", "Nemotron", "Helium")


@pytest.mark.parametrize("name", ROTARY)
def test_a_row_is_rotated_as_the_model_rotates_a_head(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    found = embcli.open(tmp_path).lookup([7] * 6, position="rotary")
    head, rotated = found.positions.own.head, 2 * found.positions.columns
    assert head == 8
    rows = torch.from_numpy(found.token[:, head:])[None, None]  # of the second head, (1, 1, T, 8)
    cosines, sines = model.base_model.rotary_emb(rows, torch.arange(6)[None])
    turn = inspect.getmodule(type(model)).apply_rotary_pos_emb
    turned, _ = turn(rows[..., :rotated], rows[..., :rotated], cosines, sines)
    wanted = torch.cat([turned, rows[..., rotated:]], -1)[0, 0]
    np.testing.assert_allclose(found.input[:, head:], wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("heads", [1, 2, 3, 8, 12, 20])
def test_alibi_is_what_bloom_and_mpt_add(heads: int) -> None:
    from transformers.models.bloom.modeling_bloom import build_alibi_tensor
    from transformers.models.mpt.modeling_mpt import build_mpt_alibi_tensor

    found = Alibi(4, heads=heads).rows(np.arange(9))
    bloom = build_alibi_tensor(torch.ones(1, 9), heads, torch.float32).reshape(heads, 9).numpy()
    np.testing.assert_allclose(found, -bloom.T, rtol=1e-6)
    mpt = build_mpt_alibi_tensor(heads, 9).reshape(heads, 9).numpy()[:, ::-1]
    np.testing.assert_allclose(found, mpt.T, rtol=1e-6)


@pytest.mark.parametrize(("buckets", "furthest"), [(32, 128), (16, 20), (64, 300)])
def test_buckets_are_those_of_t5(buckets: int, furthest: int) -> None:
    from transformers.models.t5.modeling_t5 import T5Attention

    found = Buckets(4, buckets=buckets, furthest=furthest).rows(np.arange(400))
    every = torch.arange(400)
    for column, distances, both in ((0, -every, True), (1, every, True), (2, -every, False)):
        wanted = T5Attention._relative_position_bucket(distances, both, buckets, furthest)
        assert found[:, column].tolist() == wanted.tolist()
