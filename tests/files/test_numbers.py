"""Numbers of every kind become the float32 that numpy, ml_dtypes and torch make of them."""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from embcli.files.numbers import (
    BFLOAT16,
    FLOAT8_E4M3,
    FLOAT8_E5M2,
    STORED_DTYPES,
    StoredDtype,
    rounded_to,
)
from tests.files.made import assert_equal

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def widened(numbers: StoredDtype, stored: np.ndarray) -> tuple[np.ndarray, int]:
    found, changed = numbers.widened(stored[None])
    return found[0], changed


def test_every_bfloat16_is_that_of_ml_dtypes_and_torch_to_the_last_bit() -> None:
    stored = np.arange(1 << 16, dtype=np.uint16)
    found, changed = widened(BFLOAT16, stored)
    assert found.tobytes() == stored.view(ml_dtypes.bfloat16).astype(np.float32).tobytes()
    assert (
        found.tobytes()
        == torch.from_numpy(stored.view(np.int16)).view(torch.bfloat16).float().numpy().tobytes()
    )
    assert changed == 0


@pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
def test_every_float8_is_that_of_ml_dtypes_and_torch(name: str) -> None:
    stored = np.arange(256, dtype=np.uint8)
    found, changed = widened(
        {"float8_e4m3fn": FLOAT8_E4M3, "float8_e5m2": FLOAT8_E5M2}[name], stored
    )
    assert_equal(found, stored.view(getattr(ml_dtypes, name)).astype(np.float32))
    assert_equal(found, torch.from_numpy(stored).view(getattr(torch, name)).float().numpy())
    assert changed == 0


def test_every_float16_is_that_of_torch() -> None:
    stored = np.arange(1 << 16, dtype=np.uint16)
    found, changed = widened(STORED_DTYPES["float16"], stored.view(np.float16))
    assert_equal(found, torch.from_numpy(stored.view(np.int16)).view(torch.float16).float().numpy())
    assert changed == 0


@given(st.lists(st.floats(width=64), min_size=1))
@example([math.nan, math.inf, 1e300, 0.1, 5e-324, 1.5])
def test_float64_is_rounded_as_numpy_rounds_it_and_what_changes_is_counted(
    values: list[float],
) -> None:
    stored = np.array(values)
    found, changed = widened(STORED_DTYPES["float64"], stored)
    with np.errstate(over="ignore"):
        assert_equal(found, stored.astype(np.float32))
    assert changed == sum(
        float(number) != value and value == value
        for number, value in zip(found, values, strict=True)
    )


@pytest.mark.parametrize("name", WHOLE)
@given(st.data())
def test_whole_numbers_are_rounded_as_numpy_rounds_them_and_what_changes_is_counted(
    name: str, data: st.DataObject
) -> None:
    limits = np.iinfo(name)
    near = st.builds(lambda power, off: min(max(off + (1 << power), int(limits.min)), int(limits.max)),
                     st.integers(0, 64), st.integers(-3, 3))  # fmt: skip
    values = data.draw(st.lists(near | st.integers(int(limits.min), int(limits.max)), min_size=1))
    stored = np.array(values, name)
    found, changed = widened(STORED_DTYPES[name], stored)
    assert_equal(found, stored.astype(np.float32))
    assert changed == sum(int(number) != value for number, value in zip(found, values, strict=True))


@pytest.mark.parametrize("name", ["float16", "bfloat16"])
def test_values_are_rounded_as_ml_dtypes_rounds_them(name: str) -> None:
    """Any bits, and all places halfway between two numbers."""
    kind = np.dtype(name if name == "float16" else getattr(ml_dtypes, name))
    known = np.arange(1 << 15, dtype=np.uint16).view(kind).astype(np.float32)
    known = known[np.isfinite(known)]
    bits = np.random.default_rng(0).integers(0, 1 << 32, 100_000, dtype=np.uint32).view(np.float32)
    halves = ((known[1:].astype(np.float64) + known[:-1]) / 2).astype(np.float32)
    values = np.concatenate(
        [bits, halves, -halves, np.nextafter(halves, np.float32(0)), known, -known]
    )
    with np.errstate(over="ignore", invalid="ignore"):
        wanted = values.astype(kind).astype(np.float32)
    assert_equal(
        rounded_to(name, values), np.where(np.isnan(values), values, wanted).astype(np.float32)
    )
    assert rounded_to("int8", values) is values
