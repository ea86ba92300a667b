"""A finished result as data: rows of fields and of matrices, in pieces, from which every data format is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    import numpy as np

Names = tuple[str, ...]
FieldType = type[int | float | str | bool] | type[list[int]]


@dataclass(frozen=True, eq=False)
class Array:
    """What a matrix is before it is there; its first dimension is the rows of the result."""

    shape: tuple[int, ...]
    dtype: str = "float32"  # as numpy names it
    columns: tuple[int, ...] = ()  # their numbers; empty for those that the result names


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows: n values of each field, and (n, ...) of each matrix, that were asked for."""

    rows: int
    fields: dict[str, Any]  # name -> list or array
    matrices: dict[str, np.ndarray] = field(default_factory=dict)


@dataclass(frozen=True, eq=False)
class Records:
    """A result as data.

    `pieces` takes the names of the fields and those of the matrices that are wanted, works out no others, and yields
    all rows in order; it may be called again. A piece's arrays are valid until the next piece. `columns` are the
    numbers of the columns that the matrices hold. `default` is the matrix that a format with room for just one of them
    holds. `sequences` is how many sequences the rows are of. `more` stands beside the rows in a JSON document. `lines`
    is the result as ndjson has it, where a line of that is something else than a row.
    """

    run: dict[str, Any]
    unit: str  # what its rows are: "tokens", "neighbors"; their list has this name in a JSON document
    rows: int
    fields: Mapping[str, FieldType]  # name -> type; None stands for a missing value of any type
    pieces: Callable[[Names, Names], Iterator[Piece]]
    matrices: dict[str, Array] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    default: str | None = None
    shown: Names | None = None  # the matrices that the user chose; None for all
    sequences: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    lines: Records | None = None

    @property
    def several(self) -> Names:
        """The matrices that a format with room for many holds."""
        return tuple(name for name in self.matrices if self.shown is None or name in self.shown)

    @property
    def one(self) -> Names:
        """The matrix that a format with room for one holds; none if the result has none."""
        return self.shown[:1] if self.shown else () if self.default is None else (self.default,)


def listed(run: dict[str, Any], unit: str, types: Mapping[str, FieldType], fields: dict[str, list[Any]]) -> Records:
    """Return rows that are all there, as data."""
    rows = len(next(iter(fields.values())))

    def pieces(names: Names, _: Names) -> Iterator[Piece]:
        yield Piece(rows, {name: fields[name] for name in names})

    return Records(run, unit, rows, types, pieces)


def in_pieces(
    rows: int, step: int, values: Callable[[np.ndarray, Names], dict[str, Any]]
) -> Callable[[Names, Names], Iterator[Piece]]:
    """Return the `pieces` of a result whose rows can be computed in any order, `step` of them at a time.

    `values` returns the named fields and matrices of rows, (n,) int64; it may return others too.
    """
    import numpy as np

    def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
        for start in range(0, rows, step):
            index = np.arange(start, min(start + step, rows))
            found = values(index, (*fields, *matrices))
            yield Piece(len(index), {name: found[name] for name in fields}, {name: found[name] for name in matrices})

    return pieces
