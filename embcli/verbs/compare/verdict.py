"""Whether two matrices are the same, bit for bit, and if not, how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

_MOST_CAUSES = 5

Kind = Literal["identical", "value", "nan", "nan bits", "zero sign"]


@dataclass(frozen=True)
class NonFinite:
    row: int
    column: int
    value: float


@dataclass(frozen=True)
class Verdict:
    """Whether two matrices are the same, bit for bit, and if not, how they differ.

    `kind` is the most serious difference: NaN in only one matrix, different numbers, NaN with different bits in both,
    or +0 and -0. `place` is the row and the column of the largest |difference|. `causes` are the weights that made the
    product NaN there.
    """

    kind: Kind
    values: int
    different: int
    difference: float
    place: tuple[int, int] | None = None
    left: float | None = None
    right: float | None = None
    causes: tuple[NonFinite, ...] = ()

    @property
    def identical(self) -> bool:
        return self.kind == "identical"

    def document(self) -> dict[str, Any]:
        place = {} if self.place is None else {"row": self.place[0], "column": self.place[1]}
        return {
            "bit_identical": self.identical,
            "kind": self.kind,
            "values": self.values,
            "different_values": self.different,
            "largest_difference": self.difference,
            "place": {**place, "embedding": self.left, "linear": self.right} if place else None,
            "causes": [{"row": each.row, "column": each.column, "value": str(each.value)} for each in self.causes],
        }


def differences(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return |left - right|, float32 of the same shape: 0 for equal bits, NaN if either is NaN and the bits differ."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(_bits(left) == _bits(right), np.float32(0), np.abs(left - right))


def largest_by_row(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the largest |left - right| of each row, (n,) float32."""
    return np.asarray(differences(left, right).max(axis=1, initial=0))


def judge(left: np.ndarray, right: np.ndarray, weight: np.ndarray | None = None) -> Verdict:
    """Return the verdict on two float32 matrices of one shape; `weight`, (V, D), is searched for the causes of a NaN.

    >>> judge(np.zeros((1, 2), np.float32), -np.zeros((1, 2), np.float32)).kind
    'zero sign'
    """
    unequal = _bits(left) != _bits(right)
    if not unequal.any():
        return Verdict("identical", left.size, 0, 0.0)
    sizes = differences(left, right)
    kind, place = _most_serious(left, right, sizes, unequal)
    row, column = divmod(place, left.shape[1])
    return Verdict(
        kind,
        left.size,
        int(unequal.sum()),
        decimals(sizes[row, column]),
        (row, column),
        decimals(left[row, column]),
        decimals(right[row, column]),
        _causes(weight, column) if weight is not None and kind == "nan" else (),
    )


def _most_serious(left: np.ndarray, right: np.ndarray, sizes: np.ndarray, unequal: np.ndarray) -> tuple[Kind, int]:
    """Return how two matrices differ, and the flat index of the largest such difference."""
    in_one, in_both = np.isnan(left) != np.isnan(right), np.isnan(left) & np.isnan(right) & unequal
    if in_one.any():
        return "nan", int(np.argmax(in_one))
    sizes = np.where(in_both, 0, sizes)
    if sizes.any():
        return "value", int(np.argmax(sizes))
    return ("nan bits", int(np.argmax(in_both))) if in_both.any() else ("zero sign", int(np.argmax(unequal)))


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _causes(weight: np.ndarray, column: int) -> tuple[NonFinite, ...]:
    """Return the first weights of a column that are NaN or infinite."""
    rows = np.flatnonzero(~np.isfinite(weight[:, column]))[:_MOST_CAUSES]
    return tuple(NonFinite(row, column, float(weight[row, column])) for row in rows.tolist())


def decimals(values: np.ndarray) -> Any:
    """Return float32 values as Python floats (nested lists for an array) that print with the same shortest decimals."""
    return values.astype(str).astype(np.float64).tolist()
