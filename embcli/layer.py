"""Matrices that give rows by ID, and the source that the matrices of a model come from.

Verbs read a `Layer` without knowing whether its rows are drawn, kept, mapped or unpacked. Seeded
layers and the files of checkpoints implement it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from embcli.errors import LayerError, Notes, Watch, unwatched
from embcli.names import MatrixShape, Shape

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.recipe import Recipe
    from embcli.records import Document


RowsOf = Callable[[np.ndarray], np.ndarray]  # IDs, (n,) int64 -> rows, (n, D)
# The names of layers, and the IDs of each that will be asked for; None for any.
Wanted = Mapping[str, np.ndarray | None]


class Summary:
    """Statistics of the values of a matrix, added piece by piece, in float64."""

    def __init__(self) -> None:
        self._count = 0
        self._sum = 0.0
        self._squares = 0.0  # the sum of squared differences from the mean so far
        self.minimum = float("inf")
        self.maximum = -float("inf")

    @np.errstate(invalid="ignore")  # the sum of infinities of both signs is NaN
    def add(self, piece: np.ndarray) -> None:
        """Add float32 values, in any shape (Chan, Golub, LeVeque 1979)."""
        count = piece.size
        if not count:
            return
        values = piece.ravel().astype(np.float64)
        total = float(values.sum())
        values -= total / count
        # np.dot is no faster here, and would start threads.
        self._squares += float(np.square(values, out=values).sum())
        if self._count:
            mean_difference = np.float64(self._sum) / self._count - np.float64(total) / count
            between = float(np.square(mean_difference))
            self._squares += between * self._count * count / (self._count + count)
        self._count += count
        self._sum += total

        # Like torch's, a minimum and a maximum are NaN if a value is.
        self.minimum = float(np.minimum(self.minimum, piece.min()))
        self.maximum = float(np.maximum(self.maximum, piece.max()))

    @property
    def mean(self) -> float:
        return self._sum / self._count

    @property
    def std(self) -> float:
        """The standard deviation, divided by n - 1, like torch; NaN for a single value."""
        if self._count <= 1:
            return float("nan")
        return float(np.sqrt(self._squares / (self._count - 1)))


_BLOCK = 1 << 18  # values in a block


class Layer(ABC):
    """A weight matrix that gives its rows by ID.

    A new format implements `shape`, `dtype` and `rows`. A layer lives as long as its result.
    """

    shape: MatrixShape  # (V, D) or (C, D)
    # `dtype` is that of the stored numbers, as numpy names it, such as "bfloat16"; rows are always
    # float32.
    dtype: str
    rounded_values: int = 0  # how many of the values read so far float32 does not hold exactly

    @abstractmethod
    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32.

        The IDs are in range, and were announced to `open`.
        """

    def load(self) -> None:  # noqa: B027 - Only a file can be remote.
        """Announce that all rows will be read: those of a remote file are then read at once.

        Raises InputError if they are too many.
        """

    def whole(self) -> np.ndarray:
        """Return all rows, (V, D) float32."""
        self.load()
        return self.rows(np.arange(self.shape[0]))

    @property
    def block_rows(self) -> int:
        """The rows that are read at once where all or many are read."""
        return max(_BLOCK // self.shape[1], 1)

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each."""
        self.load()
        size, _ = self.shape
        for start in range(0, size, self.block_rows):
            stop = min(start + self.block_rows, size)
            yield self.rows(np.arange(start, stop))

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n, width); float32 if they have no other form."""
        return self.rows(ids)

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, width), as float32, (n, D)."""
        return stored

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return statistics of the matrix, from one pass over its blocks; `watch` counts rows."""
        summary = Summary()
        for block in watch(self.blocks(), self.shape[0], len):
            summary.add(block)
        return summary


@dataclass(frozen=True)
class Origin:
    """Where the numbers of a model come from: drawn from a seed, or read from a file.

    Mappings have an entry for each layer that is open.
    """

    # The shapes of the layers, or of the arrays of other dimensions that are read as matrices.
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    seed: int | None = None  # None for a checkpoint
    # `build` names the torch and the CPU capability that drew seeded layers.
    build: Mapping[str, str] = field(default_factory=dict)
    path: str | None = None  # the checkpoint as the user named it; None for seeded layers
    tensors: Mapping[str, str] = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)  # bytes in the file
    guesses: Mapping[str, str] = field(default_factory=dict)  # what was guessed -> why
    first_position: int = 0  # the row of the position matrix that position 0 picks
    unopened: frozenset[str] = frozenset()  # the names of other tensors of the file
    # The user can name another tensor than the token matrix as the layer `token`.
    is_custom_tensor: bool = False
    has_adapter: bool = False  # whether the file has an adapter, which is not applied
    is_remote: bool = False  # whether rows are read over the network
    is_streamed: bool = False  # whether each reading of rows unpacks a whole array

    @property
    def is_seeded(self) -> bool:
        return self.path is None

    @property
    def name(self) -> str:
        return f"seed {self.seed}" if self.path is None else self.path

    def document(self) -> Document:
        """Return what the `run` of a result says of the origin."""
        shapes = {name: list(shape) for name, shape in self.shapes.items()}
        if self.is_seeded:
            return {"seed": self.seed, "shapes": shapes, **self.build}
        document: Document = {
            "from": self.path,
            "tensors": self.tensors,
            "dtypes": self.dtypes,
            "bytes": self.sizes,
            "shapes": shapes,
            "guesses": self.guesses,
        }
        if self.first_position:
            document["first_position"] = self.first_position
        return document


class Layers(dict[str, "Layer"]):
    """Layers that are open, by name, and where their numbers come from."""

    def __init__(self, layers: Mapping[str, Layer], origin: Origin) -> None:
        super().__init__(layers)
        self.origin = origin


class Source(ABC):
    """A place that layers come from; it knows their shapes before it draws or reads them."""

    encoding: Encoding | None  # the one whose tokens the rows of the token layer stand for
    recipe: Recipe | None = None  # how token rows become what the first block reads, if known
    orphan_norm: str = ""  # a norm beside the token matrix, if nothing says how to apply it

    @property
    @abstractmethod
    def origin(self) -> Origin:
        """The origin before a layer is open; that of open layers says more."""

    def resized(self, context_length: int) -> Source:
        """Return a source whose position layer has another length, if it is seeded."""
        return self

    @abstractmethod
    def shape(self, name: str) -> MatrixShape | None:
        """Return the shape of the `token`, `position` or `head` layer; None if there is none."""

    @abstractmethod
    def open(self, wanted: Wanted, notes: Notes) -> Layers:
        """Return the named layers; for each, the IDs that will be asked for, or None for any.

        Remarks on how their numbers come about are added to the notes.
        """


def shape_of(source: Source, name: str) -> MatrixShape:
    """Return the shape of a layer; raises LayerError if the source has none of this name."""
    shape = source.shape(name)
    if shape is None:
        layer = "output head" if name == "head" else f"{name} layer"
        raise LayerError(f"there is no {layer} here")
    return shape
