"""The score of a row: its metric, and the computation in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from embcli.names import Metric


@dataclass(frozen=True)
class Space:
    """The metric of a search, and the mean row if it is subtracted from all rows first."""

    metric: Metric
    mean: np.ndarray | None = None  # (D,) float64; already subtracted from queries

    def scores(self, rows: np.ndarray, query: np.ndarray) -> np.ndarray:
        """Return the scores of rows (n, D) with a query (D,), (n,) float64; NaN for a row without a score.

        Equal rows have equal scores at any place, because each row is summed separately.
        """
        with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
            exact = rows.astype(np.float64)
            if self.mean is not None:
                exact -= self.mean
            terms = np.square(exact - query) if self.metric == "l2" else exact * query
            scores: np.ndarray = terms.sum(axis=1)
            if self.metric == "l2":
                scores = np.sqrt(scores)
            elif self.metric == "cosine":
                scores = np.clip(scores / np.sqrt(np.square(exact).sum(axis=1) * np.square(query).sum()), -1, 1)
        scores[~np.isfinite(scores)] = np.nan
        return scores

    def closeness(self, scores: np.ndarray) -> np.ndarray:
        """Return numbers that are larger for nearer rows: the scores, or for l2 their negative squares."""
        return -np.square(scores) if self.metric == "l2" else scores
