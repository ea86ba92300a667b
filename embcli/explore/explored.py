"""What the screens read of a model: rows in blocks, tokens, norms, and neighbours."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

import numpy as np
from rich.text import Text

from embcli.errors import InputError, Watch
from embcli.model import Model
from embcli.names import Metric
from embcli.numerics.statistics import NormOrder
from embcli.selection import select
from embcli.tokens import shown, tokens_of

TOP = 50  # neighbours, and words
_BLOCK_VALUES, _BLOCK_ROWS, _BLOCKS = 1 << 18, 64, 16
Spell = Callable[
    ..., str
]  # writes the command line of a verb, of more words, and perhaps of a `text`


class ExploredMatrix:
    """The token matrix of a model, its rows by ID or by norm, and the marked row."""

    def __init__(self, model: Model, spell: Spell) -> None:
        layers = model.source.open({"token": None})
        self.model, self.spell = model, spell
        self.layer, self.origin, self.encoding = (
            layers["token"],
            layers.origin,
            model.source.encoding,
        )
        self.name = f"untrained, {self.origin.name}" if self.origin.is_seeded else self.origin.name
        self.size, self.dim = self.layer.shape
        self.order: NormOrder | None = None
        self.marked: int | None = None
        self._step = min(max(_BLOCK_VALUES // self.dim, 1), _BLOCK_ROWS)
        self._block = lru_cache(_BLOCKS)(self._read)

    def ids(self, start: int, stop: int, by_norm: bool) -> np.ndarray:
        return (
            self.order.ids[start:stop]
            if by_norm and self.order
            else np.arange(start, min(stop, self.size))
        )

    def rows(self, start: int, stop: int, by_norm: bool) -> np.ndarray:
        """Return the rows at these places, (n, D) float32, from blocks that are kept for a while."""
        first, last = start // self._step, -(-min(stop, self.size) // self._step)
        blocks = np.concatenate([self._block(number, by_norm) for number in range(first, last)])
        return blocks[start - first * self._step : stop - first * self._step]

    def _read(self, number: int, by_norm: bool) -> np.ndarray:
        return np.array(
            self.layer.rows(self.ids(number * self._step, (number + 1) * self._step, by_norm))
        )

    def row(self, row: int) -> np.ndarray:
        return np.asarray(self.layer.rows(np.array([row]))[0])

    def token(self, row: int, cells: int) -> str:
        return fitted(self.tokens(np.array([row]))[0], cells).rstrip()

    def tokens(self, ids: np.ndarray) -> list[str]:
        return [shown(token) for token in tokens_of(ids, self.encoding)]

    def nearest(self, row: int, metric: Metric, watch: Watch) -> tuple[np.ndarray, np.ndarray]:
        model = Model(self.model.source, self.model.encoding, watch=watch)
        found = model.neighbors(np.array([row]), metric=metric, top=TOP)
        return found.ids, found.scores

    def row_of(self, text: str) -> int:
        """Return the ID of a row that is named by its ID or its token; raises InputError if there is none."""
        if re.fullmatch("[0-9]+", text.strip()):
            return int(select(text.strip(), self.size, "row")[0])
        if self.model.encoding is None:
            raise InputError(f"{text[:40]!r} is not a row; give its ID")
        for token in (text, f" {text}"):
            ids = self.model.encoding.encode(token)
            if len(ids) == 1 and int(ids[0]) < self.size:
                return int(ids[0])
        raise InputError(f"{text[:40]!r} is not a row; give its ID or its token (/ finds rows)")


def fitted(text: str, cells: int) -> str:
    """Return a text in as many cells: padded, or with an ellipsis if it is longer."""
    line = Text(text)
    line.truncate(cells, overflow="ellipsis", pad=True)
    return line.plain
