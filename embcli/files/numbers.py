"""How numbers are stored in files, and how they become float32: exactly, or rounded and counted where they change."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True)
class Numbers:
    """How numbers are stored, and how they become float32."""

    name: str  # as numpy names it
    stored: np.dtype[Any]  # what a row is made of in the file
    widen: Callable[[np.ndarray, np.ndarray], int]  # (n, width) stored -> (n, D) float32; returns how many changed
    block: tuple[int, int] = (1, 1)  # so many values of a row are so many stored things

    def width(self, dim: int) -> int:
        """Return how many stored things a row of D values is."""
        values, things = self.block
        return dim // values * things

    def widened(self, stored: np.ndarray, dim: int) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D), whether it holds them or not."""
        if stored.dtype == np.float32:
            return stored
        found = np.empty((len(stored), dim), np.float32)
        self.widen(stored, found)
        return found


def of(dtype: np.dtype[Any]) -> Numbers | None:
    """Return how numbers of a numpy dtype become float32; None for what is no real number."""
    if dtype.kind not in "fiu":
        return None
    if dtype == np.dtype("<f2"):
        return FLOAT16
    exact = dtype.itemsize <= (4 if dtype.kind == "f" else 2)
    return Numbers(dtype.name, dtype, _copied if exact else _rounded)


def _copied(stored: np.ndarray, found: np.ndarray) -> int:
    found[...] = stored
    return 0


def _rounded(stored: np.ndarray, found: np.ndarray) -> int:
    with np.errstate(over="ignore", invalid="ignore"):  # what is too large becomes infinite, and is counted
        found[...] = stored
    if stored.dtype.kind == "f":
        return int(np.count_nonzero((found != stored) & (stored == stored)))  # noqa: PLR0124 - NaN is not itself
    # A whole number is a float32 if it is an odd number below 2**24, shifted.
    size = np.abs(stored.astype(np.int64)).view(np.uint64) if stored.dtype.kind == "i" else stored.astype(np.uint64)
    lowest_bit = np.maximum(size & (~size + np.uint64(1)), np.uint64(1))
    return int(np.count_nonzero(size // lowest_bit >= 1 << 24))


def _from_bfloat16(stored: np.ndarray, found: np.ndarray) -> int:
    bits = found.view(np.uint32)
    bits[...] = stored
    np.left_shift(bits, 16, out=bits)
    return 0


def _looked_up(values: Callable[[], np.ndarray]) -> Callable[[np.ndarray, np.ndarray], int]:
    """Return what finds numbers of few bits in a table of all that there are."""

    def widen(stored: np.ndarray, found: np.ndarray) -> int:
        np.take(values(), stored, out=found, mode="clip")
        return 0

    return widen


@lru_cache
def _float16() -> np.ndarray:
    """Return all 16-bit floats, (65536,) float32."""
    return np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)


@lru_cache
def _float8(exponent_bits: int) -> np.ndarray:
    """Return the 256 values of an 8-bit float, (256,) float32: E5M2 as IEEE 754 has it, E4M3 without infinities.

    See Micikevicius et al. 2022, "FP8 formats for deep learning", table 1.
    """
    bits = np.arange(128)
    fraction_bits = 7 - exponent_bits
    bias = (1 << (exponent_bits - 1)) - 1
    exponent, fraction = bits >> fraction_bits, bits & ((1 << fraction_bits) - 1)
    normal = exponent > 0
    significand = np.where(normal, fraction + (1 << fraction_bits), fraction).astype(np.float32)
    values = np.ldexp(significand, np.where(normal, exponent, 1) - bias - fraction_bits)
    if exponent_bits == 5:
        values[124:] = np.inf, np.nan, np.nan, np.nan
    else:
        values[127] = np.nan
    return np.concatenate([values, -values]).astype(np.float32)


FLOAT32 = Numbers("float32", np.dtype("<f4"), _copied)
FLOAT16 = Numbers("float16", np.dtype("<u2"), _looked_up(_float16))
BFLOAT16 = Numbers("bfloat16", np.dtype("<u2"), _from_bfloat16)
FLOAT8_E4M3 = Numbers("float8_e4m3fn", np.dtype("u1"), _looked_up(partial(_float8, 4)))
FLOAT8_E5M2 = Numbers("float8_e5m2", np.dtype("u1"), _looked_up(partial(_float8, 5)))

# Of floats: how many bits the significand has, with the one that is not stored, and the exponent of the least number.
_STEPS = {
    "float64": (53, -1074),
    FLOAT32.name: (24, -149),
    FLOAT16.name: (11, -24),
    BFLOAT16.name: (8, -133),
    FLOAT8_E4M3.name: (4, -9),
    FLOAT8_E5M2.name: (3, -16),
}

# Numbers by name, as numpy and ml_dtypes have it; in files they are little-endian.
NAMED = {numbers.name: numbers for numbers in (FLOAT32, FLOAT16, BFLOAT16, FLOAT8_E4M3, FLOAT8_E5M2)} | {
    dtype.name: numbers
    for dtype in map(np.dtype, ("<f8", "i1", "u1", "<i2", "<u2", "<i4", "<u4", "<i8", "<u8"))
    if (numbers := of(dtype))
}


def held_by_float32(name: str) -> bool:
    """Say whether float32 holds all numbers of a dtype; quantised blocks become float32, so it holds theirs."""
    return re.fullmatch("float(64|96|128)|u?int(32|64)", name) is None


def rounded_to(name: str, values: np.ndarray) -> np.ndarray:
    """Return float32 values as a dtype of fewer bits has them: the nearest of its numbers, of two the even one.

    What is too large for 8 bits becomes their largest number. Other dtypes hold what they are given: quantised blocks
    have no step of their own.

    >>> rounded_to("bfloat16", np.array([1.00390625, 1.01171875], np.float32)).tolist()
    [1.0, 1.015625]
    """
    if name == FLOAT16.name:
        with np.errstate(over="ignore"):
            return values.astype(np.float16).astype(np.float32)
    if name == BFLOAT16.name:
        bits = values.view(np.uint32)
        nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)
        return np.where(np.isnan(values), values, nearest.view(np.float32))
    exponent_bits = {FLOAT8_E4M3.name: 4, FLOAT8_E5M2.name: 5}.get(name)
    return values if exponent_bits is None else _nearest(values, _float8(exponent_bits)[:128])


def steps(name: str, values: np.ndarray) -> np.ndarray:
    """Return how far a dtype's numbers, in any shape, are from the next larger ones in size; 0 for what is no float.

    >>> steps("bfloat16", np.array([1.0, -3.0, 0.0])).tolist() == [2.0**-7, 2.0**-6, 2.0**-133]
    True
    """
    if name not in _STEPS:
        return np.zeros(values.shape)
    bits, least = _STEPS[name]
    exponents = np.where(values == 0, least, np.frexp(values)[1] - bits)
    found: np.ndarray = np.ldexp(1.0, np.maximum(exponents, least))
    return found


def _nearest(values: np.ndarray, table: np.ndarray) -> np.ndarray:
    """Return the nearest numbers of an ascending table of those that are not negative, of two the one at an even place.

    NaN stays what it is.
    """
    known = table[np.isfinite(table)]
    halves = (known[1:] + known[:-1]) / 2  # which float32 holds exactly
    size = np.abs(values)
    places = np.searchsorted(halves, size)
    tie = halves[np.minimum(places, len(halves) - 1)] == size
    found = np.copysign(known[places + (tie & (places % 2 == 1))], values)
    return np.where(np.isnan(values), values, found)
