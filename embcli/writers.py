"""Results as data: json, ndjson, csv, tsv, npy, safetensors and IDs, written piece by piece.

Numbers are the shortest decimals that give the same float32 back; orjson finds them.
"""

from __future__ import annotations

import csv
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
import orjson

from embcli.errors import OutputError
from embcli.page.progress import progress
from embcli.safe import note

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from embcli.records import Piece, Records

_OPTIONS = orjson.OPT_SERIALIZE_NUMPY
_TSV_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})
_LARGE_JSON = 10_000_000  # numbers


def write(records: Records, form: str, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    """Write a result in one of the formats that are data; `show` names the matrices, as far as the user chose."""
    _WRITERS[form](records, show, file)


def _json(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    names = _several(records, show)
    numbers = sum(records.matrices[name][0] * records.matrices[name][1] for name in names)
    if numbers > _LARGE_JSON:
        note(f"this JSON document holds {numbers:,} numbers; -f ndjson can be read row by row, -f npy at once")
    head = {"run": records.run, **records.more}
    if records.columns:
        head["columns"] = list(records.columns)
    file.write(orjson.dumps(head)[:-1] + f',\n"{records.unit}":[\n'.encode())
    _joined(file, (orjson.dumps(row) for piece in records.pieces(()) for row in _rows(piece, records.fields)))
    file.write(b"\n]")
    if names:
        file.write(b',\n"matrices":{')
        for place, name in enumerate(names):
            file.write(f'{"," * (place > 0)}\n"{name}":[\n'.encode())
            pieces = progress(records.pieces((name,)), records.rows, file)
            _joined(file, (_finite(row) for piece in pieces for row in piece.matrices[name]))
            file.write(b"\n]")
        file.write(b"\n}")
    file.write(b"}\n")


def _ndjson(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    names = _several(records, show)
    for piece in progress(records.pieces(names), records.rows, file):
        if not all(np.isfinite(matrix).all() for matrix in piece.matrices.values()):
            _note_null()
        matrices = [(name, np.ascontiguousarray(piece.matrices[name])) for name in names]
        lines = []
        for place, row in enumerate(_rows(piece, records.fields)):
            if names:
                row["vectors"] = {name: matrix[place] for name, matrix in matrices}
            lines.append(orjson.dumps(row, option=_OPTIONS | orjson.OPT_APPEND_NEWLINE))
        file.write(b"".join(lines))


def _csv(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    def lines(rows: Iterable[tuple[Any, ...]]) -> list[str]:
        written: list[str] = []
        csv.writer(SimpleNamespace(write=written.append)).writerows(rows)
        return [line.removesuffix("\r\n") for line in written]

    _separated(records, show, file, lines, ",", "\r\n")


def _tsv(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    def cell(value: Any) -> str:
        return value.translate(_TSV_ESCAPES) if isinstance(value, str) else "" if value is None else str(value)

    def lines(rows: Iterable[tuple[Any, ...]]) -> list[str]:
        return ["\t".join(map(cell, row)) for row in rows]

    _separated(records, show, file, lines, "\t", "\n")


def _separated(
    records: Records,
    show: tuple[str, ...] | None,
    file: BinaryIO,
    lines: Callable[[Iterable[tuple[Any, ...]]], list[str]],
    between: str,
    end: str,
) -> None:
    name = _one(records, show)
    header = (*records.fields, *(records.columns if name else ()))
    file.write(f"{lines([header])[0]}{end}".encode())
    for piece in progress(records.pieces((name,) if name else ()), records.rows, file):
        rows = lines(_values(piece, records.fields))
        if name:
            decimals = _decimals(piece.matrices[name], between)
            rows = [f"{row}{between}{values}" for row, values in zip(rows, decimals, strict=True)]
        file.write("".join(f"{row}{end}" for row in rows).encode())


def _npy(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    name = _one(records, show)
    shape = records.matrices[name] if name else (records.rows,)
    kind = np.dtype("<f4" if name else "<i8")
    np.lib.format.write_array_header_1_0(
        file, {"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": shape}
    )
    for piece in progress(records.pieces((name,) if name else ()), records.rows, file):
        _raw(file, piece.matrices[name] if name else piece.fields()["id"], kind)


def _safetensors(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    from embcli.files.safetensors import header

    names = _several(records, show)
    arrays = {field + "s": field for field in ("id", "position", "sequence") if field in records.fields}
    # The wider numbers come first, so that readers who map the file find each tensor aligned.
    tensors: dict[str, tuple[str, tuple[int, ...]]] = dict.fromkeys(arrays, ("int64", (records.rows,)))
    tensors |= {name: ("float32", records.matrices[name]) for name in names}
    metadata = {"run": orjson.dumps(records.run).decode(), "columns": orjson.dumps(records.columns).decode()}
    file.write(header(tensors, metadata))
    for field in arrays.values():
        for piece in records.pieces(()):
            _raw(file, piece.fields()[field], np.dtype("<i8"))
    for name in names:
        for piece in progress(records.pieces((name,)), records.rows, file):
            _raw(file, piece.matrices[name], np.dtype("<f4"))


def _ids(records: Records, show: tuple[str, ...] | None, file: BinaryIO) -> None:
    """Write IDs between spaces, a line for each sequence."""
    now = 0
    between = b""
    for piece in records.pieces(()):
        fields = piece.fields()
        ids = fields["id"].tolist()
        if "sequence" not in fields:
            file.write(between + b" ".join(b"%d" % token_id for token_id in ids))
            between = b" "
            continue
        for sequence, token_id in zip(fields["sequence"].tolist(), ids, strict=True):
            if sequence != now:
                file.write(b"\n" * (sequence - now))
                now, between = sequence, b""
            file.write(between + b"%d" % token_id)
            between = b" "
    file.write(b"\n" * max(records.run.get("sequences", 1) - now, 0))


_WRITERS: dict[str, Callable[[Records, tuple[str, ...] | None, BinaryIO], None]] = {
    "json": _json,
    "ndjson": _ndjson,
    "csv": _csv,
    "tsv": _tsv,
    "npy": _npy,
    "safetensors": _safetensors,
    "ids": _ids,
}


def _several(records: Records, show: tuple[str, ...] | None) -> tuple[str, ...]:
    return tuple(name for name in records.matrices if show is None or name in show)


def _one(records: Records, show: tuple[str, ...] | None) -> str | None:
    if show is not None and len(show) > 1:
        raise OutputError(f"this format holds one matrix, not {', '.join(show)}; choose one with --show")
    return show[0] if show else records.default


def _values(piece: Piece, fields: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the values of each row's fields, as plain Python values."""
    found = piece.fields()
    columns = (values.tolist() if isinstance(values, np.ndarray) else values for values in map(found.get, fields))
    return zip(*columns, strict=True)


def _rows(piece: Piece, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for row in _values(piece, fields):
        yield dict(zip(fields, row, strict=True))


def _finite(values: np.ndarray) -> bytes:
    if not np.isfinite(values).all():
        _note_null()
    return orjson.dumps(np.ascontiguousarray(values), option=_OPTIONS)


def _note_null() -> None:
    note("JSON has no NaN and no infinity: they are written as null; -f csv, npy and safetensors keep them")


def _decimals(matrix: np.ndarray, between: str) -> Iterator[str]:
    """Yield the values of each row as text; NaN and infinity as nan, inf and -inf."""
    for values in np.ascontiguousarray(matrix):
        words = orjson.dumps(values, option=_OPTIONS)[1:-1].decode()
        if not np.isfinite(values).all():
            finite = zip(words.split(","), values.tolist(), strict=True)
            words = ",".join(str(value) if word == "null" else word for word, value in finite)
        yield words if between == "," else words.replace(",", between)


def _raw(file: BinaryIO, values: np.ndarray, kind: np.dtype[Any]) -> None:
    file.write(np.ascontiguousarray(values, kind).reshape(-1).view(np.uint8).data)


def _joined(file: BinaryIO, parts: Iterable[bytes]) -> None:
    between = b""
    for part in parts:
        file.write(between + part)
        between = b",\n"
