"""The rows of a layer on the plane in which they differ most: the first two principal components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embcli.errors import InputError
from embcli.layer import shape_of
from embcli.selection import select
from embcli.weights.statistics import Covariance, refuse_covariance

if TYPE_CHECKING:
    from embcli.encodings import Encoding
    from embcli.layer import Source
    from embcli.passes import Watch


@dataclass(frozen=True)
class Scatter:
    """Where the rows of a layer lie on a plane."""

    name: str  # "token" or "position"
    shape: tuple[int, int]
    columns: int  # of the layer that count
    points: np.ndarray  # (rows, 2) float64; NaN for a row that is not finite
    explained: tuple[float, float]  # the share of the variance along each axis, from 0 to 1
    chosen: np.ndarray | None  # (n,) int64, the rows that the user named
    encoding: Encoding | None  # whose tokens the rows stand for


def scatter(source: Source, name: str, rows: str | None, columns: str | None, watch: Watch) -> Scatter:
    """Return the rows of the `token` or the `position` layer of a source on the plane of their largest variance.

    The axes are eigenvectors of the covariance of the columns, in float64, each with its largest component above zero.
    Both passes over the layer go through `watch`. Raises InputError for a layer that has no such plane.
    """
    size, dim = shape_of(source, name)
    chosen, places = select(rows, size, "row") if rows is not None else None, select(columns, dim, "column")
    if min(size, len(places)) < 2:
        raise InputError(f"{size:,} x {len(places):,} numbers have no plane; it takes two rows and two columns")
    refuse_covariance(len(places), "choose some by --columns")
    layer = source.open({name: None})[name]
    covariance = Covariance(len(places))
    for block in watch(layer.blocks(), size, len):
        covariance.add(_finite(block, places))
    mean, (axes, explained) = covariance.mean(), _plane(covariance)
    with np.errstate(invalid="ignore"):  # of rows that are not finite
        points = np.concatenate([(block[:, places] - mean) @ axes for block in watch(layer.blocks(), size, len)])
    points[~np.isfinite(points).all(axis=1)] = np.nan
    encoding = source.encoding if name == "token" else None
    return Scatter(name, (size, dim), len(places), points, explained, chosen, encoding)


def _finite(block: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Return these columns of the finite rows of a block, (n, columns) float64."""
    wide = block[:, places].astype(np.float64)
    found: np.ndarray = wide[np.isfinite(wide).all(axis=1)]
    return found


def _plane(covariance: Covariance) -> tuple[np.ndarray, tuple[float, float]]:
    """Return the axes, (columns, 2), and the share of the variance along each of them."""
    matrix = covariance.matrix()
    if covariance.count < 2:
        raise InputError("fewer than two rows are finite: they have no plane")
    values, vectors = np.linalg.eigh(matrix)
    total = values.sum()
    if not total > 0:
        raise InputError("all rows are equal: they have no plane")
    axes = vectors[:, :-3:-1]
    axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
    first, second = (max(float(value / total), 0.0) for value in values[:-3:-1])
    return axes, (first, second)
