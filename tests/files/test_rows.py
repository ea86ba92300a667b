"""Rows of every format, dtype and layout are, bit for bit, those that the format's own library reads."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from functools import partial
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

Made = Callable[
    [Path], np.ndarray
]  # writes a file with the matrix "weight", and returns what its library reads of it
NUMPY = [
    "<f2",
    "<f4",
    "<f8",
    ">f2",
    ">f4",
    ">f8",
    "<i1",
    "<u1",
    ">i2",
    "<u2",
    "<i4",
    ">u4",
    "<i8",
    ">u8",
    "g",
]
TORCH = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
]
TORCH += [
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.uint16,
    torch.uint32,
    torch.uint64,
]
PLAIN = ["float32", "float16", "float64", "int8", "int16", "int32", "int64"]
PLAIN_KINDS = ("F32", "F16", "BF16")
QUANTISED = [
    kind
    for kind in quants._type_traits
    if kind.value in gguf.TYPES and kind.name not in PLAIN_KINDS
]
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda weight: weight,
    "transposed": lambda weight: weight.T,
    "steps": lambda weight: weight[::3, 1::2],
    "part": lambda weight: weight[10:20, 5:],
    "column": lambda weight: weight[:, :1],
}


def numbers(dtype: Any) -> np.ndarray:
    """Return values of a dtype of numpy, for whole numbers from both ends of their range."""
    if np.dtype(dtype).kind == "f":
        return (100 * matrix(60, 9)).astype(dtype)
    limits = np.iinfo(dtype)
    return np.random.default_rng(0).integers(
        limits.min, limits.max, (60, 9), np.dtype(dtype).newbyteorder("="), True
    )


def npy(dtype: Any, order: str, path: Path) -> np.ndarray:
    np.save(path.with_suffix(".npy"), np.asarray(numbers(dtype), dtype, order=order))  # type: ignore[call-overload]
    path.with_suffix(".npy").rename(path)
    return np.load(path)


def npz(save: Any, order: str, path: Path) -> np.ndarray:
    with path.open("wb") as file:
        save(
            file,
            weight=np.asarray(matrix(300, 20), order=order),
            scale=np.float32(2),
            words=np.array(["a", "b"]),
        )
    return np.load(path)["weight"]


def safetensors(dtype: torch.dtype, path: Path) -> np.ndarray:
    weight = (100 * torch.from_numpy(matrix(300, 33))).abs().to(dtype)
    save_file({"before": torch.zeros(3), "weight": weight, "other": weight.clone()}, path)
    with safe_open(path, "pt") as file:
        return file.get_tensor("weight").float().numpy()


def pt(dtype: torch.dtype, layout: str, path: Path) -> np.ndarray:
    weight = LAYOUTS[layout]((100 * torch.from_numpy(matrix(60, 40))).abs().to(dtype))
    torch.save({"before": torch.zeros(3), "weight": weight}, path)
    return torch.load(path)["weight"].float().numpy()


def quantised(kind: GGMLQuantizationType, path: Path) -> np.ndarray:
    """Write random blocks of a type, with scales that are small numbers."""
    _, size = GGML_QUANT_SIZES[kind]
    blocks = np.random.default_rng(0).integers(0, 60, (40, 3 * size), np.uint8)
    return of_gguf((blocks, kind), path)


def plain(dtype: str, path: Path) -> np.ndarray:
    return of_gguf((50 * matrix()).astype(dtype), path)


def bfloat16(path: Path) -> np.ndarray:
    kind = GGMLQuantizationType.BF16
    return of_gguf((quants.quantize(matrix(), kind), kind), path)


def of_gguf(weight: Any, path: Path) -> np.ndarray:
    written(path, {"other": matrix(3, 4), "weight": weight})
    found = next(each for each in GGUFReader(path).tensors if each.name == "weight")
    return (
        quants.dequantize(found.data, found.tensor_type)
        if isinstance(weight, tuple)
        else found.data
    )


def cases() -> Iterator[Any]:
    """Yield a case for each format, dtype and layout."""
    for dtype in NUMPY:
        for order in "CF":
            yield pytest.param(partial(npy, dtype, order), id=f"npy {dtype} {order}")
    for save in (np.savez, np.savez_compressed):
        for order in "CF":
            yield pytest.param(partial(npz, save, order), id=f"{save.__name__} {order}")
    for kind in TORCH:
        yield pytest.param(partial(safetensors, kind), id=f"safetensors {kind}")
        yield pytest.param(partial(pt, kind, "rows"), id=f"pt {kind}")
    for layout in LAYOUTS:
        yield pytest.param(partial(pt, torch.float32, layout), id=f"pt {layout}")
    for name in PLAIN:
        yield pytest.param(partial(plain, name), id=f"gguf {name}")
    yield pytest.param(bfloat16, id="gguf bfloat16")
    for each in QUANTISED:
        yield pytest.param(partial(quantised, each), id=f"gguf {each.name}")


@pytest.mark.parametrize("make", [*cases()])
def test_rows_are_those_of_the_library(tmp_path: Path, make: Made) -> None:
    path = tmp_path / "weight"
    with np.errstate(over="ignore"):
        wanted = make(path).astype(np.float32)
    tensors = open_tensors(path)
    assert_rows(tensors.layer("weight"), wanted)
    assert tensors["weight"].shape == wanted.shape


def test_values_that_change_are_counted_as_rows_are_read(tmp_path: Path) -> None:
    values = torch.tensor([[1.0, 0.1], [0.5, 2.0], [0.2, 0.3]], dtype=torch.float64)
    save_file({"weight": values}, tmp_path / "m.safetensors")
    torch.save({"weight": values}, tmp_path / "m.pt")
    np.savez(tmp_path / "m.npz", weight=values.numpy())
    for name in ("m.safetensors", "m.pt", "m.npz"):
        found, counts = layer(tmp_path / name, "weight"), []
        for row in (1, 0, 2):
            found.rows(np.array([row, row]))  # a row is read once
            counts.append(found.rounded_values)
        assert counts == [0, 1, 3]


def test_infinities_nan_and_negative_zeros_keep_their_bits(tmp_path: Path) -> None:
    weight = np.array([[np.inf, -np.inf], [np.nan, -0.0]], np.float32)
    save_file({"weight": torch.from_numpy(weight)}, tmp_path / "m.safetensors")
    assert (
        layer(tmp_path / "m.safetensors", "weight").rows(np.arange(2)).tobytes() == weight.tobytes()
    )


def test_several_blocks_give_the_same_rows(tmp_path: Path) -> None:
    save_file({"weight": torch.from_numpy(matrix(500, 1111))}, tmp_path / "m.safetensors")
    assert_rows(layer(tmp_path / "m.safetensors", "weight"), matrix(500, 1111))


def test_neighbouring_rows_are_one_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_file({"weight": torch.from_numpy(matrix(1000, 64))}, tmp_path / "m.safetensors")
    found, reads, honest = layer(tmp_path / "m.safetensors", "weight"), [], Binary.gather
    monkeypatch.setattr(
        Binary, "gather", lambda *given: (reads.extend(given[3]), honest(*given))[1]
    )
    found.rows(np.array([700, 5, 4, 6, 4]))
    assert reads == [3 * 256, 256]


def test_rows_of_columns_and_of_stored_arrays_are_read_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of 2 GB, column after column, is not read whole, nor a stored array through the archive."""
    with open(tmp_path / "weight.npy", "wb") as file:
        described = {"descr": "<f4", "fortran_order": True, "shape": (5_000_000, 100)}
        np.lib.format.write_array_header_1_0(file, described)
        file.truncate(file.tell() + 2 * 10**9)
    assert not layer(tmp_path / "weight.npy", "weight").rows(np.array([4_999_999, 3])).any()
    np.savez(tmp_path / "m.npz", weight=matrix())
    found = layer(tmp_path / "m.npz", "weight")
    monkeypatch.setattr(zipfile.ZipFile, "open", None)
    assert_rows(found, matrix())
