"""The same matrix of the embedding layer and of the linear layer, and the verdict on all of their bits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

_MOST_CAUSES = 5

VerdictKind = Literal["identical", "value", "nan", "nan bits", "zero sign"]


@dataclass(frozen=True)
class Verdict:
    """Whether two matrices are the same, bit for bit, and if not, how they differ."""

    kind: VerdictKind  # the most serious difference: NaN in only one, numbers, bits of NaN in both, +0 and -0
    values: int
    different: int
    difference: float  # the largest
    place: tuple[int, int] | None = None  # its row and column
    left: float | None = None
    right: float | None = None
    causes: tuple[
        tuple[int, float], ...
    ] = ()  # rows of the weight, and their values that made the product NaN

    @property
    def identical(self) -> bool:
        return self.kind == "identical"

    def document(self) -> dict[str, Any]:
        row, column = self.place or (0, 0)
        place = {"row": row, "column": column, "embedding": self.left, "linear": self.right}
        return {
            "bit_identical": self.identical,
            "kind": self.kind,
            "values": self.values,
            "different_values": self.different,
            "largest_difference": self.difference,
            "place": place if self.place else None,
            "causes": [
                {"row": each, "column": column, "value": str(value)} for each, value in self.causes
            ],
        }


def differences(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return |left - right|, float32 of the same shape: 0 for equal bits, NaN if either is NaN and the bits differ."""
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(_bits(left) == _bits(right), np.float32(0), np.abs(left - right))


def judge(left: np.ndarray, right: np.ndarray, weight: np.ndarray | None = None) -> Verdict:
    """Return the verdict on two float32 matrices of one shape; `weight`, (V, D), is searched for the causes of a NaN.

    >>> judge(np.zeros((1, 2), np.float32), -np.zeros((1, 2), np.float32)).kind
    'zero sign'
    """
    unequal = _bits(left) != _bits(right)
    if not unequal.any():
        return Verdict("identical", left.size, 0, 0.0)
    sizes = differences(left, right)
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    kinds: dict[VerdictKind, np.ndarray] = {  # the most serious first
        "nan": left_nan != right_nan,
        "value": sizes > 0,
        "nan bits": left_nan & right_nan & unequal,
        "zero sign": unequal,
    }
    kind, there = next((kind, there) for kind, there in kinds.items() if there.any())
    row, column = divmod(
        int(np.argmax(np.where(there, sizes, -1))), left.shape[1]
    )  # the first NaN is the largest
    causes: tuple[tuple[int, float], ...] = ()
    if weight is not None and kind == "nan":
        odd = np.flatnonzero(~np.isfinite(weight[:, column]))[:_MOST_CAUSES]
        causes = tuple(zip(odd.tolist(), weight[odd, column].tolist(), strict=True))
    largest, *both = (decimals(each[row, column]) for each in (sizes, left, right))
    return Verdict(
        kind, left.size, int(unequal.sum()), largest, (row, column), both[0], both[1], causes
    )


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def decimals(values: np.ndarray) -> Any:
    """Return float32 values as Python floats (nested lists for an array) that print with the same shortest decimals."""
    return values.astype(str).astype(np.float64).tolist()


@dataclass(frozen=True, eq=False)
class Pair:
    embedding: np.ndarray  # (n, D) float32
    linear: np.ndarray  # (n, D) float32, as rows of the same IDs

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear)

    @property
    def largest(self) -> np.ndarray:
        """The largest difference of each row, (n,) float32."""
        return np.asarray(differences(self.embedding, self.linear).max(axis=1, initial=0))


@dataclass(frozen=True, eq=False)
class Training(Pair):
    """Both weights after one step of torch.optim.SGD, in the rows of the IDs that occur."""

    before: np.ndarray  # (IDs, D) float32, of both weights
    rows: dict[str, int]  # of all V rows of each weight, those that changed
    learning_rate: float
    size: int  # V

    def document(self) -> dict[str, Any]:
        return {
            "optimizer": "torch.optim.SGD",
            "learning_rate": self.learning_rate,
            "rows_moved": self.rows,
            "rows_not_moved": {name: self.size - rows for name, rows in self.rows.items()},
            "verdict": self.verdict.document(),
            "before": decimals(self.before),
            "embedding": decimals(self.embedding),
            "linear": decimals(self.linear),
        }


@dataclass(frozen=True, eq=False)
class Gradient(Pair):
    """The gradients of both weights after one backward pass, in the rows of the IDs that occur."""

    ids: np.ndarray  # (IDs,) int64, in order
    times: np.ndarray  # (IDs,) int64: how many tokens have each ID
    rows: dict[str, int]  # of all V rows of each weight, those with a gradient other than 0
    slices: int  # of tokens, over which the linear layer's gradient was added up
    training: Training | None  # one step with these gradients
    loss = "output.square().sum() / 2"

    def document(self) -> dict[str, Any]:
        return {
            "loss": self.loss,
            "rows_with_gradient": self.rows,
            "slices": self.slices,
            "verdict": self.verdict.document(),  # whose place counts the rows here
            "ids": self.ids.tolist(),
            "times": self.times.tolist(),
            "embedding": decimals(self.embedding),
            "linear": decimals(self.linear),
            "training": self.training.document() if self.training else None,
        }
