"""Products of rows with vectors and with themselves, in float32, of rows as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.files.numbers import rounded_to

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType


@dataclass(frozen=True)
class Vector:
    """A vector as a kernel takes it: rounded `values`, which times `scale` are the vector but for `error`."""

    values: np.ndarray  # (D,) float32, or bits as uint16
    scale: float  # a power of two, so that no product with the values overflows before those of rows do
    norm: float  # of the values
    error: float  # norm of what the rounding took away, in the scale of the values


class Kernel:
    """Products of rows with vectors and with themselves, in float32, by simsimd or else by numpy.

    The vectors are rounded to the numbers of `like`, which are rows as the products take them.
    """

    def __init__(self, vectors: list[np.ndarray], like: np.ndarray, dtype: str) -> None:
        self._simsimd, self._dtype = simsimd(), dtype
        self.vectors = [self._vector(vector, like) for vector in vectors]

    def _vector(self, wide: np.ndarray, like: np.ndarray) -> Vector:
        """Return a vector (D,) float64 in the numbers of some rows."""
        largest = float(np.abs(wide).max())
        scale = 2.0 ** np.floor(np.log2(largest)) if largest else 1.0
        kept = (wide / scale).astype(np.float32)
        if like.dtype != np.float32:
            kept = rounded_to(self._dtype, kept)
        values = kept if like.dtype == np.float32 else _bits(kept, self._dtype)
        exact = kept.astype(np.float64)
        return Vector(values, scale, float(np.linalg.norm(exact)), float(np.linalg.norm(wide / scale - exact)))

    @property
    def has_cosines(self) -> bool:
        """Whether there are cosines in one look at each row that are good for 20 bits: on x86, not without SIMD."""
        return self._simsimd is not None and bool(self._simsimd.get_capabilities().get("haswell"))

    def products(self, rows: np.ndarray) -> np.ndarray:
        """Return the products of rows (n, D) with the vectors, in the last row with themselves, (vectors + 1, n)."""
        found = np.empty((len(self.vectors) + 1, len(rows)), np.float32)
        if self._simsimd is None:
            self._by_numpy(rows, found)
            return found
        for vector, place in zip(self.vectors, found, strict=False):
            self._by_simsimd(self._simsimd.dot, vector.values, rows, place)
        self._by_simsimd(self._simsimd.dot, rows, rows, found[-1])
        return found

    def looks(self, rows: np.ndarray, columns: int) -> tuple[np.ndarray, np.ndarray]:
        """Return 1 - cosine of rows (n, D) with the first vector, and the squares of their first columns, both (n,).

        Where a square overflows or underflows the cosine is anything.
        """
        assert self._simsimd is not None  # noqa: S101 - for the type checker
        distances, squares = np.empty((2, len(rows)), np.float32)
        few = rows[:, :columns]
        self._by_simsimd(self._simsimd.cosine, self.vectors[0].values, rows, distances)
        self._by_simsimd(self._simsimd.dot, few, few, squares)
        return distances, squares

    def _by_simsimd(self, kernel: Callable[..., Any], values: np.ndarray, rows: np.ndarray, found: np.ndarray) -> None:
        # Without its `out`: with it simsimd 6.5 returns None without counting the reference, and Python ends.
        if len(rows):  # none is an error there
            found[:] = kernel(values, rows, "f32" if rows.dtype == np.float32 else _SHORT[self._dtype], out_dtype="f32")

    def _by_numpy(self, rows: np.ndarray, found: np.ndarray) -> None:
        with np.errstate(over="ignore", invalid="ignore"):
            np.matmul(np.stack([vector.values for vector in self.vectors]), rows.T, out=found[:-1])
            np.einsum("ij,ij->i", rows, rows, out=found[-1])


_SHORT = {"bfloat16": "bf16", "float16": "f16"}


def _bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 numbers that 16 bits hold as those, uint16."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)


def simsimd() -> ModuleType | None:
    """Return the package simsimd; None where it is not installed."""
    try:
        import simsimd
    except ImportError:
        return None
    for capability in ("sapphire", "sve_f16"):  # which add up in 16 bits
        simsimd.disable_capability(capability)
    return simsimd
