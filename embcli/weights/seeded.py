"""A seeded pair of layers as it is asked for: shapes and seed, checked before a number is drawn."""

from __future__ import annotations

from dataclasses import dataclass

from embcli import memory
from embcli.errors import LayerError
from embcli.names import DEFAULT_CONTEXT_LENGTH, DEFAULT_DIM, DEFAULT_SEED
from embcli.words import in_bytes


@dataclass(frozen=True)
class Seeded:
    """A seeded pair of layers: `Embedding(V, D)` drawn first, `Embedding(C, D)` right behind it.

    Raises LayerError for numbers that make no layer, and for layers that torch could not hold on this machine.
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
        check_seed(self.seed)
        for name in ("token", "position"):  # which are drawn through a small buffer, whatever is free just now
            rows, columns = self.shape(name)
            _refuse(f"a {name} layer", self.shape(name), 4 * rows * columns, memory.built_in(), "")

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer."""
        return (self.vocabulary_size if name == "token" else self.context_length), self.dim


def check_seed(seed: int) -> None:
    """Raise LayerError for a seed that torch does not take."""
    if not 0 <= seed < 2**64:
        raise LayerError(f"--seed {seed} is out of range; torch takes seeds from 0 to {2**64 - 1}")


def refuse_too_large(what: str, shape: tuple[int, int], copies: int = 1, more: int = 0) -> None:
    """Raise LayerError where float32 matrices of this shape, and some bytes more, do not fit into free memory."""
    _refuse(what, shape, 4 * shape[0] * shape[1] * copies + more, memory.free(), " free")


def _refuse(what: str, shape: tuple[int, int], size: int, most: int, free: str) -> None:
    if size > most:
        raise LayerError(
            f"{what} of {shape[0]:,} x {shape[1]:,} takes {in_bytes(size)}, and this machine has "
            f"{in_bytes(most)} of memory{free}"
        )
