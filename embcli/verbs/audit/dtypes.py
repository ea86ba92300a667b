"""The dtype of 16-bit numbers, told by how their sizes are spread."""

from __future__ import annotations

import numpy as np

from embcli.files.numbers import STORED_DTYPES
from embcli.layer import Layer

_OTHERS = {"float16": "bfloat16", "bfloat16": "float16"}  # as long, with other exponents
_MOST_ROWS = 1000


def other_dtype(layer: Layer) -> str:
    """Return the dtype that the bits of a matrix have, if it is not the one that its file names."""
    other = _OTHERS.get(layer.dtype)
    if other is None:
        return ""
    bits = layer.stored(np.arange(min(layer.shape[0], _MOST_ROWS)))
    if bits.itemsize != 2:  # It is computed from other tensors.
        return ""
    if _is_spread(bits, layer.dtype) or not _is_spread(bits, other):
        return ""
    return other


def _is_spread(bits: np.ndarray, dtype: str) -> bool:
    """Return whether numbers are spread as those of a model, if their bits are read as a dtype.

    Of normal, uniform or Laplace's numbers, an eighth or a little more are below a quarter of the
    median size. In the wrong dtype, sizes are far more alike, or differ far more.
    """
    stored = STORED_DTYPES[dtype]
    values, _ = stored.widened(bits.view(stored.stored))
    sizes = np.sort(np.abs(values), axis=None)
    smaller = np.searchsorted(sizes, sizes[len(sizes) // 2] / 4)
    return bool(0.05 < smaller / len(sizes) < 0.3)
