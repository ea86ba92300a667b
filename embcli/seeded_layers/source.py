"""Where seeded layers come from: the store, or torch; a kept one needs no torch."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import PATIENCE, Notes
from embcli.layer import Layer, Layers, Origin
from embcli.seeded_layers.build import Build, cpu_capability, loading_torch, this_build
from embcli.seeded_layers.seeded import Seeded
from embcli.store import Store

if TYPE_CHECKING:
    from embcli.seeded_layers.drawing import DrawnLayer


def file_name(name: str, seeded: Seeded, build: Build) -> str:
    """Return the name of a layer's file: everything that can change a bit of it; the token layer is drawn first."""
    shapes = "-after-".join(
        "{}x{}".format(*seeded.shape(each)) for each in dict.fromkeys((name, "token"))
    )
    return re.sub(r"[^\w.+-]", "-", f"{name}-{shapes}-seed{seeded.seed}-{build}.npy")


class KeptLayer(Layer):
    dtype = "float32"

    def __init__(self, matrix: np.ndarray, build: Build) -> None:
        rows, dim = matrix.shape
        self.shape = rows, dim
        self.build = {"torch": build.version, "cpu_capability": cpu_capability() or build.machine}
        self._matrix = matrix

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return np.asarray(self._matrix[ids])


class SeededSource:
    """A seeded pair of layers: from the store if it has them, otherwise drawn by torch and kept there.

    `encoding` is the encoding whose tokens the rows of the token layer stand for. Several threads may use a source.
    """

    recipe: None = None
    orphan_norm = ""

    def __init__(
        self, seeded: Seeded, store: Store | None = None, encoding: Encoding | None = None
    ) -> None:
        self.seeded = seeded
        self.store = store
        self.encoding = encoding

    @property
    def origin(self) -> Origin:
        return Origin(seed=self.seeded.seed)

    def resized(self, context_length: int) -> SeededSource:
        seeded = replace(self.seeded, context_length=context_length)
        return SeededSource(seeded, self.store, self.encoding)

    def shape(self, name: str) -> tuple[int, int]:
        return self.seeded.shape(name)

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        remarks = notes or Notes()
        layers = {
            name: self._kept(name) or self._drawn(name, ids, remarks)
            for name, ids in wanted.items()
        }
        drawn_by = next((layer.build for layer in layers.values()), {})
        shapes = {name: layer.shape for name, layer in layers.items()}
        return Layers(layers, Origin(shapes, self.seeded.seed, drawn_by), self)

    def _kept(self, name: str) -> KeptLayer | None:
        if self.store is None:
            return None
        matrix = self.store.read(file_name(name, self.seeded, this_build()), self.shape(name))
        return None if matrix is None else KeptLayer(matrix, this_build())

    def _drawn(self, name: str, ids: np.ndarray | None, notes: Notes) -> KeptLayer | DrawnLayer:
        """Draw a layer, and keep it if the store takes it."""
        with loading_torch(notes):
            from embcli.seeded_layers.drawing import DrawnLayer
        layer = DrawnLayer(self.seeded, name)
        if self.store is not None:
            rows, columns = layer.shape
            what = f"drawing a {name} layer of {rows:,} x {columns:,}, to be kept"
            blocks = _noted_if_slow(layer.blocks(), what, notes)
            self.store.write(file_name(name, self.seeded, this_build()), layer.shape, blocks, notes)
            if (kept := self._kept(name)) is not None:
                return kept
        if ids is not None:
            layer.rows(ids)  # which it keeps
        return layer


def _noted_if_slow(blocks: Iterator[np.ndarray], what: str, notes: Notes) -> Iterator[np.ndarray]:
    """Yield the blocks of a layer, and say what is drawn once that has taken long."""
    start = time.monotonic()
    is_noted = False
    for block in blocks:
        if not is_noted and time.monotonic() - start > PATIENCE:
            is_noted = True
            notes.slow(what)
        yield block
