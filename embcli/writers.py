"""Results as data, written a piece at a time: one function a format.

Numbers are the shortest decimals that give the same float32 back, as orjson writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import orjson

from embcli.errors import Notes, OutputError, Watch, unwatched
from embcli.files.safetensors import header
from embcli.formats import Data
from embcli.records import Array, Names, Piece, Records
from embcli.words import in_data

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_LARGE_JSON = 10_000_000  # numbers
_BLOCK = 1 << 14  # numbers that are written as text at a time
_ROW_GROUP = 1 << 24  # bytes


def write(
    records: Records, format: Data, place: BinaryIO | Path, notes: Notes | None = None, watch: Watch = unwatched
) -> None:
    """Write a result as data into an open file, or into an empty folder if the format is one.

    `watch` counts the rows written. Raises OutputError if the format cannot hold the result.
    """
    _writer(format)(_Job(records, notes if notes is not None else Notes(), watch), place)


def _writer(format: Data) -> Callable[[_Job, Any], None]:  # noqa: PLR0911 - mypy notices a missing format
    match format:
        case "json":
            return _json
        case "ndjson":
            return _ndjson
        case "csv":
            return partial(_separated, _CSV)
        case "tsv":
            return partial(_separated, _TSV)
        case "npy":
            return _npy
        case "safetensors":
            return _safetensors
        case "parquet":
            return _parquet
        case "ids":
            return _ids
        case "projector":
            return _projector


@dataclass(frozen=True, eq=False)
class _Job:
    """A result to be written."""

    records: Records
    notes: Notes
    watch: Watch

    @property
    def flat(self) -> Names:
        """The matrix that a format of rows writes; raises OutputError if it is not two-dimensional."""
        for name in self.records.one:
            shape = self.records.matrices[name].shape
            if len(shape) != 2:
                raise OutputError(
                    f"{name} is of shape {shape}, and this file holds numbers only; format npy holds it all",
                    parameters=("format",),
                )
        return self.records.one

    def pieces(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Piece]:
        """Yield the pieces with these fields and matrices."""
        return self.watch(self.records.pieces((*fields,), matrices), self.records.rows, lambda piece: piece.rows)

    def blocks(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Piece]:
        """Yield pieces whose text takes little memory."""
        width = sum(math.prod(self.records.matrices[name].shape[1:]) for name in matrices)
        step = max(_BLOCK // max(width, 1), 1)
        for piece in self.pieces(fields, matrices):
            for start in range(0, piece.rows, step):
                part = slice(start, start + step)
                values = {name: values[part] for name, values in piece.fields.items()}
                blocks = {name: values[part] for name, values in piece.matrices.items()}
                yield Piece(min(step, piece.rows - start), values, blocks)

    def rows(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[list[dict[str, Any]]]:
        """Yield the rows of each block as JSON objects; several matrices are together in `vectors`."""
        for piece in self.blocks(fields, matrices):
            columns = {name: self.finite(values) for name, values in piece.fields.items()}
            vectors = {name: self.finite(values) for name, values in piece.matrices.items()}
            cells = zip(*columns.values(), strict=True) if columns else [()] * piece.rows
            rows = [dict(zip(columns, each, strict=True)) for each in cells]
            if vectors:
                for row, *each in zip(rows, *vectors.values(), strict=True):
                    row["vectors"] = dict(zip(vectors, each, strict=True))
            yield rows

    def finite(self, values: Any) -> Any:
        """Return values that orjson takes one by one; a note says that NaN and infinity become null."""
        if not isinstance(values, np.ndarray):
            return values
        if not np.isfinite(values).all():
            self.notes.add("JSON has no NaN and no infinity: they are written as null; other formats keep them")
        return np.ascontiguousarray(values)


def _json(job: _Job, file: BinaryIO) -> None:
    records, names = job.records, job.records.several
    numbers = sum(math.prod(records.matrices[name].shape) for name in names)
    if numbers > _LARGE_JSON:
        remark = f"this JSON document holds {numbers:,} numbers; format ndjson can be read row by row, npy at once"
        job.notes.add(remark, ("format",))
    head = {"run": records.run, **records.more}
    if records.columns:
        head["columns"] = list(records.columns)
    file.write(_document(head)[:-1] + f',\n"{records.unit}":[\n'.encode())
    _joined(file, (row for rows in job.rows(records.fields) for row in rows))
    file.write(b"\n]")
    if names:
        file.write(b',\n"matrices":{')
        for place, name in enumerate(names):
            file.write(f'{"," * (place > 0)}\n"{name}":[\n'.encode())
            blocks = (piece.matrices[name] for piece in job.blocks((), (name,)))
            _joined(file, (row for block in blocks for row in job.finite(block)))
            file.write(b"\n]")
        file.write(b"\n}")
    file.write(b"}\n")


def _ndjson(job: _Job, file: BinaryIO) -> None:
    job = replace(job, records=job.records.lines or job.records)
    for rows in job.rows(job.records.fields, job.records.several):
        file.write(b"".join(_document(row, _OPTIONS | orjson.OPT_APPEND_NEWLINE) for row in rows))


@dataclass(frozen=True)
class _Dialect:
    """The separator, the line end and the quoting of a format of cells."""

    between: bytes
    end: bytes
    cell: Callable[[str], bytes]

    def line(self, cells: Iterable[bytes]) -> bytes:
        """Return a line."""
        return self.between.join(cells) + self.end

    def lines(self, *columns: Iterable[bytes]) -> bytes:
        """Return the lines of rows, from their cells."""
        return b"".join(map(self.line, zip(*columns, strict=True)))

    def fields(self, piece: Piece) -> list[list[bytes]]:
        """Return the cells of fields."""
        return [self._cells(values) for values in piece.fields.values()]

    def _cells(self, values: Any) -> list[bytes]:
        if isinstance(values, np.ndarray):
            return _words(values)
        return [b"" if value is None else self.cell(str(value)) for value in values]

    def numbers(self, matrix: np.ndarray) -> Iterator[bytes]:
        """Yield the values of each row as cells; NaN and infinity as nan, inf and -inf."""
        for row, is_finite in zip(np.ascontiguousarray(matrix), np.isfinite(matrix).all(axis=1).tolist(), strict=True):
            cells = orjson.dumps(row, option=_OPTIONS)[1:-1] if is_finite else b",".join(_words(row))
            yield cells.replace(b",", self.between)


_TO_QUOTE = re.compile('[",\r\n]')
_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


@cache  # most tokens occur more than once
def _csv_cell(text: str) -> bytes:
    quoted = '"' + text.replace('"', '""') + '"' if _TO_QUOTE.search(text) else text
    return in_data(quoted).encode()


@cache
def _tsv_cell(text: str) -> bytes:
    return in_data(text.translate(_TSV_ESCAPES)).encode()


_CSV, _TSV = _Dialect(b",", b"\r\n", _csv_cell), _Dialect(b"\t", b"\n", _tsv_cell)


def _separated(dialect: _Dialect, job: _Job, file: BinaryIO) -> None:
    records, names = job.records, job.flat
    matrices = [records.matrices[name] for name in names]
    columns = [column for each in matrices for column in each.columns or records.columns or range(each.shape[1])]
    file.write(dialect.line(map(dialect.cell, [*records.fields, *map(str, columns)])))
    for piece in job.blocks(records.fields, names):
        file.write(dialect.lines(*dialect.fields(piece), *map(dialect.numbers, piece.matrices.values())))


# TensorBoard reads this file of its log folder (ProjectorConfig in tensorboard/plugins/projector).
_PROJECTOR = """embeddings {
  tensor_path: "vectors.tsv"
  metadata_path: "metadata.tsv"
}
"""


def _projector(job: _Job, folder: Path) -> None:
    """Write the files that TensorFlow's embedding projector loads: rows of numbers, and a line of fields for each row.

    A third file says which is which. The projector reads the first line as a header only if there are several fields.
    """
    fields, names = job.records.fields, job.flat
    (folder / "projector_config.pbtxt").write_text(_PROJECTOR)
    with (folder / "vectors.tsv").open("wb") as vectors, (folder / "metadata.tsv").open("wb") as metadata:
        if len(fields) > 1:
            metadata.write(_TSV.line(map(_TSV.cell, fields)))
        for piece in job.blocks(fields, names):
            vectors.write(_TSV.lines(*map(_TSV.numbers, piece.matrices.values())))
            metadata.write(_TSV.lines(*_TSV.fields(piece)))


def _npy(job: _Job, file: BinaryIO) -> None:
    names = job.records.one
    array = job.records.matrices[names[0]] if names else Array((job.records.rows,), "int64")
    dtype = np.dtype(array.dtype).newbyteorder("<")
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": array.shape}
    )
    for piece in job.pieces(() if names else ("id",), names):
        _raw(file, piece.matrices[names[0]] if names else piece.fields["id"], dtype)


def _safetensors(job: _Job, file: BinaryIO) -> None:
    records = job.records
    fields = {f"{field}s": field for field in ("id", "position", "sequence") if field in records.fields}
    arrays = {name: Array((records.rows,), "int64") for name in fields}
    arrays |= {name: records.matrices[name] for name in job.records.several}
    # Tensors with larger numbers come first, so that each is aligned for readers that map the file.
    names = sorted(arrays, key=lambda name: -np.dtype(arrays[name].dtype).itemsize)
    metadata = {"run": _document(records.run).decode(), "columns": orjson.dumps(records.columns).decode()}
    file.write(header({name: (arrays[name].dtype, arrays[name].shape) for name in names}, metadata))
    for name in names:
        dtype = np.dtype(arrays[name].dtype).newbyteorder("<")
        for piece in job.pieces((fields[name],)) if name in fields else job.pieces((), (name,)):
            _raw(file, piece.fields[fields[name]] if name in fields else piece.matrices[name], dtype)


def _parquet(job: _Job, file: BinaryIO) -> None:
    """Write the fields of each row and its `vector`, a list of fixed size, some rows as a row group."""
    import pyarrow
    from pyarrow import parquet

    schema = _schema(job)
    settings = {"compression": "none", "use_dictionary": ["token"], "write_statistics": [*job.records.fields]}
    with parquet.ParquetWriter(_Counting(file), schema, **settings) as writer:
        group: list[Any] = []
        for batch in _batches(job, schema):
            group.append(batch)
            if sum(each.nbytes for each in group) >= _ROW_GROUP:
                writer.write_table(pyarrow.Table.from_batches(group))
                group.clear()
        if group:
            writer.write_table(pyarrow.Table.from_batches(group))


def table(records: Records) -> Any:
    """Return the fields of each row and its `vector`, a list of fixed size, as a `pyarrow.Table`."""
    import pyarrow

    job = _Job(records, Notes(), unwatched)
    schema = _schema(job)
    return pyarrow.Table.from_batches(_batches(job, schema), schema)


def _schema(job: _Job) -> Any:
    """Return the columns of a table of pyarrow, and its metadata."""
    import pyarrow

    records = job.records
    types: dict[Any, Any] = {str: pyarrow.string(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    types |= {int: pyarrow.int64()}
    columns = [(name, types[type_]) for name, type_ in records.fields.items()]
    for array in map(records.matrices.__getitem__, job.flat):
        columns.append(("vector", pyarrow.list_(pyarrow.from_numpy_dtype(array.dtype), array.shape[1])))
    return pyarrow.schema(columns, {"run": _document(records.run), "columns": orjson.dumps(records.columns)})


def _batches(job: _Job, schema: Any) -> Iterator[Any]:
    """Yield copies of the pieces, whose arrays are valid only until the next piece."""
    import pyarrow

    for piece in job.pieces(job.records.fields, job.flat):
        columns = [pyarrow.array(copy(values), schema.field(name).type) for name, values in piece.fields.items()]
        for matrix in piece.matrices.values():
            values = pyarrow.array(matrix.flatten())
            columns.append(pyarrow.FixedSizeListArray.from_arrays(values, type=schema.field("vector").type))
        yield pyarrow.record_batch(columns, schema)


class _Counting:
    """A file that knows its position, which a pipe does not."""

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


def _ids(job: _Job, file: BinaryIO) -> None:
    """Write IDs between spaces, a line for each sequence."""
    line, between = 0, b""
    many = "sequence" in job.records.fields
    for piece in job.pieces(("sequence", "id") if many else ("id",)):
        sequence = piece.fields["sequence"] if many else np.zeros(piece.rows, np.int64)
        borders = [0, *(np.flatnonzero(np.diff(sequence)) + 1).tolist(), piece.rows]
        for start, stop in pairwise(borders):
            if sequence[start] != line:
                file.write(b"\n" * (sequence[start] - line))
                line, between = sequence[start], b""
            file.write(between + b" ".join(_words(piece.fields["id"][start:stop])))
            between = b" "
    file.write(b"\n" * max(job.records.sequences - line, 0))


def _document(value: Any, option: int = 0) -> bytes:
    """Return a value in JSON."""
    try:
        return orjson.dumps(value, option=option)
    except TypeError:  # a lone surrogate, which is rare
        return orjson.dumps(_encodable(value), option=option)


def _encodable(value: Any) -> Any:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, str):
        return in_data(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


def _words(values: np.ndarray) -> list[bytes]:
    """Return numbers, (n,), as text; NaN and infinity as nan, inf and -inf."""
    words = orjson.dumps(np.ascontiguousarray(values), option=_OPTIONS)[1:-1].split(b",")
    for place in np.flatnonzero(~np.isfinite(values)).tolist():
        words[place] = str(values[place]).encode()
    return words


def _raw(file: BinaryIO, values: np.ndarray, kind: np.dtype[Any]) -> None:
    file.write(np.ascontiguousarray(values, kind).reshape(-1).view(np.uint8).data)


def _joined(file: BinaryIO, values: Iterable[Any]) -> None:
    """Write values in JSON, one per line."""
    between = b""
    for value in values:
        file.write(between + _document(value, _OPTIONS))
        between = b",\n"
