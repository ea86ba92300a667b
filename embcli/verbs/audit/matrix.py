"""What is unusual in one matrix whose rows stand for tokens: the token matrix, or the output head.

`audited_matrix` reads a layer twice, and returns plain data.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from embcli.errors import Watch
from embcli.layer import Layer
from embcli.names import MatrixShape, TokenLayer, Unused
from embcli.numerics.statistics import quantiles
from embcli.verbs.audit.added import Trace, untrained
from embcli.verbs.audit.distribution import Initial
from embcli.verbs.audit.dtypes import other_dtype
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.measure import (
    Distances,
    Scan,
    Separation,
    indicators_of,
    scan_rows,
    separation_of,
    unused,
)


@dataclass(frozen=True, eq=False)
class MatrixAudit:
    """The problems of one matrix, by row and in total.

    `values` has the norms of all rows and, if rows are known to be unused, what tells how far each
    row is from theirs; lower means less trained. The indicators are those of Land and Bartolo 2024,
    "Fishing for Magikarp: Automatically Detecting Under-trained Tokens in Large Language Models".
    With u the mean of the unused rows, `cosine_distance` is 1 - cos(row, u), and `centred` the same
    after subtracting the mean of the used rows from both. They are NaN for a row without a
    direction. One of them, or the norm, separates the unused rows best from the others.
    """

    name: TokenLayer
    files: ModelFiles  # that it belongs to
    shape: MatrixShape
    dtype: str
    other_dtype: str  # that its numbers have, if it is not the one that the file names
    values: Distances  # by indicator; norms are NaN for rows with a NaN or infinite value
    unused: dict[int, Unused]  # ID -> why no text can produce it
    # Tokens that look untrained, (n,) int64 by the trace that their rows have.
    untrained: dict[Trace, np.ndarray]
    scan: Scan
    initial: tuple[Initial, ...]  # the rows that are as they were initialised
    measured: np.ndarray  # (n,) int64: the finite rows that are used
    separation: Separation
    candidates: np.ndarray  # (n,) int64: used rows like unused ones, the most alike first

    @property
    def in_words(self) -> str:
        return "token matrix" if self.name == "token" else "output head"

    @property
    def is_head(self) -> bool:
        """Whether its rows are those of the output head, as those of a tied token matrix are."""
        head = self.files.head
        return self.name == "head" or (head is not None and head.relation not in ("other", "none"))

    @property
    def norms(self) -> np.ndarray:  # (V,) float64
        return self.values["norm"]

    @property
    def broken(self) -> dict[str, np.ndarray]:
        """The rows that no model can use, (n,) int64 each, by what they are.

        The norms of overflowing ones are too large for programs. Unused rows and the padding row
        may be zero.
        """
        zero = np.flatnonzero(self.norms == 0)
        return {
            "non-finite": np.flatnonzero(np.isnan(self.norms)),
            "zero": np.setdiff1d(zero, [*self.files.rows_of("pad"), *self.unused]),
            "overflowing": np.flatnonzero(self.norms >= self.files.overflow_at),
        }

    @cached_property
    def repeated(self) -> list[int]:
        """The used tokens with the row of an earlier used token."""
        repeated = []
        for group in self.scan.equal:
            used = [row for row in group if row not in self.unused]
            repeated += used[1:]
        return repeated

    @cached_property
    def by_use(self) -> dict[Unused, list[int]]:
        """The unused rows by the reason why they are unused."""
        rows: dict[Unused, list[int]] = {}
        for row, reason in self.unused.items():
            rows.setdefault(reason, []).append(row)
        return rows

    @cached_property
    def quantiles(self) -> tuple[float, ...]:
        return quantiles(self.norms[self.measured])


def audited_matrix(name: TokenLayer, layer: Layer, files: ModelFiles, watch: Watch) -> MatrixAudit:
    """Return what is unusual in a matrix of a model."""
    size, dim = layer.shape
    reasons = unused(files.encoding, size) if files.encoding else {}
    added = _added(name, files, reasons, size)
    is_unused = np.isin(np.arange(size), [*reasons])
    is_added = np.isin(np.arange(size), [*added])
    scan = scan_rows(layer, is_unused, is_added, watch)
    norms = scan.norms
    used = np.flatnonzero(~is_unused & (norms > 0))
    old = used[~is_added[used]]

    compared = []
    for are_bytes in (False, True):  # Some models have trained bytes.
        known = [row for row, reason in reasons.items() if (reason == "byte") == are_bytes]
        reference = np.array(known, np.int64)
        values = indicators_of(layer, reference, scan, watch)
        compared.append(separation_of(values, reference[norms[reference] > 0], used))
        if compared[-1].threshold is not None:
            break
    separation = max(compared, key=lambda each: each.area or 0)
    of_old = separation_of(separation.values, separation.unused, old)
    alike = of_old.candidates(used)
    if of_old.indicator == "norm":  # A trained row can be short.
        alike = used[:0]
    return MatrixAudit(
        name=name,
        files=files,
        shape=(size, dim),
        dtype=layer.dtype,
        other_dtype=other_dtype(layer),
        values=separation.values,
        unused=reasons,
        untrained=untrained(layer, files, added, old, scan, alike),
        scan=scan,
        initial=tuple(scan.others.initial(size, layer.rows, files.byte_tokens, files.deviation)),
        measured=np.flatnonzero(~is_unused & np.isfinite(norms)),
        separation=separation,
        candidates=separation.candidates(used),
    )


def _added(
    name: TokenLayer, files: ModelFiles, reasons: dict[int, Unused], size: int
) -> dict[int, str]:
    """Return the names of the added tokens that have a row and a use, by ID.

    Those before the last other token, such as `<unk>`, were there when it was trained. No model
    learns to predict bos, except one that ends texts with it.
    """
    added = files.encoding.added if files.encoding else {}
    last_old = np.setdiff1d(np.arange(size), [*added, *reasons]).max(initial=-1)
    without_use = {*reasons, *files.rows_of("pad")}
    if name == "head":
        without_use |= {*files.rows_of("bos")}.difference(files.rows_of("eos"))
    return {row: added[row] for row in added if last_old < row < size and row not in without_use}
