"""Where seeded layers come from: the store, or torch."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING

import numpy as np

from embcli.encodings import Encoding
from embcli.layer import Layer, Layers, Origin, Summary
from embcli.memory import explaining_shortage
from embcli.notes import PATIENCE, Notes
from embcli.passes import Watch, unwatched
from embcli.store import Damaged, Store
from embcli.weights.build import NO_TORCH, Build, loading_torch, this_build
from embcli.weights.kept import KeptLayer, Key, load, write
from embcli.weights.seeded import Seeded

if TYPE_CHECKING:
    from embcli.weights.drawing import DrawnLayer


class SeededSource:
    """A seeded pair of layers: from the store if it has them, otherwise drawn by torch and kept there.

    `encoding` is the encoding whose tokens the rows of the token layer stand for. Several threads may use a source.
    """

    recipe: None = None
    unapplied = ""

    def __init__(
        self, seeded: Seeded, store: Store | None = None, encoding: Encoding | None = None, notes: Notes | None = None
    ) -> None:
        self.seeded, self.store, self.encoding = seeded, store, encoding
        self.notes = Notes() if notes is None else notes

    @property
    def origin(self) -> Origin:
        """Where the numbers come from; that of open layers says more."""
        return Origin(seed=self.seeded.seed)

    def resized(self, context_length: int) -> SeededSource:
        """Return the same source with a position layer of another length."""
        seeded = replace(self.seeded, context_length=context_length)
        return SeededSource(seeded, self.store, self.encoding, self.notes)

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer, before any number is drawn."""
        return self.seeded.shape(name)

    def key(self, name: str, build: Build | None = None) -> Key:
        """Return the key of a layer in the store; `build` is what draws it, by default this process."""
        return Key(name, self.seeded, build or this_build())

    def open(self, wanted: Mapping[str, np.ndarray | None]) -> Layers:
        """Return the named layers; for each, the IDs that will be asked for, or None for any.

        Raises LayerError if a layer must be drawn and torch does not load, or if memory runs out.
        """
        build = self._build_of(tuple(wanted))
        layers = {name: self._opened(self.key(name, build), ids) for name, ids in wanted.items()}
        drawn_by = next((layer.build for layer in layers.values()), {})
        shapes = {name: layer.shape for name, layer in layers.items()}
        return Layers(layers, Origin(shapes, self.seeded.seed, drawn_by))

    def _build_of(self, names: tuple[str, ...]) -> Build:
        """Return what draws these layers; without torch, what drew the newest ones in the store that are sound."""
        own = this_build()
        if own.torch != NO_TORCH or self.store is None:
            return own
        for torch in self._torches(self.store, self.key(names[0])):
            build = replace(own, torch=torch)
            if all(self._is_sound(self.key(name, build)) for name in names):
                self.notes.add(f"torch is not installed; torch {build.version} drew these layers, which were kept")
                return build
        return own

    def _torches(self, store: Store, key: Key) -> Iterator[str]:
        """Yield each torch that drew a kept layer whose key is otherwise the same, the last used first."""
        before, after = str(key).split(f"torch={key.build.torch}")
        for entry in reversed(store.entries()):
            with suppress(OSError, Damaged), store.open(entry.path.name) as file:
                layer = KeptLayer(file)
                if layer.name == key.name and layer.key.startswith(before) and layer.key.endswith(after):
                    yield layer.key[len(before) : -len(after)].removeprefix("torch=")

    def _is_sound(self, key: Key) -> bool:
        kept = self._kept(key)
        try:
            if kept is not None:
                kept.check()
        except Damaged:
            return False
        return kept is not None

    def _opened(self, key: Key, ids: np.ndarray | None) -> _SeededLayer:
        rows, columns = key.shape
        what = f"a {key.name} layer of {rows:,} x {columns:,}"
        with explaining_shortage(what):
            layer = self._kept(key) or self._drawn(key, ids)
        return _SeededLayer(layer, what, partial(self._redrawn, key, ids))

    def _kept(self, key: Key) -> KeptLayer | None:
        """Return a layer from the store, or None."""
        return self.store.read(key.file_name, partial(load, key=key)) if self.store else None

    def _drawn(self, key: Key, ids: np.ndarray | None, read_again: bool = True) -> KeptLayer | DrawnLayer:
        """Draw a layer and keep it; `read_again` returns it from the store, if it was kept."""
        with loading_torch(self.notes):
            from embcli.weights.drawing import DrawnLayer
        layer = DrawnLayer(self.seeded, key.name)
        if self.store is not None:
            blocks = self._noting(layer.blocks(), key)
            self.store.write(key.file_name, key.file_bytes, lambda file: write(file, key, blocks, layer.build))
            if read_again and (kept := self._kept(key)) is not None:
                return kept
        if ids is not None:
            layer.hold(ids)
        return layer

    def _noting(self, blocks: Iterator[np.ndarray], key: Key) -> Iterator[np.ndarray]:
        """Yield the blocks of a layer, and say what is drawn once that has taken long."""
        start, is_noted = time.monotonic(), False
        for block in blocks:
            if not is_noted and time.monotonic() - start > PATIENCE:
                is_noted = True
                self.notes.slow(f"drawing a {key.name} layer of {key.shape[0]:,} x {key.shape[1]:,}, to be kept")
            yield block

    def _redrawn(self, key: Key, ids: np.ndarray | None, error: Damaged) -> Layer:
        """Draw a layer again whose kept file is damaged; the new file is not read, as it may be damaged, too."""
        self.notes.add(f"{key.file_name} was damaged ({error}); the layer is drawn again")
        return self._drawn(key, ids, read_again=False)


class _SeededLayer(Layer):
    """A kept or a drawn layer; a kept one that turns out to be damaged is drawn again."""

    dtype = "float32"

    def __init__(self, layer: KeptLayer | DrawnLayer, what: str, redraw: Callable[[Damaged], Layer]) -> None:
        self.shape, self.build = layer.shape, layer.build
        self._layer: Layer = layer
        self._description, self._redraw = what, redraw
        self._lock = Lock()

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32."""
        with explaining_shortage(self._description):
            layer = self._layer
            try:
                return layer.rows(ids)
            except Damaged as error:
                with self._lock:
                    if self._layer is layer:  # no other thread has redrawn it
                        self._layer = self._redraw(error)
            return self._layer.rows(ids)

    def parts(self) -> list[tuple[int, Iterator[np.ndarray]]]:
        """Return all blocks, in parts that may be read side by side; each with the ID of its first row."""
        return super().parts() if isinstance(self._layer, KeptLayer) else self._layer.parts()

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return the statistics of the whole matrix."""
        with explaining_shortage(self._description):
            return self._layer.summary(watch)
