"""What `compare` is asked and what it finds: outputs, verdict, gradients and cost, as plain data."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.checks import check_ids
from embcli.errors import InputError
from embcli.layer import shape_of
from embcli.names import DEFAULT_SEED, OUTPUTS, PAGES, STEPS, Format
from embcli.records import Array, Names, Piece, Records, refuse_too_many
from embcli.tokens import PIECE
from embcli.verdict import Verdict, decimals, judge, largest
from embcli.weights.seeded import Seeded, check_seed, refuse_too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.layer import Source
    from embcli.tokens import Tokens

_SCATTERED = 1.5  # times the fastest run from which on a median tells of a busy machine
_FEW_NUMBERS = 4096  # a weight matrix of so many is in a JSON document unasked


@dataclass(frozen=True)
class Wanted:
    """What of a comparison is wanted: steps, one output or both, and what comes on top."""

    steps: Names | None = None  # in their order; None for as many as fit on the screen
    outputs: Names | None = None  # None for both
    trace: bool = False
    gradient: bool = False
    bench: bool = False
    learning_rate: float | None = None  # of one step of training, which takes the gradients
    draw: bool = False

    def __post_init__(self) -> None:
        if self.learning_rate is not None and not 0 <= self.learning_rate < math.inf:
            raise InputError(f"--learning-rate {self.learning_rate:g} is out of range; it is a finite number from 0")

    @classmethod
    def of(
        cls,
        names: Names | None,
        trace: bool = False,
        gradient: bool = False,
        bench: bool = False,
        learning_rate: float | None = None,
        draw: bool = False,
    ) -> Wanted:
        """Return what is wanted by the steps and outputs that a user named; an output stands for its step.

        Raises InputError for a learning rate that is no finite number from 0.
        """
        gradient = gradient or learning_rate is not None
        if names is None:
            return cls(None, None, trace, gradient, bench, learning_rate, draw)
        outputs = tuple(name for name in OUTPUTS if name in names)
        steps = tuple(step for step in STEPS if step in names or (step == "outputs" and outputs))
        return cls(steps, outputs or None, trace, gradient, bench, learning_rate, draw)

    def needs(self) -> dict[str, tuple[Format, ...]]:
        """Return which options were given that only some formats have a place for, and these formats."""
        options = [f"--show {step}" for step in self.steps or () if step != "outputs"]
        if self.gradient:
            options.append("--gradient" if self.learning_rate is None else "--learning-rate")
        options += ["--bench"] * self.bench
        drawn = ["--trace"] * self.trace + ["--draw"] * self.draw
        return dict.fromkeys(options, (*PAGES, "json")) | dict.fromkeys(drawn, PAGES)


@dataclass(frozen=True)
class Stored:
    """The token matrix of a source as both layers' weight; raises LayerError for a seed that torch does not take."""

    source: Source
    seed: int = DEFAULT_SEED  # of the linear layer's own first weights

    def __post_init__(self) -> None:
        check_seed(self.seed)

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of a layer, before any number of it is read."""
        return shape_of(self.source, name)


@dataclass(frozen=True)
class Task:
    """What to compare: tokens, on a layer of `layer.shape("token")`; all checked before a number is drawn or read.

    `sweep` is the largest V of the benchmark, if one is wanted, and `room` how many numbers a matrix may have where it
    is written. Raises InputError for an ID without a row, LayerError for layers that do not fit into this machine's
    memory, and OutputError for more numbers than there is room for.
    """

    tokens: Tokens
    layer: Seeded | Stored
    wanted: Wanted
    sweep: int | None = None
    room: int | None = None

    def __post_init__(self) -> None:
        size, dim = self.layer.shape("token")
        drawn = isinstance(self.layer, Seeded)
        refuse_layers(size, dim, self.wanted.gradient, self.wanted.learning_rate is not None)
        if self.sweep is not None:
            refuse_layers(self.sweep, dim, more=0 if drawn else 1)  # the linear layer's first weights, of which two are
        check_ids(self.tokens, size, grows=drawn)
        refuse_too_many(len(self.tokens) * dim, self.room)
        if {"first", "shared"} & {*(self.wanted.steps or ())}:
            refuse_too_many(size * dim, self.room)


def refuse_layers(vocabulary_size: int, dim: int, gradient: bool = False, step: bool = False, more: int = 0) -> None:
    """Raise LayerError where two layers, their gradients and a row of the one-hot matrix do not fit into memory.

    A step of training takes a copy of the weight, too; `more` are other matrices of its size.
    """
    one_hot = (8 + 4) * vocabulary_size  # bytes of a row, int64 as torch makes it, and float32
    copies = (4 if gradient else 2) + step + more
    refuse_too_large("a pair of layers", (vocabulary_size, dim), copies=copies, more=one_hot)


@dataclass(frozen=True)
class Timing:
    """The median of some runs, and the fastest of them; in seconds of the processor's time."""

    seconds: float
    least: float
    runs: int


@dataclass(frozen=True)
class Cost:
    """What a lookup and a one-hot product of T tokens cost; the lookup multiplies nothing and has no one-hot matrix."""

    length: int  # T
    vocabulary_size: int  # V
    dim: int  # D
    lookup: Timing
    product: Timing  # making the one-hot matrix, and multiplying it
    slices: int  # of tokens, in which the product was done
    threads: int = 1  # of torch, while both were timed

    @property
    def scattered(self) -> bool:
        """Whether the runs differ so much that the medians tell little."""
        return any(each.seconds > _SCATTERED * each.least for each in (self.lookup, self.product))

    @property
    def multiplications_by_zero(self) -> int:
        """Multiplications of the product that add nothing: all but D for each token."""
        return self.multiply_adds - self.length * self.dim

    @property
    def multiply_adds(self) -> int:
        """Multiplications, each with its addition, of the one-hot product."""
        return self.length * self.vocabulary_size * self.dim

    @property
    def lookup_bytes(self) -> int:
        """Bytes of weight that the lookup reads."""
        return 4 * self.length * self.dim

    @property
    def product_bytes(self) -> int:
        """Bytes of weight that the product reads."""
        return 4 * self.vocabulary_size * self.dim

    @property
    def one_hot_bytes(self) -> dict[str, int]:
        """Bytes of the whole one-hot matrix: int64, as torch.nn.functional.one_hot makes it, and float32."""
        return {"int64": 8 * self.length * self.vocabulary_size, "float32": 4 * self.length * self.vocabulary_size}

    @property
    def ratio(self) -> float:
        """How many times as long as the lookup the product takes."""
        return self.product.seconds / self.lookup.seconds

    def document(self) -> dict[str, Any]:
        """Return the cost for JSON."""
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
            "threads": self.threads,
            "slices": self.slices,
            "ratio": self.ratio,
        }


@dataclass(frozen=True)
class Training:
    """What one step of torch.optim.SGD makes of both weights, in the rows that the tokens touched."""

    learning_rate: float
    before: np.ndarray  # (touched rows, D) float32, of both weights
    embedding: np.ndarray  # (touched rows, D) float32
    linear: np.ndarray  # (touched rows, D) float32, transposed
    embedding_rows: int  # rows of all V that moved
    linear_rows: int
    vocabulary_size: int  # V

    @property
    def differences(self) -> np.ndarray:
        """The largest |difference| of each row after the step, (touched rows,) float32."""
        return largest(self.embedding, self.linear)

    @property
    def verdict(self) -> Verdict:
        """Whether the rows are the same after the step."""
        return judge(self.embedding, self.linear)

    def document(self) -> dict[str, Any]:
        """Return the step for JSON."""
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


@dataclass(frozen=True)
class Gradient:
    """The gradients of the two weights after one backward pass, in the rows that the tokens touched."""

    loss: str  # as written in Python, of `output`
    ids: np.ndarray  # (touched rows,) int64, in order
    times: np.ndarray  # (touched rows,) int64: how many tokens have that ID
    embedding: np.ndarray  # (touched rows, D) float32
    linear: np.ndarray  # (touched rows, D) float32, transposed
    embedding_rows: int  # rows of all V with a gradient other than 0
    linear_rows: int
    slices: int  # of tokens, over which the linear layer's gradient was summed up
    training: Training | None = None  # one step of it, where that is wanted

    @property
    def differences(self) -> np.ndarray:
        """The largest |difference| of each row, (touched rows,) float32."""
        return largest(self.embedding, self.linear)

    @property
    def verdict(self) -> Verdict:
        """Whether the two are the same."""
        return judge(self.embedding, self.linear)

    def document(self) -> dict[str, Any]:
        """Return the gradients for JSON; a place in the verdict is a row of the matrices here."""
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


@dataclass(frozen=True)
class Comparison:
    """What an embedding layer and a linear layer with the same weight give, and what there is to say of it."""

    tokens: Tokens
    run: dict[str, Any]
    first: np.ndarray  # (D, V) float32: the linear layer's own first weights
    weight: np.ndarray  # (V, D) float32: the embedding layer's, which then is the linear layer's too, transposed
    embedding: np.ndarray  # (T, D) float32
    linear: np.ndarray  # (T, D) float32
    cost: Cost
    gradient: Gradient | None = None
    sweep: tuple[Cost, ...] = ()
    wanted: Wanted = Wanted()

    @cached_property
    def verdict(self) -> Verdict:
        """Whether the outputs are the same."""
        return judge(self.embedding, self.linear, self.weight)

    @property
    def shapes(self) -> dict[str, list[int]]:
        """The shapes of the steps, in their order."""
        (size, dim), length = self.weight.shape, len(self.tokens)
        return {
            "ids": [length],
            "one_hot": [length, size],
            "first": [dim, size],
            "shared": [dim, size],
            "embedding": [length, dim],
            "linear": [length, dim],
        }

    @property
    def differences(self) -> np.ndarray:
        """The largest |difference| of each token, (T,) float32."""
        return largest(self.embedding, self.linear)

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces, with the named fields and matrices."""
        both, differences = {"embedding": self.embedding, "linear": self.linear}, self.differences
        for start in range(0, len(self.tokens), PIECE):
            index = np.arange(start, min(start + PIECE, len(self.tokens)))
            values = self.tokens.fields(index, fields)
            if "difference" in fields:
                values["difference"] = decimals(differences[index])
            yield Piece(len(index), values, {name: both[name][index] for name in matrices})

    def records(self) -> Records:
        """Return the comparison as data: a row a token, both outputs, and beside them all else that was found."""
        shape = self.embedding.shape
        return Records(
            run={**self.run, "shapes": self.shapes},
            unit="tokens",
            rows=len(self.tokens),
            fields={**self.tokens.field_types, "difference": float},
            pieces=self.pieces,
            matrices={"embedding": Array(shape), "linear": Array(shape)},
            columns=tuple(range(shape[1])),
            default="embedding",
            sequences=self.tokens.sequences,
            more={
                "verdict": self.verdict.document(),
                "weights": {"first": self._told("first", self.first), "shared": self._told("shared", self.weight.T)},
                "cost": self.cost.document(),
                "gradient": self.gradient.document() if self.gradient else None,
                "bench": [cost.document() for cost in self.sweep] or None,
            },
        )

    def _told(self, step: str, weights: np.ndarray) -> list[list[float]] | None:
        named = step in (self.wanted.steps or ())
        return decimals(weights) if named or weights.size <= _FEW_NUMBERS else None
