"""The result of `compare` as plain data: outputs, the verdict on all of their bits, gradients, cost."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from embcli.layer import Origin
from embcli.names import OUTPUTS
from embcli.records import Array, Names, Records, in_pieces
from embcli.result import Result
from embcli.tokens import PIECE, Tokens

_SMALL = 4096  # numbers of a weight matrix that is always in a JSON document
_MOST_CAUSES = 5

Kind = Literal["identical", "value", "nan", "nan bits", "zero sign"]


@dataclass(frozen=True)
class NonFinite:
    row: int
    column: int
    value: float


@dataclass(frozen=True)
class Verdict:
    """Whether two matrices are the same, bit for bit, and if not, how they differ."""

    kind: Kind  # the most serious difference: NaN in only one, numbers, bits of NaN in both, +0 and -0
    values: int
    different: int
    difference: float  # the largest
    place: tuple[int, int] | None = None  # its row and column
    left: float | None = None
    right: float | None = None
    causes: tuple[NonFinite, ...] = ()  # the weights that made the product NaN there

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
    left_nan, right_nan = np.isnan(left), np.isnan(right)
    kinds: dict[Kind, np.ndarray] = {  # the most serious first
        "nan": left_nan != right_nan,
        "value": sizes > 0,
        "nan bits": left_nan & right_nan & unequal,
        "zero sign": unequal,
    }
    kind, there = next((kind, there) for kind, there in kinds.items() if there.any())
    row, column = divmod(int(np.argmax(np.where(there, sizes, -1))), left.shape[1])  # the first NaN is the largest
    odd = [] if weight is None or kind != "nan" else np.flatnonzero(~np.isfinite(weight[:, column])).tolist()
    return Verdict(
        kind,
        left.size,
        int(unequal.sum()),
        decimals(sizes[row, column]),
        (row, column),
        decimals(left[row, column]),
        decimals(right[row, column]),
        tuple(NonFinite(each, column, float(weight[each, column])) for each in odd[:_MOST_CAUSES]),  # type: ignore[index]
    )


def _bits(values: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(values, np.float32).view(np.uint32)


def decimals(values: np.ndarray) -> Any:
    """Return float32 values as Python floats (nested lists for an array) that print with the same shortest decimals."""
    return values.astype(str).astype(np.float64).tolist()


class _Pair:
    """A matrix of the embedding layer and the same of the linear layer, float32 of one shape."""

    embedding: np.ndarray
    linear: np.ndarray

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear)


@dataclass(frozen=True, eq=False)
class Training(_Pair):
    """Both weights after one step of torch.optim.SGD, in the rows of the IDs that occur."""

    learning_rate: float
    before: np.ndarray  # (IDs, D) float32, of both weights
    embedding: np.ndarray  # (IDs, D) float32
    linear: np.ndarray  # (IDs, D) float32, transposed
    embedding_rows: int  # of all V rows, those that changed
    linear_rows: int
    vocabulary_size: int  # V

    def document(self) -> dict[str, Any]:
        size = self.vocabulary_size
        return {
            "optimizer": "torch.optim.SGD",
            "learning_rate": self.learning_rate,
            "rows_moved": {"embedding": self.embedding_rows, "linear": self.linear_rows},
            "rows_not_moved": {"embedding": size - self.embedding_rows, "linear": size - self.linear_rows},
            "verdict": self.verdict.document(),
            "before": decimals(self.before),
            "embedding": decimals(self.embedding),
            "linear": decimals(self.linear),
        }


@dataclass(frozen=True, eq=False)
class Gradient(_Pair):
    """The gradients of both weights after one backward pass, in the rows of the IDs that occur."""

    loss: str  # as Python code, of `output`
    ids: np.ndarray  # (IDs,) int64, in order
    times: np.ndarray  # (IDs,) int64: how many tokens have each ID
    embedding: np.ndarray  # (IDs, D) float32
    linear: np.ndarray  # (IDs, D) float32, transposed
    embedding_rows: int  # of all V rows, those with a gradient other than 0
    linear_rows: int
    slices: int  # of tokens, over which the linear layer's gradient was added up
    training: Training | None = None  # one step with these gradients

    def document(self) -> dict[str, Any]:
        """Return the gradients for JSON; the place in the verdict counts the rows of the matrices here."""
        return {
            "loss": self.loss,
            "rows_with_gradient": {"embedding": self.embedding_rows, "linear": self.linear_rows},
            "slices": self.slices,
            "verdict": self.verdict.document(),
            "ids": self.ids.tolist(),
            "times": self.times.tolist(),
            "embedding": decimals(self.embedding),
            "linear": decimals(self.linear),
            "training": self.training.document() if self.training else None,
        }


@dataclass(frozen=True, eq=False)
class Compared(_Pair, Result, verb="compare", content="matrices"):
    """A comparison without its page."""

    tokens: Tokens
    origin: Origin  # of the weight
    run: dict[str, Any]
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the weight of both layers
    embedding: np.ndarray  # (T, D) float32
    linear: np.ndarray  # (T, D) float32
    cost: dict[str, Any]  # as in a JSON document
    gradient: Gradient | None
    show: tuple[str, ...] | None  # steps and outputs; None for both outputs, and as many steps as fit on the screen
    trace: bool
    draw: bool

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear, self.weight)

    @property
    def why_no(self) -> str:
        verdict = self.verdict
        return "" if verdict.identical else f"{verdict.different:,} of {verdict.values:,} values differ"

    def records(self) -> Records:
        """Return the comparison as data: a row for each token with both outputs; the rest stands beside the rows."""
        (size, dim), length, show = self.weight.shape, len(self.tokens), self.show or ()
        shapes = {"ids": [length], "one_hot": [length, size], "first": [dim, size], "shared": [dim, size]}
        shapes |= {name: [length, dim] for name in OUTPUTS}
        weights = {"first": self.first, "shared": self.weight.T}
        return Records(
            run={**self.run, "shapes": shapes},
            unit="tokens",
            rows=length,
            fields={**self.tokens.field_types, "difference": float},
            pieces=in_pieces(length, PIECE, self._values),
            matrices={name: Array((length, dim)) for name in OUTPUTS},
            columns=tuple(range(dim)),
            default="embedding",
            shown=tuple(name for name in OUTPUTS if name in show) or None,
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": {  # a large one only if it was asked for
                    name: decimals(each) if name in show or each.size <= _SMALL else None
                    for name, each in weights.items()
                },
                "cost": self.cost,
                "gradient": self.gradient.document() if self.gradient else None,
            },
        )

    def _values(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        values = {"embedding": self.embedding[index], "linear": self.linear[index]}
        difference = decimals(largest_by_row(*values.values()))
        return {**values, "difference": difference, **self.tokens.fields(index, names)}
