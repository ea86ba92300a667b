"""What results are compared with: torch's own layers, equality to the last bit, and stub layers.

torch is imported where it is needed: processes that tests start import this module too.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import Notes
from embcli.layer import Layer, Layers, Origin
from embcli.seeded_layers.seeded import Seeded
from embcli.text import Sequences, encode_sequences
from embcli.tokens import Tokens

if TYPE_CHECKING:
    from collections.abc import Mapping

    from embcli.encodings import Encoding
    from embcli.recipe import Recipe
    from embcli.records import Records


@lru_cache(maxsize=8)
def live(seeded: Seeded) -> dict[str, np.ndarray]:
    """Return both layers as torch itself draws them."""
    import torch

    torch.manual_seed(seeded.seed)
    token = torch.nn.Embedding(seeded.vocab, seeded.dim)
    position = torch.nn.Embedding(seeded.context_length, seeded.dim)
    return {
        "token": token.weight.detach().numpy(),
        "position": position.weight.detach().numpy(),
    }


def assert_same_bits(found: np.ndarray, expected: np.ndarray) -> None:
    """Compare float32 values with others: their shape and every bit."""
    assert found.dtype == np.float32
    assert expected.dtype == np.float32
    assert found.shape == expected.shape
    assert found.tobytes() == np.ascontiguousarray(expected).tobytes()


def gathered(records: Records) -> dict[str, np.ndarray]:
    """Return the matrices of records, each put together from its pieces."""
    found = {}
    for name, spec in records.matrices.items():
        pieces = [np.empty((0, *spec.shape[1:]), spec.dtype)]
        for piece in records.pieces((), (name,)):
            pieces.append(piece.matrices[name].copy())
        values = np.concatenate(pieces)
        assert values.shape == spec.shape
        assert values.dtype == spec.dtype
        found[name] = values
    return found


def gathered_field(records: Records, name: str) -> list[Any]:
    """Return a field of all rows of records, put together from its pieces."""
    values = []
    for piece in records.pieces((name,), ()):
        values += np.asarray(piece.fields[name]).tolist()
    return values


# --- what verbs are given -------------------------------------------------------------------------


def of_ids(*sequences: list[int]) -> Tokens:
    """Return IDs as tokens that stand for no text."""
    ids = tuple(np.array(sequence, np.int64) for sequence in sequences)
    return encode_sequences(Sequences(ids=ids, many=len(sequences) != 1), None)


class Stub(Layer):
    """A layer whose values are given, as somebody's own source would have it."""

    dtype = "float32"

    def __init__(self, values: Any) -> None:
        self.values = np.array(values, np.float32)
        self.shape = self.values.shape

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
        if name not in self.layers:
            return None
        return self.layers[name].shape

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        self.asked = dict(wanted)
        opened = {name: self.layers[name] for name in wanted}
        return Layers(opened, self.origin)


def stub(token: Any, position: Any) -> StubSource:
    """Return a source of these two layers."""
    return StubSource({"token": Stub(token), "position": Stub(position)})


def normal(rows: int, dim: int, seed: int = 0) -> np.ndarray:
    """Return random rows, (rows, dim) float32."""
    random = np.random.default_rng(seed)
    return random.standard_normal((rows, dim)).astype(np.float32)
