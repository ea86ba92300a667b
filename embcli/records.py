"""A result as data: rows of fields and matrices, in pieces, that every data format is written from."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from embcli.names import __version__

if TYPE_CHECKING:
    import numpy as np

    from embcli.encodings import Encoding
    from embcli.errors import Watch

Names = tuple[str, ...]
FieldType = type[int | float | str | bool] | type[list[int]]
Values = Callable[["np.ndarray", Names], dict[str, Any]]
MOST_ROWS = 4096  # of a piece, so that memory does not grow with a result


class ArraySpec(NamedTuple):
    """The shape and type of a matrix that is not computed yet; its first dimension is the rows of the result."""

    shape: tuple[int, ...]
    dtype: str = "float32"  # as numpy names it
    columns: tuple[int, ...] = ()  # the numbers of its columns; empty for those of the result


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows: n values of each requested field, and (n, ...) of each requested matrix."""

    rows: int
    fields: dict[str, Any]  # name -> list or array
    matrices: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Records:
    """A result as data.

    `pieces` takes the names of fields and of matrices, computes only these, and yields all rows in order, as often as
    it is called. The arrays of a piece are valid until the next piece. `columns` are the numbers of the matrices'
    columns, `default` is the matrix for formats that hold one, and `sequences` the number of sequences. A JSON document
    has `more` beside the rows. `lines` yields the objects of ndjson, if they are not the rows.
    """

    run: dict[str, Any]
    unit: str  # the name of the rows in a JSON document: "tokens", "neighbors"
    rows: int
    fields: Mapping[str, FieldType]  # name -> type; None stands for a missing value of any type
    pieces: Callable[[Names, Names], Iterator[Piece]]
    matrices: dict[str, ArraySpec] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    default: str | None = None
    shown: Names | None = None  # the matrices that the user chose; None for all
    sequences: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    lines: Callable[[Watch], Iterator[dict[str, Any]]] | None = None

    def numbers(self, names: Names) -> int:
        """Return how many numbers there are in some matrices, or in the fields if there are no matrices."""
        if not names:
            return self.rows * len(self.fields)
        return sum(math.prod(self.matrices[name].shape) for name in names)

    @property
    def several(self) -> Names:
        """The matrices of a format that holds several."""
        return tuple(name for name in self.matrices if self.shown is None or name in self.shown)

    @property
    def one(self) -> Names:
        """The matrix of a format that holds one; none if the result has none."""
        return self.shown[:1] if self.shown else () if self.default is None else (self.default,)


def run_of(encoding: Encoding | None, **more: Any) -> dict[str, Any]:
    """Return the `run` of a result: embcli's version, the encoding of its tokens or rows, if any, and more."""
    return {"embcli": __version__, "encoding": encoding.name if encoding else None, **more}


def listed(run: dict[str, Any], unit: str, /, **fields: tuple[FieldType, Any]) -> Records:
    """Return the records of rows that are in memory, from the type and the values of each field."""
    rows = len(next(iter(fields.values()))[1])

    def pieces(names: Names, _: Names) -> Iterator[Piece]:
        yield Piece(rows, {name: fields[name][1] for name in names})

    return Records(run, unit, rows, {name: kind for name, (kind, _) in fields.items()}, pieces)


def in_pieces(
    rows: int, width: int, values: Values, matrix_values: Values | None = None, most: int = 1 << 18
) -> Callable[[Names, Names], Iterator[Piece]]:
    """Return the `pieces` of a result whose rows can be computed in any order.

    `values` returns at least the named fields and matrices of rows, (n,) int64; `matrix_values` the matrices, if given.
    `width` is the numbers of a row that are computed, `most` those of a piece.
    """
    import numpy as np

    step = min(max(most // max(width, 1), 1), MOST_ROWS)

    def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
        for start in range(0, rows, step):
            index = np.arange(start, min(start + step, rows))
            columns = values(index, fields if matrix_values else (*fields, *matrices))
            arrays = matrix_values(index, matrices) if matrix_values and matrices else columns
            yield Piece(
                len(index),
                {name: columns[name] for name in fields},
                {name: arrays[name] for name in matrices},
            )

    return pieces
