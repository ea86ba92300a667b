"""What results are held against: torch's own layers, equality to the last bit, stub layers, schemas of documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import one_hot

from embcli.text import Given
from embcli.tokens import Tokens, tokenize
from embcli.weights import Layer
from embcli.weights.seeded import Seeded

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embcli.encodings import Encoding


@lru_cache(maxsize=8)
def live(seeded: Seeded) -> dict[str, np.ndarray]:
    """Return both layers as torch itself draws them."""
    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocabulary_size, seeded.dim)
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    return {"token": token.weight.detach().numpy(), "position": position.weight.detach().numpy()}


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Hold float32 values against others: shape, and every bit."""
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


@dataclass(frozen=True)
class Compared:
    """What a plain torch script gives for both ways from IDs to vectors."""

    first: torch.Tensor
    weight: torch.Tensor
    embedding: torch.Tensor
    linear: torch.Tensor
    embedding_gradient: torch.Tensor
    linear_gradient: torch.Tensor  # (D, V), as the linear layer has it


def live_comparison(ids: list[int], vocabulary_size: int, dim: int = 5, seed: int = 123) -> Compared:
    """Return what torch gives where nothing but torch is used."""
    torch.manual_seed(seed)
    embedding = torch.nn.Embedding(vocabulary_size, dim)
    torch.manual_seed(seed)
    linear = torch.nn.Linear(vocabulary_size, dim, bias=False)
    first = linear.weight.detach()
    linear.weight = torch.nn.Parameter(embedding.weight.T.detach())
    index = torch.tensor(ids, dtype=torch.int64)
    left, right = embedding(index), linear(one_hot(index, vocabulary_size).float())
    (left.square().sum() / 2).backward()
    (right.square().sum() / 2).backward()
    return Compared(
        first, embedding.weight.detach(), left.detach(), right.detach(), embedding.weight.grad, linear.weight.grad
    )


# --- what verbs are given ---------------------------------------------------------------------------------------------


def of_ids(*sequences: list[int]) -> Tokens:
    """Return IDs as tokens that stand for no text."""
    return tokenize(Given(ids=tuple(np.array(each, np.int64) for each in sequences), lines=len(sequences) != 1), None)


class Stub(Layer):
    """A layer whose values are given, as a source of anybody's own would have it."""

    dtype = "float32"

    def __init__(self, values: Any) -> None:
        self.values = np.array(values, np.float32)
        self.shape = self.values.shape[0], self.values.shape[1]

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self.values[ids]


@dataclass
class StubSource:
    """Layers that are given; `asked` is what was last asked of them."""

    layers: dict[str, Stub]
    encoding: Encoding | None = None
    run: dict[str, Any] = field(default_factory=dict)
    asked: dict[str, Any] = field(default_factory=dict)

    def shape(self, name: str) -> tuple[int, int] | None:
        return self.layers[name].shape if name in self.layers else None

    def open(self, wanted: Mapping[str, np.ndarray | None]) -> dict[str, Layer]:
        self.asked = dict(wanted)
        return {name: self.layers[name] for name in wanted}


def stub(token: Any, position: Any) -> StubSource:
    """Return a source of these two layers."""
    return StubSource({"token": Stub(token), "position": Stub(position)})


# --- schemas of JSON documents: the keys are a contract with scripts --------------------------------------------------


def an_object(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with just these keys."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


def rows_of(**properties: Any) -> dict[str, Any]:
    """Return the schema of a list of objects with just these keys."""
    return {"type": "array", "items": an_object(**properties)}


COUNT = {"type": "integer", "minimum": 0}
NUMBER = {"type": "number"}
VALUE = {"type": ["number", "null"]}
TEXT = {"type": "string"}
NAME = {"type": ["string", "null"]}
YES_OR_NO = {"type": "boolean"}
COUNTS = {"type": "array", "items": COUNT}
MATRIX = {"type": "array", "items": {"type": "array", "items": VALUE}}
SHAPE = {**COUNTS, "minItems": 1, "maxItems": 2}


def or_null(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of what may be missing."""
    return {"oneOf": [{"type": "null"}, schema]}


_DRAWN = {"seed": COUNT, "torch": TEXT, "cpu_capability": TEXT}
_READ = {"embcli": TEXT, "encoding": NAME, "sequences": COUNT}
_CACHE = an_object(embcli=TEXT, folder=TEXT, bytes=COUNT, limit=COUNT)

TOKENIZE = an_object(
    run=an_object(**_READ),
    tokens=rows_of(position=COUNT, id=COUNT, token=TEXT, bytes=TEXT, start=COUNT, end=COUNT),
)
LOOKUP = an_object(
    run=an_object(**_READ, **_DRAWN, shapes=an_object(token=SHAPE, position=SHAPE)),
    columns=COUNTS,
    tokens=rows_of(position=COUNT, id=COUNT, token=TEXT),
    matrices=an_object(token=MATRIX, position=MATRIX, input=MATRIX),
)
WEIGHTS = an_object(
    run=an_object(embcli=TEXT, encoding=NAME, **_DRAWN, shapes=an_object(token=SHAPE)),
    columns=COUNTS,
    rows=rows_of(id=COUNT, token=TEXT),
    matrices=an_object(token=MATRIX),
)
INFO = an_object(
    run=an_object(
        **dict.fromkeys(("embcli", "python", "torch", "tiktoken", "numpy", "typer", "rich", "cpu_capability"), TEXT),
        cache=NAME,
    ),
    encodings=rows_of(encoding=TEXT, vocabulary_size=COUNT, carried=YES_OR_NO),
)
CACHE = an_object(run=_CACHE, layers=rows_of(file=TEXT, bytes=COUNT, used=TEXT))
CACHE_VERIFY = an_object(run=_CACHE, layers=rows_of(file=TEXT, bytes=COUNT, used=TEXT, fault=NAME))

_VERDICT = an_object(
    bit_identical=YES_OR_NO,
    kind={"enum": ["identical", "value", "nan", "nan bits", "zero sign"]},
    values=COUNT,
    different_values=COUNT,
    largest_difference=VALUE,
    place=or_null(an_object(row=COUNT, column=COUNT, embedding=VALUE, linear=VALUE)),
    causes=rows_of(row=COUNT, column=COUNT, value={"enum": ["inf", "-inf", "nan"]}),
)
_COUNT_OF_BOTH = an_object(embedding=COUNT, linear=COUNT)
_TIME_OF_BOTH = an_object(embedding=NUMBER, linear=NUMBER)
_COST = an_object(
    tokens=COUNT,
    vocabulary_size=COUNT,
    dim=COUNT,
    multiply_adds=_COUNT_OF_BOTH,
    weight_bytes_read=_COUNT_OF_BOTH,
    one_hot_bytes=an_object(int64=COUNT, float32=COUNT),
    multiplications_by_zero=COUNT,
    seconds=_TIME_OF_BOTH,
    least_seconds=_TIME_OF_BOTH,
    runs=_COUNT_OF_BOTH,
    threads={"const": 1},
    slices=COUNT,
    ratio=NUMBER,
)
_GRADIENT = an_object(
    loss=TEXT,
    rows_with_gradient=_COUNT_OF_BOTH,
    slices=COUNT,
    verdict=_VERDICT,
    ids=COUNTS,
    times=COUNTS,
    embedding=MATRIX,
    linear=MATRIX,
    training={"type": "null"},
)
_STEPS = ("ids", "one_hot", "first", "shared", "embedding", "linear")
COMPARE = an_object(
    run=an_object(**_READ, **_DRAWN, shapes=an_object(**dict.fromkeys(_STEPS, SHAPE))),
    verdict=_VERDICT,
    weights=an_object(first=or_null(MATRIX), shared=or_null(MATRIX)),
    cost=_COST,
    gradient=or_null(_GRADIENT),
    bench=or_null({"type": "array", "items": _COST}),
    columns=COUNTS,
    tokens={
        "type": "array",
        "items": {**an_object(position=COUNT, id=COUNT, difference=VALUE, token=TEXT), "required": ["id"]},
    },
    matrices=an_object(embedding=MATRIX, linear=MATRIX),
)
