"""A seeded pair of layers: its sizes and its seed, checked before a number is drawn."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from embcli.errors import LayerError, refuse_too_large, whole_number
from embcli.names import DEFAULT_CONTEXT_LENGTH, DEFAULT_DIM, DEFAULT_SEED, MatrixShape
from embcli.wording import Parameter


@dataclass(frozen=True)
class Seeded:
    """A seeded pair of layers: `Embedding(V, D)` is drawn first, `Embedding(C, D)` right after it.

    Raises LayerError for numbers out of range, and for layers that torch could not hold on this
    machine.
    """

    vocab: int
    dim: int = DEFAULT_DIM
    context_length: int = DEFAULT_CONTEXT_LENGTH
    seed: int = DEFAULT_SEED

    def __post_init__(self) -> None:
        for name in ("vocab", "dim", "context_length"):
            object.__setattr__(self, name, check_size(name, getattr(self, name)))
        object.__setattr__(self, "seed", check_seed(self.seed))
        # Drawing itself needs little memory, so that a layer may take the whole machine's.
        for name, shape in self.shapes.items():
            refuse_too_large(f"a {name} layer", shape)

    @cached_property
    def shapes(self) -> dict[str, MatrixShape]:
        """The shapes of the `token` and the `position` layer."""
        return {"token": (self.vocab, self.dim), "position": (self.context_length, self.dim)}


def check_size(name: str, given: int) -> int:
    """Return the size of a matrix; raises LayerError for one that is out of range."""
    size = whole_number(name, given, 1, error=LayerError)
    # The digits of a larger number would fill the message about the memory that it takes.
    if size >= 10**40:
        raise LayerError(
            "{name} is out of range; no machine has that much memory", name=Parameter(name)
        )
    return size


def check_seed(seed: int) -> int:
    """Return a seed, which `torch.manual_seed` takes; raises LayerError for one that it refuses."""
    return whole_number("seed", seed, -(2**63), 2**64 - 1, error=LayerError)
