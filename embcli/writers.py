"""Results as data: one function per format, which writes rows as they are computed.

Records are read piece by piece, so that a result can be larger than memory. Numbers are the
shortest decimals that give the same float32 back, as orjson writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson

from embcli.errors import Notes
from embcli.files.safetensors import header
from embcli.formats import FORMATS, FormatName
from embcli.records import ArraySpec, Document, Names, Piece, Records
from embcli.wording import in_data


def write(records: Records, format: FormatName, file: BinaryIO, notes: Notes) -> None:
    """Write a result as data into an open file."""
    if FORMATS[format].one_matrix and records.shown is None and records.default_remark:
        notes.add(records.default_remark)
    writers = {
        "json": _json,
        "ndjson": _ndjson,
        "csv": _CSV.write,
        "tsv": _TSV.write,
        "npy": _npy,
        "safetensors": _safetensors,
        "parquet": _parquet,
        "ids": _ids,
    }
    reader = _Reader(records, notes)
    writers[format](reader, file)


@dataclass(frozen=True, eq=False)
class _Reader:
    """Reads records as formats need them: pieces, a field, a matrix, or JSON rows."""

    records: Records
    notes: Notes

    def of_cells(self) -> _Reader:
        """Return the reader of the rows of a table."""
        return _Reader(self.records.cells or self.records, self.notes)

    def pieces(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Piece]:
        pieces = self.records.pieces(tuple(fields), matrices)
        return self.notes.watch(pieces, self.records.rows, lambda piece: piece.rows)

    def field(self, name: str) -> Iterator[np.ndarray]:
        for piece in self.pieces((name,)):
            yield piece.fields[name]

    def matrix(self, name: str) -> Iterator[np.ndarray]:
        for piece in self.pieces((), (name,)):
            yield piece.matrices[name]

    def json_rows(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Document]:
        """Yield rows as JSON objects; those of matrices are together in `vectors`."""
        for piece in self.pieces(fields, matrices):
            columns = {name: self.json_values(values) for name, values in piece.fields.items()}
            vectors = {name: self.json_values(values) for name, values in piece.matrices.items()}
            for place in range(piece.rows):
                row = {name: values[place] for name, values in columns.items()}
                if vectors:
                    row["vectors"] = {name: values[place] for name, values in vectors.items()}
                yield row

    def json_values(self, values: Any) -> Any:
        """Return values that orjson takes one by one.

        orjson writes NaN and infinity as null; a note says so.
        """
        is_array = isinstance(values, np.ndarray)
        numbers = values
        if not is_array:
            numbers = np.array([value for value in values if isinstance(value, float)])
        if not np.isfinite(numbers).all():
            self.notes.add(
                "JSON has no NaN and no infinity: they are written as null; other formats keep them"
            )
        return np.ascontiguousarray(values) if is_array else values


def _json(reader: _Reader, file: BinaryIO) -> None:
    """Write one object: the run, what else the result knows, its rows, then its matrices."""
    records = reader.records
    names = records.several
    head = {"run": records.run, **records.more}
    if records.columns:
        head["columns"] = list(records.columns)
    write = file.write
    write(_document(head).removesuffix(b"}"))
    write(f',\n"{records.unit}":'.encode())
    _write_list(file, reader.json_rows(records.fields))

    if names:
        write(b',\n"matrices":{')
        for place, name in enumerate(names):
            if place > 0:
                write(b",")
            write(f'\n"{name}":'.encode())
            vectors = map(reader.json_values, reader.matrix(name))
            _write_list(file, chain.from_iterable(vectors))
        write(b"\n}")
    write(b"}\n")


def _write_list(file: BinaryIO, values: Iterable[Any]) -> None:
    file.write(b"[")
    separator = b"\n"
    for value in values:
        file.write(separator + _document(value))
        separator = b",\n"
    file.write(b"\n]")


def _ndjson(reader: _Reader, file: BinaryIO) -> None:
    records = reader.records
    for line in reader.json_rows(records.fields, records.several):
        file.write(_document(line) + b"\n")


class _Dialect(NamedTuple):
    """How a format of cells separates cells and lines, and how it writes a text into a cell."""

    separator: bytes
    line_end: bytes
    escape: Callable[[str], str]

    def write(self, reader: _Reader, file: BinaryIO) -> None:
        """Write a line of names, then a line for each row; a matrix has a cell for each column."""
        reader = reader.of_cells()
        records = reader.records
        matrices = records.one
        names: list[str | int] = [*records.fields]
        for name in matrices:
            names += records.column_numbers(name)
        file.write(self.separator.join(self.cells(names)) + self.line_end)
        for piece in reader.pieces(records.fields, matrices):
            fields = piece.fields.values()
            columns: list[Iterable[bytes]] = [self.cells(values) for values in fields]
            for rows in piece.matrices.values():  # Their text is made row by row.
                columns.append(_numbers(row).replace(b",", self.separator) for row in rows)
            lines = map(self.separator.join, zip(*columns, strict=True))
            file.write(self.line_end.join([*lines, b""]))

    def cells(self, values: Iterable[Any]) -> list[bytes]:
        if isinstance(values, np.ndarray) and values.size:
            return _numbers(values).split(b",")
        return [self.cell(value) for value in values]

    def cell(self, value: object) -> bytes:
        """Return a value as text; None is an empty cell."""
        if value is None:
            return b""
        return in_data(self.escape(str(value))).encode()


_NEEDS_QUOTES = re.compile('[",\r\n]')


def _in_quotes(text: str) -> str:
    """Return a text in quotes if CSV needs them."""
    if not _NEEDS_QUOTES.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


# Tabs and line ends would end a cell.
_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


_CSV = _Dialect(b",", b"\r\n", _in_quotes)
_TSV = _Dialect(b"\t", b"\n", lambda text: text.translate(_TSV_ESCAPES))


def _npy(reader: _Reader, file: BinaryIO) -> None:
    """Write the one matrix, or the IDs of a result without matrices."""
    records = reader.records
    if records.one:
        name = records.one[0]
        array = records.matrices[name]
        pieces = reader.matrix(name)
    else:
        array = ArraySpec((records.rows,), "int64")
        pieces = reader.field("id")

    description = {
        "descr": np.lib.format.dtype_to_descr(_little_endian(array)),
        "fortran_order": False,
        "shape": records.shape(array),
    }
    np.lib.format.write_array_header_1_0(file, description)
    _write_array(file, array, pieces)


def _safetensors(reader: _Reader, file: BinaryIO) -> None:
    """Write a tensor for each matrix, and `ids`, `positions` and `sequences` if there are any."""
    records = reader.records
    fields = {f"{name}s": name for name in ("id", "position", "sequence") if name in records.fields}
    tensors = {name: ArraySpec((records.rows,), "int64") for name in fields}
    for name in records.several:
        tensors[name] = records.matrices[name]

    # Tensors with larger numbers come first, so that each is aligned for readers that map the file.
    names = sorted(tensors, key=lambda name: -np.dtype(tensors[name].dtype).itemsize)
    run = _document(records.run).decode()
    columns = orjson.dumps(records.columns).decode()
    described = {name: (tensors[name].dtype, records.shape(tensors[name])) for name in names}
    file.write(header(described, {"run": run, "columns": columns}))
    for name in names:
        pieces = reader.field(fields[name]) if name in fields else reader.matrix(name)
        _write_array(file, tensors[name], pieces)


def _little_endian(array: ArraySpec) -> np.dtype[Any]:
    return np.dtype(array.dtype).newbyteorder("<")


def _write_array(file: BinaryIO, array: ArraySpec, pieces: Iterable[np.ndarray]) -> None:
    dtype = _little_endian(array)
    for values in pieces:
        file.write(np.ascontiguousarray(values, dtype).ravel().view(np.uint8).data)


def _parquet(reader: _Reader, file: BinaryIO) -> None:
    """Write the fields of each row and its `vector`, a list of fixed size, in groups of rows."""
    import pyarrow
    from pyarrow import parquet

    reader = reader.of_cells()
    records = reader.records
    types = {
        str: "string",
        float: "float64",
        bool: "bool",
        int: "int64",
        list[int]: pyarrow.list_(pyarrow.int64()),
    }
    fields = [(name, types[field_type]) for name, field_type in records.fields.items()]
    for name in records.one:
        array = records.matrices[name]
        vector = pyarrow.list_(pyarrow.from_numpy_dtype(array.dtype), array.shape[1])
        fields.append(("vector", vector))
    metadata = {"run": _document(records.run), "columns": orjson.dumps(records.columns)}
    schema = pyarrow.schema(fields, metadata)
    settings = {
        "compression": "none",
        "use_dictionary": ["token"],
        "write_statistics": list(records.fields),
    }
    with parquet.ParquetWriter(file, schema, **settings) as writer:
        for piece in reader.pieces(records.fields, records.one):
            columns = _encodable(piece.fields)
            for matrix in piece.matrices.values():
                numbers = pyarrow.array(matrix.ravel())
                columns["vector"] = pyarrow.FixedSizeListArray.from_arrays(numbers, type=vector)
            writer.write_batch(pyarrow.RecordBatch.from_pydict(columns, schema))


def _ids(reader: _Reader, file: BinaryIO) -> None:
    """Write IDs between spaces, a line for each sequence; one without tokens is an empty line."""
    fields = [name for name in ("sequence", "id") if name in reader.records.fields]
    line = 0
    separator = b""
    for piece in reader.pieces(fields):
        one_sequence = np.zeros(piece.rows, np.int64)
        sequences = piece.fields.get("sequence", one_sequence)
        numbers = _numbers(piece.fields["id"]).split(b",")
        for number, sequence in zip(numbers, sequences.tolist(), strict=False):
            separator = b"\n" * (sequence - line) or separator
            line = sequence
            file.write(separator + number)
            separator = b" "
    unfinished_lines = max(reader.records.sequences - line, 0)
    file.write(b"\n" * unfinished_lines)


def _document(value: Any) -> bytes:
    """Return a value as JSON."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # orjson refuses lone surrogates, which are rare.
        return orjson.dumps(_encodable(value), option=orjson.OPT_SERIALIZE_NUMPY)


def _encodable(value: Any) -> Any:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, str):
        return in_data(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(content) for name, content in value.items()}
    if isinstance(value, list | tuple):
        return [_encodable(item) for item in value]
    return value


def _numbers(values: np.ndarray) -> bytes:
    """Return numbers, (n,), as text between commas; NaN and infinity as nan, inf and -inf."""
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    is_finite = np.isfinite(values)
    if is_finite.all():
        return text
    words = text.split(b",")
    for place in np.flatnonzero(~is_finite).tolist():
        words[place] = str(values[place]).encode()
    return b",".join(words)
