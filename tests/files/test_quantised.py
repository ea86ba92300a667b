"""Matrices stored scaled, packed or shared: their rows are those of a plain reference, or an error.

The references unpack whole matrices at once, as the formats' own documentation describes it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import embcli
from embcli.binary import Binary
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.quantised import UnpackedTensors
from tests.cases import cases
from tests.transcripts import document_of

ROWS = 20
DIM = 64
TOKEN = "model.embed_tokens.weight"
FP8_E4M3 = ml_dtypes.float8_e4m3fn
FP8_E8M0 = ml_dtypes.float8_e8m0fnu

Tensors = dict[str, np.ndarray]
GENERATOR = np.random.default_rng(5)
BYTES = GENERATOR.integers(0, 256, (ROWS, DIM // 2)).astype(np.uint8)


def saved(folder: Path, tensors: Tensors, config: dict[str, Any] | None = None) -> Path:
    """Write a model whose token matrix has these tensors, by the last parts of their names."""
    module = TOKEN.removesuffix("weight")
    save_file(
        {f"{module}{last_part}": tensor for last_part, tensor in tensors.items()},
        folder / "model.safetensors",
    )
    (folder / "config.json").write_text(json.dumps({"model_type": "llama"} | (config or {})))
    return folder


def rows_of(folder: Path) -> np.ndarray:
    return embcli.open(folder)[:]


def check(
    folder: Path, tensors: Tensors, rows: np.ndarray, config: dict[str, Any] | None = None
) -> None:
    """Write a model whose token matrix has these tensors, and compare all of its rows."""
    np.testing.assert_array_equal(rows_of(saved(folder, tensors, config)), rows)


def int8_numbers() -> np.ndarray:
    return GENERATOR.integers(-128, 128, (ROWS, DIM)).astype(np.int8)


def scales(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return GENERATOR.uniform(0.001, 0.1, shape).astype(dtype)


# --- 8-bit numbers and scales -----------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16, FP8_E8M0])
@cases
def test_8_bit_numbers_are_multiplied_by_the_scales_beside_them(tmp_path, stored, shape, dtype):
    numbers = GENERATOR.standard_normal((ROWS, DIM)) * 50
    numbers = numbers.astype(stored)
    scale = scales(*shape, dtype=dtype)
    groups = scale.astype(np.float32).reshape(-1, shape[1] if len(shape) > 1 else 1)
    whole_scale = np.repeat(groups, DIM // groups.shape[1], axis=1)
    expected = numbers.astype(np.float32) * whole_scale
    check(tmp_path, {"weight": numbers, "weight_scale": scale}, expected)


@pytest.mark.parametrize("kind", [np.float32, FP8_E8M0])
def test_a_byte_has_two_4_bit_floats_the_first_in_its_lower_bits(tmp_path, kind):
    scale = scales(ROWS, 2, dtype=kind)
    path = saved(tmp_path, {"weight": BYTES, "weight_scale": scale}) / "model.safetensors"
    as_floats = path.read_bytes().replace(b'"U8","shape":[20,32]', b'"F4","shape":[20,64]')
    path.write_bytes(as_floats)
    numbers = np.stack([BYTES & 15, BYTES >> 4], 2).view(ml_dtypes.float4_e2m1fn)
    expected = numbers.reshape(ROWS, 2, DIM // 2).astype(np.float32) * scale[..., None]
    np.testing.assert_array_equal(rows_of(tmp_path), expected.reshape(ROWS, DIM))


@cases
def test_weight_scale_inv_multiplies_blocks_of_which_the_last_can_be_smaller(tmp_path, block):
    block_rows, block_columns = block
    numbers = GENERATOR.standard_normal((ROWS, DIM)).astype(FP8_E4M3)
    scale = scales(-(-ROWS // block_rows), -(-DIM // block_columns))
    config = {"quantization_config": {"weight_block_size": list(block)}}
    by_row = np.repeat(scale, block_rows, axis=0)[:ROWS]
    whole_scale = np.repeat(by_row, block_columns, axis=1)[:, :DIM]
    expected = numbers.astype(np.float32) * whole_scale
    check(tmp_path, {"weight": numbers, "weight_scale_inv": scale}, expected, config)


def test_who_reads_all_rows_announces_the_scales_too(tmp_path, monkeypatch):
    saved(tmp_path, {"weight": int8_numbers(), "weight_scale": scales(ROWS, 1)})
    announced = []
    monkeypatch.setattr(Binary, "load", lambda self, byte_range, what: announced.append(what))
    UnpackedTensors(open_tensors(tmp_path / "model.safetensors"), {}).layer(TOKEN).whole()
    assert announced == [f"'{TOKEN}'", f"'{TOKEN}_scale'"]


@cases
def test_two_kinds_of_scales_are_refused(tmp_path, others):
    tensors = {"weight": int8_numbers(), "weight_scale": scales(ROWS, 1)}
    tensors |= {other: scales(ROWS, 1) for other in others}
    with pytest.raises(InputError) as caught:
        rows_of(saved(tmp_path, tensors))
    for part in ("weight_scale", *others):
        assert part in str(caught.value)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_scale_that_is_not_finite_is_an_alarm(tmp_path, value):
    scale = scales(ROWS, 1)
    scale[[3, 5]] = value
    folder = saved(tmp_path, {"weight": int8_numbers(), "weight_scale": scale})
    audit = embcli.open(folder).audit()
    assert audit.main.broken["non-finite"].tolist() == [3, 5]


def test_scale_weight_of_comfyui_multiplies(tmp_path):
    numbers = GENERATOR.standard_normal((ROWS, DIM)).astype(FP8_E4M3)
    scale = scales(1)
    tensors = {"weight": numbers, "scale_weight": scale, "scale_input": scales(1)}
    check(tmp_path, tensors, numbers.astype(np.float32) * scale)


def test_scb_of_bitsandbytes_is_the_largest_value_of_a_row(tmp_path):
    numbers = int8_numbers()
    largest = scales(ROWS)
    expected = numbers.astype(np.float32) * largest[:, None] / np.float32(127)
    check(tmp_path, {"weight": numbers, "SCB": largest}, expected)


@cases
def test_scales_that_do_not_fit_are_refused(tmp_path, shape):
    tensors = {"weight": int8_numbers(), "weight_scale": scales(*shape)}
    with pytest.raises(InputError, match="do not fit"):
        rows_of(saved(tmp_path, tensors))


def test_a_zero_point_is_refused_by_its_name(tmp_path):
    zero_point = np.zeros((ROWS, 1), np.int8)
    beside = {"weight_scale": scales(ROWS, 1), "weight_zero_point": zero_point}
    with pytest.raises(InputError, match="does not apply weight_zero_point"):
        rows_of(saved(tmp_path, {"weight": int8_numbers()} | beside))


@cases
def test_floats_without_a_scale_are_read_as_they_are(tmp_path, dtype, method):
    matrix = GENERATOR.standard_normal((ROWS, DIM)).astype(dtype)
    config = {"quantization_config": {"quant_method": method, "bits": 4}}
    check(tmp_path, {"weight": matrix}, matrix.astype(np.float32), config)


FP8_MATRIX = GENERATOR.standard_normal((ROWS, DIM)).astype(FP8_E4M3)


@cases
def test_only_a_known_name_says_that_8_bit_floats_have_a_scale(tmp_path, beside, has_scale):
    numbers = GENERATOR.standard_normal((ROWS, DIM)).astype(FP8_E4M3)
    save_file({TOKEN: numbers, beside: np.zeros(1, np.float32)}, tmp_path / "model.safetensors")

    if has_scale:
        with pytest.raises(InputError, match="no scale that embcli applies"):
            rows_of(tmp_path)
    else:
        np.testing.assert_array_equal(rows_of(tmp_path), numbers.astype(np.float32))


@cases
def test_8_bit_floats_without_the_scale_that_the_model_has_are_refused(tmp_path, settings, beside):
    tensors = {"weight": FP8_MATRIX} | {name: scales(1) for name in beside}
    with pytest.raises(InputError, match="float8_e4m3fn, and no scale"):
        rows_of(saved(tmp_path, tensors, {"quantization_config": settings}))


# --- MLX --------------------------------------------------------------------------------------


def mlx(bits: int, group_size: int) -> tuple[Tensors, np.ndarray]:
    """Return the tensors of a matrix in MLX's affine packing, and the matrix itself."""
    numbers = GENERATOR.integers(0, 2**bits, (ROWS, DIM)).astype(np.uint32)
    scale = scales(ROWS, DIM // group_size, dtype=np.float16)
    bias = scales(ROWS, DIM // group_size, dtype=np.float16)

    per_word = 32 // bits
    words = np.zeros((ROWS, DIM // per_word), np.uint32)
    for place in range(per_word):
        words |= numbers[:, place::per_word] << np.uint32(bits * place)

    whole_scale = np.repeat(scale.astype(np.float32), group_size, axis=1)
    whole_bias = np.repeat(bias.astype(np.float32), group_size, axis=1)
    matrix = numbers.astype(np.float32) * whole_scale + whole_bias
    return {"weight": words, "scales": scale, "biases": bias}, matrix


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("group_size", [32, 64])
@pytest.mark.parametrize("key", ["quantization", "quantization_config"])
def test_matrices_of_mlx_are_unpacked(tmp_path, bits, group_size, key):
    tensors, matrix = mlx(bits, group_size)
    check(tmp_path, tensors, matrix, {key: {"bits": bits, "group_size": group_size}})


def test_mlx_settings_of_a_module_come_before_those_of_the_model(tmp_path):
    tensors, matrix = mlx(8, 32)
    settings = {"bits": 4, "group_size": 64, "model.embed_tokens": {"bits": 8, "group_size": 32}}
    check(tmp_path, tensors, matrix, {"quantization": settings})


@cases
def test_other_packings_of_mlx_are_refused(tmp_path, settings, reason):
    tensors, _ = mlx(4, 64)
    if "mode" in settings:
        del tensors["biases"]
    with pytest.raises(InputError, match=reason):
        rows_of(saved(tmp_path, tensors, {"quantization": settings}))


# --- what is refused --------------------------------------------------------------------------


@cases
def test_what_cannot_be_unpacked_is_refused_with_its_scheme(in_process, tmp_path, scheme, stored):
    """So is a packed head: beside a matrix that can be read, it is no missing one."""
    tensors = {}
    for last_part, (dtype, shape) in stored.items():
        tensors[last_part] = GENERATOR.uniform(1, 100, shape).astype(dtype)
    path = str(saved(tmp_path, tensors))
    assert scheme in in_process.refused("lookup", "--ids", "1", "--from", path)

    matrix = GENERATOR.standard_normal((ROWS, DIM)).astype(np.float32)
    head = {f"lm_head.{last_part}": tensor for last_part, tensor in tensors.items()}
    save_file({TOKEN: matrix, **head}, tmp_path / "model.safetensors")
    np.testing.assert_array_equal(rows_of(tmp_path), matrix)
    assert scheme in in_process.refused("weights", "--layer", "head", "--from", path)

    fact = in_process.ok("info", path).text.split("output head: ")[1]
    assert fact.startswith("another tensor (not tied); cannot read")
    head = document_of(in_process, "info", path)["run"]["head"]
    assert head["tensor"] is None
    assert "'lm_head." in head["reason"]
    assert scheme in head["reason"]


def test_integers_of_an_array_are_rows_with_a_note(tmp_path):
    np.save(tmp_path / "own.npy", int8_numbers())
    model = embcli.open(tmp_path / "own.npy")
    assert model[0].dtype == np.float32
    assert any("integers" in note for note in model.notes)


# --- model2vec --------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int8])
@pytest.mark.parametrize("dtype_of_weights", [np.float64, np.float32, np.float16])
@cases
def test_rows_of_a_static_model_follow_its_mapping_and_its_weights(
    tmp_path, dtype, dtype_of_weights, parts
):
    """A product is that of numpy, in the wider dtype of both."""
    embeddings = (GENERATOR.standard_normal((ROWS, DIM)) * 40).astype(dtype)
    tokens = 2 * ROWS if "mapping" in parts else ROWS
    mapping = GENERATOR.integers(0, ROWS, tokens)
    weights = scales(tokens, dtype=dtype_of_weights)
    tensors = {"embeddings": embeddings, "mapping": mapping, "weights": weights}
    kept = {name: tensors[name] for name in ("embeddings", *parts)}
    save_file(kept, tmp_path / "model.safetensors")

    expected = embeddings
    if "mapping" in parts:
        expected = expected[mapping]
    if "weights" in parts:
        expected = expected * weights[:, None]
    expected = expected.astype(np.float32)
    np.testing.assert_array_equal(rows_of(tmp_path / "model.safetensors"), expected)


def test_a_mapping_to_rows_that_are_not_there_is_refused(tmp_path):
    tensors = {"embeddings": np.ones((4, 3), np.float32), "mapping": np.array([0, 4])}
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(InputError, match="mapping"):
        rows_of(tmp_path / "model.safetensors")


def test_a_quantised_weight_needs_a_scale_that_is_not_zero(tmp_path):
    tensors = {"model.embed_tokens.weight": np.random.default_rng(0).random((20, 8), np.float32)}
    for name in ("up", "down"):
        tensors[f"layers.0.{name}.weight"] = np.ones((8, 8), np.int8)
        tensors[f"layers.0.{name}.weight_scale"] = np.ones((8, 1), np.float32)
    config = {"quantization_config": {"quant_method": "compressed-tensors"}}
    (tmp_path / "config.json").write_text(json.dumps(config))
    save_file(tensors, tmp_path / "model.safetensors")
    assert not embcli.open(tmp_path).audit().broken

    del tensors["layers.0.up.weight_scale"]
    tensors["layers.0.gate.qweight"] = np.ones((1, 8), np.int32)
    tensors["layers.0.gate.scales"] = np.zeros((1, 8), np.float16)
    save_file(tensors, tmp_path / "model.safetensors")
    texts = [each.text for each in embcli.open(tmp_path).audit().findings if each.level == "alarm"]
    assert texts == [
        "1 quantised weight without a scale: layers.0.up.weight",
        "1 quantised weight with a scale of zero: layers.0.gate.qweight",
    ]


def kinds_of_faults(folder: Path, tensors: Tensors) -> list[str]:
    config = {"quantization_config": {"bits": 4, "group_size": 64}}
    return [each.kind for each in embcli.open(saved(folder, tensors, config)).audit().failing]


def test_scales_of_1_beside_numbers_that_use_all_of_their_dtype_are_wrong(tmp_path):
    weight = GENERATOR.laplace(0.01, 0.02, (ROWS, DIM)).astype(np.float32)
    scale = (np.abs(weight).max() / 448).reshape(1)
    tensors = {"weight": weight, "up.weight": (weight / scale).astype(FP8_E4M3)}
    assert kinds_of_faults(tmp_path, tensors | {"up.weight_scale": scale}) == []
    assert kinds_of_faults(tmp_path, tensors | {"up.weight_scale": scale / scale}) == ["load"]
