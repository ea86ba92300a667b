"""Results as data: json, ndjson, csv, tsv, npy, safetensors, parquet, IDs, files for the projector, a piece at a time.

Numbers are the shortest decimals that give the same float32 back; orjson finds them.
"""

from __future__ import annotations

import math
import re
from copy import copy
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson

from embcli.errors import OutputError
from embcli.page.progress import watched
from embcli.records import Array, Piece
from embcli.safe import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from embcli.names import Format
    from embcli.records import Names, Records

    Cells = bytes | list[bytes]  # what stands in each row at one place: the same in all of them, or its own

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_LARGE_JSON = 10_000_000  # numbers
_BLOCK = 1 << 14  # numbers that are put into words at a time
_NARROW = 32  # columns
_ROW_GROUP = 1 << 24  # bytes


def write(records: Records, format: Format, show: Names | None, file: BinaryIO) -> None:
    """Write a result in a format that is one file; `show` names the matrices, as far as the user chose."""
    _FILES[format](records, show, file)


def write_folder(records: Records, format: Format, show: Names | None, folder: Path) -> None:
    """Write a result in a format that is several files, into an empty folder."""
    _FOLDERS[format](records, show, folder)


def _json(records: Records, show: Names | None, file: BinaryIO) -> None:
    names = _several(records, show)
    numbers = sum(math.prod(records.matrices[name].shape) for name in names)
    if numbers > _LARGE_JSON:
        note(f"this JSON document holds {numbers:,} numbers; -f ndjson can be read row by row, -f npy at once")
    head = {"run": records.run, **records.more}
    if records.columns:
        head["columns"] = list(records.columns)
    file.write(orjson.dumps(head)[:-1] + f',\n"{records.unit}":[\n'.encode())
    pieces = _blocks(records, file, tuple(records.fields))
    _joined(
        file, (_woven(piece.rows, *_object(_members(piece, tuple(records.fields))), b",\n")[:-2] for piece in pieces)
    )
    file.write(b"\n]")
    if names:
        file.write(b',\n"matrices":{')
        for place, name in enumerate(names):
            file.write(f'{"," * (place > 0)}\n"{name}":[\n'.encode())
            pieces = _blocks(records, file, (), (name,))
            _joined(file, (b",\n".join(_in_json(piece.matrices[name])) for piece in pieces))
            file.write(b"\n]")
        file.write(b"\n}")
    file.write(b"}\n")


def _ndjson(records: Records, show: Names | None, file: BinaryIO) -> None:
    records = records.lines or records
    names = _several(records, show)
    for piece in _blocks(records, file, tuple(records.fields), names):
        members = _members(piece, tuple(records.fields))
        if names:
            members["vectors"] = _object({name: [_in_json(piece.matrices[name])] for name in names})
        file.write(_woven(piece.rows, *_object(members), b"\n"))


@dataclass(frozen=True)
class _Dialect:
    """How cells become lines."""

    between: bytes
    end: bytes
    cell: Callable[[str], bytes]

    def line(self, cells: list[Cells]) -> list[Cells]:
        """Return what stands in a line with these cells."""
        spaced = [part for cell in cells for part in (cell, self.between)]
        return [*spaced[:-1], self.end]

    def header(self, names: Iterable[str]) -> bytes:
        """Return the first line."""
        return _woven(1, *self.line([self.cell(name) for name in names]))

    def fields(self, piece: Piece, names: Names) -> list[Cells]:
        """Return the cells of fields."""
        return [self._cells(piece.fields[name]) for name in names]

    def _cells(self, values: Any) -> list[bytes]:
        if isinstance(values, np.ndarray):
            return _words(values)
        return [b"" if value is None else self.cell(str(value)) for value in values]

    def numbers(self, matrix: np.ndarray) -> list[bytes]:
        """Return the values of each row, between them what is between cells; NaN and infinity as nan, inf and -inf."""
        rows = _rows(matrix)
        for place in np.flatnonzero(~np.isfinite(matrix).all(axis=1)).tolist():
            rows[place] = b",".join(_words(matrix[place]))
        return rows if self.between == b"," else [row.replace(b",", self.between) for row in rows]


_TO_QUOTE = re.compile('[",\r\n]')
_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@cache  # most tokens come again and again
def _csv_cell(text: str) -> bytes:
    quoted = '"' + text.replace('"', '""') + '"' if _TO_QUOTE.search(text) else text
    return quoted.encode()


@cache
def _tsv_cell(text: str) -> bytes:
    return text.translate(_TSV_ESCAPES).encode()


_CSV, _TSV = _Dialect(b",", b"\r\n", _csv_cell), _Dialect(b"\t", b"\n", _tsv_cell)


def _separated(dialect: _Dialect, records: Records, show: Names | None, file: BinaryIO) -> None:
    names = _flat(records, show)
    matrices = [records.matrices[name] for name in names]
    columns = [column for each in matrices for column in each.columns or records.columns or range(each.shape[1])]
    file.write(dialect.header([*records.fields, *map(str, columns)]))
    for piece in _blocks(records, file, tuple(records.fields), names):
        cells = dialect.fields(piece, tuple(records.fields))
        cells += [dialect.numbers(piece.matrices[name]) for name in names]
        file.write(_woven(piece.rows, *dialect.line(cells)))


def _projector(records: Records, show: Names | None, folder: Path) -> None:
    """Write what TensorFlow's embedding projector loads: rows of numbers, and beside them a line of fields for each.

    A header it takes for one only where there are several fields.
    """
    names, fields = _flat(records, show), tuple(records.fields)
    with (folder / "vectors.tsv").open("wb") as vectors, (folder / "metadata.tsv").open("wb") as metadata:
        if len(fields) > 1:
            metadata.write(_TSV.header(fields))
        for piece in _blocks(records, vectors, fields, names):
            vectors.write(_woven(piece.rows, *_TSV.line([_TSV.numbers(piece.matrices[name]) for name in names])))
            metadata.write(_woven(piece.rows, *_TSV.line(_TSV.fields(piece, fields))))


def _npy(records: Records, show: Names | None, file: BinaryIO) -> None:
    names = _one(records, show)
    array = records.matrices[names[0]] if names else Array((records.rows,), "int64")
    kind = np.dtype(array.dtype).newbyteorder("<")
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": array.shape}
    )
    for piece in _pieces(records, file, () if names else ("id",), names):
        _raw(file, piece.matrices[names[0]] if names else piece.fields["id"], kind)


def _safetensors(records: Records, show: Names | None, file: BinaryIO) -> None:
    from embcli.files.safetensors import header

    fields = {f"{field}s": field for field in ("id", "position", "sequence") if field in records.fields}
    arrays = {name: Array((records.rows,), "int64") for name in fields}
    arrays |= {name: records.matrices[name] for name in _several(records, show)}
    # The wider numbers come first, so that readers who map the file find each tensor aligned.
    names = sorted(arrays, key=lambda name: -np.dtype(arrays[name].dtype).itemsize)
    metadata = {"run": orjson.dumps(records.run).decode(), "columns": orjson.dumps(records.columns).decode()}
    file.write(header({name: (arrays[name].dtype, arrays[name].shape) for name in names}, metadata))
    for name in names:
        kind = np.dtype(arrays[name].dtype).newbyteorder("<")
        if name in fields:
            for piece in _pieces(records, file, (fields[name],)):
                _raw(file, piece.fields[fields[name]], kind)
        else:
            for piece in _pieces(records, file, (), (name,)):
                _raw(file, piece.matrices[name], kind)


def _parquet(records: Records, show: Names | None, file: BinaryIO) -> None:
    """Write the fields of each row and its `vector`, a list of fixed size; so many rows at a time are a row group."""
    import pyarrow
    from pyarrow import parquet

    names = _flat(records, show)
    schema = _schema(records, names)
    settings = {"compression": "none", "use_dictionary": ["token"], "write_statistics": [*records.fields]}
    with parquet.ParquetWriter(_Counting(file), schema, **settings) as writer:
        group: list[Any] = []
        for piece in _pieces(records, file, tuple(records.fields), names):
            group.append(_batch(piece, names, schema))
            if sum(each.nbytes for each in group) >= _ROW_GROUP:
                writer.write_table(pyarrow.Table.from_batches(group))
                group.clear()
        if group:
            writer.write_table(pyarrow.Table.from_batches(group))


def _schema(records: Records, names: Names) -> Any:
    """Return the columns of a parquet file with these matrices, and what stands beside them."""
    import pyarrow

    types: dict[Any, Any] = {
        str: pyarrow.string(),
        float: pyarrow.float64(),
        bool: pyarrow.bool_(),
        int: pyarrow.int64(),
    }
    kinds = [(name, types[kind]) for name, kind in records.fields.items()]
    for array in map(records.matrices.__getitem__, names):
        kinds.append(("vector", pyarrow.list_(pyarrow.from_numpy_dtype(array.dtype), array.shape[1])))
    return pyarrow.schema(kinds, {"run": orjson.dumps(records.run), "columns": orjson.dumps(records.columns)})


def _batch(piece: Piece, names: Names, schema: Any) -> Any:
    """Return copies of what a piece holds, as that is gone with the next one."""
    import pyarrow

    columns = [pyarrow.array(copy(piece.fields[each.name]), each.type) for each in schema if each.name in piece.fields]
    for name in names:
        values = pyarrow.array(piece.matrices[name].flatten())
        columns.append(pyarrow.FixedSizeListArray.from_arrays(values, type=schema.field("vector").type))
    return pyarrow.record_batch(columns, schema)


class _Counting:
    """A file that knows how far it is, which a pipe does not."""

    closed = False

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._place = file, 0

    def write(self, data: bytes) -> None:
        self._file.write(data)
        self._place += len(data)

    def tell(self) -> int:
        return self._place

    def flush(self) -> None:
        self._file.flush()


def _ids(records: Records, show: Names | None, file: BinaryIO) -> None:
    """Write IDs between spaces, a line for each sequence."""
    line, between = 0, b""
    many = "sequence" in records.fields
    for piece in _pieces(records, file, ("sequence", "id") if many else ("id",)):
        sequence = piece.fields["sequence"] if many else np.zeros(piece.rows, np.int64)
        borders = [0, *(np.flatnonzero(np.diff(sequence)) + 1).tolist(), piece.rows]
        for start, stop in pairwise(borders):
            if sequence[start] != line:
                file.write(b"\n" * (sequence[start] - line))
                line, between = sequence[start], b""
            file.write(between + b" ".join(_words(piece.fields["id"][start:stop])))
            between = b" "
    file.write(b"\n" * max(records.sequences - line, 0))


def _several(records: Records, show: Names | None) -> Names:
    return tuple(name for name in records.matrices if show is None or name in show)


def _one(records: Records, show: Names | None) -> Names:
    """Return the matrix that goes where there is room for one; none where the result has none."""
    return show[:1] if show else () if records.default is None else (records.default,)


def _flat(records: Records, show: Names | None) -> Names:
    """Return the matrix that goes into a format of rows; raises OutputError where its rows are matrices themselves."""
    names = _one(records, show)
    for name in names:
        shape = records.matrices[name].shape
        if len(shape) != 2:
            raise OutputError(f"{name} is of shape {shape}, and this format holds rows of numbers; -f npy holds it all")
    return names


def _pieces(records: Records, file: BinaryIO, fields: Names, matrices: Names = ()) -> Iterator[Piece]:
    """Yield the pieces, under a progress bar where the data itself does not run over the terminal."""
    pieces = records.pieces(fields, matrices)
    return pieces if file.isatty() else watched(pieces, records.rows, lambda piece: piece.rows)


def _blocks(records: Records, file: BinaryIO, fields: Names, matrices: Names = ()) -> Iterator[Piece]:
    """Yield pieces so small that their text is still in the processor's cache when it is written."""
    width = sum(math.prod(records.matrices[name].shape[1:]) for name in matrices)
    step = max(_BLOCK // max(width, 1), 1)
    for piece in _pieces(records, file, fields, matrices):
        for start in range(0, piece.rows, step):
            part = slice(start, start + step)
            values = {name: piece.fields[name][part] for name in fields}
            blocks = {name: piece.matrices[name][part] for name in matrices}
            yield Piece(min(step, piece.rows - start), values, blocks)


def _members(piece: Piece, names: Names) -> dict[str, list[Cells]]:
    """Return the fields of each row as the members of a JSON object."""
    return {name: [_in_json(piece.fields[name])] for name in names}


def _object(members: dict[str, list[Cells]]) -> list[Cells]:
    """Return what stands in each row where that is a JSON object with these members."""
    cells: list[Cells] = []
    for name, value in members.items():
        cells += [f'{"," if cells else "{"}"{name}":'.encode(), *value]
    return [*cells, b"}"] if cells else [b"{}"]


def _in_json(values: Any) -> list[bytes]:
    """Return each value of a field, or each row of a matrix, in JSON."""
    if not isinstance(values, np.ndarray):
        return orjson.dumps(values, option=orjson.OPT_INDENT_2)[4:-2].split(b",\n  ")  # no text holds a raw newline
    if not np.isfinite(values).all():
        note("JSON has no NaN and no infinity: they are written as null; the formats that are no JSON keep them")
    values = np.ascontiguousarray(values)
    if values.ndim == 1:
        return orjson.dumps(values, option=_OPTIONS)[1:-1].split(b",")
    if values.ndim == 2 and values.shape[1] <= _NARROW:
        return [b"[%b]" % row for row in _rows(values)]
    return [orjson.dumps(row, option=_OPTIONS) for row in values]


def _rows(matrix: np.ndarray) -> list[bytes]:
    """Return the values of each row of a matrix, (n, columns), in JSON without the brackets."""
    matrix = np.ascontiguousarray(matrix)
    if matrix.shape[1] <= _NARROW:  # there a call for each row takes longer than to find where rows end
        return orjson.dumps(matrix, option=_OPTIONS)[2:-2].split(b"],[")
    return [orjson.dumps(row, option=_OPTIONS)[1:-1] for row in matrix]


def _words(values: np.ndarray) -> list[bytes]:
    """Return numbers, (n,), as text; NaN and infinity as nan, inf and -inf."""
    words = orjson.dumps(np.ascontiguousarray(values), option=_OPTIONS)[1:-1].split(b",")
    for place in np.flatnonzero(~np.isfinite(values)).tolist():
        words[place] = str(values[place]).encode()
    return words


def _woven(rows: int, *cells: Cells) -> bytes:
    r"""Return rows of text, put together from what stands in them side by side.

    >>> _woven(2, [b"a", b"b"], b"=", [b"1", b"2"], b"\n")
    b'a=1\nb=2\n'
    """
    parts = [b""] * (rows * len(cells))
    for place, cell in enumerate(cells):
        parts[place :: len(cells)] = [cell] * rows if isinstance(cell, bytes) else cell
    return b"".join(parts)


def _raw(file: BinaryIO, values: np.ndarray, kind: np.dtype[Any]) -> None:
    file.write(np.ascontiguousarray(values, kind).reshape(-1).view(np.uint8).data)


def _joined(file: BinaryIO, parts: Iterable[bytes]) -> None:
    between = b""
    for part in parts:
        file.write(between + part)
        between = b",\n"


_FILES: dict[str, Callable[[Records, Names | None, BinaryIO], None]] = {
    "json": _json,
    "ndjson": _ndjson,
    "csv": partial(_separated, _CSV),
    "tsv": partial(_separated, _TSV),
    "npy": _npy,
    "safetensors": _safetensors,
    "parquet": _parquet,
    "ids": _ids,
}
_FOLDERS: dict[str, Callable[[Records, Names | None, Path], None]] = {"projector": _projector}
