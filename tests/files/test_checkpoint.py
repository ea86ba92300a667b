"""A model's tensors are found by what they are for, or named; a real model's rows are its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGUFWriter
from safetensors.numpy import save_file

import embcli
from embcli.errors import InputError, Notes
from embcli.files import roles
from embcli.files.checkpoint import Checkpoint
from embcli.layer import Source
from tests.files.made import TOKENS, assert_rows, closed, matrix, written

# What tensors of model families are called: the token and the position matrix, and others that could pass for them.
FAMILIES: dict[str, tuple[str, str | None, dict[str, tuple[int, ...]]]] = {
    "gpt2": ("wte.weight", "wpe.weight", {"h.0.attn.c_attn.weight": (7, 21), "ln_f.weight": (7,)}),
    "gpt2-lm": (
        "transformer.wte.weight",
        "transformer.wpe.weight",
        {"transformer.h.0.mlp.c_fc.weight": (7, 28)},
    ),
    "nanogpt": ("_orig_mod.transformer.wte.weight", "_orig_mod.transformer.wpe.weight", {}),
    "book": ("tok_emb.weight", "pos_emb.weight", {"trf_blocks.0.att.W_query.weight": (7, 7)}),
    "tensorflow": ("model/wte", "model/wpe", {"model/h0/attn/c_attn/w": (1, 7, 21)}),
    "flax": ("transformer/wte/embedding", "transformer/wpe/embedding", {}),
    "llama": (
        "model.embed_tokens.weight",
        None,
        {"model.layers.0.self_attn.q_proj.weight": (7, 7)},
    ),
    "llama-meta": (
        "tok_embeddings.weight",
        None,
        {"layers.0.attention.wq.weight": (7, 7), "rope.freqs": (4,)},
    ),
    "multimodal": (
        "language_model.model.embed_tokens.weight",
        None,
        {"vision.patch_embedding.weight": (7, 3, 2, 2)},
    ),
    "bert": (
        "bert.word_embeddings.weight",
        "bert.position_embeddings.weight",
        {"bert.pooler.dense.weight": (7, 7)},
    ),
    "xlnet": ("transformer.word_embedding.weight", None, {}),
    "gpt-neox": (
        "gpt_neox.embed_in.weight",
        None,
        {"gpt_neox.layers.0.attention.dense.weight": (7, 7)},
    ),
    "t5": (
        "shared.weight",
        None,
        {"encoder.block.0.SelfAttention.relative_attention_bias.weight": (32, 8)},
    ),
    "clip": (
        "text.token_embedding.weight",
        "text.position_embedding.weight",
        {"vision.position_embedding": (12, 7)},
    ),
    "whisper": (
        "decoder.token_embedding",
        "decoder.positional_embedding",
        {"encoder.positional_embedding": (15, 7)},
    ),
    "gpt": ("tokens_embed.weight", "positions_embed.weight", {}),
    "gguf": ("token_embd.weight", "position_embd.weight", {"blk.0.attn_q.weight": (7, 7)}),
    "own": ("token", "position", {}),
    "mamba": ("backbone.embeddings.weight", None, {"backbone.layers.0.mixer.A_log": (14, 4)}),
    "rwkv": ("emb.weight", None, {"blocks.0.att.key.weight": (7, 7)}),
    "plain": ("embedding.weight", None, {"fc.weight": (2, 7)}),
}


def saved(path: Path, tensors: dict[str, np.ndarray], config: dict[str, Any] | None = None) -> Path:
    save_file({name: np.ascontiguousarray(array) for name, array in tensors.items()}, path)
    if config is not None:
        (path.parent / "config.json").write_text(json.dumps(config))
    return path


def opened(
    tmp_path: Path,
    tensors: dict[str, np.ndarray],
    config: dict[str, Any] | None = None,
    **given: Any,
) -> Checkpoint:
    return Checkpoint(str(saved(tmp_path / "model.safetensors", tensors, config)), **given)


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def tensor_name(source: Checkpoint, role: str) -> str | None:
    tensor = source.roles.find(role)
    return tensor.name if tensor else None


@pytest.mark.parametrize("family", FAMILIES)
def test_the_matrices_of_each_family_are_found(tmp_path: Path, family: str) -> None:
    token, position, others = FAMILIES[family]
    tensors = {name: zeros(*shape) for name, shape in others.items()} | {token: matrix(50, 7)}
    if position:
        tensors[position] = matrix(12, 7, seed=2)
    source: Source = opened(tmp_path, tensors)
    assert (source.shape("token"), source.shape("position")) == (
        (50, 7),
        (12, 7) if position else None,
    )
    layers = source.open({"token": None} | ({"position": None} if position else {}))
    assert_rows(layers["token"], matrix(50, 7))
    names = {"token": token}
    if position:
        assert_rows(layers["position"], matrix(12, 7, seed=2))
        names["position"] = position
    assert layers.origin.tensors == names


def test_a_name_is_matched_as_a_whole(tmp_path: Path) -> None:
    others = {
        "xwte.weight": zeros(9, 7),
        "wte.bias": zeros(9, 7),
        "wte.weight.scale": zeros(9, 7),
        "wte2": zeros(9, 7),
    }
    assert (
        tensor_name(opened(tmp_path, {**others, "a.wte.weight": zeros(5, 7)}), "token")
        == "a.wte.weight"
    )


def test_what_does_not_fit_in_shape_is_passed_over(tmp_path: Path) -> None:
    tensors = {
        "wte.weight": zeros(5, 7, 1),
        "model.embed_tokens.weight": zeros(5, 7),
        "wpe.weight": zeros(9, 8),
        "position_embeddings": zeros(9, 7),
        "head.weight": zeros(2, 7),
    }
    source = opened(tmp_path, tensors)
    assert tensor_name(source, "token") == "model.embed_tokens.weight"
    assert tensor_name(source, "position") == "position_embeddings"
    assert tensor_name(source, "head") is None


def test_the_origin_is_the_file_and_of_open_layers_tensor_dtype_and_shape(tmp_path: Path) -> None:
    source = opened(tmp_path, {"wte": matrix(5, 7).astype(np.float16), "wpe": matrix(4, 7)})
    nothing: dict[str, object] = {
        name: {} for name in ("tensors", "dtypes", "bytes", "shapes", "guesses")
    }
    assert source.origin.document() == {"from": str(tmp_path / "model.safetensors"), **nothing}
    assert source.open({"token": None, "position": None}).origin.document() == {
        "from": str(tmp_path / "model.safetensors"),
        "tensors": {"token": "wte", "position": "wpe"},
        "dtypes": {"token": "float16", "position": "float32"},
        "bytes": {"token": 70, "position": 112},
        "shapes": {"token": [5, 7], "position": [4, 7]},
        "guesses": {},
    }
    assert source.encoding is None


def test_values_that_float32_cannot_hold_are_counted_over_all_layers(tmp_path: Path) -> None:
    source = opened(tmp_path, {"wte": np.full((5, 7), 0.1), "roberta.wpe": np.full((6, 7), 0.1)})
    notes = Notes()
    layers = source.open({"token": None, "position": None}, notes)
    layers["token"].rows(np.array([1]))
    layers["position"].rows(np.array([1]))
    assert list(notes) == ["14 values were rounded to float32, which does not hold them exactly"]


# --- guesses and flags --------------------------------------------------------------------------------------------


def test_the_only_matrix_is_the_token_matrix_whatever_its_name_and_that_is_said(
    tmp_path: Path,
) -> None:
    source = opened(tmp_path, {"\x1b[2Jodd": matrix(5, 7), "bias": zeros(7)})
    assert tensor_name(source, "token") == "\x1b[2Jodd"
    assert source.reasons["token"] == r"'\x1b[2Jodd' is the only two-dimensional tensor"


def test_without_a_known_name_the_candidates_are_listed(tmp_path: Path) -> None:
    tensors = {f"{number}.w": zeros(number + 2, 7) for number in range(11)} | {
        "b": zeros(7),
        "\x1b[2J": zeros(40, 7),
    }
    with pytest.raises(InputError) as caught:
        opened(tmp_path, tensors)
    first, second = str(caught.value), caught.value.hint
    assert "no tensor has the name of a token matrix; choose one with tensor" in first
    assert second.startswith(r"'\x1b[2J' (40, 7) float32; '10.w' (12, 7) float32; ")
    assert second.endswith("; and 4 more")
    assert second.count(" float32") == 8


def test_a_file_without_a_matrix_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no two-dimensional tensor"):
        opened(tmp_path, {"wte": zeros(7), "b": zeros(0, 7)})


def test_several_that_disagree_are_an_error_and_several_that_are_equal_are_one(
    tmp_path: Path,
) -> None:
    names = "encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"
    with pytest.raises(
        InputError, match=r"several tensors could be the token matrix; choose one with tensor$"
    ):
        opened(tmp_path, dict(zip(names, (matrix(seed=1), matrix(seed=2)), strict=True)))
    source = opened(tmp_path, dict.fromkeys(names, matrix()))
    assert tensor_name(source, "token") == names[0]
    assert source.reasons["token"] == "'encoder.embed_tokens.weight' is one of 2 equal tensors"
    assert tensor_name(
        opened(tmp_path, {**dict.fromkeys(names, matrix()), "shared.weight": matrix()}), "token"
    ) == ("shared.weight")


def test_several_position_matrices_are_an_error_only_where_one_is_asked_for(tmp_path: Path) -> None:
    tensors = {
        "model.shared.weight": matrix(),
        "model.a.embed_positions.weight": matrix(seed=2),
        "model.b.embed_positions.weight": matrix(seed=3),
    }
    source = opened(tmp_path, tensors)
    assert_rows(source.open({"token": None})["token"], matrix())
    with pytest.raises(InputError, match=r"several tensors could be the position matrix$"):
        source.shape("position")


def test_of_an_encoder_s_and_a_decoder_s_matrix_the_encoder_s_counts(tmp_path: Path) -> None:
    tensors = {
        "model.shared.weight": matrix(),
        "model.encoder.embed_positions.weight": matrix(seed=2),
        "model.decoder.embed_positions.weight": matrix(seed=3),
    }
    for config in (None, {"model_type": "blenderbot"}):
        source = opened(tmp_path, tensors, config)
        assert_rows(source.open({"position": None})["position"], matrix(seed=2))
        assert source.roles.part == ("encoder" if config else None)


def test_tensors_can_be_named(tmp_path: Path) -> None:
    tensors = {"wte": matrix(), "a": matrix(20, 5), "c": zeros(3)}
    assert opened(tmp_path, tensors, token="a").shape("token") == (20, 5)
    for given, reason in (
        ({"token": "none"}, r"no tensor 'none'; choose one with tensor$"),
        ({"token": "c"}, r"tensor 'c' \(3\) float32 is not a matrix"),
    ):
        with pytest.raises(InputError, match=reason):
            opened(tmp_path, tensors, **given).shape("position")


def test_a_layer_that_is_not_there_is_none_and_cannot_be_opened(tmp_path: Path) -> None:
    source = opened(tmp_path, {"wte": matrix()})
    assert [source.shape(role) for role in ("position", "token_type", "head")] == [None] * 3
    with pytest.raises(InputError, match="it has no token type matrix"):
        source.open({"token_type": None})


# --- positions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "rows", "config", "first", "reason"),
    [
        ("roberta.embeddings.position_embeddings.weight", 514, None, 2, "named as RoBERTa's"),
        ("embeddings.position_embeddings.weight", 514, {"model_type": "roberta"}, 2, None),
        (
            "embeddings.position_embeddings.weight",
            514,
            {"model_type": "roberta", "pad_token_id": 3},
            4,
            None,
        ),
        (
            "embeddings.position_embeddings.weight",
            514,
            {"model_type": "roberta", "pad_token_id": None},
            2,
            None,
        ),
        (
            "embeddings.position_embeddings.weight",
            514,
            {"model_type": "roberta", "pad_token_id": 513},
            0,
            None,
        ),
        ("embeddings.position_embeddings.weight", 512, {"model_type": "bert"}, 0, None),
        ("embeddings.position_embeddings.weight", 512, None, 0, None),
        ("model.decoder.embed_positions.weight", 2050, {"model_type": "opt"}, 2, None),
        (
            "model.decoder.embed_positions.weight",
            2050,
            {"model_type": "opt", "pad_token_id": 7},
            2,
            None,
        ),
        ("model.decoder.embed_positions.weight", 2050, None, 2, "2,050 rows, as OPT's"),
        ("model.decoder.embed_positions.weight", 448, None, 0, None),
        ("model.decoder.embed_positions.weight", 450, {"model_type": "whisper"}, 0, None),
        ("roberta.embeddings.position_embeddings.weight", 2, None, 0, None),
    ],
)
def test_position_0_is_the_row_that_the_model_picks_for_it(
    tmp_path: Path,
    name: str,
    rows: int,
    config: dict[str, Any] | None,
    first: int,
    reason: str | None,
) -> None:
    source = opened(
        tmp_path, {"embed_tokens": matrix(50, 3), name: matrix(rows, 3, seed=2)}, config
    )
    assert source.shape("position") == (rows - first, 3)
    layers = source.open({"position": None})
    assert_rows(layers["position"], matrix(rows, 3, seed=2)[first:])
    assert layers.origin.first_position == first
    assert (source.reasons.get("first_position") is None) == (reason is None)
    assert reason is None or reason in source.reasons["first_position"]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {
                "model_type": "llama",
                "max_position_embeddings": 4096,
                "rope_theta": 1e4,
                "hidden_size": 3,
            },
            {"model_type": "llama", "max_position_embeddings": 4096, "rope_theta": 1e4},
        ),
        ({"model_type": "gpt2", "n_positions": 1024}, {"model_type": "gpt2", "n_positions": 1024}),
        (
            {
                "model_type": "gemma3",
                "text_config": {
                    "model_type": "gemma3_text",
                    "rope_parameters": {"rope_theta": 5.0},
                },
            },
            {"model_type": "gemma3_text", "rope_theta": 5.0},
        ),
        ({"rope_theta": [1], "position_embedding_type": None}, {}),
        (None, {}),
    ],
)
def test_what_config_json_says_of_positions_is_told(
    tmp_path: Path, config: dict[str, Any] | None, said: dict[str, Any]
) -> None:
    assert opened(tmp_path, {"embed_tokens": matrix()}, config).positions == said


def test_what_a_gguf_file_says_of_positions_is_told(tmp_path: Path) -> None:
    source = Checkpoint(str(written(tmp_path / "m.gguf", {"token_embd.weight": matrix()})))
    assert source.positions == {"model_type": "llama", "max_position_embeddings": 77}
    assert source.tensors.own_words().vocabulary_size == len(TOKENS)


@pytest.mark.parametrize("text", ['{"a": 1', "[1]", '{"a": 1, "a": 2}', '{"a":' * 100_000])
def test_a_config_that_cannot_be_read_is_refused_except_for_token_rows(
    tmp_path: Path, text: str
) -> None:
    path = str(opened(tmp_path, {"wte": matrix(), "wpe": matrix()}).tensors.path)
    (tmp_path / "config.json").write_text(text)
    model = embcli.open(path)
    done = [model.audit(), model.diff(model), model.neighbors([3]), model.weights(), model.info()]
    assert all(
        "config.json" in str(note) and str(note).endswith("; it is ignored")
        for note in done[0].notes
    )
    assert len(list(done[0].notes)) == 1
    assert "config.json" in str(model.info().recipe)
    for ask in (
        lambda: model.lookup([3]),
        model.positions,
        lambda: model.weights(layer="position"),
    ):
        with pytest.raises(InputError, match=r"config\.json"):
            ask()


# --- the output head ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["lm_head.weight", "out_head.weight", "output.weight", "cls.predictions.decoder.weight"]
)
def test_the_head_is_equal_to_the_token_matrix_or_another(tmp_path: Path, name: str) -> None:
    equal = opened(tmp_path, {"embed_tokens": matrix(), name: matrix()}).head
    assert (equal.relation, equal.rows, equal.tensor and equal.tensor.name) == ("equal", 50, name)
    other = matrix()
    other[49, 6] += 1
    assert opened(tmp_path, {"embed_tokens": matrix(), name: other}).head.relation == "other"
    assert (
        opened(tmp_path, {"embed_tokens": matrix(), name: matrix(51, 7)}).head.relation == "other"
    )
    wide = matrix().astype(np.float64)  # behind the digits of float32
    assert (
        opened(tmp_path, {"embed_tokens": wide, name: np.nextafter(wide, 9)}).head.relation
        == "other"
    )


def test_of_large_matrices_some_rows_are_compared_and_how_many_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(roles, "COMPARED", 8 * 7 * 10)
    assert opened(tmp_path, {"embed_tokens": matrix(), "lm_head": matrix()}).head.rows == 10


def test_a_head_that_is_the_same_tensor_is_told(tmp_path: Path) -> None:
    weight = torch.from_numpy(matrix())
    torch.save({"wte.weight": weight, "lm_head.weight": weight}, tmp_path / "m.pt")
    assert Checkpoint(str(tmp_path / "m.pt")).head.relation == "same"


@pytest.mark.parametrize(
    ("config", "relation", "reason"),
    [
        (
            {"architectures": ["GPT2LMHeadModel"]},
            "same",
            "config.json names 'GPT2LMHeadModel' and no head of its own",
        ),
        (
            {"architectures": ["BertModel", "Gemma3ForCausalLM"]},
            "same",
            "config.json names 'Gemma3ForCausalLM' and no",
        ),
        (
            {"architectures": ["GPT2LMHeadModel"], "tie_word_embeddings": False},
            "none",
            "that it is a separate matrix",
        ),
        (
            {"architectures": ["BertModel"], "tie_word_embeddings": True},
            "none",
            "names 'BertModel', which has none",
        ),
        ({"architectures": ["T5EncoderModel"]}, "none", "names 'T5EncoderModel', which has none"),
        ({"architectures": ["BertForTokenClassification"]}, "none", "which has none"),
        (
            {"architectures": ["MarianMTModel"], "tie_word_embeddings": True},
            "same",
            "config.json says so",
        ),
        ({"architectures": ["VisionEncoderDecoderModel"]}, "none", ""),
        ({"architectures": "GPT2LMHeadModel"}, "none", ""),
        ({"architectures": [None]}, "none", ""),
        ({"tie_word_embeddings": True}, "same", "config.json says so"),
        ({"tie_word_embeddings": False}, "none", "that it is a separate matrix"),
        ({"tie_word_embeddings": None}, "none", ""),
    ],
)
def test_a_model_with_a_head_that_is_in_no_file_is_taken_as_tied(
    tmp_path: Path, config: dict[str, Any], relation: str, reason: str
) -> None:
    head = opened(tmp_path, {"wte": matrix()}, config).head
    assert (head.tensor, head.relation) == (None, relation)
    assert reason in head.reason
    assert bool(reason) == bool(head.reason)


@pytest.mark.parametrize(
    ("architecture", "causal", "relation", "reason"),
    [
        ("gemma", None, "same", "the file has no output.weight"),
        ("gemma", True, "same", "the file has no output.weight"),
        ("gemma", False, "none", ""),
        ("t5encoder", None, "none", "'t5encoder' is an encoder, which has none"),
        ("nomic-bert", False, "none", "'nomic-bert' is an encoder, which has none"),
    ],
)
def test_a_gguf_file_without_a_head_is_tied_if_it_is_of_a_causal_model(
    tmp_path: Path, architecture: str, causal: bool | None, relation: str, reason: str
) -> None:
    writer = GGUFWriter(tmp_path / "m.gguf", architecture)
    if causal is not None:
        writer.add_causal_attention(causal)
    writer.add_tensor("token_embd.weight", matrix())
    closed(writer)
    head = Checkpoint(str(tmp_path / "m.gguf")).head
    assert (head.relation, head.reason) == (relation, reason)


def test_the_head_of_rembert_has_columns_of_its_own(tmp_path: Path) -> None:
    tensors = {
        "rembert.embeddings.word_embeddings.weight": matrix(50, 3),
        "cls.predictions.decoder.weight": matrix(),
    }
    head = opened(tmp_path, tensors, {"model_type": "rembert", "tie_word_embeddings": False}).head
    assert (head.relation, head.tensor and head.tensor.shape) == ("other", (50, 7))
    assert opened(tmp_path, tensors, {"model_type": "albert"}).head.tensor is None


def test_no_heavy_module_is_loaded_on_the_way_to_rows(tmp_path: Path) -> None:
    saved(tmp_path / "model.safetensors", {"wte": matrix()}, {"model_type": "gpt2"})
    np.save(tmp_path / "wte.npy", matrix())
    written(tmp_path / "m.gguf", {"token_embd.weight": matrix().astype(np.float16)})
    code = (
        "import sys, numpy; from embcli.files.checkpoint import Checkpoint\n"
        "for path in sys.argv[1:]: Checkpoint(path).open({'token': None})['token'].rows(numpy.arange(3))\n"
        "print([name for name in ('torch', 'gguf', 'zipfile', 'tokenizers', 'rich') if name in sys.modules])"
    )
    paths = [tmp_path, tmp_path / "wte.npy", tmp_path / "m.gguf"]
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, paths)], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("['zipfile']\n", "")
