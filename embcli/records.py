"""A finished result as data: rows of fields and of matrices, in pieces, from which every data format is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from embcli.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np

Names = tuple[str, ...]


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
    is the result as ndjson has it, where a line of that is something else than a row. `kinds` are the types of fields
    that are not whole numbers, for a format that has to know them; a token is text.
    """

    run: dict[str, Any]
    unit: str  # what its rows are: "tokens", "neighbors"; their list has this name in a JSON document
    rows: int
    fields: tuple[str, ...]
    pieces: Callable[[Names, Names], Iterator[Piece]]
    matrices: dict[str, Array] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    default: str | None = None
    sequences: int = 1
    more: dict[str, Any] = field(default_factory=dict)
    lines: Records | None = None
    kinds: dict[str, type[str | float | bool]] = field(default_factory=dict)


def refuse_too_many(numbers: int, room: int | None) -> None:
    """Raise OutputError for a matrix of more numbers than there is room for."""
    if room is not None and numbers > room:
        raise OutputError(f"{numbers:,} numbers are too many for a terminal; name a file with -o, or pipe them on")


def listed(run: dict[str, Any], unit: str, fields: dict[str, list[Any]]) -> Records:
    """Return rows that are all there, as data."""
    rows = len(next(iter(fields.values())))

    def pieces(names: Names, _: Names) -> Iterator[Piece]:
        yield Piece(rows, {name: fields[name] for name in names})

    return Records(run, unit, rows, tuple(fields), pieces)
