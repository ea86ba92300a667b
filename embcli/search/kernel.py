"""Products of rows with vectors and with themselves, in float32, from rows as they are stored."""

from __future__ import annotations

from dataclasses import dataclass
from types import ModuleType

import numpy as np

from embcli.files.numbers import rounded_to

_SIMSIMD_NAMES = {"bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True)
class Vector:
    """A vector that is rounded to the dtype of the rows: `values` times `scale`, with an `error`."""

    values: np.ndarray  # (D,) float32, or bits as uint16
    scale: float  # a power of two, chosen so that products with the values overflow only if products of rows do
    norm: float  # of the values
    error: float  # norm of the rounding error, in the scale of the values


class Kernel:
    """Products of rows with vectors and with themselves, in float32, by simsimd, or by numpy if that is missing.

    The vectors are rounded to the dtype of `rows`, which are rows as the products take them.
    """

    def __init__(self, vectors: list[np.ndarray], rows: np.ndarray, dtype: str) -> None:
        self._simsimd = simsimd()
        self._dtype = "float32" if rows.dtype == np.float32 else dtype
        self.vectors = [self._rounded(vector) for vector in vectors]

    def _rounded(self, vector: np.ndarray) -> Vector:
        """Return a vector (D,) float64 in the dtype of the rows."""
        largest = float(np.abs(vector).max())
        scale = 2.0 ** np.floor(np.log2(largest)) if largest else 1.0
        values = rounded_to(self._dtype, (vector / scale).astype(np.float32))
        exact = values.astype(np.float64)
        error = float(np.linalg.norm(vector / scale - exact))
        return Vector(_bits(values, self._dtype), scale, float(np.linalg.norm(exact)), error)

    def products(self, rows: np.ndarray) -> np.ndarray:
        """Return the products of rows (n, D) with the vectors, and last with themselves, (vectors + 1, n) float32."""
        products = np.empty((len(self.vectors) + 1, len(rows)), np.float32)
        if self._simsimd is None:
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(np.stack([vector.values for vector in self.vectors]), rows.T, out=products[:-1])
                np.einsum("ij,ij->i", rows, rows, out=products[-1])
        elif len(rows):  # simsimd refuses an empty matrix
            name = _SIMSIMD_NAMES.get(self._dtype, "f32")
            # Without `out`: simsimd 6.5 then returns None without counting the reference, and Python crashes.
            for number, vector in enumerate(self.vectors):
                products[number] = self._simsimd.dot(vector.values, rows, name, out_dtype="f32")
            products[-1] = self._simsimd.dot(rows, rows, name, out_dtype="f32")
        return products


def _bits(values: np.ndarray, dtype: str) -> np.ndarray:
    """Return float32 numbers that a dtype of 16 bits represents exactly as its bits, uint16; other dtypes unchanged."""
    if dtype == "float16":
        return values.astype(np.float16).view(np.uint16)
    return (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if dtype == "bfloat16" else values


def simsimd() -> ModuleType | None:
    """Return the package simsimd; None if it is not installed or does not load."""
    try:
        import simsimd
    except (ImportError, OSError):
        return None
    for capability in ("sapphire", "sve_f16"):  # which accumulate in 16 bits
        simsimd.disable_capability(capability)
    return simsimd
