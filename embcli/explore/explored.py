"""What the screens read of a model: rows, tokens, norms, and neighbours; and its command lines.

All screens share one ExploredMatrix. It knows nothing of a terminal; the passes over the whole
matrix that it starts are run in a thread by `view`.
"""

from __future__ import annotations

import shlex
from typing import Any

import numpy as np
from rich.text import Text

from embcli.binary import UNCOMPRESSED
from embcli.errors import InputError, Notes, Watch
from embcli.layer import shape_of
from embcli.names import Metric, TokenLayer
from embcli.numerics.search import Ranking
from embcli.numerics.statistics import NormOrder
from embcli.opened import Opened
from embcli.selection import select
from embcli.tokens import resolve_rows, shown, tokens_of
from embcli.verbs.neighbors import neighbors

TOP = 50  # the most neighbours, or words, in a list


class ExploredMatrix:
    """The token matrix of a model or its output head, with its rows by ID or norm.

    It lives as long as the app. The order by norm is None until a pass has found it.
    """

    def __init__(
        self,
        model: Opened,
        path: str | None,
        options: dict[str, Any],
        layer: TokenLayer = "token",
    ) -> None:
        self.size, self.dim = shape_of(model.source, layer)
        layers = model.source.open({layer: None}, Notes())
        self.model = model
        self.path = path  # of the model; None for a seeded one
        self.options = options  # of commands for this matrix, by their names
        self.layer_name = layer
        self.layer = layers[layer]
        origin = layers.origin
        if origin.is_streamed:
            raise InputError(
                "explore reads rows again and again, and this array is compressed: "
                f"{origin.name!r}",
                UNCOMPRESSED,
            )
        self.encoding = model.source.encoding
        self.name = origin.name
        if origin.is_seeded:
            self.name = f"untrained, {origin.name}"
        if layer == "head":
            self.name = f"output head of {self.name}"
        self.order: NormOrder | None = None
        self.by_norm = False

    def ids(self, start: int, stop: int) -> np.ndarray:
        """Return the IDs of the rows at these places, (n,) int64."""
        if self.by_norm and self.order:
            return self.order.ids[start:stop]
        return np.arange(start, min(stop, self.size))

    def place(self, row: int) -> int:
        """Return the place of a row by its ID."""
        if self.by_norm and self.order:
            return int(self.order.ranks[row]) - 1
        return row

    def row(self, row: int) -> np.ndarray:
        """Return the values of a row, (D,) float32."""
        return self.layer.rows(np.array([row])).ravel()

    def tokens(self, ids: np.ndarray) -> list[str]:
        return [shown(token) for token in tokens_of(ids, self.encoding)]

    def nearest(self, row: int, metric: Metric, watch: Watch) -> Ranking:
        """Return the rows nearest to a row."""
        notes = Notes()
        notes.watch = watch
        model = Opened(self.model.source, self.model.encoding, notes)
        found = neighbors(model, np.array([row]), layer=self.layer_name, metric=metric, top=TOP)
        return found.search.rankings[0]

    def spell(self, verb: str, *words: str) -> str:
        """Return the command line of a verb for this matrix."""
        line = ["embcli", verb]
        if self.path is not None:
            line += [self.path] if verb == "weights" else ["--from", self.path]
        for name, value in self.options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                line.append(flag)
            elif value is not None and value is not False:
                line += [flag, str(value)]
        return shlex.join([*line, *words])

    def row_of(self, text: str) -> int:
        """Return the ID of the row that a text names, by its ID or its token.

        Raises InputError if no row has it.
        """
        rows = resolve_rows(text, self.model.encoding, self.size, Notes())
        return int(select(rows, self.size, "row")[0])


def fitted(text: str, cells: int) -> str:
    """Return a text in as many cells: padded, or with an ellipsis if it is longer."""
    line = Text(text)
    line.truncate(cells, overflow="ellipsis", pad=True)
    return line.plain
