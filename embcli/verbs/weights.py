"""The weight matrix itself: chosen rows and columns of a layer, and what the whole layer is like."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from embcli.layer import run_of, shape_of
from embcli.passes import unwatched
from embcli.records import Array, Names, Piece, Records, refuse_too_many
from embcli.selection import select
from embcli.tokens import token_text, tokens_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np

    from embcli.encodings import Encoding
    from embcli.layer import Layer, Source, Summary
    from embcli.passes import Watch

_PIECE = 1 << 18  # values that are worked on at a time


@dataclass(frozen=True)
class Matrix:
    """Rows and columns of a layer; the rows are read when they are asked for."""

    name: str  # "token" or "position"
    layer: Layer
    ids: np.ndarray  # (chosen rows,) int64
    columns: np.ndarray  # (chosen columns,) int64
    encoding: Encoding | None  # whose tokens the rows stand for; None where they stand for none
    run: dict[str, Any]
    rows_chosen: bool = False  # by the user
    columns_chosen: bool = False
    watch: Watch = unwatched  # told of a long pass

    @cached_property
    def summary(self) -> Summary:
        """What the whole layer is like."""
        return self.layer.summary(self.watch)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the layer, (n, chosen columns) float32."""
        return self.layer.rows(ids)[:, self.columns]

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        """Yield the chosen rows in consecutive pieces, with the named fields and matrices."""
        step = max(_PIECE // self.layer.shape[1], 1)
        for start in range(0, len(self.ids), step):
            ids = self.ids[start : start + step]
            values = {name: self._field(name, ids) for name in fields}
            yield Piece(len(ids), values, {name: self.rows(ids) for name in matrices})

    def _field(self, name: str, ids: np.ndarray) -> Any:
        return ids if name == "id" else [token_text(token) for token in self.tokens(ids)]

    def records(self) -> Records:
        """Return the matrix as data: the ID and token of each row, and its values."""
        return Records(
            run=self.run,
            unit="rows",
            rows=len(self.ids),
            fields={"id": int, "token": str} if self.encoding else {"id": int},
            pieces=self.pieces,
            matrices={self.name: Array((len(self.ids), len(self.columns)))},
            columns=tuple(self.columns.tolist()),
            default=self.name,
        )


def matrix(
    source: Source,
    name: str,
    rows: str | None = None,
    columns: str | None = None,
    room: int | None = None,
    watch: Watch = unwatched,
) -> Matrix:
    """Return the `token` or the `position` layer of a source; `rows` and `columns` choose as in `0:5,100`.

    Raises InputError for rows and columns out of range, and OutputError for more numbers than there is room for.
    """
    size, dim = shape_of(source, name)
    ids, chosen = select(rows, size, "row"), select(columns, dim, "column")
    refuse_too_many(len(ids) * len(chosen), room)
    encoding = source.encoding if name == "token" else None
    layer = source.open({name: None})[name]
    return Matrix(
        name, layer, ids, chosen, encoding, run_of(source, encoding), rows is not None, columns is not None, watch
    )
