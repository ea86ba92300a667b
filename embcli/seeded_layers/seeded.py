"""A seeded pair of layers: its sizes and its seed, checked before a number is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from embcli.errors import refuse_too_large, whole_number
from embcli.names import DEFAULT_CONTEXT_LENGTH, DEFAULT_DIM, DEFAULT_SEED, MatrixShape

_SIZES = (1, 2**63 - 1)
RANGES = {
    "vocab": _SIZES,
    "dim": _SIZES,
    "context_length": _SIZES,
    "seed": (-(2**63), 2**64 - 1),
}


@dataclass(frozen=True)
class Seeded:
    """A seeded pair of layers: `Embedding(V, D)` is drawn first, `Embedding(C, D)` right after it.

    Raises RangeError for numbers out of range, and LayerError for layers that torch could not hold
    on this machine.
    """

    vocab: int
    dim: int = DEFAULT_DIM
    context_length: int = DEFAULT_CONTEXT_LENGTH
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        for name in RANGES:
            object.__setattr__(self, name, in_range(name, getattr(self, name)))
        # Drawing itself needs little memory, so that a layer may take the whole machine's.
        for name, shape in self.shapes.items():
            refuse_too_large(f"a {name} layer", shape)

    @cached_property
    def shapes(self) -> dict[str, MatrixShape]:
        """The shapes of the `token` and the `position` layer."""
        return {"token": (self.vocab, self.dim), "position": (self.context_length, self.dim)}


def in_range(name: str, given: int) -> int:
    """Return a number that torch takes by this name; raises RangeError for one that it refuses."""
    least, most = RANGES[name]
    return whole_number(name, given, least, most)
