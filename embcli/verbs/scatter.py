"""The rows of a layer as points on a plane: their first two principal components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from embcli.encodings import Encoding
from embcli.errors import InputError
from embcli.layer import Origin, Source, shape_of
from embcli.passes import Watch, unwatched
from embcli.records import Array, Names, Records, in_pieces, run_of
from embcli.result import Drawing
from embcli.selection import select
from embcli.statistics import Covariance, refuse_covariance
from embcli.tokens import token_text, tokens_of

_PIECE = 4096  # rows written at a time


@dataclass(frozen=True, eq=False)
class Scatter(Drawing, verb="scatter", content="drawing"):
    """The rows of a layer as points on a plane."""

    name: str  # "token" or "position"
    shape: tuple[int, int]
    columns: int  # number of columns used
    points: np.ndarray  # (rows, 2) float64; NaN for a row that is not finite
    explained: tuple[float, float]  # share of the variance along each axis, from 0 to 1
    chosen: np.ndarray | None  # (n,) int64, the rows that the user chose
    encoding: Encoding | None  # whose tokens the rows stand for
    origin: Origin
    run: dict[str, Any]

    def records(self) -> Records:
        """Return the points as data, with the ID and the token of each row."""
        fields = {"id": int, "token": str} if self.encoding else {"id": int}
        pieces = in_pieces(self.shape[0], _PIECE, self._values)
        arrays = {"points": Array(self.points.shape, "float64")}
        return Records(self.run, "rows", self.shape[0], fields, pieces, arrays, default="points")

    def _values(self, ids: np.ndarray, names: Names) -> dict[str, Any]:
        tokens = list(map(token_text, tokens_of(ids, self.encoding))) if "token" in names else []
        return {"id": ids, "token": tokens, "points": self.points[ids]}


def scatter(
    source: Source, layer: str, rows: str | None = None, columns: str | None = None, watch: Watch = unwatched
) -> Scatter:
    """Return the rows of the `token` or `position` layer of a source on the plane of their largest variance.

    The axes are eigenvectors of the covariance of the columns, in float64, each with a positive largest component.
    `watch` counts the rows of two passes. Raises InputError for a layer without such a plane.
    """
    size, dim = shape_of(source, layer)
    chosen, used = select(rows, size, "row") if rows is not None else None, select(columns, dim, "column")
    if min(size, len(used)) < 2:
        raise InputError(f"a plane needs at least two rows and two columns, got {size:,} x {len(used):,}")
    refuse_covariance(len(used), "choose some with columns", "columns")
    layers = source.open({layer: None})
    matrix = layers[layer]
    covariance = Covariance(len(used))
    for block in watch(matrix.blocks(), size, len):
        covariance.add(_finite(block, used))
    mean, (axes, explained) = covariance.mean(), _plane(covariance)
    with np.errstate(invalid="ignore"):  # of rows that are not finite
        points = np.concatenate([(block[:, used] - mean) @ axes for block in watch(matrix.blocks(), size, len)])
    points[~np.isfinite(points).all(axis=1)] = np.nan
    encoding = source.encoding if layer == "token" else None
    return Scatter(
        name=layer,
        shape=(size, dim),
        columns=len(used),
        points=points,
        explained=explained,
        chosen=chosen,
        encoding=encoding,
        origin=layers.origin,
        run=run_of(encoding, **layers.origin.document()),
        notes=source.notes,
    )


def _finite(block: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return some columns of the finite rows of a block, (n, columns) float64."""
    exact = block[:, columns].astype(np.float64)
    finite: np.ndarray = exact[np.isfinite(exact).all(axis=1)]
    return finite


def _plane(covariance: Covariance) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the axes, (columns, 2), and the share of the variance along each."""
    matrix = covariance.matrix()
    if covariance.count < 2:
        raise InputError("a plane needs at least two finite rows")
    values, vectors = np.linalg.eigh(matrix)
    total = values.sum()
    if not total > 0:
        raise InputError("a plane needs different rows; all rows are equal")
    axes = vectors[:, :-3:-1]
    axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
    first, second = (max(float(value / total), 0.0) for value in values[:-3:-1])
    return axes, (first, second)
