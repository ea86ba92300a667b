"""The norms of all rows of a layer, and the rows in their order, from one pass."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.layer import Layer, Meter, Summary
from embcli.passes import Watch, ahead, unwatched
from embcli.statistics import norms_of


@dataclass(frozen=True, eq=False)
class NormOrder:
    """The L2 norm of each row of a layer, and the order of the rows by it."""

    norms: np.ndarray  # (V,) float64; NaN if a value is NaN or infinite
    summary: Summary  # of all values, from the same pass

    @cached_property
    def ids(self) -> np.ndarray:
        """The IDs, (V,) int64, the largest norm first; rows that are not finite last, ties by ID."""
        return np.argsort(-self.norms, kind="stable")

    @cached_property
    def ranks(self) -> np.ndarray:
        """The rank of each row by ID, (V,) int64: its place in that order, from 1."""
        ranks = np.empty(len(self.norms), np.int64)
        ranks[self.ids] = np.arange(1, len(ranks) + 1)
        return ranks


def norm_order(layer: Layer, watch: Watch = unwatched) -> NormOrder:
    """Return the norms of all rows of a layer and their order; `watch` counts the rows."""
    parts = layer.parts()
    total, *others = meters = [Meter() for _ in parts]
    norms = np.empty(layer.shape[0])
    passes = [_fill(norms[first:], blocks, meter) for meter, (first, blocks) in zip(meters, parts, strict=True)]
    for _ in watch(ahead(passes), layer.shape[0], int):
        pass
    return NormOrder(norms, sum(others, total).summary())


def _fill(norms: np.ndarray, blocks: Iterator[np.ndarray], meter: Meter) -> Iterator[int]:
    """Write the norms of consecutive blocks, add the blocks to a meter, and yield the number of rows of each."""
    done = 0
    for block in blocks:
        exact = block.astype(np.float64)
        part = norms[done : done + len(block)]
        part[:] = norms_of(exact)
        meter.take(block, float(exact.sum()), float(np.square(part).sum()))
        done += len(block)
        yield len(block)
