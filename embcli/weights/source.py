"""Where seeded layers come from: the one place that knows both the cache and the drawing."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from embcli.layer import Layer, Origin, Summary
from embcli.memory import told_when_it_runs_out
from embcli.notes import Notes
from embcli.passes import unwatched
from embcli.safe import note
from embcli.weights.build import NO_TORCH, Build, loading_torch, this_build
from embcli.weights.kept import Damaged, KeptLayer, Key

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

    from embcli.encodings import Encoding
    from embcli.passes import Watch
    from embcli.weights.cache import Cache
    from embcli.weights.drawing import Drawing, DrawnLayer
    from embcli.weights.seeded import Seeded


class SeededSource:
    """A seeded pair of layers: from the cache where it has them, otherwise drawn by torch.

    What is drawn is kept in the cache, if there is one and the layer is not too large for it. `encoding` is the one
    whose tokens the rows of the token layer stand for.
    """

    def __init__(self, seeded: Seeded, cache: Cache | None = None, encoding: Encoding | None = None) -> None:
        self.seeded = seeded
        self.cache = cache
        self.encoding = encoding
        self.notes = Notes()
        self.run: dict[str, Any] = {"seed": seeded.seed, "shapes": {}}
        self._drawing: Drawing | None = None

    @property
    def origin(self) -> Origin:
        """Where the numbers come from; complete once the layers are open."""
        build = {name: str(self.run[name]) for name in self.run if name not in ("seed", "shapes")}
        shapes = {name: (shape[0], shape[1]) for name, shape in self.run["shapes"].items()}
        return Origin(shapes, self.seeded.seed, build)

    def shape(self, name: str) -> tuple[int, int]:
        """Return the shape of the `token` or of the `position` layer, before any number is drawn."""
        return self.seeded.shape(name)

    def key(self, name: str, build: Build | None = None) -> Key:
        """Return what a layer is kept under, by default when this process draws it."""
        return Key(name, self.seeded, build or this_build())

    def open(self, wanted: Mapping[str, np.ndarray | None]) -> dict[str, Layer]:
        """Return the named layers; for each, the IDs that will be asked for, or None where that may be any.

        Raises LayerError where a layer must be drawn and torch does not load, or memory runs out.
        """
        build = self._build(tuple(wanted))
        return {name: self._opened(self.key(name, build), ids) for name, ids in wanted.items()}

    def _build(self, names: tuple[str, ...]) -> Build:
        """Return what these layers are drawn by: without torch, what drew the newest sound ones that are kept."""
        own = this_build()
        if own.torch != NO_TORCH or self.cache is None:
            return own
        for torch in self.cache.torches(self.key(names[0])):
            build = replace(own, torch=torch)
            layers = [self.cache.open(self.key(name, build)) for name in names]
            if all(layer is not None and _is_sound(layer) for layer in layers):
                version, _, _ = torch.rpartition("+")  # without the commit it was built from
                note(f"torch is not installed; these layers were kept when torch {version} drew them")
                return build
        return own

    def _opened(self, key: Key, ids: np.ndarray | None) -> Layer:
        rows, columns = key.shape
        what = f"a {key.name} layer of {rows:,} x {columns:,}"
        with told_when_it_runs_out(what):
            layer, origin = self._kept_or_drawn(key, ids)
        self.run["shapes"][key.name] = [rows, columns]
        if "torch" not in self.run:
            self.run |= origin
        return _SeededLayer(layer, what, partial(self._drawn_anew, key, ids))

    def _kept_or_drawn(self, key: Key, ids: np.ndarray | None) -> tuple[Layer, dict[str, str]]:
        kept = self.cache.open(key, hold=ids is not None) if self.cache else None
        if kept is not None:
            return kept, kept.origin
        drawn = self._draw(key.name)
        kept = self._keep(key, drawn, hold=ids is not None)
        return kept or _held(drawn, ids), drawn.origin

    def _drawn_anew(self, key: Key, ids: np.ndarray | None, error: Damaged) -> Layer:
        note(f"{key.file_name} was damaged ({error}); the layer is drawn anew")
        drawn = self._draw(key.name)
        self._keep(key, drawn)
        return _held(drawn, ids)

    def _draw(self, name: str) -> DrawnLayer:
        with loading_torch():
            from embcli.weights.drawing import Drawing
        self._drawing = self._drawing or Drawing(self.seeded)
        return self._drawing.layer(name)

    def _keep(self, key: Key, drawn: DrawnLayer, hold: bool = False) -> KeptLayer | None:
        return self.cache.keep(key, drawn.flat(), drawn.origin, hold) if self.cache else None


class _SeededLayer(Layer):
    """A kept or a drawn layer; a kept one that turns out to be damaged is drawn anew."""

    dtype = "float32"

    def __init__(self, layer: Layer, what: str, anew: Callable[[Damaged], Layer]) -> None:
        self.shape = layer.shape
        self._layer, self._what, self._anew = layer, what, anew

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32."""
        with told_when_it_runs_out(self._what):
            try:
                return self._layer.rows(ids)
            except Damaged as error:
                self._layer = self._anew(error)
            return self._layer.rows(ids)

    def parts(self) -> list[tuple[int, Iterator[np.ndarray]]]:
        """Return all blocks, in parts that may be read side by side; each with the ID of its first row."""
        return super().parts() if isinstance(self._layer, KeptLayer) else self._layer.parts()

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return what the whole matrix is like."""
        with told_when_it_runs_out(self._what):
            return self._layer.summary(watch)


def _held(drawn: DrawnLayer, ids: np.ndarray | None) -> Layer:
    from embcli.weights.drawing import HeldLayer

    return drawn if ids is None else HeldLayer(drawn, ids)


def _is_sound(layer: KeptLayer) -> bool:
    try:
        layer.check()
    except (OSError, Damaged):
        return False
    return True
