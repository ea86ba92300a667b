"""Statistics of the rows of a matrix in float64: norms and their order, quantiles.

`audit`, `diff`, `weights` and the search use them. All read a layer in blocks, so that it can be
larger than memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.errors import Watch, unwatched
from embcli.layer import Layer, Summary
from embcli.wording import QUANTILES

QUANTILES_AT = tuple(QUANTILES.values())


NumberedBlock = tuple[np.ndarray, np.ndarray]  # IDs, (n,) int64, and their rows, (n, D) float32


def numbered_blocks(
    layer: Layer, watch: Watch = unwatched, among: np.ndarray | None = None
) -> Iterator[NumberedBlock]:
    """Yield rows in order after their IDs: all, or those that are named, (n,) int64 ascending.

    `watch` counts the rows.
    """
    ids = np.arange(layer.shape[0])
    blocks = layer.blocks()
    if among is not None:
        layer.load()
        ids = among
        step = layer.block_rows
        blocks = map(layer.rows, np.split(ids, range(step, len(ids), step)))
    start = 0
    for block in watch(blocks, len(ids), len):
        stop = start + len(block)
        yield ids[start:stop], block
        start = stop


def dots(rows: np.ndarray, others: np.ndarray) -> np.ndarray:
    """Return the dot products of pairs of rows, (n, D) float64 each -> (n,)."""
    return np.asarray(np.einsum("ij,ij->i", rows, others))


def squares(rows: np.ndarray) -> np.ndarray:
    """Return the squared length of each row, (n, D) float64 -> (n,)."""
    return dots(rows, rows)


def norms_of(rows: np.ndarray) -> np.ndarray:
    """Return the norm of each row, (n, D) float64 -> (n,); NaN if a value is NaN or infinite."""
    with np.errstate(invalid="ignore"):
        squared = squares(rows)
    # The square of a float32 is never too large for a float64.
    return np.sqrt(np.where(np.isfinite(squared), squared, np.nan))


def quantiles(values: np.ndarray) -> tuple[float, ...]:
    """Return the quantiles at QUANTILES_AT of the finite numbers, (n,); empty if there are none."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return ()
    return tuple(np.quantile(finite, QUANTILES_AT).tolist())


@dataclass(frozen=True, eq=False)
class NormOrder:
    """The L2 norm of each row of a layer, and the order of the rows by it."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    summary: Summary  # covers all values, and comes from the same pass

    @cached_property
    def ids(self) -> np.ndarray:
        """The IDs, (V,) int64: the largest norm first, non-finite rows last, ties by ID."""
        return np.argsort(-self.norms, kind="stable")

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each row by ID, (V,) int64: its place in that order, from 1."""
        ranks = np.empty(len(self.norms), np.int64)
        ranks[self.ids] = np.arange(1, len(ranks) + 1)
        return ranks


def norm_order(layer: Layer, watch: Watch) -> NormOrder:
    """Return the norms of all rows of a layer and their order; `watch` counts the rows."""
    norms = []
    summary = Summary()
    for block in watch(layer.blocks(), layer.shape[0], len):
        norms.append(norms_of(block.astype(np.float64)))
        summary.add(block)
    return NormOrder(np.concatenate(norms), summary)
