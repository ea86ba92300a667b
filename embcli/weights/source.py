"""Where seeded layers come from: the one place that knows both the cache and the drawing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.weights import Layer, Weights

if TYPE_CHECKING:
    from embcli.weights.kept import Cache
    from embcli.weights.seeded import Seeded


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
                    from embcli.weights.drawing import Drawing

                    drawing = Drawing(self.spec)
                drawn = drawing.layer(name)
                kept = self.cache.keep(self.spec, drawn) if self.cache else None
                layers[name] = kept or drawn
            else:
                layers[name] = kept
        shapes = {name: list(self.shape(name)) for name in names}
        return Weights(layers, {"seed": self.spec.seed, "shapes": shapes, **layers[names[0]].origin})
