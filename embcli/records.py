"""A finished result as data: rows of fields and of float32 vectors, in pieces, from which every format is written."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy as np


@dataclass(frozen=True)
class Piece:
    """Consecutive rows: n values of each field, and (n, columns) float32 of each matrix.

    The fields are worked out when they are asked for: some formats hold none.
    """

    rows: int
    fields: Callable[[], dict[str, Any]]
    matrices: dict[str, np.ndarray]


@dataclass(frozen=True)
class Records:
    """A result as data.

    `pieces` takes the names of the matrices that are wanted and yields all rows in order; it may be called again.
    `columns` are the numbers of the columns that the matrices hold. `default` is the matrix that a format with room for
    just one of them holds. `more` stands beside the rows in a JSON document.
    """

    run: dict[str, Any]
    unit: str  # what a row is: "tokens" or "rows"
    rows: int
    fields: tuple[str, ...]
    matrices: dict[str, tuple[int, int]]  # name -> (rows, columns)
    pieces: Callable[[tuple[str, ...]], Iterator[Piece]]
    columns: tuple[int, ...] = ()
    default: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    @property
    def forms(self) -> tuple[str, ...]:
        """The formats that this result can be written in."""
        arrays = ("npy", "safetensors") if self.matrices or "id" in self.fields else ()
        ids = ("ids",) if "id" in self.fields and not self.matrices else ()
        return ("table", "json", "ndjson", "csv", "tsv", *arrays, *ids)
