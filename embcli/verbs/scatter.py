"""The rows of a layer on the plane in which they differ most: the first two principal components."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from embcli import memory
from embcli.errors import InputError
from embcli.selection import select
from embcli.weights import shape_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embcli.encodings import Encoding
    from embcli.weights import Source

    Watch = Callable[[Iterable[np.ndarray], int, Callable[[np.ndarray], int]], Iterator[np.ndarray]]

_ROWS = 512  # that are multiplied at a time: adding up the products takes as long for one row as for all
_MATRICES = 4  # of (columns, columns) float64 that are held at a time


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
    if _MATRICES * 8 * len(places) ** 2 > memory.free():
        raise InputError(
            f"the covariance of {len(places):,} columns does not fit into memory; choose some by --columns"
        )
    layer = source.open({name: None})[name]
    spread = _Spread(len(places))
    for wide in _gathered(watch(layer.blocks(), size, len), places):
        spread.add(wide)
    mean, axes, explained = spread.plane()
    with np.errstate(invalid="ignore"):  # of rows that are not finite
        points = np.concatenate([(block[:, places] - mean) @ axes for block in watch(layer.blocks(), size, len)])
    points[~np.isfinite(points).all(axis=1)] = np.nan
    encoding = source.encoding if name == "token" else None
    return Scatter(name, (size, dim), len(places), points, explained, chosen, encoding)


def _gathered(blocks: Iterable[np.ndarray], places: np.ndarray) -> Iterator[np.ndarray]:
    """Yield these columns of the finite rows, many rows at a time, (n, columns) float64."""
    held: list[np.ndarray] = []
    for block in blocks:
        wide = block[:, places].astype(np.float64)
        held.append(wide[np.isfinite(wide).all(axis=1)])
        if sum(map(len, held)) >= _ROWS:
            yield np.concatenate(held)
            held = []
    if held:
        yield np.concatenate(held)


class _Spread:
    """The mean and the covariance of rows, summed up from near their mean so that no digits are lost."""

    def __init__(self, columns: int) -> None:
        self._count = 0
        self._origin: np.ndarray | None = None  # (columns,)
        self._sum = np.zeros(columns)
        self._products = np.zeros((columns, columns))

    def add(self, rows: np.ndarray) -> None:
        """Take in rows, (n, columns) float64, which are changed."""
        if not len(rows):
            return
        if self._origin is None:
            self._origin = rows.mean(axis=0)
        rows -= self._origin
        self._count += len(rows)
        self._sum += rows.sum(axis=0)
        self._products += rows.T @ rows

    def plane(self) -> tuple[np.ndarray, np.ndarray, tuple[float, float]]:
        """Return the mean, (columns,), the axes, (columns, 2), and the share of the variance along each of them."""
        if self._origin is None or self._count < 2:
            raise InputError("fewer than two rows are finite: they have no plane")
        self._products -= np.outer(self._sum, self._sum / self._count)
        values, vectors = np.linalg.eigh(self._products)
        total = values.sum()
        if not total > 0:
            raise InputError("all rows are equal: they have no plane")
        axes = vectors[:, :-3:-1]
        axes = axes * np.sign(np.take_along_axis(axes, np.abs(axes).argmax(axis=0)[None], axis=0))
        first, second = (max(float(value / total), 0.0) for value in values[:-3:-1])
        return self._origin + self._sum / self._count, axes, (first, second)
