"""Rows far longer or shorter than all others, or with far larger values."""

from __future__ import annotations

import numpy as np

TIMES = 20
_QUANTILE = 0.999


def outliers(norms: np.ndarray, largest: np.ndarray) -> np.ndarray:
    """Return the places of outliers, (m,), by the norms and the largest values of rows, (n,) each.

    At most half of the rows are outliers, those from one on whose norm or largest value is beyond
    `TIMES` the 99.9 % quantile of smaller ones. So are short rows, if they are few or a block:
    others can be those of tokens that no text has.
    """
    found = [_far_above(norms), _far_above(largest)]
    for values in (1 / norms, 1 / largest):
        short = np.sort(_far_above(values))
        if len(short) < 2 + (1 - _QUANTILE) * len(values) or (np.diff(short) == 1).all():
            found.append(short)
    return np.unique(np.concatenate(found))


def _far_above(values: np.ndarray) -> np.ndarray:
    """Return the places of at most half of the values, (n,): of one far above most, and larger."""
    order = np.argsort(values)
    ordered = values[order]
    places = np.arange(1, len(ordered))
    typical = ordered[(_QUANTILE * (places - 1)).astype(np.int64)]
    is_far = (ordered[1:] > TIMES * typical) & (2 * places >= len(ordered))
    return order[places[is_far].min(initial=len(ordered)) :]
