"""The result of `compare` as plain data: outputs, verdict, gradients, cost."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from embcli.layer import Origin
from embcli.names import OUTPUTS
from embcli.options import ComparisonOptions
from embcli.records import Array, Names, Records, in_pieces
from embcli.result import Result
from embcli.tokens import PIECE, Tokens
from embcli.verbs.compare.verdict import Verdict, decimals, judge, largest_by_row

_SMALL = 4096  # numbers of a weight matrix that is always in a JSON document


@dataclass(frozen=True)
class Timing:
    seconds: float  # of processor time: the median of some runs
    least: float  # the fastest of them
    runs: int


@dataclass(frozen=True)
class Cost:
    """The cost of a lookup and of a one-hot product of T tokens; the lookup needs no one-hot matrix."""

    length: int  # T
    vocabulary_size: int  # V
    dim: int  # D
    lookup: Timing
    product: Timing  # of making the one-hot matrix and multiplying it
    slices: int  # of tokens, in which the product was computed

    @property
    def multiplications_by_zero(self) -> int:
        return self.multiply_adds - self.length * self.dim

    @property
    def multiply_adds(self) -> int:
        return self.length * self.vocabulary_size * self.dim

    @property
    def lookup_bytes(self) -> int:
        return 4 * self.length * self.dim

    @property
    def product_bytes(self) -> int:
        return 4 * self.vocabulary_size * self.dim

    @property
    def one_hot_bytes(self) -> dict[str, int]:
        """Bytes of the whole one-hot matrix: int64, as torch.nn.functional.one_hot makes it, and float32."""
        return {"int64": 8 * self.length * self.vocabulary_size, "float32": 4 * self.length * self.vocabulary_size}

    @property
    def ratio(self) -> float:
        return self.product.seconds / self.lookup.seconds

    def document(self) -> dict[str, Any]:
        return {
            "tokens": self.length,
            "vocabulary_size": self.vocabulary_size,
            "dim": self.dim,
            "multiply_adds": {"embedding": 0, "linear": self.multiply_adds},
            "weight_bytes_read": {"embedding": self.lookup_bytes, "linear": self.product_bytes},
            "one_hot_bytes": self.one_hot_bytes,
            "multiplications_by_zero": self.multiplications_by_zero,
            "seconds": {"embedding": self.lookup.seconds, "linear": self.product.seconds},
            "least_seconds": {"embedding": self.lookup.least, "linear": self.product.least},
            "runs": {"embedding": self.lookup.runs, "linear": self.product.runs},
            "threads": 1,
            "slices": self.slices,
            "ratio": self.ratio,
        }


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
class Comparison(_Pair, Result, verb="compare", content="matrices"):
    """The outputs of an embedding layer and of a linear layer with the same weight, their cost and their gradients."""

    tokens: Tokens
    origin: Origin  # of the weight
    run: dict[str, Any]
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the weight of both layers
    embedding: np.ndarray  # (T, D) float32
    linear: np.ndarray  # (T, D) float32
    cost: Cost
    gradient: Gradient | None = None
    options: ComparisonOptions = field(default_factory=ComparisonOptions)

    @cached_property
    def verdict(self) -> Verdict:
        return judge(self.embedding, self.linear, self.weight)

    @property
    def why_no(self) -> str:
        verdict = self.verdict
        return "" if verdict.identical else f"{verdict.different:,} of {verdict.values:,} values differ"

    def records(self) -> Records:
        """Return the comparison as data: a row for each token with both outputs; the rest stands beside the rows."""
        (size, dim), length = self.weight.shape, len(self.tokens)
        shapes = {
            "ids": [length],
            "one_hot": [length, size],
            "first": [dim, size],
            "shared": [dim, size],
            "embedding": [length, dim],
            "linear": [length, dim],
        }
        return Records(
            run={**self.run, "shapes": shapes},
            unit="tokens",
            rows=length,
            fields={**self.tokens.field_types, "difference": float},
            pieces=in_pieces(length, PIECE, self._values),
            matrices={name: Array((length, dim)) for name in OUTPUTS},
            columns=tuple(range(dim)),
            default="embedding",
            shown=self.options.outputs,
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": {
                    "first": self._listed("first", self.first),
                    "shared": self._listed("shared", self.weight.T),
                },
                "cost": self.cost.document(),
                "gradient": self.gradient.document() if self.gradient else None,
            },
        )

    def _values(self, index: np.ndarray, names: Names) -> dict[str, Any]:
        values = {"embedding": self.embedding[index], "linear": self.linear[index]}
        difference = decimals(largest_by_row(*values.values()))
        return {**values, "difference": difference, **self.tokens.fields(index, names)}

    def _listed(self, step: str, weights: np.ndarray) -> list[list[float]] | None:
        """Return a weight matrix for JSON; None for a large one that nobody asked for."""
        is_asked_for = step in (self.options.show or ())
        return decimals(weights) if is_asked_for or weights.size <= _SMALL else None
