"""Rows of every format, dtype and layout have the bits that the format's own library reads."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, quants
from safetensors import safe_open
from safetensors.torch import save_file

from embcli.binary import Binary
from embcli.files import gguf, open_tensors
from tests.files.made import assert_rows, layer, matrix, written


def hold(path: Path, expected: np.ndarray) -> None:
    """Hold the matrix "weight" of a file against what the format's library reads."""
    with np.errstate(over="ignore"):
        expected = expected.astype(np.float32)
    tensors = open_tensors(path)
    assert tensors["weight"].shape == expected.shape
    assert_rows(tensors.layer("weight"), expected)


# --- numpy ----------------------------------------------------------------------------------------

FLOATS = ["<f2", "<f4", "<f8", ">f2", ">f4", ">f8", "g"]
WHOLE = ["<i1", "<u1", ">i2", "<u2", "<i4", ">u4", "<i8", ">u8"]


def whole_numbers(dtype: str) -> np.ndarray:
    """Return values from the whole range of a dtype."""
    native = np.dtype(dtype).newbyteorder("=")
    limits = np.iinfo(native)
    chance = np.random.default_rng(0)
    return chance.integers(limits.min, limits.max, (60, 9), native, endpoint=True)


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_floats_of_numpy_are_those_of_numpy(tmp_path: Path, dtype: str, order: Any) -> None:
    values = (100 * matrix(60, 9)).astype(dtype, order=order)
    np.save(tmp_path / "weight.npy", values)
    hold(tmp_path / "weight.npy", np.load(tmp_path / "weight.npy"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", WHOLE)
def test_whole_numbers_of_numpy_are_those_of_numpy(tmp_path: Path, dtype: str, order: Any) -> None:
    np.save(tmp_path / "weight.npy", whole_numbers(dtype).astype(dtype, order=order))
    hold(tmp_path / "weight.npy", np.load(tmp_path / "weight.npy"))


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_an_array_of_several_is_that_of_numpy(
    tmp_path: Path, save: Callable[..., None], order: Any
) -> None:
    path = tmp_path / "m.npz"
    weight = np.asarray(matrix(300, 20), order=order)
    save(path, weight=weight, scale=np.float32(2), words=np.array(["a", "b"]))
    hold(path, np.load(path)["weight"])


# --- safetensors and PyTorch ----------------------------------------------------------------------

TORCH = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
TORCH += [torch.float8_e4m3fn, torch.float8_e5m2]
TORCH += [torch.int8, torch.int16, torch.int32, torch.int64]
TORCH += [torch.uint8, torch.uint16, torch.uint32, torch.uint64]


def weight_of(dtype: torch.dtype) -> torch.Tensor:
    return (100 * torch.from_numpy(matrix(60, 40))).abs().to(dtype)


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_rows_of_safetensors_are_those_of_its_library(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "m.safetensors"
    weight = weight_of(dtype)
    save_file({"before": torch.zeros(3), "weight": weight, "other": weight.clone()}, path)
    with safe_open(path, "pt") as file:
        hold(path, file.get_tensor("weight").float().numpy())


@pytest.mark.parametrize("dtype", TORCH, ids=str)
def test_rows_of_a_pt_file_are_those_of_torch(tmp_path: Path, dtype: torch.dtype) -> None:
    path = tmp_path / "m.pt"
    torch.save({"before": torch.zeros(3), "weight": weight_of(dtype)}, path)
    hold(path, torch.load(path)["weight"].float().numpy())


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
    tmp_path: Path, view: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    path = tmp_path / "m.pt"
    torch.save({"weight": view(weight_of(torch.float32))}, path)
    hold(path, torch.load(path)["weight"].numpy())


# --- GGUF -----------------------------------------------------------------------------------------

PLAIN_TYPES = ("F32", "F16", "BF16")
QUANTISED = [kind for kind in quants._type_traits if kind.value in gguf.TYPES]
QUANTISED = [kind for kind in QUANTISED if kind.name not in PLAIN_TYPES]


def read_by_package(path: Path) -> np.ndarray:
    """Return the values of the tensor "weight", which is the last one."""
    tensor = GGUFReader(path).tensors[-1]
    assert tensor.name == "weight"
    return quants.dequantize(tensor.data, tensor.tensor_type)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "float64", "int8", "int16", "int32", "int64"]
)
def test_plain_rows_of_gguf_are_those_of_the_package(tmp_path: Path, dtype: str) -> None:
    weight = (50 * matrix()).astype(dtype)
    path = written(tmp_path / "m.gguf", {"other": matrix(3, 4), "weight": weight})
    hold(path, GGUFReader(path).tensors[-1].data)


def test_bfloat16_of_gguf_is_that_of_the_package(tmp_path: Path) -> None:
    kind = GGMLQuantizationType.BF16
    weight = (quants.quantize(matrix(), kind), kind)
    path = written(tmp_path / "m.gguf", {"other": matrix(3, 4), "weight": weight})
    hold(path, read_by_package(path))


@pytest.mark.parametrize("kind", QUANTISED, ids=lambda kind: kind.name)
def test_blocks_of_gguf_are_those_of_the_package(
    tmp_path: Path, kind: GGMLQuantizationType
) -> None:
    """The blocks have random bytes, all of them small, so that their scales are small numbers."""
    _, size = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 60, (40, 3 * size), np.uint8)
    path = written(tmp_path / "m.gguf", {"other": matrix(3, 4), "weight": (blocks, kind)})
    hold(path, read_by_package(path))


# --- how rows are read ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["m.safetensors", "m.pt", "m.npz"])
def test_values_that_change_are_counted_once_as_rows_are_read(tmp_path: Path, name: str) -> None:
    values = torch.tensor([[1.0, 0.1], [0.5, 2.0], [0.2, 0.3]], dtype=torch.float64)
    save_file({"weight": values}, tmp_path / "m.safetensors")
    torch.save({"weight": values}, tmp_path / "m.pt")
    np.savez(tmp_path / "m.npz", weight=values.numpy())

    found = layer(tmp_path / name, "weight")
    for row, count in ((1, 0), (0, 1), (2, 3)):
        found.rows(np.array([row, row]))
        assert found.rounded_values == count


def test_infinities_nan_and_negative_zeros_keep_their_bits(tmp_path: Path) -> None:
    weight = np.array([[np.inf, -np.inf], [np.nan, -0.0]], np.float32)
    save_file({"weight": torch.from_numpy(weight)}, tmp_path / "m.safetensors")
    found = layer(tmp_path / "m.safetensors", "weight").rows(np.arange(2))
    assert found.tobytes() == weight.tobytes()


def test_several_blocks_give_the_same_rows(tmp_path: Path) -> None:
    save_file({"weight": torch.from_numpy(matrix(500, 1111))}, tmp_path / "m.safetensors")
    assert_rows(layer(tmp_path / "m.safetensors", "weight"), matrix(500, 1111))


def test_neighbouring_rows_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"weight": torch.from_numpy(matrix(1000, 64))}, tmp_path / "m.safetensors")
    found = layer(tmp_path / "m.safetensors", "weight")
    sizes: list[int] = []
    gather = Binary.gather

    def noted(binary: Binary, buffer: Any, offsets: Any, lengths: Any) -> None:
        sizes.extend(lengths)
        gather(binary, buffer, offsets, lengths)

    monkeypatch.setattr(Binary, "gather", noted)
    found.rows(np.array([700, 5, 4, 6, 4]))
    assert sizes == [3 * 256, 256]


@pytest.mark.parametrize("row", [3, 4_999_999])
def test_a_file_of_columns_is_not_read_whole(tmp_path: Path, row: int) -> None:
    """It has 2 GB of zeros, which take no room on the disk."""
    path = tmp_path / "weight.npy"
    described = {"descr": "<f4", "fortran_order": True, "shape": (5_000_000, 100)}
    with path.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, described)
        file.truncate(file.tell() + 2 * 10**9)
    assert not layer(path, "weight").rows(np.array([row])).any()


def test_a_stored_array_is_not_read_through_its_archive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    np.savez(tmp_path / "m.npz", weight=matrix())
    found = layer(tmp_path / "m.npz", "weight")
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    assert_rows(found, matrix())
