"""The same matrix of the embedding layer and of the linear layer, and the verdict on their bits.

A comparison is a pair of outputs; its gradients, and its weights after a step of training, are
pairs too. All are float32 in numpy: nothing here needs torch.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np

from embcli.layer import Origin
from embcli.records import Document
from embcli.wording import counted

# The kinds of differences, the least serious first after `identical`, are: a zero with another
# sign, other bits of a NaN that is in both, other numbers, and a NaN in only one.
VerdictKind = Literal["identical", "zero sign", "nan bits", "value", "nan"]


class Place(NamedTuple):
    """Where two matrices differ most, and the number of each there, as a document has them."""

    row: int
    column: int
    embedding: float
    linear: float


@dataclass(frozen=True)
class Verdict:
    """Whether two matrices are the same, bit for bit, and if not, how they differ."""

    kind: VerdictKind  # the most serious difference
    values: int
    different: int
    difference: float  # the largest; NaN if a NaN is in only one
    place: Place | None = None  # that of the largest

    @property
    def identical(self) -> bool:
        return self.kind == "identical"

    @property
    def in_words(self) -> str:
        return f"different in {self.different:,} of {counted(self.values, 'value')}"

    def document(self) -> Document:
        return {
            "bit_identical": self.identical,
            "kind": self.kind,
            "values": self.values,
            "different_values": self.different,
            "largest_difference": self.difference,
            "place": self.place and self.place._asdict(),
        }


def differences(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Return |left - right|, float32 of the same shape.

    It is 0 for equal bits, and NaN if either is NaN and the bits differ.
    """
    is_equal = _bits(left) == _bits(right)
    with np.errstate(invalid="ignore", over="ignore"):
        return np.where(is_equal, np.float32(0), np.abs(left - right))


def judge(left: np.ndarray, right: np.ndarray) -> Verdict:
    """Return the verdict on two float32 matrices of one shape.

    >>> judge(np.zeros((1, 2), np.float32), -np.zeros((1, 2), np.float32)).kind
    'zero sign'
    """
    is_different = _bits(left) != _bits(right)
    if not is_different.any():
        return Verdict("identical", left.size, 0, 0.0)

    sizes = differences(left, right)
    # Where each kind of difference is, (n, D) bool, the most serious first.
    places_of_kinds: dict[VerdictKind, np.ndarray] = {
        "nan": np.isnan(left) != np.isnan(right),
        "value": sizes > 0,
        "nan bits": np.isnan(left) & is_different,
        "zero sign": is_different,
    }
    kind = next(kind for kind, places in places_of_kinds.items() if places.any())
    # argmax takes the first NaN for the largest.
    flat_place = int(np.argmax(np.where(places_of_kinds[kind], sizes, -1)))
    row, column = divmod(flat_place, left.shape[1])
    place = Place(row, column, decimals(left[row, column]), decimals(right[row, column]))
    difference = decimals(sizes[row, column])
    return Verdict(kind, left.size, int(is_different.sum()), difference, place)


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def decimals(values: np.ndarray) -> Any:
    """Return float32 values as Python floats that print with the same shortest decimals.

    An array becomes nested lists.
    """
    return values.astype(str).astype(np.float64).tolist()


@dataclass(frozen=True, eq=False)
class Pair:
    """Rows of the same IDs, as each way gives them."""

    embedding: np.ndarray  # (n, D) float32
    linear: np.ndarray  # (n, D) float32

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear)

    @property
    def largest(self) -> np.ndarray:
        """The largest difference of each row, (n,) float32."""
        return np.asarray(differences(self.embedding, self.linear).max(axis=1, initial=0))


@dataclass(frozen=True, eq=False)
class Outputs(Pair):
    """The outputs of both layers for the same T tokens, their weights, cost and gradients."""

    origin: Origin  # where the weight comes from
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the weight of both layers
    cost: Document  # multiplications, and bytes that are read or made; a JSON document has it
    gradient: Gradient | None


@dataclass(frozen=True, eq=False)
class Training(Pair):
    """Both weights after one step of torch.optim.SGD, in the rows of the IDs that occur."""

    before: np.ndarray  # (IDs, D) float32: the rows of both weights before the step
    rows: dict[str, int]  # how many of all V rows of each weight changed
    loss: float  # of the lookup, after the step
    learning_rate: float
    size: int  # V

    def document(self) -> Document:
        return {
            "optimizer": "torch.optim.SGD",
            "learning_rate": self.learning_rate,
            "rows_moved": self.rows,
            "rows_not_moved": {way: self.size - moved for way, moved in self.rows.items()},
            "loss_after": self.loss,
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
    rows: dict[str, int]  # how many of all V rows of each weight have a gradient other than 0
    target: np.ndarray  # (T, D) float32
    loss: float  # of the lookup, before a step
    slices: int  # the linear layer's gradient is a sum over this many slices of tokens
    training: Training | None  # what one step with these gradients gives

    def document(self) -> Document:
        return {
            "loss": "torch.nn.functional.mse_loss(output, target)",
            "target": decimals(self.target),
            "loss_before": self.loss,
            "rows_with_gradient": self.rows,
            "slices": self.slices,
            # The place of this verdict counts the rows here.
            "verdict": self.verdict.document(),
            "ids": self.ids.tolist(),
            "times": self.times.tolist(),
            "embedding": decimals(self.embedding),
            "linear": decimals(self.linear),
            "training": self.training.document() if self.training else None,
        }
