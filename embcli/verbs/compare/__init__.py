"""What `compare` is asked and what it finds: outputs, verdict, gradients and cost, as plain data without torch."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from embcli.verbs.lookup import check_ids
from embcli.records import Piece, Records
from embcli.tokens import PIECE, Tokens
from embcli.weights import Seeded, refuse_too_large

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_IDS = "2,3,1"
STEPS = ("ids", "one-hot", "first", "shared", "outputs")
OUTPUTS = ("embedding", "linear")  # the matrices of the last step, which data formats can name one by one
_FEW_NUMBERS = 4096  # a weight matrix of so many is in a JSON document unasked
_MOST_CAUSES = 5

Kind = Literal["identical", "value", "nan", "nan bits", "zero sign"]


@dataclass(frozen=True)
class Task:
    """What to compare: tokens, on a seeded layer of `layer.shape("token")`; all of it checked before a number is drawn.

    `sweep` is the largest V of the benchmark, if one is wanted. Raises InputError for an ID without a row, and
    LayerError for layers that do not fit into this machine's memory.
    """

    tokens: Tokens
    layer: Seeded
    show: tuple[str, ...] | None = None  # the steps that the user named
    gradient: bool = False
    sweep: int | None = None

    def __post_init__(self) -> None:
        size, dim = self.layer.shape("token")
        refuse_layers(size, dim, self.gradient)
        if self.sweep is not None:
            refuse_layers(self.sweep, dim)
        check_ids(self.tokens, size)


def steps(chosen: tuple[str, ...] | None) -> tuple[str, ...] | None:
    """Return the steps among the names that a user chose; an output stands for both."""
    if chosen is None:
        return None
    return tuple(step for step in STEPS if step in chosen or (step == "outputs" and not {*OUTPUTS}.isdisjoint(chosen)))


def needs(task: Task, trace: bool) -> dict[str, tuple[str, ...]]:
    """Return which options were given that only some formats have a place for, and these formats."""
    options = [f"--show {step}" for step in task.show or () if step != "outputs"]
    options += ["--gradient"] * task.gradient + ["--bench"] * (task.sweep is not None)
    return dict.fromkeys(options, ("table", "json")) | ({"--trace": ("table",)} if trace else {})


def refuse_layers(vocabulary_size: int, dim: int, gradient: bool = False) -> None:
    """Raise LayerError where two layers, their gradients and a row of the one-hot matrix do not fit into memory."""
    one_hot = 3 // dim  # matrices that a row of V int64 and V float32 takes as much as
    refuse_too_large("a pair of layers", (vocabulary_size, dim), copies=(4 if gradient else 2) + one_hot)


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


def _largest(left: np.ndarray, right: np.ndarray) -> np.ndarray:
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
        _decimals(found[row, column]),
        (row, column),
        _decimals(left[row, column]),
        _decimals(right[row, column]),
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


@dataclass(frozen=True)
class Timing:
    """The median of some runs."""

    seconds: float
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
            "seconds": {"embedding": self.lookup.seconds, "linear": self.product.seconds},
            "runs": {"embedding": self.lookup.runs, "linear": self.product.runs},
            "slices": self.slices,
            "ratio": self.ratio,
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

    @property
    def differences(self) -> np.ndarray:
        """The largest |difference| of each row, (touched rows,) float32."""
        return _largest(self.embedding, self.linear)

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
            "embedding": _decimals(self.embedding),
            "linear": _decimals(self.linear),
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
    show: tuple[str, ...] | None = None

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
        return _largest(self.embedding, self.linear)

    def pieces(self, names: tuple[str, ...]) -> Iterator[Piece]:
        """Yield all tokens in consecutive pieces."""
        both, largest = {"embedding": self.embedding, "linear": self.linear}, self.differences
        for start in range(0, len(self.tokens), PIECE):
            index = np.arange(start, min(start + PIECE, len(self.tokens)))
            fields = partial(self._fields, index, largest[index])
            yield Piece(len(index), fields, {name: both[name][index] for name in names})

    def _fields(self, index: np.ndarray, largest: np.ndarray) -> dict[str, Any]:
        return {**self.tokens.fields(index), "difference": _decimals(largest)}

    def records(self) -> Records:
        """Return the comparison as data: a row a token, both outputs, and beside them all else that was found."""
        shape = self.embedding.shape
        return Records(
            run={**self.run, "shapes": self.shapes},
            unit="tokens",
            rows=len(self.tokens),
            fields=(*self.tokens.field_names, "difference"),
            matrices={"embedding": shape, "linear": shape},
            pieces=self.pieces,
            columns=tuple(range(shape[1])),
            default="embedding",
            more={
                "verdict": self.verdict.document(),
                "weights": {"first": self._told("first", self.first), "shared": self._told("shared", self.weight.T)},
                "cost": self.cost.document(),
                "gradient": self.gradient.document() if self.gradient else None,
                "bench": [cost.document() for cost in self.sweep] or None,
            },
        )

    def _told(self, step: str, weights: np.ndarray) -> list[list[float]] | None:
        named = self.show is not None and step in self.show
        return _decimals(weights) if named or weights.size <= _FEW_NUMBERS else None


def _decimals(values: np.ndarray) -> Any:
    """Return float32 values, nested as they are, as the Python floats whose shortest decimals are theirs too."""
    return values.astype(str).astype(np.float64).tolist()
