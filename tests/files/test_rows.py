"""Rows of every format, dtype and layout have the bits that the format's own library reads."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGUFReader, quants
from safetensors import safe_open
from safetensors.torch import save_file

from embcli.files import gguf
from tests.cases import cases
from tests.files.made import assert_rows, layer, matrix, written


def hold(path: str | Path, expected: np.ndarray) -> None:
    """Hold the matrix "weight" of a file against what the format's library reads."""
    with np.errstate(all="ignore"):
        expected = expected.astype(np.float32)
    assert_rows(layer(path, "weight"), expected)


# --- numpy ----------------------------------------------------------------------------------------

NUMBERS = ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "g"]
NUMBERS += ["<i1", "<u1", ">i2", "<u2", "<i4", ">u4", "<i8", ">u8"]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", NUMBERS)
def test_numbers_of_any_bits_are_those_of_numpy(dtype, order):
    bits = np.random.default_rng(0).bytes(4320)
    values = np.frombuffer(bits, dtype)
    rows = values.reshape(-1, 9, order=order)
    np.save("weight.npy", rows)
    hold("weight.npy", np.load("weight.npy"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_array_of_several_is_that_of_numpy(save, order):
    weight = np.asarray(matrix(300, 20), order=order)
    words = np.array(["a", "b"])
    save("m.npz", weight=weight, scale=np.float32(2), words=words)
    hold("m.npz", np.load("m.npz")["weight"])


# --- safetensors and PyTorch ----------------------------------------------------------------------

TORCH = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TORCH += [torch.float8_e4m3fn, torch.float8_e5m2]
TORCH += [torch.int8, torch.int16, torch.int32, torch.int64]
TORCH += [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


def weight_of(dtype: torch.dtype) -> torch.Tensor:
    values = torch.from_numpy(100 * matrix(60, 40))
    return values.abs().to(dtype)


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_rows_of_safetensors_are_those_of_its_library(dtype):
    weight = weight_of(dtype)
    tensors = {"before": torch.zeros(3), "weight": weight, "other": weight.clone()}
    save_file(tensors, "m.safetensors")
    with safe_open("m.safetensors", "pt") as file:
        held = file.get_tensor("weight")
    hold("m.safetensors", held.float().numpy())


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_rows_of_a_pt_file_are_those_of_torch(dtype):
    torch.save({"before": torch.zeros(3), "weight": weight_of(dtype)}, "m.pt")
    held = torch.load("m.pt")["weight"]
    hold("m.pt", held.float().numpy())


@pytest.mark.parametrize(
    "view",
    [
        lambda weight: weight.T,
        lambda weight: weight[::3, 1::2],
        lambda weight: weight[10:20, 5:],
        lambda weight: weight[:, :1],
    ],
    ids=["transposed", "steps", "part", "column"],
)
def test_rows_of_a_part_of_a_storage_are_those_of_torch(
    view,
):
    torch.save({"weight": view(weight_of(torch.float32))}, "m.pt")
    held = torch.load("m.pt")["weight"]
    hold("m.pt", held.numpy())


# --- GGUF -----------------------------------------------------------------------------------------

IN_BLOCKS = [kind for kind in quants._type_traits if kind.value in gguf.TYPES]


@cases
def test_plain_rows_of_gguf_are_those_of_the_package(dtype):
    weight = (50 * matrix()).astype(dtype)
    path = written("m.gguf", {"other": matrix(3, 4), "weight": weight})
    tensor = GGUFReader(path).tensors[-1]
    hold(path, tensor.data)


@pytest.mark.parametrize("kind", IN_BLOCKS, ids=lambda kind: kind.name)
def test_blocks_of_gguf_are_those_of_the_package(kind):
    """The blocks have random bytes, all of them small, so that their scales are small numbers."""
    _, size = GGML_QUANT_SIZES[kind]
    chance = np.random.default_rng(0)
    blocks = chance.integers(0, 60, (40, 3 * size), np.uint8)
    path = written("m.gguf", {"other": matrix(3, 4), "weight": (blocks, kind)})
    tensor = GGUFReader(path).tensors[-1]
    hold(path, quants.dequantize(tensor.data, kind))


# --- how rows are read ----------------------------------------------------------------------------


SOME_IN_FLOAT32 = [[1.0, 0.1], [0.5, 2.0], [0.2, 0.3]]
NOT_FINITE = [[math.inf, -math.inf], [math.nan, -0.0]]


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt", "m.npz"])
def test_values_that_change_are_counted_once_as_rows_are_read(name):
    values = torch.tensor(SOME_IN_FLOAT32, dtype=torch.float64)
    save_file({"weight": values}, "m.safetensors")
    torch.save({"weight": values}, "m.pt")
    np.savez("m.npz", weight=values.numpy())

    found = layer(name, "weight")
    for row, count in ((1, 0), (0, 1), (2, 3), (0, 3)):
        found.rows(np.array([row, row]))
        assert found.rounded_values == count


def test_infinities_nan_and_negative_zeros_keep_their_bits():
    weight = torch.tensor(NOT_FINITE)
    save_file({"weight": weight}, "m.safetensors")
    found = layer("m.safetensors", "weight").rows(np.arange(2))
    assert found.tobytes() == weight.numpy().tobytes()


def test_several_blocks_give_the_same_rows():
    weight = matrix(500, 1111)
    np.savez("m.npz", weight=weight)
    assert_rows(layer("m.npz", "weight"), weight)
