"""Results as data, written a piece at a time: one function per format.

Numbers are the shortest decimals that give the same float32 back, as orjson writes them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
import orjson

from embcli.errors import Notes, OutputError, Watch, unwatched
from embcli.files.safetensors import header
from embcli.formats import DataFormat
from embcli.records import ArraySpec, Names, Piece, Records
from embcli.wording import Sentence, in_data

_LARGE_JSON = 10_000_000  # numbers
_BLOCK = 1 << 14  # numbers that are written as text at a time
_ROW_GROUP = 1 << 24  # bytes


def write(
    records: Records,
    format: DataFormat,
    place: BinaryIO | Path,
    notes: Notes | None = None,
    watch: Watch = unwatched,
) -> None:
    """Write a result as data into an open file, or into an empty folder if the format is one."""
    writers: dict[DataFormat, Callable[[_Job, Any], None]] = {
        "json": _json,
        "ndjson": _ndjson,
        "csv": _csv,
        "tsv": _tsv,
        "npy": _npy,
        "safetensors": _safetensors,
        "parquet": _parquet,
        "ids": _ids,
        "projector": _projector,
    }
    writers[format](_Job(records, notes or Notes(), watch), place)


@dataclass(frozen=True, eq=False)
class _Job:
    records: Records
    notes: Notes
    watch: Watch

    @property
    def flat(self) -> Names:
        """The matrix that a format of rows writes; raises OutputError if it is not two-dimensional."""
        for name in self.records.one:
            shape = self.records.matrices[name].shape
            if len(shape) != 2:
                reason = f"{name} is of shape {shape}, and this file holds numbers only"
                raise OutputError(Sentence("{reason}; {format} npy holds it all", reason=reason))
        return self.records.one

    def pieces(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Piece]:
        return self.watch(
            self.records.pieces((*fields,), matrices), self.records.rows, lambda piece: piece.rows
        )

    def blocks(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[Piece]:
        """Yield pieces whose text takes little memory."""
        width = sum(math.prod(self.records.matrices[name].shape[1:]) for name in matrices)
        step = max(_BLOCK // max(width, 1), 1)
        for piece in self.pieces(fields, matrices):
            for start in range(0, piece.rows, step):
                part = slice(start, start + step)
                values = {name: values[part] for name, values in piece.fields.items()}
                arrays = {name: values[part] for name, values in piece.matrices.items()}
                yield Piece(min(step, piece.rows - start), values, arrays)

    def rows(self, fields: Iterable[str], matrices: Names = ()) -> Iterator[dict[str, Any]]:
        """Yield rows as JSON objects; several matrices are together in `vectors`."""
        for piece in self.blocks(fields, matrices):
            columns = {name: self.finite(values) for name, values in piece.fields.items()}
            vectors = {name: self.finite(values) for name, values in piece.matrices.items()}
            for place in range(piece.rows):
                row = {name: values[place] for name, values in columns.items()}
                if vectors:
                    row["vectors"] = {name: values[place] for name, values in vectors.items()}
                yield row

    def finite(self, values: Any) -> Any:
        """Return values that orjson takes one by one; a note says that NaN and infinity become null."""
        if not isinstance(values, np.ndarray):
            return values
        if not np.isfinite(values).all():
            self.notes.add(
                "JSON has no NaN and no infinity: they are written as null; other formats keep them"
            )
        return np.ascontiguousarray(values)


def _json(job: _Job, file: BinaryIO) -> None:
    records, names = job.records, job.records.several
    numbers = sum(math.prod(records.matrices[name].shape) for name in names)
    if numbers > _LARGE_JSON:
        remark = "this JSON document holds {numbers:,} numbers; {format} ndjson can be read row by row, npy at once"
        job.notes.add(Sentence(remark, numbers=numbers))
    columns = {"columns": list(records.columns)} if records.columns else {}
    head = _document({"run": records.run, **records.more, **columns})
    file.write(head[:-1] + f',\n"{records.unit}":'.encode())
    _write_list(file, job.rows(records.fields))
    for place, name in enumerate(names):
        file.write(b"," if place else b',\n"matrices":{')
        file.write(f'\n"{name}":'.encode())
        _write_list(
            file,
            (row for piece in job.blocks((), (name,)) for row in job.finite(piece.matrices[name])),
        )
    file.write(b"\n}}\n" if names else b"}\n")


def _write_list(file: BinaryIO, values: Iterable[Any]) -> None:
    between = b"[\n"
    for value in values:
        file.write(between + _document(value))
        between = b",\n"
    file.write(b"[\n\n]" if between == b"[\n" else b"\n]")


def _ndjson(job: _Job, file: BinaryIO) -> None:
    records = job.records
    for row in (
        records.lines(job.watch) if records.lines else job.rows(records.fields, records.several)
    ):
        file.write(_document(row) + b"\n")


class _Dialect(NamedTuple):
    """The separator, the line end and the quoting of a format of cells."""

    between: bytes
    end: bytes
    quoted: Callable[[str], str]

    def cells(self, values: Iterable[Any]) -> list[bytes]:
        """Return a cell for each value; None is empty."""
        if isinstance(values, np.ndarray):
            return _numbers(values).split(b",")
        return [
            b"" if value is None else in_data(self.quoted(str(value))).encode() for value in values
        ]

    def lines(self, piece: Piece) -> Iterator[bytes]:
        columns = [self.cells(values) for values in piece.fields.values()]
        columns += [
            [_numbers(row).replace(b",", self.between) for row in rows]
            for rows in piece.matrices.values()
        ]
        return (self.between.join(cells) + self.end for cells in zip(*columns, strict=True))

    def write(self, job: _Job, file: BinaryIO) -> None:
        records, names = job.records, job.flat
        arrays = [records.matrices[name] for name in names]
        columns = [
            column
            for array in arrays
            for column in array.columns or records.columns or range(array.shape[1])
        ]
        file.write(self.between.join(self.cells([*records.fields, *columns])) + self.end)
        for piece in job.blocks(records.fields, names):
            file.writelines(self.lines(piece))


def _in_quotes(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if re.search('[",\r\n]', text) else text


_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_CSV, _TSV = (
    _Dialect(b",", b"\r\n", _in_quotes),
    _Dialect(b"\t", b"\n", lambda text: text.translate(_TSV_ESCAPES)),
)
_csv, _tsv = _CSV.write, _TSV.write

# TensorBoard reads this file of its log folder (ProjectorConfig in tensorboard/plugins/projector).
_PROJECTOR = 'embeddings {\n  tensor_path: "vectors.tsv"\n  metadata_path: "metadata.tsv"\n}\n'


def _projector(job: _Job, folder: Path) -> None:
    """Write what TensorFlow's embedding projector loads: rows of numbers, a line of fields for each, their names."""
    fields, names = job.records.fields, job.flat
    (folder / "projector_config.pbtxt").write_text(_PROJECTOR)
    with (
        (folder / "vectors.tsv").open("wb") as vectors,
        (folder / "metadata.tsv").open("wb") as metadata,
    ):
        if len(fields) > 1:  # otherwise the projector takes the first line for a row
            metadata.write(b"\t".join(_TSV.cells(fields)) + b"\n")
        for piece in job.blocks(fields, names):
            vectors.writelines(_TSV.lines(replace(piece, fields={})))
            metadata.writelines(_TSV.lines(replace(piece, matrices={})))


def _npy(job: _Job, file: BinaryIO) -> None:
    names = job.records.one
    array = job.records.matrices[names[0]] if names else ArraySpec((job.records.rows,), "int64")
    dtype = np.dtype(array.dtype).newbyteorder("<")
    np.lib.format.write_array_header_1_0(
        file,
        {
            "descr": np.lib.format.dtype_to_descr(dtype),
            "fortran_order": False,
            "shape": array.shape,
        },
    )
    for piece in job.pieces(() if names else ("id",), names):
        _raw(file, piece.matrices[names[0]] if names else piece.fields["id"], dtype)


def _safetensors(job: _Job, file: BinaryIO) -> None:
    records = job.records
    fields = {
        f"{field}s": field for field in ("id", "position", "sequence") if field in records.fields
    }
    arrays = {name: ArraySpec((records.rows,), "int64") for name in fields}
    arrays |= {name: records.matrices[name] for name in records.several}
    # Tensors with larger numbers come first, so that each is aligned for readers that map the file.
    names = sorted(arrays, key=lambda name: -np.dtype(arrays[name].dtype).itemsize)
    metadata = {
        "run": _document(records.run).decode(),
        "columns": orjson.dumps(records.columns).decode(),
    }
    file.write(header({name: (arrays[name].dtype, arrays[name].shape) for name in names}, metadata))
    for name in names:
        dtype = np.dtype(arrays[name].dtype).newbyteorder("<")
        for piece in job.pieces((fields[name],)) if name in fields else job.pieces((), (name,)):
            _raw(
                file, piece.fields[fields[name]] if name in fields else piece.matrices[name], dtype
            )


def _parquet(job: _Job, file: BinaryIO) -> None:
    """Write the table of `table`, some rows as a row group."""
    import pyarrow
    from pyarrow import parquet

    schema, batches = _batches(job)
    settings = {
        "compression": "none",
        "use_dictionary": ["token"],
        "write_statistics": [*job.records.fields],
    }
    with parquet.ParquetWriter(file, schema, **settings) as writer:
        group: list[Any] = []
        for batch in batches:
            group.append(batch)
            if sum(each.nbytes for each in group) >= _ROW_GROUP:
                writer.write_table(pyarrow.Table.from_batches(group))
                group.clear()
        if group:
            writer.write_table(pyarrow.Table.from_batches(group))


def table(records: Records) -> Any:
    """Return the fields of each row and its `vector`, a list of fixed size, as a `pyarrow.Table`."""
    import pyarrow

    schema, batches = _batches(_Job(records, Notes(), unwatched))
    return pyarrow.Table.from_batches(batches, schema)


def _batches(job: _Job) -> tuple[Any, Iterator[Any]]:
    """Return the schema of a result, and copies of its pieces, whose arrays are valid only until the next piece."""
    import pyarrow

    records, names = job.records, job.flat
    types: dict[Any, Any] = {str: pyarrow.string(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    columns = [(name, types.get(kind, pyarrow.int64())) for name, kind in records.fields.items()]
    for array in map(records.matrices.__getitem__, names):
        columns.append(
            ("vector", pyarrow.list_(pyarrow.from_numpy_dtype(array.dtype), array.shape[1]))
        )
    schema = pyarrow.schema(
        columns, {"run": _document(records.run), "columns": orjson.dumps(records.columns)}
    )

    def batches() -> Iterator[Any]:
        for piece in job.pieces(records.fields, names):
            arrays = [
                pyarrow.array(copy(values), schema.field(name).type)
                for name, values in piece.fields.items()
            ]
            for matrix in piece.matrices.values():
                values = pyarrow.array(matrix.flatten())
                arrays.append(
                    pyarrow.FixedSizeListArray.from_arrays(values, type=schema.field("vector").type)
                )
            yield pyarrow.record_batch(arrays, schema)

    return schema, batches()


def _ids(job: _Job, file: BinaryIO) -> None:
    """Write IDs between spaces, a line for each sequence."""
    line, between, many = 0, b"", "sequence" in job.records.fields
    for piece in job.pieces(("sequence", "id") if many else ("id",)):
        sequence = piece.fields["sequence"] if many else np.zeros(piece.rows, np.int64)
        borders = np.flatnonzero(np.diff(sequence)) + 1
        for number, ids in zip(
            sequence[[0, *borders]].tolist(), np.split(piece.fields["id"], borders), strict=True
        ):
            if number != line:
                file.write(b"\n" * (number - line))
                line, between = number, b""
            file.write(between + _numbers(ids).replace(b",", b" "))
            between = b" "
    file.write(b"\n" * max(job.records.sequences - line, 0))


def _document(value: Any) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY)
    except TypeError:  # a lone surrogate, which is rare
        return orjson.dumps(_encodable(value), option=orjson.OPT_SERIALIZE_NUMPY)


def _encodable(value: Any) -> Any:
    """Return a value whose texts UTF-8 can encode."""
    if isinstance(value, str):
        return in_data(value)
    if isinstance(value, dict):
        return {_encodable(name): _encodable(each) for name, each in value.items()}
    return list(map(_encodable, value)) if isinstance(value, list | tuple) else value


def _numbers(values: np.ndarray) -> bytes:
    """Return numbers, (n,), as text between commas; NaN and infinity as nan, inf and -inf."""
    text = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY)[1:-1]
    if np.isfinite(values).all():
        return text
    words = text.split(b",")
    for place in np.flatnonzero(~np.isfinite(values)).tolist():
        words[place] = str(values[place]).encode()
    return b",".join(words)


def _raw(file: BinaryIO, values: np.ndarray, dtype: np.dtype[Any]) -> None:
    file.write(np.ascontiguousarray(values, dtype).reshape(-1).view(np.uint8).data)
