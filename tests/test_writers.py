"""Writers: every value of every result is read back from every format, and nothing is asked for that is not written."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.numpy
from hypothesis import example, given
from hypothesis import strategies as st

import embcli
from embcli import formats
from embcli.errors import Notes, OutputError
from embcli.records import ArraySpec, Names, Piece, Records, listed
from embcli.writers import write
from tests.oracles import assert_same_bits
from tests.readers import SEPARATED, float32, from_csv, from_json, from_ndjson, from_tsv, written

AWKWARD = [
    "\x00",
    "\r\n",
    "\r",
    "\n",
    "\t",
    '"',
    ",",
    '",',
    '","',
    "],[",
    ",\n  ",
    "\\",
    "\\n",
    "🦜",
    "\u2028",
    " ",
]
texts = st.lists(st.one_of(st.sampled_from(AWKWARD), st.text(max_size=4)), max_size=5).map("".join)
FOLDERS = [each.name for each in formats.ROWS if each.folder]
NO_NUMBERS = "JSON has no NaN and no infinity: they are written as null; other formats keep them"


@dataclass
class Result:
    """Fields and matrices that come in pieces, each of them spoilt as soon as the next one is asked for."""

    fields: dict[str, Any]
    matrices: dict[str, np.ndarray] = field(default_factory=dict)
    step: int = 2
    asked: list[tuple[Names, Names]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        return len(next(iter([*self.fields.values(), *self.matrices.values()])))

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        self.asked.append((fields, matrices))
        for start in range(0, self.rows, self.step):
            part = slice(start, start + self.step)
            values = {name: self.fields[name][part] for name in fields}
            arrays = {
                name: np.array(each)
                for name, each in values.items()
                if isinstance(each, np.ndarray)
            }
            blocks = {name: np.array(self.matrices[name][part]) for name in matrices}
            yield Piece(min(self.step, self.rows - start), values | arrays, blocks)
            for array in (*arrays.values(), *blocks.values()):
                array.view(np.uint8)[...] = 0xAA

    def records(self, **more: Any) -> Records:
        arrays = {
            name: ArraySpec(matrix.shape, str(matrix.dtype))
            for name, matrix in self.matrices.items()
        }
        default = next(iter(arrays), None)
        return Records(
            **{"run": {}, "unit": "rows", "default": default, **more},
            rows=self.rows,
            fields={name: str if name == "token" else int for name in self.fields},
            pieces=self.pieces,
            matrices=arrays,
        )


def from_bits(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


@st.composite
def results(draw: st.DrawFn) -> Result:
    rows, dim = draw(st.integers(0, 7)), draw(st.sampled_from([1, 2, 3, 32 + 1]))

    def column(each: st.SearchStrategy[Any]) -> list[Any]:
        return draw(st.lists(each, min_size=rows, max_size=rows))

    fields = {
        **{
            name: np.array(column(st.integers(0, 2**63 - 1)), np.int64)
            for name in ("sequence", "position", "id")
        },
        "short": np.array(column(st.integers(0, 2**32 - 1)), np.uint32),
        "token": column(texts),
        "fault": column(st.one_of(st.none(), texts)),
        "carried": column(st.booleans()),
        "difference": column(st.floats(allow_nan=False, allow_infinity=False)),
    }
    kept = draw(st.lists(st.sampled_from([*fields]), min_size=1, unique=True))
    bits = st.lists(st.integers(0, 2**32 - 1), min_size=rows * dim, max_size=rows * dim)
    shown = draw(st.lists(st.sampled_from(["token", "position", "input"]), max_size=3, unique=True))
    matrices = {name: from_bits(draw(bits)).reshape(rows, dim) for name in shown}
    return Result({name: fields[name] for name in kept}, matrices, draw(st.integers(1, 4)))


def assert_told(found: list[list[float | None]], matrix: np.ndarray) -> None:
    """Hold rows of JSON against a matrix: its finite numbers, bit for bit, and null."""
    finite = np.isfinite(matrix)
    assert [[value is not None for value in row] for row in found] == finite.tolist()
    numbers = [[0.0 if value is None else value for value in row] for row in found]
    assert_same_bits(
        float32(numbers).reshape(matrix.shape), np.where(finite, matrix, np.float32(0))
    )


def assert_written(found: list[list[str]], matrix: np.ndarray) -> None:
    """Hold rows of csv or tsv against a matrix: its numbers, bit for bit, whatever NaN they are."""
    numbers = float32([list(map(float, row)) for row in found]).reshape(matrix.shape)
    canonical = np.where(np.isnan(matrix), np.float32(np.nan), matrix)
    assert_same_bits(np.where(np.isnan(numbers), np.float32(np.nan), numbers), canonical)


# --- any result ---------------------------------------------------------------------------------------------------


@given(result=results())
def test_any_result_is_read_back_from_every_format(
    result: Result, tmp_path_factory: pytest.TempPathFactory
) -> None:
    width = next((matrix.shape[1] for matrix in result.matrices.values()), 2)
    numbers = [*range(3, 3 + width)]
    records = result.records(
        more={"verdict": [1, None]}, run={"embcli": "1"}, columns=tuple(numbers)
    )
    told = {"run": {"embcli": "1"}, "columns": numbers}
    columns = {
        name: each.tolist() if isinstance(each, np.ndarray) else each
        for name, each in result.fields.items()
    }
    wanted = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]

    rows = from_ndjson(written(records, "ndjson"))
    vectors = [row.pop("vectors", None) for row in rows]
    assert [[*row.items()] for row in rows] == [[*row.items()] for row in wanted]  # in their order
    document = from_json(written(records, "json"))
    matrices = document.pop("matrices", {})
    assert document == {**told, "verdict": [1, None], "rows": rows}
    for name, matrix in result.matrices.items():
        assert_told([each[name] for each in vectors], matrix)
        assert_told(matrices[name], matrix)

    if (
        len(columns) > 1 or records.default
    ):  # an empty text alone in its row is an empty line, which readers leave out
        for form, read in SEPARATED.items():
            data = written(records, form)
            header, *lines = read(data)
            assert header == [*columns, *map(str, numbers if records.default else ())]
            texts_of_row = [
                ["" if value is None else str(value) for value in row.values()] for row in wanted
            ]
            assert [line[: len(columns)] for line in lines] == texts_of_row
            if records.default:
                assert_written(
                    [line[len(columns) :] for line in lines], result.matrices[records.default]
                )
            if form == "csv" and (
                sys.version_info >= (3, 11) or b"\0" not in data
            ):  # NUL: not in csv of Python 3.10
                csv.writer(file := io.StringIO()).writerows([header, *lines])
                assert data.decode() == file.getvalue()

    data = written(records, "safetensors")
    told_apart = {
        f"{name}s": result.fields[name]
        for name in ("id", "position", "sequence")
        if name in columns
    }
    arrays = told_apart | result.matrices
    tensors = safetensors.numpy.load(data)
    kinds = {name: (each.dtype, each.shape, each.tobytes()) for name, each in arrays.items()}
    assert {
        name: (each.dtype, each.shape, each.tobytes()) for name, each in tensors.items()
    } == kinds
    metadata = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
    assert {name: json.loads(text) for name, text in metadata.items()} == told
    for name, array in (
        result.matrices or {name: each for name, each in arrays.items() if name == "ids"}
    ).items():
        np.save(saved := io.BytesIO(), array)
        assert written(records, "npy", (name,) if result.matrices else None) == saved.getvalue()

    matrix = result.matrices.setdefault("input", np.zeros((result.rows, width), np.float32))
    kept = {
        name: each for name, each in result.fields.items() if name in ("id", "short", "token")
    }  # of embeddings
    data = written(
        replace(result, fields=kept).records(run=told["run"], columns=tuple(numbers)),
        "parquet",
        ("input",),
    )
    table = pyarrow.parquet.read_table(io.BytesIO(data))
    assert table.drop_columns(["vector"]).to_pylist() == [
        {name: row[name] for name in kept} for row in wanted
    ]
    vector = table["vector"].combine_chunks()
    assert vector.type == pyarrow.list_(pyarrow.float32(), width)
    assert vector.null_count == vector.flatten().null_count == 0
    assert_same_bits(vector.flatten().to_numpy().reshape(matrix.shape), matrix)
    assert {name: json.loads(table.schema.metadata[name.encode()]) for name in told} == told

    folder = tmp_path_factory.mktemp("projector")
    write(replace(result.records(), shown=("input",)), "projector", folder)
    parts = {path.name: path.read_bytes() for path in folder.iterdir()}
    config = parts.pop("projector_config.pbtxt").decode().split()
    assert (
        " ".join(config)
        == 'embeddings { tensor_path: "vectors.tsv" metadata_path: "metadata.tsv" }'
    )
    assert_written(
        [line.split("\t") for line in parts["vectors.tsv"].decode().splitlines()], matrix
    )
    metadata_lines = written(Result(result.fields).records(), "tsv")
    assert parts == {
        "vectors.tsv": parts["vectors.tsv"],
        "metadata.tsv": metadata_lines if len(columns) > 1 else metadata_lines.partition(b"\n")[2],
    }


@given(
    st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=4), max_size=5),
    st.integers(1, 4),
    st.booleans(),
)
@example([[], [1], [], [], [2, 3], []], 1, True)
def test_ids_are_a_line_for_each_sequence(lines: list[list[int]], step: int, many: bool) -> None:
    lines = lines if many else [[token_id for line in lines for token_id in line]]
    ids = np.array([token_id for line in lines for token_id in line], np.int64)
    sequence = np.array([place for place, line in enumerate(lines) for _ in line], np.int64)
    fields = {"sequence": sequence, "id": ids} if many else {"id": ids}
    data = written(Result(fields, step=step).records(sequences=len(lines)), "ids")
    assert data.decode() == "".join(" ".join(map(str, line)) + "\n" for line in lines)


# --- any shape ----------------------------------------------------------------------------------------------------

SHAPES = [
    np.arange(12, dtype=np.int64).reshape(3, 4) - 5,
    np.arange(24, dtype=np.float32).reshape(3, 4, 2) / 7,
    np.arange(24, dtype=np.int64).reshape(3, 2, 2, 2) * 10**17,
    np.array([3, 2**32 - 1, 0], np.uint32),
    np.array([1.5, np.nan, -np.inf], np.float32),
    np.zeros((3, 2, 0), np.float32),
]


@pytest.mark.parametrize("array", SHAPES, ids=lambda array: f"{array.dtype}{array.shape}")
def test_a_matrix_of_any_shape_and_type_is_read_back(array: np.ndarray) -> None:
    records = Result({"row": np.arange(3)}, {"inputs": array}).records()
    loaded = np.load(io.BytesIO(written(records, "npy")))
    tensor = safetensors.numpy.load(written(records, "safetensors"))["inputs"]
    for found in (loaded, tensor):
        assert (found.dtype, found.shape, found.tobytes()) == (
            array.dtype,
            array.shape,
            array.tobytes(),
        )
    nested = from_json(written(records, "json"))["matrices"]["inputs"]
    assert [row["vectors"]["inputs"] for row in from_ndjson(written(records, "ndjson"))] == nested
    numbers = np.array(nested, object).reshape(array.shape)
    finite = np.isfinite(array)
    assert np.array_equal(numbers[finite].astype(array.dtype), array[finite])
    assert all(value is None for value in numbers[~finite])


def test_tensors_are_aligned_whatever_their_types() -> None:
    matrices = {
        "a": np.ones((3, 1), np.float32),
        "b": np.ones((3, 2), np.int64),
        "c": np.ones((3, 2), np.uint32),
    }
    data = written(Result({"id": np.arange(3)}, matrices).records(), "safetensors")
    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    widths = {name: matrix.itemsize for name, matrix in matrices.items()} | {"ids": 8}
    starts = {name: entries[name]["data_offsets"][0] for name in widths}
    assert [name for name, width in widths.items() if (8 + length + starts[name]) % width] == []


def test_whole_numbers_have_no_decimal_point_in_csv() -> None:
    records = Result({"row": np.arange(2)}, {"inputs": np.array([[2**62, -1], [0, 7]])}).records()
    assert written(records, "csv") == b"row,0,1\r\n0,4611686018427387904,-1\r\n1,0,7\r\n"


@pytest.mark.parametrize("form", ["csv", "tsv", "parquet", "projector"])
@pytest.mark.parametrize("shape", [(3,), (3, 4, 2)])
def test_rows_that_are_no_rows_of_numbers_are_refused_before_anything_is_written(
    form: formats.DataFormat, shape: tuple[int, ...], tmp_path: Path
) -> None:
    result = Result({"row": np.arange(3)}, {"inputs": np.zeros(shape, np.float32)})
    file = io.BytesIO()
    with pytest.raises(
        OutputError,
        match=rf"^inputs is of shape {re.escape(str(shape))}, .* format npy holds it all$",
    ):
        write(result.records(), form, tmp_path if form == "projector" else file)
    assert (file.getvalue(), [*tmp_path.iterdir()], result.asked) == (b"", [], [])


# --- one case, whole output ---------------------------------------------------------------------------------------

WHOLE = {
    "json": '{"run":{"embcli":"1"},"columns":[4,9],\n"tokens":[\n{"position":0,"token":"\\"\\n"},\n'
    '{"position":1,"token":"é,\\t"}\n],\n"matrices":{\n"token":[\n[1.5,-0.0],\n[0.1,16777216.0]\n],\n'
    '"input":[\n[null,null],\n[null,0.1]\n]\n}}\n',
    "ndjson": '{"position":0,"token":"\\"\\n","vectors":{"token":[1.5,-0.0],"input":[null,null]}}\n'
    '{"position":1,"token":"é,\\t","vectors":{"token":[0.1,16777216.0],"input":[null,0.1]}}\n',
    "csv": 'position,token,4,9\r\n0,"""\n",nan,inf\r\n1,"é,\t",-inf,0.1\r\n',
    "tsv": 'position\ttoken\t4\t9\n0\t"\\n\tnan\tinf\n1\té,\\t\t-inf\t0.1\n',
}


@pytest.mark.parametrize("form", WHOLE)
@pytest.mark.parametrize("step", [1, 2])
def test_one_result_in_all_text_formats_whole(form: formats.DataFormat, step: int) -> None:
    token = np.array([[1.5, -0.0], [0.1, 2**24]], np.float32)
    other = np.array([[np.nan, np.inf], [-np.inf, 0.1]], np.float32)
    result = Result(
        {"position": np.arange(2), "token": ['"\n', "é,\t"]}, {"token": token, "input": other}, step
    )
    records = result.records(run={"embcli": "1"}, unit="tokens", columns=(4, 9), default="input")
    assert written(records, form, notes=(notes := Notes())).decode() == WHOLE[form]
    assert [*notes] == [NO_NUMBERS] * ("json" in form)


@pytest.mark.parametrize("step", [200, 16_384])
def test_more_numbers_than_are_written_at_a_time_are_read_back(step: int) -> None:
    """One row is left for the last block."""
    matrix = np.random.default_rng(1).standard_normal((16_384, 3), np.float32)
    records = Result({"id": np.arange(16_384)}, {"token": matrix}, step).records()
    for rows in (
        [row["vectors"]["token"] for row in from_ndjson(written(records, "ndjson"))],
        from_json(written(records, "json"))["matrices"]["token"],
        *(
            [row[1:] for row in read(written(records, form))[1:]]
            for form, read in SEPARATED.items()
        ),
    ):
        assert_same_bits(float32([list(map(float, row)) for row in rows]), matrix)


def test_parquet_of_many_numbers_has_several_row_groups() -> None:
    records = Result(
        {"id": np.arange(3000)}, {"token": np.ones((3000, 3000), np.float32)}, 500
    ).records()
    file = pyarrow.parquet.ParquetFile(io.BytesIO(written(records, "parquet")))
    assert (file.metadata.num_row_groups, file.metadata.num_rows) == (2, 3000)


def test_no_rows_are_a_result_too(tmp_path: Path) -> None:
    for records in (
        listed({}, "rows", file=(str, []), used=(str, [])),
        Result({"file": [], "used": np.zeros(0, np.int64)}).records(),
    ):
        assert from_json(written(records, "json")) == {"run": {}, "rows": []}
        assert written(records, "ndjson") == b""
        assert written(records, "csv") == b"file,used\r\n"
        assert written(records, "tsv") == b"file\tused\n"
    nothing = Result(
        {"id": np.zeros(0, np.int64)}, {"token": np.zeros((0, 3), np.float32)}
    ).records()
    assert from_json(written(nothing, "json"))["matrices"] == {"token": []}
    assert np.load(io.BytesIO(written(nothing, "npy"))).shape == (0, 3)
    assert safetensors.numpy.load(written(nothing, "safetensors"))["token"].shape == (0, 3)
    write(nothing, "projector", tmp_path)
    assert [path.read_bytes() for path in tmp_path.glob("*.tsv")] == [b"", b""]


def test_a_row_without_fields_is_an_object_still() -> None:
    records = Result({}, {"token": np.ones((2, 1), np.float32)}).records()
    assert from_ndjson(written(records, "ndjson")) == [{"vectors": {"token": [1.0]}}] * 2
    assert from_json(written(records, "json"))["rows"] == [{}, {}]


# --- what is asked for --------------------------------------------------------------------------------------------

ALL = ("sequence", "position", "id", "token")


@pytest.mark.parametrize(
    ("form", "show", "asked"),
    [
        ("json", None, [(ALL, ()), ((), ("token",)), ((), ("input",))]),
        ("json", ("input",), [(ALL, ()), ((), ("input",))]),
        ("ndjson", ("token",), [(ALL, ("token",))]),
        ("csv", None, [(ALL, ("token",))]),
        ("tsv", ("input",), [(ALL, ("input",))]),
        ("npy", None, [((), ("token",))]),
        ("npy", ("input",), [((), ("input",))]),
        (
            "safetensors",
            ("input",),
            [(("id",), ()), (("position",), ()), (("sequence",), ()), ((), ("input",))],
        ),
        ("parquet", None, [(ALL, ("token",))]),
        ("parquet", ("input",), [(ALL, ("input",))]),
        ("ids", None, [(("sequence", "id"), ())]),
        ("projector", ("input",), [(ALL, ("input",))]),
    ],
)
def test_nothing_is_asked_for_that_is_not_written(
    form: formats.DataFormat, show: Names | None, asked: list[tuple[Names, Names]], tmp_path: Path
) -> None:
    numbers = np.zeros((3, 2), np.float32)
    whole = np.zeros(3, np.int64)
    fields = {"sequence": whole, "position": whole, "id": whole, "token": ["a"] * 3}
    result = Result(fields, {"token": numbers, "input": numbers})
    if form in FOLDERS:
        write(replace(result.records(), shown=show), form, tmp_path)
    else:
        written(result.records(), form, show)
    assert result.asked == asked


def test_every_format_of_data_counts_the_rows_that_it_writes(tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def watched(
        pieces: Iterator[Piece], total: int, size: Callable[[Piece], int]
    ) -> Iterator[Piece]:
        seen.append((total, sum(map(size, pieces))))
        yield from ()

    records = Result({"id": np.arange(5)}, {"token": np.ones((5, 2), np.float32)}).records()
    for form in get_args(formats.DataFormat):
        write(records, form, tmp_path if form in FOLDERS else io.BytesIO(), watch=watched)
        assert {*seen} == {(5, 5)}, form
        seen.clear()


# --- any number ---------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.integers(0, 2**32 - 1).filter(lambda bits: bits & 0x7F800000 != 0x7F800000), min_size=1
    )
)
@example([0, 0x80000000, 1, 0x7F7FFFFF, 0x00800000, 0x007FFFFF, 0x3F800001, 0x4B800000, 0x5D000000])
def test_any_finite_float32_is_written_with_the_fewest_digits_that_give_it_back(
    bits: list[int],
) -> None:
    matrix = from_bits(bits)[:, None]
    records = Result({"id": np.arange(len(matrix))}, {"token": matrix}).records()
    words = [row[1] for row in from_csv(written(records, "csv"))[1:]]
    assert float32([[float(word)] for word in words]).tobytes() == matrix.tobytes()
    assert [row[1] for row in from_tsv(written(records, "tsv"))[1:]] == words
    notes = Notes()
    rows = [row["vectors"]["token"] for row in from_ndjson(written(records, "ndjson", notes=notes))]
    assert list(notes) == []
    assert float32(rows).tobytes() == matrix.tobytes()
    assert from_json(written(records, "json"))["matrices"]["token"] == rows
    for word, value in zip(words, matrix[:, 0], strict=True):
        digits = re.sub(r"[eE].*|[-.]", "", word).strip("0")
        assert len(digits) <= len(
            re.sub(r"[eE].*|[-.]", "", np.format_float_scientific(value)).strip("0")
        )


def test_a_field_of_numbers_is_written_as_a_matrix_is() -> None:
    records = Result({"difference": float32([np.nan, np.inf, 0.25]), "id": np.arange(3)}).records()
    notes = Notes()
    assert written(records, "csv", notes=notes) == b"difference,id\r\nnan,0\r\ninf,1\r\n0.25,2\r\n"
    assert list(notes) == []
    assert [row["difference"] for row in from_ndjson(written(records, "ndjson", notes=notes))] == [
        None,
        None,
        0.25,
    ]
    assert list(notes) == [NO_NUMBERS]


@pytest.mark.parametrize(
    ("shape", "numbers"), [((10**7 + 1, 1), "10,000,001"), ((10**6, 4, 5), "20,000,000")]
)
def test_a_large_json_document_says_what_reads_row_by_row(
    shape: tuple[int, ...], numbers: str
) -> None:
    notes = Notes()
    written(
        Records({}, "rows", 10**7, {}, lambda *_: iter(()), {"token": ArraySpec((10**7, 1))}),
        "json",
        notes=notes,
    )
    assert list(notes) == []
    written(
        Records({}, "rows", shape[0], {}, lambda *_: iter(()), {"token": ArraySpec(shape)}),
        "json",
        notes=notes,
    )
    remark = f"this JSON document holds {numbers} numbers; format ndjson can be read row by row, npy at once"
    assert list(notes) == [remark]


def test_a_read_only_file_is_not_replaced(tmp_path: Path) -> None:
    """Although replacing it needs no permission."""
    file = tmp_path / "mine.csv"
    file.write_text("mine")
    file.chmod(0o444)
    with pytest.raises(OutputError, match="it is read-only"):
        embcli.seeded(vocab=6, dim=3).weights().save(file)
    assert (file.read_text(), [*tmp_path.iterdir()]) == ("mine", [file])
