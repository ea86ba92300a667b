"""The weight matrix itself: chosen rows and columns of a layer, and a summary of the whole layer."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from embcli.encodings import Encoding
from embcli.layer import Layer, Origin, Source, Summary, shape_of
from embcli.names import Sort
from embcli.passes import Watch, unwatched
from embcli.records import Array, FieldType, Names, Records, in_pieces, run_of
from embcli.result import MatrixOf, Result
from embcli.selection import select
from embcli.statistics import NormOrder, norm_order
from embcli.tokens import token_text, tokens_of

_PIECE = 1 << 18  # values processed at a time
_SCATTERED = 1 << 22  # values of rows in no order that are read at a time: a layer that is drawn is drawn for each read


@dataclass(frozen=True, eq=False)
class WeightMatrix(Result, verb="weights", content="embeddings"):
    """Rows and columns of a layer; the rows are read when they are used."""

    name: str  # "token" or "position"
    layer: Layer
    ids: np.ndarray  # (chosen rows,) int64
    columns: np.ndarray  # (chosen columns,) int64
    encoding: Encoding | None  # whose tokens the rows stand for; None if they stand for no tokens
    origin: Origin
    run: dict[str, Any]
    rows_chosen: bool  # by the user
    columns_chosen: bool
    watch: Watch  # counts the rows of a pass over the whole layer
    order: NormOrder | None = None  # of all rows of the layer, if the chosen ones are in it
    token = MatrixOf()  # (n, chosen columns) float32, if it is that layer
    position = MatrixOf()  # (n, chosen columns) float32

    @cached_property
    def summary(self) -> Summary:
        """The mean, standard deviation, minimum and maximum of the whole layer."""
        return self.order.summary if self.order else self.layer.summary(self.watch)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows of the layer, (n, chosen columns) float32."""
        return self.layer.rows(ids)[:, self.columns]

    def tokens(self, ids: np.ndarray) -> list[bytes | None]:
        """Return the bytes of the token that each row stands for."""
        return tokens_of(ids, self.encoding)

    def records(self) -> Records:
        """Return the matrix as data: the ID and token of each row, if sorted its norm and rank, and its values."""
        token: dict[str, FieldType] = {"token": str} if self.encoding else {}
        rank: dict[str, FieldType] = {"norm": float, "rank": int} if self.order else {}
        return Records(
            run=self.run,
            unit="rows",
            rows=len(self.ids),
            fields={"id": int, **token, **rank},
            pieces=in_pieces(
                len(self.ids),
                max((_SCATTERED if self.order else _PIECE) // self.layer.shape[1], 1),
                self._fields,
                lambda places, names: dict.fromkeys(names, self.rows(self.ids[places])),
            ),
            matrices={self.name: Array((len(self.ids), len(self.columns)))},
            columns=tuple(self.columns.tolist()),
            default=self.name,
        )

    def _fields(self, places: np.ndarray, names: Names) -> dict[str, Any]:
        """Return the named fields of the rows at these places, (n,) int64."""
        ids = self.ids[places]
        values: dict[str, Any] = {"id": ids}
        if "token" in names:
            values["token"] = list(map(token_text, self.tokens(ids)))
        if self.order:
            values |= {"norm": self.order.norms[ids], "rank": self.order.ranks[ids]}
        return values


def weights(
    source: Source,
    layer: str,
    rows: str | None = None,
    columns: str | None = None,
    watch: Watch = unwatched,
    sort: Sort = "id",
) -> WeightMatrix:
    """Return the `token` or `position` layer of a source; `rows` and `columns` choose as in `0:5,100`.

    With `sort` by norm the rows are in the order of their norms, from a pass over the whole layer; see NormOrder.
    Raises InputError for rows and columns out of range.
    """
    size, dim = shape_of(source, layer)
    encoding = source.encoding if layer == "token" else None
    ids, chosen = select(rows, size, "row"), select(columns, dim, "column")
    layers = source.open({layer: None})
    order = norm_order(layers[layer], watch) if sort == "norm" else None
    if order is not None:
        ids = order.ids if rows is None else ids[np.argsort(order.ranks[ids], kind="stable")]
    return WeightMatrix(
        name=layer,
        layer=layers[layer],
        ids=ids,
        columns=chosen,
        encoding=encoding,
        origin=layers.origin,
        run=run_of(encoding, **layers.origin.document()),
        rows_chosen=rows is not None,
        columns_chosen=columns is not None,
        watch=watch,
        order=order,
        notes=source.notes,
    )
