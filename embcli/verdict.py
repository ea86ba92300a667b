"""Whether two matrices are the same, bit for bit, and if not, how they differ."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

_MOST_CAUSES = 5

Kind = Literal["identical", "value", "nan", "nan bits", "zero sign"]


@dataclass(frozen=True)
class NonFinite:
    """A weight that is NaN or infinite."""

    row: int
    column: int
    value: float


@dataclass(frozen=True)
class Verdict:
    """Whether two matrices are the same, bit for bit, and if not, how they differ.

    The kind is the gravest: numbers that differ, NaN in just one of the two, NaN in both with other bits, or +0 and -0.
    `place` is the row and the column of the largest |difference|, which is NaN where one of the two is; `causes` are
    the weights by which that NaN came into the product.
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
        """Whether all bits are equal."""
        return self.kind == "identical"

    def document(self) -> dict[str, Any]:
        """Return the verdict for JSON."""
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
    """Return |left - right|, float32 of the same shape: 0 where the bits are equal, NaN where either is NaN."""
    with np.errstate(invalid="ignore", over="ignore"):
        found: np.ndarray = np.abs(left - right)
    found[_bits(left) == _bits(right)] = 0
    return found


def largest(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return the largest |left - right| of each row."""
    found: np.ndarray = differences(left, right).max(axis=1, initial=0)
    return found


def judge(left: np.ndarray, right: np.ndarray, weight: np.ndarray | None = None) -> Verdict:
    """Return the verdict on two float32 matrices of one shape; `weight` (V, D) is searched for the causes of a NaN.

    >>> judge(np.zeros((1, 2), np.float32), -np.zeros((1, 2), np.float32)).kind
    'zero sign'
    """
    unequal = _bits(left) != _bits(right)
    if not unequal.any():
        return Verdict("identical", left.size, 0, 0.0)
    found = differences(left, right)
    kind, place = _gravest(left, right, found, unequal)
    row, column = divmod(place, left.shape[1])
    return Verdict(
        kind,
        left.size,
        int(unequal.sum()),
        decimals(found[row, column]),
        (row, column),
        decimals(left[row, column]),
        decimals(right[row, column]),
        _causes(weight, column) if weight is not None and kind == "nan" else (),
    )


def _gravest(left: np.ndarray, right: np.ndarray, found: np.ndarray, unequal: np.ndarray) -> tuple[Kind, int]:
    """Return how two matrices differ, and where the most: a place in all their values."""
    alone, both = np.isnan(left) != np.isnan(right), np.isnan(left) & np.isnan(right) & unequal
    if alone.any():
        return "nan", int(np.argmax(alone))
    sizes = np.where(both, 0, found)
    if sizes.any():
        return "value", int(np.argmax(sizes))
    return ("nan bits", int(np.argmax(both))) if both.any() else ("zero sign", int(np.argmax(unequal)))


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def _causes(weight: np.ndarray, column: int) -> tuple[NonFinite, ...]:
    """Return the first weights of a column that are NaN or infinite."""
    rows = np.flatnonzero(~np.isfinite(weight[:, column]))[:_MOST_CAUSES]
    return tuple(NonFinite(row, column, float(weight[row, column])) for row in rows.tolist())


def decimals(values: np.ndarray) -> Any:
    """Return float32 values, nested as they are, as the Python floats whose shortest decimals are theirs too."""
    return values.astype(str).astype(np.float64).tolist()
