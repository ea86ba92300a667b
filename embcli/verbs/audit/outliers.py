"""Rows far longer or shorter than all others, or with far larger values."""

from __future__ import annotations

import numpy as np

TIMES = 20
_QUANTILE = 0.999


def outliers(norms: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return the places of outliers, (m,), by the norms and the largest values of rows, (n,) each.

    A row is one if its norm or largest value is beyond 20 times the 99.9 % quantile of the others,
    or below a twentieth of their 0.1 % quantile. So is each of at most half of the rows that are 20
    times beyond all others; short ones, which tokens without a text can have, if they are a block.
    """
    found = [_far_above(values) for values in (norms, largest, 1 / norms, 1 / largest)]
    found += [_above_gap(values) for values in (norms, largest)]
    short = np.sort(_above_gap(1 / norms))
    if (np.diff(short) == 1).all():
        found.append(short)
    return np.unique(np.concatenate(found))


def _far_above(values: np.ndarray) -> np.ndarray:
    """Return the places of values, (n,), beyond 20 times the 99.9 % quantile of smaller ones."""
    order = np.argsort(values)
    ordered = values[order]
    end = len(ordered)
    while end > 1 and ordered[end - 1] > TIMES * ordered[int(_QUANTILE * (end - 2))]:
        end -= 1
    return order[end:]


def _above_gap(values: np.ndarray) -> np.ndarray:
    """Return the places of at most half of the values, (n,), which are 20 times all others."""
    order = np.argsort(values)
    ordered = values[order]
    ends = 1 + np.flatnonzero(ordered[1:] > TIMES * ordered[:-1])
    end = ends[2 * ends >= len(order)].min(initial=len(order))
    return order[end:]
