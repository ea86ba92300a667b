"""The interface of a matrix that gives rows by ID, and of the source that a model's matrices come from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from embcli.errors import LayerError, Notes, Watch, unwatched

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.recipe import Recipe

_BLOCK = 1 << 18  # values in a block


class Summary:
    """Statistics of the values of a matrix, added piece by piece, in float64."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = self._squares = 0.0  # squares are of differences from the mean so far
        self.minimum, self.maximum = float("inf"), -float("inf")

    @np.errstate(invalid="ignore")  # the sum of infinities of both signs is NaN
    def add(self, piece: np.ndarray) -> None:
        """Add float32 values, in any shape (Chan, Golub, LeVeque 1979)."""
        if not piece.size:
            return
        values = piece.ravel().astype(np.float64)
        total = float(values.sum())
        values -= total / piece.size
        self._squares += float(
            np.square(values, out=values).sum()
        )  # np.dot would start threads that wait
        if self._count:
            between = np.square(
                np.float64(self._sum) / self._count - np.float64(total) / piece.size
            )
            self._squares += float(between) * self._count * piece.size / (self._count + piece.size)
        self._count += piece.size
        self._sum += total
        self.minimum = float(
            np.minimum(self.minimum, piece.min())
        )  # NaN if there is one, like torch
        self.maximum = float(np.maximum(self.maximum, piece.max()))

    @property
    def mean(self) -> float:
        return self._sum / self._count

    @property
    def std(self) -> float:
        """The standard deviation, divided by n - 1, like torch; NaN for a single value."""
        return (
            float(np.sqrt(self._squares / (self._count - 1))) if self._count > 1 else float("nan")
        )


class Layer(ABC):
    """A weight matrix that gives its rows by ID; a new format implements `shape`, `dtype` and `rows`."""

    shape: tuple[int, int]  # (V, D) or (C, D)
    dtype: str  # of the stored numbers, as numpy names it: "float32", "bfloat16"; rows are float32 whatever it is
    place: tuple[
        Source, str
    ]  # the source that opened it, and its name there; a copy is opened anew
    rounded_values: int = 0  # how many of the values read so far float32 does not hold exactly

    def __reduce__(self) -> tuple[Any, ...]:
        return _opened, self.place

    @abstractmethod
    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32; the IDs are in range, and were announced to `open`."""

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each; a block is valid until the next one."""
        step = max(_BLOCK // self.shape[1], 1)
        for start in range(0, self.shape[0], step):
            yield self.rows(np.arange(start, min(start + step, self.shape[0])))

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n, width); float32 if they have no other form."""
        return self.rows(ids)

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D)."""
        return stored

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return statistics of the whole matrix, from one pass over its blocks; `watch` counts the rows."""
        summary = Summary()
        for block in watch(self.blocks(), self.shape[0], len):
            summary.add(block)
        return summary


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a model come from: drawn from a seed, or read from a file.

    Mappings have an entry for each layer that is open.
    """

    shapes: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    seed: int | None = None  # of seeded layers
    build: Mapping[str, str] = field(
        default_factory=dict
    )  # the torch and the CPU capability that drew them
    path: str | None = None  # of a checkpoint, as the user named it; None for seeded layers
    tensors: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes in the file
    guesses: Mapping[str, str] = field(default_factory=dict)  # what was guessed -> why
    first_position: int = 0  # the row of the position matrix that position 0 picks
    unopened: int = 0  # other tensors of the file
    is_custom_tensor: bool = (
        False  # whether `token` is another tensor than the token matrix, as the user wished
    )

    @property
    def is_seeded(self) -> bool:
        return self.path is None

    @property
    def name(self) -> str:
        return f"seed {self.seed}" if self.path is None else self.path

    def document(self) -> dict[str, Any]:
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        if self.is_seeded:
            return {"seed": self.seed, "shapes": shapes, **self.build}
        first = {"first_position": self.first_position} if self.first_position else {}
        tensors = {
            "tensors": dict(self.tensors),
            "dtypes": dict(self.dtypes),
            "bytes": dict(self.sizes),
        }
        return {
            "from": self.path,
            **tensors,
            "shapes": shapes,
            "guesses": dict(self.guesses),
            **first,
        }


class Layers(dict[str, "Layer"]):
    """Layers that are open, by name, and where their numbers come from."""

    def __init__(self, layers: Mapping[str, Layer], origin: Origin, source: Source) -> None:
        super().__init__(layers)
        self.origin = origin
        for name, layer in layers.items():
            layer.place = source, name


class Source(Protocol):
    """A place that layers come from; it knows their shapes before it draws or reads them."""

    @property
    def origin(self) -> Origin: ...  # that of open layers says more

    @property
    def encoding(self) -> Encoding | None: ...  # whose tokens the rows of the token layer stand for

    @property
    def recipe(
        self,
    ) -> (
        Recipe | None
    ): ...  # how token rows become what the first block reads, if something says so

    @property
    def orphan_norm(
        self,
    ) -> str: ...  # a norm beside the token matrix that nothing says how to apply, or nothing

    def resized(
        self, context_length: int
    ) -> Source: ...  # with a longer or shorter position layer, if it is seeded

    def shape(
        self, name: str
    ) -> tuple[int, int] | None: ...  # of the `token` or the `position` layer

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        """Return the named layers; for each, the IDs that will be asked for, or None for any.

        Remarks on how their numbers come about are added to the notes.
        """


def shape_of(source: Source, name: str) -> tuple[int, int]:
    shape = source.shape(name)
    if shape is None:
        raise LayerError(f"there is no {name} layer here")
    return shape


def _opened(source: Source, name: str) -> Layer:
    return source.open({name: None})[name]
