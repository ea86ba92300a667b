"""The weight matrix itself: chosen rows and columns of a layer, and what the whole layer is like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from embcli.records import Piece, Records
from embcli.selection import select
from embcli.tokens import token_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from embcli.encodings import Encoding
    from embcli.weights import Layer, Source, Summary

_PIECE = 1 << 18  # values that are worked on at a time


@dataclass(frozen=True)
class Matrix:
    """Rows and columns of a layer; the rows are read when they are asked for."""

    layer: Layer
    ids: np.ndarray  # (chosen rows,) int64
    columns: np.ndarray  # (chosen columns,) int64
    encoding: Encoding | None  # whose tokens the rows stand for; None where they stand for none
    run: dict[str, Any]

    @cached_property
    def summary(self) -> Summary:
        """What the whole layer is like."""
        return self.layer.summary()

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the layer, (n, chosen columns) float32."""
        return self.layer.rows(ids)[:, self.columns]

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return [self.encoding.token_bytes(row) if self.encoding else None for row in ids.tolist()]

    def fields(self, ids: np.ndarray) -> dict[str, Any]:
        """Return what a row says of itself: its ID, and its token where it stands for one."""
        fields: dict[str, Any] = {"id": ids}
        if self.encoding is not None:
            fields["token"] = [token_text(token) for token in self.tokens(ids)]
        return fields

    def pieces(self, names: tuple[str, ...]) -> Iterator[Piece]:
        """Yield the chosen rows in consecutive pieces."""
        step = max(_PIECE // self.layer.shape[1], 1)
        for start in range(0, len(self.ids), step):
            ids = self.ids[start : start + step]
            yield Piece(len(ids), partial(self.fields, ids), {name: self.rows(ids) for name in names})

    def records(self) -> Records:
        """Return the matrix as data: the ID and token of each row, and its values."""
        return Records(
            run=self.run,
            unit="rows",
            rows=len(self.ids),
            fields=("id", "token") if self.encoding else ("id",),
            matrices={self.layer.name: (len(self.ids), len(self.columns))},
            pieces=self.pieces,
            columns=tuple(self.columns.tolist()),
            default=self.layer.name,
        )


def matrix(
    source: Source, name: str, encoding: Encoding | None, rows: str | None = None, columns: str | None = None
) -> Matrix:
    """Return the `token` or the `position` layer of a source; `rows` and `columns` choose as in `0:5,100`.

    `encoding` is the one whose tokens the rows of the token layer stand for. Raises InputError for rows and columns out
    of range.
    """
    size, dim = source.shape(name)
    ids, chosen = select(rows, size, "row"), select(columns, dim, "column")
    tokens = encoding if name == "token" else None
    weights = source.open((name,))
    run = {"encoding": tokens.name if tokens else None, **weights.run}
    return Matrix(weights[name], ids, chosen, tokens, run)
