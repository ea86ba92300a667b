"""Weight matrices: whatever gives rows by ID, behind one small interface, and the sources of it."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from embcli.errors import LayerError

if TYPE_CHECKING:
    import numpy as np

    from embcli.weights.kept import Cache

DEFAULT_SEED = 123
DEFAULT_DIM = 256
DEFAULT_CONTEXT_LENGTH = 1024


@dataclass(frozen=True)
class Summary:
    """What a matrix is like as a whole: over all its values, in float64; `std` as torch has it (n - 1)."""

    mean: float
    std: float
    minimum: float
    maximum: float


class Layer(Protocol):
    """A weight matrix that gives its rows by ID."""

    @property
    def name(self) -> str:
        """Which matrix it is: `token` or `position`."""

    @property
    def shape(self) -> tuple[int, int]:
        """Its rows and columns: (V, D) or (C, D)."""

    @property
    def origin(self) -> dict[str, str]:
        """What there is to say of how its numbers came about: for a seeded layer, `torch` and `cpu_capability`."""

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n, D) float32; the IDs (n,) are within the shape."""

    def pin(self, ids: np.ndarray) -> Layer:
        """Return a layer that gives these rows fast and in any order; the other rows it need not have."""

    def summary(self) -> Summary:
        """Return what the whole matrix is like."""


@dataclass(frozen=True)
class Weights:
    """The layers of one source, and what there is to say of how they came about."""

    layers: dict[str, Layer]
    run: dict[str, Any]

    def __getitem__(self, name: str) -> Layer:
        return self.layers[name]


class Source(Protocol):
    """Where weights come from; it tells their shapes before it makes or reads them."""

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer."""

    def open(self, names: tuple[str, ...]) -> Weights:
        """Return the named layers."""


@dataclass(frozen=True)
class Seeded:
    """A seeded pair of layers: `Embedding(V, D)` drawn first, `Embedding(C, D)` right behind it.

    Raises LayerError for numbers that make no layer, and for layers that do not fit into this machine's memory.
    """

    vocabulary_size: int
    dim: int = DEFAULT_DIM
    context_length: int = DEFAULT_CONTEXT_LENGTH
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        for flag, value in (
            ("--vocab", self.vocabulary_size),
            ("--dim", self.dim),
            ("--context-length", self.context_length),
        ):
            if value < 1:
                raise LayerError(f"{flag} {value} makes no layer; it must be 1 or more")
            if value >= 10**40:
                raise LayerError(f"{flag} {str(value)[:20]}... is out of range; no machine has that much memory")
        if not 0 <= self.seed < 2**64:
            raise LayerError(f"--seed {self.seed} is out of range; torch takes seeds from 0 to {2**64 - 1}")
        for name in ("token", "position"):
            refuse_too_large(f"a {name} layer", self.shape(name))

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer."""
        return (self.vocabulary_size if name == "token" else self.context_length), self.dim


def refuse_too_large(what: str, shape: tuple[int, int], copies: int = 1) -> None:
    """Raise LayerError where float32 matrices of this shape do not fit into the machine's memory."""
    size = 4 * shape[0] * shape[1] * copies
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40
    if size > memory:
        raise LayerError(
            f"{what} of {shape[0]:,} x {shape[1]:,} takes {in_bytes(size)}, and this machine has "
            f"{in_bytes(memory)} of memory"
        )


def counted(number: int, thing: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "token"), counted(2000, "token")
    ('1 token', '2,000 tokens')
    """
    return f"{number:,} {thing}{'' if number == 1 else 's'}"


def in_bytes(size: int) -> str:
    """Return a size in words, in decimal units.

    >>> in_bytes(51463168), in_bytes(72)
    ('51.5 MB', '72 bytes')
    """
    if size < 1000:
        return f"{size} bytes"
    power = min(int(math.log10(size) / 3), 6)
    return f"{size / 1000**power:,.1f} {('kB', 'MB', 'GB', 'TB', 'PB', 'EB')[power - 1]}"


@dataclass(frozen=True)
class SeededSource:
    """A seeded pair of layers: from the cache where it has them, otherwise drawn by torch.

    What is drawn is kept in the cache, if there is one and the layer is not too large for it.
    """

    spec: Seeded
    cache: Cache | None = None

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer, before any number is drawn."""
        return self.spec.shape(name)

    def open(self, names: tuple[str, ...]) -> Weights:
        """Return the named layers."""
        layers: dict[str, Layer] = {}
        drawing = None
        for name in names:
            kept = self.cache.open(self.spec, name) if self.cache else None
            if kept is None:
                if drawing is None:
                    from embcli.weights.seeded import Drawing

                    drawing = Drawing(self.spec)
                drawn = drawing.layer(name)
                kept = self.cache.keep(self.spec, drawn) if self.cache else None
                layers[name] = kept or drawn
            else:
                layers[name] = kept
        shapes = {name: list(self.shape(name)) for name in names}
        return Weights(layers, {"seed": self.spec.seed, "shapes": shapes, **layers[names[0]].origin})
