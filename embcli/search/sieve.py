"""Rows that may be near a query under cosine, told by one look at each row in place of two products."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from embcli.search.bounds import gamma

if TYPE_CHECKING:
    from collections.abc import Callable

    from embcli.search.kernel import Kernel

_COLUMNS = 64  # of which one is looked at for a row's length
_SQUARE = 2.0**-80  # of those columns, from which on nothing that underflows matters
_ROOTS = 2.0**-13  # that cosines may be off by the roots of lengths, which are good for 20 bits, and by their rounding


class Sieve:
    """Keeps the rows that may be as close to a vector under cosine as `bar` says, and all that may have no cosine.

    With a product off by gamma |x|·|y| and each square by gamma of itself, their cosine is at most 4 gamma off. That
    the kernel rounds the query moves it by at most twice what that takes away, for each unit of the norm. The cosine of
    a row whose square is not finite is NaN, 0, or, as NaN is cut off, 1: all these rows are kept.
    """

    def __init__(self, kernel: Kernel, bar: Callable[[], float]) -> None:
        (vector,) = kernel.vectors
        dim = len(vector.values)
        self._kernel, self._bar, self._columns = kernel, bar, -(-dim // _COLUMNS)
        self._slack = 4 * gamma(dim) + _ROOTS + 2 * vector.error / vector.norm

    def kept(self, rows: np.ndarray) -> np.ndarray | slice:
        """Return the places of rows (n, D) that are kept, (n,) int64, or a slice of all."""
        bar = self._bar()
        if bar == -np.inf:
            return slice(None)
        distances, squares = self._kernel.looks(rows, self._columns)
        far = (distances > 1 - min(max(bar, -1.0), 1.0) + self._slack) & (distances != 1) & (squares > _SQUARE)
        return np.flatnonzero(~far)
