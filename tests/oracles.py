"""What results are held against: torch's own layers, equality to the last bit, and stub layers.

torch is imported where it is asked: processes that tests start import this module too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import Notes
from embcli.layer import Layer, Layers, Origin
from embcli.seeded_layers.seeded import Seeded
from embcli.text import Sequences
from embcli.tokens import Tokens, tokenize

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embcli.encodings import Encoding
    from embcli.recipe import Recipe


@lru_cache(maxsize=8)
def live(seeded: Seeded) -> dict[str, np.ndarray]:
    """Return both layers as torch itself draws them."""
    import torch

    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocab, seeded.dim)
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    return {"token": token.weight.detach().numpy(), "position": position.weight.detach().numpy()}


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Hold float32 values against others: shape, and every bit."""
    assert found.dtype == expected.dtype == np.float32
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


# --- what verbs are given ---------------------------------------------------------------------------------------------


def of_ids(*sequences: list[int]) -> Tokens:
    """Return IDs as tokens that stand for no text."""
    return tokenize(
        Sequences(
            ids=tuple(np.array(each, np.int64) for each in sequences), many=len(sequences) != 1
        ),
        None,
    )


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
    origin: Origin = field(default_factory=Origin)
    asked: dict[str, Any] = field(default_factory=dict)
    recipe: Recipe | None = None
    orphan_norm = ""

    def resized(self, context_length: int) -> StubSource:
        return self

    def shape(self, name: str) -> tuple[int, int] | None:
        return self.layers[name].shape if name in self.layers else None

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        self.asked = dict(wanted)
        return Layers({name: self.layers[name] for name in wanted}, self.origin, self)


def stub(token: Any, position: Any) -> StubSource:
    """Return a source of these two layers."""
    return StubSource({"token": Stub(token), "position": Stub(position)})


def normal(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Return random rows, (rows, dim) float32."""
    return np.random.default_rng(seed).standard_normal((rows, dim)).astype(np.float32)
