"""Numbers of every kind become the float32 that numpy, ml_dtypes and torch make of them."""

from __future__ import annotations

import math
import operator

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import example, given, strategies as st

from embcli.files.numbers import (
    BFLOAT16,
    STORED_DTYPES,
    StoredDtype,
    rounded_to,
)
from tests.files.made import assert_equal

WHOLE = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def widened(dtype: StoredDtype, stored: np.ndarray) -> np.ndarray:
    """Return stored values as float32, none of which may have changed."""
    values, changed = dtype.widened(stored[None])
    assert changed == 0
    return values[0]


def as_torch_reads(stored: np.ndarray, dtype: torch.dtype) -> np.ndarray:
    """Return what torch makes of the bits of values."""
    bits = torch.from_numpy(stored.view(f"i{stored.itemsize}"))
    return bits.view(dtype).float().numpy()


# --- floats of 8 and 16 bits ----------------------------------------------------------------------


def test_every_bfloat16_is_that_of_ml_dtypes_and_torch_to_the_last_bit():
    stored = np.arange(1 << 16, dtype=np.uint16)
    values = widened(BFLOAT16, stored)
    of_ml_dtypes = stored.view(ml_dtypes.bfloat16)
    of_torch = as_torch_reads(stored, torch.bfloat16)
    assert values.tobytes() == of_ml_dtypes.astype(np.float32).tobytes()
    assert values.tobytes() == of_torch.tobytes()


@pytest.mark.parametrize(
    ("name", "of_numpy", "of_torch"),
    [
        ("float8_e4m3fn", ml_dtypes.float8_e4m3fn, torch.float8_e4m3fn),
        ("float8_e5m2", ml_dtypes.float8_e5m2, torch.float8_e5m2),
        ("float8_e8m0fnu", ml_dtypes.float8_e8m0fnu, torch.float8_e8m0fnu),
        ("float16", np.float16, torch.float16),
    ],
)
def test_every_small_float_is_that_of_numpy_and_torch(name, of_numpy, of_torch):
    dtype = STORED_DTYPES[name]
    stored = np.arange(65536).astype(f"u{dtype.stored.itemsize}")
    values = widened(dtype, stored.view(dtype.stored))
    read_by_numpy = stored.view(of_numpy)
    assert_equal(values, read_by_numpy.astype(np.float32))
    assert_equal(values, as_torch_reads(stored, of_torch))


# --- numbers that float32 rounds ------------------------------------------------------------------


@given(st.lists(st.floats(width=64), min_size=1))
@example([math.nan, math.inf, 1e300, 0.1, 5e-324, 1.5])
def test_float64_is_rounded_as_numpy_rounds_it_and_what_changes_is_counted(
    exact,
):
    stored = np.array(exact)
    dtype = STORED_DTYPES["float64"]
    values, changed = dtype.widened(stored[None])
    with np.errstate(over="ignore"):
        expected = stored.astype(np.float32)
    assert_equal(values[0], expected)
    is_changed = (expected.astype(np.float64) != stored) & ~np.isnan(stored)
    assert changed == np.count_nonzero(is_changed)


def whole_numbers(dtype: str) -> st.SearchStrategy[int]:
    """Draw any number of a dtype, and often one near a power of two."""
    limits = np.iinfo(dtype)
    lowest = int(limits.min)
    highest = int(limits.max)

    def near(power: int, offset: int) -> int:
        number = (1 << power) + offset
        return min(max(number, lowest), highest)

    near_powers = st.builds(near, st.integers(0, 64), st.integers(-3, 3))
    return near_powers | st.integers(lowest, highest)


@pytest.mark.parametrize("dtype", WHOLE)
@given(st.data())
def test_whole_numbers_are_rounded_as_numpy_rounds_them_and_what_changes_is_counted(dtype, data):
    exact = data.draw(st.lists(whole_numbers(dtype), min_size=1))
    stored = np.array(exact, dtype)
    values, changed = STORED_DTYPES[dtype].widened(stored[None])
    assert_equal(values[0], stored.astype(np.float32))
    found = map(int, values[0].tolist())
    assert changed == sum(map(operator.ne, exact, found))


@pytest.mark.parametrize(
    ("name", "dtype"), [("float16", np.dtype("f2")), ("bfloat16", np.dtype(ml_dtypes.bfloat16))]
)
def test_values_are_rounded_as_ml_dtypes_rounds_them(name, dtype):
    """The values are any bits, and all places halfway between two numbers."""
    stored = np.arange(1 << 15, dtype=np.uint16)
    positive = stored.view(dtype).astype(np.float32)
    known = positive[np.isfinite(positive)].astype(np.float64)
    halves = (known[1:] + known[:-1]) / 2
    below = np.nextafter(halves, 0, dtype=np.float32)
    bits = np.random.default_rng(0).bytes(400_000)
    any_bits = np.frombuffer(bits, np.float32)
    parts = [any_bits, halves, -halves, below, known, -known]
    values = np.concatenate(parts, dtype=np.float32)

    with np.errstate(over="ignore", invalid="ignore"):
        expected = values.astype(dtype).astype(np.float32)

    assert_equal(rounded_to(name, values), expected)
