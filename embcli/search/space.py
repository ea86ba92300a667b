"""What near means, and scores in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from embcli.names import Metric


@dataclass(frozen=True)
class Space:
    """What near means: by which metric, and whether the mean row is taken away from all rows first."""

    metric: Metric
    mean: np.ndarray | None = None  # (D,) float64; queries are without it already

    def scores(self, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Return the scores of rows (n, D) with a query (D,), (n,) float64; NaN where a row has none.

        Equal rows have equal scores, wherever they stand: each row is summed by itself.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            wide = rows.astype(np.float64)
            if self.mean is not None:
                wide -= self.mean
            terms = np.square(wide - query) if self.metric == "l2" else wide * query
            found: np.ndarray = terms.sum(axis=1)
            if self.metric == "l2":
                found = np.sqrt(found)
            elif self.metric == "cosine":
                found = np.clip(found / np.sqrt(np.square(wide).sum(axis=1) * np.square(query).sum()), -1, 1)
        found[~np.isfinite(found)] = np.nan
        return found

    def closeness(self, scores: np.ndarray) -> np.ndarray:
        """Return numbers that are larger for rows which are nearer: the scores, but of l2 their negative squares."""
        return -np.square(scores) if self.metric == "l2" else scores
