"""How numbers are stored in files, and how they become float32: exactly, or rounded and counted."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


def _converted(stored: np.ndarray) -> np.ndarray:
    return stored.astype(np.float32, order="C", copy=False)


class StoredDtype(NamedTuple):
    name: str  # as numpy spells it
    stored: np.dtype[Any]  # the items of a row in the file
    widen: Callable[[np.ndarray], np.ndarray] = _converted  # (n, width) -> (n, D)
    values: int = 1  # per stored item, which is a block of quantised values if there are several

    def widened(self, stored: np.ndarray) -> tuple[np.ndarray, int]:
        """Return rows, (n, width) as stored, as (n, D) float32, and how many of the values were rounded."""
        with np.errstate(
            all="ignore"
        ):  # an overflow becomes infinity and counts as rounded; a signalling NaN is one
            rows = self.widen(stored)
            if held_by_float32(self.name):
                return rows, 0
            if stored.dtype.kind == "f":
                return rows, int(np.count_nonzero((rows != stored) & ~np.isnan(stored)))
            above = np.float32(
                np.iinfo(stored.dtype).max
            )  # rounded: no number of the dtype is so large
            return rows, int(
                np.count_nonzero((rows == above) | (rows.astype(stored.dtype) != stored))
            )


def _from_float8(fraction_bits: int, scale: float, stored: np.ndarray) -> np.ndarray:
    """Widen 8-bit floats as 16-bit ones with the same bits in front, whose exponents have another bias.

    E5M2 is as in IEEE 754, E4M3 has no infinities: Micikevicius et al. 2022, "FP8 formats for deep learning", table 1.
    """
    bits = np.arange(256, dtype=np.uint16)
    halves = ((bits & 0x80) << 8 | (bits & 0x7F) << (10 - fraction_bits)).view(np.float16)
    table = halves.astype(np.float32) * np.float32(scale)
    if fraction_bits == 3:
        table[[127, 255]] = np.nan
    return np.take(table, stored)


BFLOAT16 = StoredDtype(
    "bfloat16",
    np.dtype("<u2"),
    lambda stored: np.left_shift(stored, 16, dtype=np.uint32).view(np.float32),
)
FLOAT8_E4M3 = StoredDtype("float8_e4m3fn", np.dtype("u1"), partial(_from_float8, 3, 256))
FLOAT8_E5M2 = StoredDtype("float8_e5m2", np.dtype("u1"), partial(_from_float8, 2, 1))

# By name, as numpy and ml_dtypes spell it; files store them little-endian.
STORED_DTYPES = {known.name: known for known in (BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)}
for _dtype in map(
    np.dtype, ("<f4", "<f2", "<f8", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8")
):
    STORED_DTYPES[_dtype.name] = StoredDtype(_dtype.name, _dtype)


def held_by_float32(name: str) -> bool:
    """Return whether float32 holds all numbers of a dtype; it does for quantised blocks, which become float32."""
    return re.fullmatch("float(64|96|128)|u?int(32|64)", name) is None


def rounded_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return float32 values rounded to the nearest numbers of a dtype of 16 bits, ties to even."""
    if name == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if name == BFLOAT16.name:
        bits = values.view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(
            0xFFFF0000
        )
        return np.where(np.isnan(values), values, nearest.view(np.float32))
    return values
