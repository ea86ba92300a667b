"""Rows far longer or shorter than all others, or with far larger values."""

from __future__ import annotations

import numpy as np

_TIMES = 20
_QUANTILE = 0.999


def outliers(norms: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return the places of outliers, (m,), by the norms and the largest values of rows, (n,) each.

    A row is one if its norm or largest value is beyond 20 times the 99.9 % quantile of the others,
    or below a twentieth of their 0.1 % quantile.
    """
    found = [_far_above(values) for values in (norms, largest, 1 / norms, 1 / largest)]
    return np.unique(np.concatenate(found))


def _far_above(values: np.ndarray) -> np.ndarray:
    """Return the places of values, (n,), beyond 20 times the 99.9 % quantile of smaller ones."""
    order = np.argsort(values)
    ordered = values[order]
    end = len(ordered)
    while end > 1 and ordered[end - 1] > _TIMES * ordered[int(_QUANTILE * (end - 2))]:
        end -= 1
    return order[end:]
