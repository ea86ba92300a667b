"""How numbers are stored in files, and how they become float32: exactly, or rounded and counted.

The readers of formats choose a StoredDtype for each tensor, and `StoredLayer` applies it to rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np


class StoredDtype(NamedTuple):
    """A dtype of stored numbers, and the function that makes them float32."""

    name: str  # numpy's or ml_dtypes' name
    stored: np.dtype[Any]  # the items of a row in the file
    # (n, width) -> (n, D) float32
    widen: Callable[[np.ndarray], np.ndarray] = partial(np.asarray, dtype=np.float32, order="C")
    values: int = 1  # per item; an item with several is a block of quantised values
    has_scale: bool = False  # whether quantised models store numbers in it that have a scale

    def widened(self, stored: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return rows, (n, width) as stored, as (n, D) float32, and how many values were rounded.

        They are counted by row, (n,). A number that overflows becomes infinity and is rounded; a
        NaN is not.
        """
        # numpy would warn about an overflow, and about a signalling NaN.
        with np.errstate(all="ignore"):
            rows = self.widen(stored)
            if held_by_float32(self.name):
                return rows, np.zeros(len(rows), np.int64)
            if stored.dtype.kind == "f":
                is_rounded = (rows != stored) & ~np.isnan(stored)
            else:
                # The largest integers are rounded to a float32 that the dtype does not hold, so the
                # way back would overflow.
                above_all = np.float32(np.iinfo(stored.dtype).max)
                is_rounded = (rows == above_all) | (rows.astype(stored.dtype) != stored)
            return rows, np.count_nonzero(is_rounded, axis=1)


def _from_float8(fraction_bits: int, scale: float, stored: np.ndarray) -> np.ndarray:
    """Widen 8-bit floats: as the first bits of 16-bit ones, scaled by the exponents' other bias.

    E5M2 is like the floats of IEEE 754, E4M3 has no infinities: Micikevicius et al. 2022,
    "FP8 formats for deep learning", table 1.
    """
    bits = np.arange(256, dtype=np.uint16)
    signs = (bits & 0x80) << 8
    magnitudes = (bits & 0x7F) << (10 - fraction_bits)
    halves = (signs | magnitudes).view(np.float16)
    table = halves.astype(np.float32) * np.float32(scale)
    if fraction_bits == 3:
        table[[127, 255]] = np.nan
    return table.take(stored)


def _from_float4(stored: np.ndarray) -> np.ndarray:
    """Widen 4-bit floats, E2M1: a byte has two of them, the first one in its lower bits."""
    magnitudes = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
    table = np.concatenate([magnitudes, -magnitudes])
    pairs = np.stack([stored & 15, stored >> 4], 2)
    return table[pairs].reshape(len(stored), -1)


def _from_float8_e8m0(stored: np.ndarray) -> np.ndarray:
    """Widen 8-bit exponents, which scales of blocks are: powers of two, or NaN."""
    table = np.ldexp(np.float32(1), np.arange(256) - 127)
    table[255] = np.nan
    return table.take(stored)


def _from_bfloat16(stored: np.ndarray) -> np.ndarray:
    bits: np.ndarray = np.left_shift(stored, 16, dtype=np.uint32)
    return bits.view(np.float32)


BFLOAT16 = StoredDtype("bfloat16", np.dtype("<u2"), _from_bfloat16)
_FLOATS = (
    BFLOAT16,
    StoredDtype("float8_e4m3fn", np.dtype("u1"), partial(_from_float8, 3, 256), has_scale=True),
    StoredDtype("float8_e5m2", np.dtype("u1"), partial(_from_float8, 2, 1), has_scale=True),
    StoredDtype("float8_e8m0fnu", np.dtype("u1"), _from_float8_e8m0),
    StoredDtype("float4_e2m1fn", np.dtype("u1"), _from_float4, values=2, has_scale=True),
)
# The others are dtypes of numpy, as safetensors, torch and GGUF store them: little-endian.
# npy.py takes the byte order from the header of an array.
_CODES = ("<f4", "<f2", "<f8", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8")

# The dtypes by their names, as numpy and ml_dtypes spell them.
STORED_DTYPES = {dtype.name: dtype for dtype in _FLOATS}
for _code in _CODES:
    _dtype = np.dtype(_code)
    STORED_DTYPES[_dtype.name] = StoredDtype(_dtype.name, _dtype, has_scale=_code == "i1")


def held_by_float32(name: str) -> bool:
    """Return whether float32 holds all numbers of a dtype.

    It holds those of quantised blocks, which are float32 once they are widened.
    """
    return re.fullmatch("float(64|96|128)|u?int(32|64)", name) is None


def rounded_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return float32 values rounded to a 16-bit dtype, ties to even; unchanged for other dtypes."""
    if name == "float16":
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if name == BFLOAT16.name:
        bits = values.view(np.uint32)
        last_kept_bits = (bits >> np.uint32(16)) & np.uint32(1)
        rounded_bits = (bits + np.uint32(0x7FFF) + last_kept_bits) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), values, rounded_bits.view(np.float32))
    return values
