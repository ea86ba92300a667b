"""The source of seeded layers: the store if it has them, otherwise torch.

A kept layer needs no torch, whose import takes longer than a lookup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import Notes
from embcli.layer import Layer, Layers, Origin, Source, Wanted
from embcli.names import MatrixShape
from embcli.seeded_layers.build import Build, load_torch, this_build
from embcli.seeded_layers.seeded import Seeded
from embcli.store import Store

if TYPE_CHECKING:
    from embcli.seeded_layers.drawing import DrawnLayer


def file_name(name: str, seeded: Seeded, build: Build) -> str:
    """Return the name of a layer's file, which has everything that can change a bit of the layer.

    The token layer is drawn first, so that its shape changes the bits of the position layer.
    """
    rows, dim = seeded.shapes[name]
    shapes = f"{rows}x{dim}"
    if name != "token":
        rows_before, dim_before = seeded.shapes["token"]
        shapes += f"-after-{rows_before}x{dim_before}"
    drawn_by = f"torch-{build.torch}-{build.machine}-{build.cpu}-{build.libc}"
    return re.sub(r"[^\w.+-]", "-", f"{name}-{shapes}-seed{seeded.seed}-{drawn_by}.npy")


class KeptLayer(Layer):
    """A layer in a file of the store, which is mapped."""

    dtype = "float32"

    def __init__(self, matrix: np.ndarray) -> None:
        rows, dim = matrix.shape
        self.shape = (rows, dim)
        self._matrix = matrix

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix[ids])


@dataclass(frozen=True, eq=False)
class SeededSource(Source):
    """The source of a seeded pair of layers.

    It takes them from the store, or torch draws them and the store keeps them. The rows of the
    token layer stand for the tokens of `encoding`. Several threads may use a source.
    """

    seeded: Seeded
    store: Store | None = None
    encoding: Encoding | None = None

    @property
    def origin(self) -> Origin:
        return Origin(seed=self.seeded.seed)

    def resized(self, context_length: int) -> SeededSource:
        return replace(self, seeded=replace(self.seeded, context_length=context_length))

    def shape(self, name: str) -> MatrixShape | None:
        return self.seeded.shapes.get(name)

    def open(self, wanted: Wanted, notes: Notes) -> Layers:
        layers: dict[str, Layer] = {}
        for name, ids in wanted.items():
            if ids is not None and not ids.size:  # Nobody sees a row.
                layers[name] = KeptLayer(np.broadcast_to(np.float32(0), self.seeded.shapes[name]))
            else:
                layers[name] = self._kept(name) or self._drawn(name, ids, notes)
        shapes = {name: layer.shape for name, layer in layers.items()}
        build = this_build()
        drawn_by = {"torch": build.version, "cpu_capability": build.capability}
        return Layers(layers, Origin(shapes, self.seeded.seed, drawn_by))

    def _kept(self, name: str) -> KeptLayer | None:
        if self.store is None:
            return None
        matrix = self.store.read(
            file_name(name, self.seeded, this_build()), self.seeded.shapes[name]
        )
        return None if matrix is None else KeptLayer(matrix)

    def _drawn(self, name: str, ids: np.ndarray | None, notes: Notes) -> KeptLayer | DrawnLayer:
        """Draw a layer, and keep it if the store takes it."""
        load_torch(notes)
        from embcli.seeded_layers.drawing import DrawnLayer

        layer = DrawnLayer(self.seeded, name)
        if self.store is not None:
            blocks = notes.watch(layer.blocks(), layer.shape[0], len)
            self.store.write(file_name(name, self.seeded, this_build()), layer.shape, blocks, notes)
            kept = self._kept(name)
            if kept is not None:
                return kept
        if ids is not None:
            layer.rows(ids)  # The layer keeps these rows for the calls that follow.
        return layer
