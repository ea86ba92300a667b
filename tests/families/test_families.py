"""What the first block of a real model reads, family by family, bit for bit against transformers."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import embcli
from embcli.files.families import FAMILIES
from embcli.files.recipes import Settings
from embcli.files.rotations import rotation_of
from embcli.positions.biases import Alibi, Buckets
from tests.oracles import assert_same_bits

pytest.importorskip("transformers")

from tests.families.models import MODELS, SEEING, read_by_first_blocks, saved

pytestmark = pytest.mark.filterwarnings("ignore")

PLAIN, WITH_PADDING = [5, 9, 17, 9, 40, 77, 3, 8], [5, 1, 9, 1, 2, 8, 1, 6]


@pytest.mark.parametrize("name", [*MODELS, *SEEING])
def test_hidden_is_what_the_first_block_reads_and_no_word_is_false(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    for ids in (PLAIN, WITH_PADDING):
        read = read_by_first_blocks(model, ids)
        assert read
        for part, rows in read.items():
            if part == "decoder":
                continue
            opened = embcli.open(tmp_path)
            found = opened.lookup(ids, show="hidden")
            assert_same_bits(found.hidden, rows)
            if ids == PLAIN:
                hold_words(opened, found, model, rows)


INSIDE = {"rotary": "rotary", "alibi": "ALiBi", "relative": "relative", "": "no"}


def hold_words(opened: embcli.Model, found: Any, model: Any, rows: np.ndarray) -> None:
    """Hold what pages and notes say of a model's positions against the model itself."""
    has_positions = not np.array_equal(rows[1], rows[3])  # of one token
    inside = inside_of(model)
    assert (" position" in found.recipe.words) == has_positions
    assert (" positions inside the blocks" in found.recipe.inside_in_words) == bool(inside)
    notes = [note for note in map(str, opened.notes) if "this model has" in note]
    assert [INSIDE[inside] in note for note in notes] == [True] * (not has_positions)
    if not has_positions:
        only = " rows are the token rows;" in f"{notes[0]};"
        assert only == np.array_equal(found.token, opened.lookup(PLAIN).input)
    try:
        reason = opened.positions().reason
    except embcli.InputError as error:
        reason = str(error)
        assert not has_positions
        assert inside in ("relative", "")
    assert ("which it adds" in reason) == has_positions
    assert (f"it has {INSIDE[inside]} positions" in reason) == (not has_positions)


def inside_of(model: Any) -> str:
    """Return which positions the blocks of a live model compute, by their modules and parameters."""
    if model.config.model_type in ("bloom", "mpt") or getattr(model.config, "alibi", False):
        return "alibi"
    if model.config.model_type in ("gptj", "codegen") or any(
        "Rotary" in type(each).__name__ for each in model.modules()
    ):
        return "rotary"
    relative = re.compile(r"relative_attention_bias|rel_pos_bias|rel_embeddings|r_r_bias|position_bias\.")
    parts = getattr(model, "decoder", model) if model.config.model_type == "vision-encoder-decoder" else model
    return "relative" if any(relative.search(name) for name, _ in parts.named_parameters()) else ""


@pytest.mark.parametrize(("name", "token"), [("ESM-1", 4), ("ESM-2", 4), ("CPM-Ant", 0)])
def test_a_token_that_the_model_treats_in_its_own_way_is_told(name: str, token: int, tmp_path: Path) -> None:
    (read,) = read_by_first_blocks(saved(name, tmp_path), [5, token, 9]).values()
    opened = embcli.open(tmp_path)
    assert not np.array_equal(opened.lookup([5, token, 9], show="hidden").hidden, read)
    assert any(str(note).startswith(f"ID {token}: the model") for note in opened.notes)


def test_musicgen_reads_texts_with_its_text_encoder(tmp_path: Path) -> None:
    import transformers

    text = transformers.T5Config(vocab_size=96, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2)
    sound = transformers.EncodecConfig(hidden_size=16, num_filters=4, codebook_size=32, codebook_dim=16)
    codes = transformers.MusicgenDecoderConfig(
        vocab_size=32, hidden_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    parts = {"text_encoder": text.to_dict(), "audio_encoder": sound.to_dict(), "decoder": codes.to_dict()}
    model = transformers.MusicgenForConditionalGeneration(config=transformers.MusicgenConfig(**parts))
    model.save_pretrained(tmp_path)
    (read,) = read_by_first_blocks(model.text_encoder.eval(), PLAIN).values()
    found = embcli.open(tmp_path).lookup(PLAIN)
    assert_same_bits(found.input, read)
    assert found.recipe.part is None
    model.decoder.save_pretrained(tmp_path)
    with pytest.raises(
        embcli.InputError, match="of a musicgen_decoder model: it adds up rows of several token matrices"
    ):
        embcli.open(tmp_path)


LONG = {"factor": 4.0, "original_max_position_embeddings": 32}
SCALINGS: dict[str, dict[str, Any]] = {
    "default": {},
    "linear": {"factor": 4.0},
    "dynamic": {"factor": 4.0},
    "llama3": {**LONG, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "yarn": {**LONG, "beta_fast": 8.0, "beta_slow": 1.0},
    "yarn, exact": {**LONG, "attention_factor": 1.5, "truncate": False},
    "yarn, scaled": {**LONG, "mscale": 0.7, "mscale_all_dim": 0.3},
    "longrope": {**LONG, "short_factor": [1.0, 1.5, 2.0, 3.0], "long_factor": [2.0, 3.0, 4.0, 5.0]},
}


@pytest.mark.parametrize("kind", SCALINGS)
@pytest.mark.parametrize("length", [32, 40])
def test_angles_and_factors_are_those_of_each_scaling(kind: str, length: int, tmp_path: Path) -> None:
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    name = kind.split(",", maxsplit=1)[0]
    model = saved("Llama", tmp_path, rope_parameters={"rope_type": name, "rope_theta": 5e5, **SCALINGS[kind]})
    rates, attention = model.model.rotary_emb.inv_freq, model.model.rotary_emb.attention_scaling
    if name == "longrope":
        rates, attention = ROPE_INIT_FUNCTIONS[name](model.config, seq_len=length)
    found = embcli.open(tmp_path).positions(context_length=length)
    wanted = np.arange(length)[:, None] * rates.numpy().astype(np.float64)
    np.testing.assert_allclose(found.position, wanted, rtol=1e-6)
    assert found.kind.rotation.attention == pytest.approx(attention)
    assert ("multiplied by" in str(found)) == (attention != 1)


ROTARY = (
    *(
        "Llama",
        "Phi",
        "Phi-3",
        "GPT-NeoX",
        "GPT-NeoX Japanese",
        "GLM",
        "Cohere",
        "Gemma",
        "Gemma 2",
        "Gemma 3",
        "Qwen2",
    ),
    *(
        "Qwen3",
        "Mistral",
        "StableLM",
        "Persimmon",
        "Nemotron",
        "Helium",
        "ModernBERT",
        "Falcon",
        "Granite",
        "StarCoder 2",
    ),
    *("OLMo", "gpt-oss", "LFM2", "Doge", "MiniMax"),
)


@pytest.mark.parametrize("name", ROTARY)
def test_a_row_is_rotated_as_the_model_rotates_a_head(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    rotary, by_layers = model.base_model.rotary_emb, ("full_attention", "sliding_attention")
    has_two = "layer_type" in inspect.signature(rotary.forward).parameters
    if name == "Gemma 3":  # its two layers are of one kind
        by_layers = ("sliding_attention",) * 2
    opened = embcli.open(tmp_path)
    for layers in by_layers if has_two else ("",):
        theta = 10000.0 if layers == "sliding_attention" else None
        found = opened.lookup([7] * 6, position="rotary", theta=theta)
        head, rotated = found.positions.head, 2 * found.positions.columns
        assert head == 8
        assert found.positions.rotation.layers == layers.replace("_", " ")
        rows = torch.from_numpy(found.token[:, head:])[None, None]  # of the second head, (1, 1, T, 8)
        cosines, sines = rotary(rows, torch.arange(6)[None], *filter(None, (layers,)))
        turn = inspect.getmodule(type(model)).apply_rotary_pos_emb
        turned, _ = turn(rows[..., :rotated], rows[..., :rotated], cosines, sines)
        wanted = torch.cat([turned, rows[..., rotated:]], -1)[0, 0]
        np.testing.assert_allclose(found.input[:, head:], wanted.numpy(), atol=1e-5)


@pytest.mark.parametrize("name", ["GPT-J", "CodeGen"])
def test_a_row_is_rotated_as_gptj_rotates_a_head(name: str, tmp_path: Path) -> None:
    model = saved(name, tmp_path)
    found = embcli.open(tmp_path).lookup([7] * 6, position="rotary")
    head, code = found.positions.head, inspect.getmodule(type(model))
    sines, cosines = code.create_sinusoidal_positions(6, 4)[None].split(2, dim=-1)
    rows = torch.from_numpy(found.token[:, -head:])[None, :, None]  # of the last head, (1, T, 1, columns)
    turned = code.apply_rotary_pos_emb(rows[..., :4], sines, cosines)
    wanted = torch.cat([turned, rows[..., 4:]], -1)[0, :, 0]
    np.testing.assert_allclose(found.input[:, -head:], wanted.numpy(), atol=1e-5)


def test_missing_keys_stand_for_the_defaults_of_transformers() -> None:
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING

    rotated = [name for family in FAMILIES if family.inside == "rotary" for name in family.models.split()]
    for name in {*rotated} & {*CONFIG_MAPPING} - {
        "esm",
        "gpt_oss",
        "apertus",
        "gemma3",
    }:  # the middle two have scalings
        known = CONFIG_MAPPING[name]()
        keys = ("hidden_size", "n_embd", "num_attention_heads", "n_head")
        sizes = {key: getattr(known, key) for key in keys if key in known.to_dict()}
        found = rotation_of(Settings({"model_type": name, **sizes}, ValueError), 1 << 14, None, lambda name: None)
        rope = getattr(known, "rope_parameters", None) or {}
        full = rope.get("full_attention", rope)
        head = getattr(known, "head_dim", None) or known.hidden_size // known.num_attention_heads
        rotates = getattr(known, "rotary_dim", None) or int(head * full.get("partial_rotary_factor", 1))
        theta, local = full.get("rope_theta", 1e4), rope.get("sliding_attention", full).get("rope_theta", 1e4)
        assert (found.theta, found.head, 2 * len(found.rates)) == (theta, head, rotates), name
        assert (found.other.theta if found.other else theta) == local, name


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
