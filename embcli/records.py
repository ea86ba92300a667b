"""A result as data: rows of fields and matrices, in pieces.

Every verb makes `Records` of its result, and every data format is written from them. Rows are
computed as they are read, so that a result can be larger than memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from embcli.names import Shape, __version__

if TYPE_CHECKING:
    import numpy as np

    from embcli.encodings import Encoding
    from embcli.wording import Sentence

Names = tuple[str, ...]
Columns = dict[str, Any]  # by name, the values of some rows: a list or an array
Document = dict[str, Any]  # an object of a JSON document


FieldType = type[int | float | str | bool] | type[list[int]] | type[dict[str, int]]
FieldTypes = dict[str, FieldType]  # by the names of fields
TypedValues = tuple[FieldType, Any]  # a type, and the values of some rows
Values = Callable[["np.ndarray", Names], Columns]
MOST_ROWS = 4096  # the most rows of a piece, so that memory does not grow with a result


class ArraySpec(NamedTuple):
    """The shape and type of a matrix that is not computed yet.

    Its first dimension is the rows of the result.
    """

    shape: Shape
    dtype: str = "float32"  # numpy's name of it
    columns: tuple[int, ...] = ()  # the numbers of its columns; empty for those of the result


@dataclass(frozen=True, eq=False)
class Piece:
    """Consecutive rows: n values of each requested field, and (n, ...) of each requested matrix."""

    rows: int
    fields: Columns
    matrices: dict[str, np.ndarray] = field(default_factory=dict)


ReadPieces = Callable[[Names, Names], Iterator[Piece]]


@dataclass(frozen=True, eq=False)
class Records:
    """A result as data.

    `pieces` takes the names of fields and of matrices, computes only these, and yields all rows in
    order, as often as it is called. The arrays of a piece are valid until the next piece. `columns`
    are the numbers of the matrices' columns, `default` is the matrix for formats that hold one, and
    `sequences` the number of sequences. `batch` is (B, T) if the rows are the tokens of a batch,
    which arrays have in this shape. A JSON document has `more` beside the rows. `cells` are the
    records of formats of cells, if these have other rows.
    """

    run: Document
    unit: str  # the name of the rows in a JSON document: "tokens", "neighbors"
    rows: int
    fields: Mapping[str, FieldType]  # name -> type; None stands for a missing value of any type
    pieces: ReadPieces
    matrices: dict[str, ArraySpec] = field(default_factory=dict)
    columns: tuple[int, ...] = ()
    default: str | None = None
    default_remark: str | Sentence = ""  # on the default, when nothing else was chosen
    shown: Names | None = None  # the matrices that the user chose; None for all
    sequences: int = 1
    batch: Shape = ()
    more: Document = field(default_factory=dict)
    cells: Records | None = None

    def shape(self, array: ArraySpec) -> Shape:
        """Return the shape of an array whose first dimension is the rows, or B and T."""
        if not self.batch:
            return array.shape
        return *self.batch, *array.shape[1:]

    def column_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of the columns of a matrix."""
        array = self.matrices[name]
        return array.columns or self.columns or range(array.shape[1])

    @property
    def several(self) -> Names:
        """The matrices of a format that holds several."""
        shown = self.shown or self.matrices
        return tuple(name for name in self.matrices if name in shown)

    @property
    def one(self) -> Names:
        """The matrix of a format that holds one; none if the result has none."""
        if self.shown:
            return self.shown[:1]
        return () if self.default is None else (self.default,)


def run_of(encoding: Encoding | None, **more: Any) -> Document:
    """Return the `run` of a result.

    It has embcli's version, the encoding of the result's tokens or rows, if any, and more.
    """
    return {"embcli": __version__, "encoding": encoding.name if encoding else None, **more}


def listed(run: Document, unit: str, /, **fields: TypedValues) -> Records:
    """Return the records of rows that are in memory, from the type and the values of each field."""
    types = {name: field_type for name, (field_type, _) in fields.items()}
    _, first = next(iter(fields.values()))
    rows = len(first)

    def pieces(names: Names, _: Names) -> Iterator[Piece]:
        yield Piece(rows, {name: fields[name][1] for name in names})

    return Records(run, unit, rows, types, pieces)


def in_pieces(
    rows: int, width: int, values: Values, matrix_values: Values | None = None, size: int = 1 << 18
) -> ReadPieces:
    """Return the `pieces` of a result whose rows can be computed in any order.

    `values` takes rows, (n,) int64, and returns at least the named fields and matrices; if
    `matrix_values` is given, it returns the matrices. `width` is how many numbers of a row are
    computed, `size` how many of a piece, if a row has no more.
    """
    import numpy as np

    fitting_rows = max(size // max(width, 1), 1)
    step = min(fitting_rows, MOST_ROWS)

    def pieces(fields: Names, matrices: Names) -> Iterator[Piece]:
        for start in range(0, rows, step):
            index = np.arange(start, min(start + step, rows))
            found = values(index, fields)
            columns = {name: found[name] for name in fields}
            if matrices:
                found = (matrix_values or values)(index, matrices)
            yield Piece(len(index), columns, {name: found[name] for name in matrices})

    return pieces
