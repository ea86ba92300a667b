"""Writers: every format gives back every value of any result, and asks for nothing else."""

from __future__ import annotations

import copy
import csv
import io
import json
import re
import struct
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow.parquet
import pytest
import safetensors.numpy
from hypothesis import assume, example, given, strategies as st

import embcli
from embcli.errors import Notes, OutputError
from embcli.records import ArraySpec, Names, Piece, Records
from tests.cases import cases
from tests.oracles import assert_same_bits
from tests.readers import (
    SEPARATED,
    as_npy,
    float32,
    from_csv,
    from_json,
    from_ndjson,
    from_tsv,
    written,
)

AWKWARD = [
    *("\x00", "\r\n", "\r", "\n", "\t", "\\", "\\n"),
    *('"', ",", '",', '","', "],[", ",\n  "),
    *("🦜", "\u2028", " "),
]
texts = st.lists(st.one_of(st.sampled_from(AWKWARD), st.text(max_size=4)), max_size=5).map("".join)
RUN = {"embcli": "1"}


@dataclass
class Result:
    """Fields and matrices that come in pieces; a piece is spoilt when the next one is asked for."""

    fields: dict[str, Any]
    matrices: dict[str, np.ndarray] = field(default_factory=dict)
    step: int = 2
    asked: list[tuple[Names, Names]] = field(default_factory=list)

    @property
    def rows(self) -> int:
        columns = [*self.fields.values(), *self.matrices.values()]
        return len(columns[0])

    @property
    def column_numbers(self) -> tuple[int, ...]:
        """The numbers of the matrices' columns, which begin at 3."""
        widths = [matrix.shape[1] for matrix in self.matrices.values()] or [2]
        return tuple(range(3, 3 + widths[0]))

    def pieces(self, fields: Names, matrices: Names) -> Iterator[Piece]:
        self.asked.append((fields, matrices))
        for start in range(0, max(self.rows, 1), self.step):  # no rows are an empty piece
            part = slice(start, start + self.step)
            columns = {name: copy.copy(self.fields[name][part]) for name in fields}
            blocks = {name: self.matrices[name][part].copy() for name in matrices}
            yield Piece(min(self.step, self.rows - start), columns, blocks)
            for values in (*columns.values(), *blocks.values()):
                if isinstance(values, np.ndarray):
                    values.view(np.uint8)[...] = 0xAA

    def records(self, **changes: Any) -> Records:
        specs = {
            name: ArraySpec(matrix.shape, str(matrix.dtype))
            for name, matrix in self.matrices.items()
        }
        types = {name: str if name == "token" else int for name in self.fields}
        default = next(iter(specs), None)
        records = Records({}, "rows", self.rows, types, self.pieces, specs, default=default)
        return replace(records, **changes)

    def labelled(self, **changes: Any) -> Records:
        """Return records that say which run they are of and what their columns' numbers are."""
        return self.records(run=RUN, columns=self.column_numbers, **changes)

    def dictionaries(self) -> list[dict[str, Any]]:
        """Return the rows as dictionaries of Python's own values."""
        columns = [np.array(values, object).tolist() for values in self.fields.values()]
        return [dict(zip(self.fields, row, strict=True)) for row in zip(*columns, strict=True)]

    def with_input(self) -> Result:
        """Return the result with a matrix `input`, of zeros if it has none."""
        zeros = np.zeros((self.rows, len(self.column_numbers)), np.float32)
        return replace(self, matrices={"input": zeros} | self.matrices)


def from_bits(bits: list[int]) -> np.ndarray:
    return np.array(bits, np.uint32).view(np.float32)


# Each field of a result: its values, and the type of their array; None for a list.
FIELDS: dict[str, tuple[st.SearchStrategy[Any], Any]] = {
    "sequence": (st.integers(0, 2**63 - 1), np.int64),
    "position": (st.integers(0, 2**63 - 1), np.int64),
    "id": (st.integers(0, 2**63 - 1), np.int64),
    "short": (st.integers(0, 2**32 - 1), np.uint32),
    "token": (texts, None),
    "fault": (st.one_of(st.none(), texts), None),
    "difference": (st.floats(allow_nan=False, allow_infinity=False), None),
}
some_fields = st.lists(st.sampled_from([*FIELDS]), min_size=1, unique=True)
some_matrices = st.lists(st.sampled_from(["token", "position", "input"]), unique=True)


@st.composite
def results(draw: st.DrawFn) -> Result:
    rows = draw(st.integers(0, 7))
    dim = draw(st.sampled_from([1, 2, 3, 33]))

    fields = {}
    for name in draw(some_fields):
        values, dtype = FIELDS[name]
        column = draw(st.lists(values, min_size=rows, max_size=rows))
        fields[name] = column if dtype is None else np.array(column, dtype)

    size = rows * dim
    bits = st.lists(st.integers(0, 2**32 - 1), min_size=size, max_size=size)
    matrices = {name: from_bits(draw(bits)).reshape(rows, dim) for name in draw(some_matrices)}
    return Result(fields, matrices, draw(st.integers(1, 4)))


def of_matrix(matrix: np.ndarray, name: str = "token", step: int = 2) -> Records:
    """Return records of one matrix, whose rows have their numbers as IDs."""
    return Result({"id": np.arange(len(matrix))}, {name: matrix}, step).records()


def document(records: Records, notes: Notes | None = None) -> dict[str, Any]:
    """Return the JSON document of records."""
    return from_json(written(records, "json", notes=notes))


def objects(records: Records, notes: Notes | None = None) -> list[dict[str, Any]]:
    """Return the objects of records as ndjson."""
    return from_ndjson(written(records, "ndjson", notes=notes))


def vectors(records: Records, name: str = "token") -> list[Any]:
    """Return the rows of a matrix as ndjson has them."""
    return [row["vectors"][name] for row in objects(records)]


def assert_in_json(found: list[list[float | None]], matrix: np.ndarray) -> None:
    """Hold rows of JSON against a matrix: its finite numbers, bit for bit, and null."""
    values = np.array(found, object).reshape(matrix.shape)
    is_null = np.equal(values, None)
    assert np.array_equal(is_null, ~np.isfinite(matrix))
    assert_same_bits(float32(np.where(is_null, 0, values)), np.where(is_null, 0, matrix))


def assert_in_text(found: list[list[str]], matrix: np.ndarray) -> None:
    """Hold rows of csv or tsv against a matrix: its numbers, bit for bit, whatever NaN they are."""
    numbers = float32(found).reshape(matrix.shape)
    assert np.array_equal(np.isnan(numbers), np.isnan(matrix))
    assert_same_bits(_without_nan(numbers), _without_nan(matrix))


def _without_nan(matrix: np.ndarray) -> np.ndarray:
    return np.nan_to_num(matrix, posinf=np.inf, neginf=-np.inf)


def assert_same_arrays(found: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    """Hold arrays against others of the same names: type, shape and bytes."""
    assert found.keys() == expected.keys()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


# --- any result -----------------------------------------------------------------------------------


@given(result=results())
def test_json_and_ndjson_give_back_any_result(result):
    records = result.labelled(more={"verdict": [1, None]})

    rows = objects(records)
    whole = document(records)
    blocks = [row.pop("vectors", {}) for row in rows]
    matrices = whole.pop("matrices", {})

    expected = result.dictionaries()
    assert rows == expected
    assert [[*row] for row in rows] == [[*row] for row in expected]  # The order holds, too.
    assert whole.pop("rows") == expected
    columns = [*result.column_numbers]
    assert whole == {"run": RUN, "columns": columns, "verdict": [1, None]}
    assert matrices.keys() == result.matrices.keys()
    for name, matrix in result.matrices.items():
        assert_in_json([row[name] for row in blocks], matrix)
        assert_in_json(matrices[name], matrix)


@pytest.mark.parametrize("form", SEPARATED)
@given(result=results())
def test_separated_values_give_back_any_result(form, result):
    records = result.labelled()
    # An empty text as the only value of a row is an empty line, which readers leave out.
    assume(len(result.fields) > 1 or records.default)

    header, *lines = SEPARATED[form](written(records, form))

    count = len(result.fields)
    assert header[:count] == [*result.fields]
    for line, row in zip(lines, result.dictionaries(), strict=True):
        assert line[:count] == ["" if value is None else str(value) for value in row.values()]
    if records.default is None:
        assert len(header) == count
    else:
        assert header[count:] == [str(number) for number in result.column_numbers]
        assert_in_text([line[count:] for line in lines], result.matrices[records.default])


@given(result=results())
def test_csv_is_what_the_standard_library_writes(result):
    assume(len(result.fields) > 1)
    data = written(result.labelled(), "csv")
    # The csv module of Python 3.10 does not know NUL.
    assume(sys.version_info >= (3, 11) or b"\0" not in data)

    file = io.StringIO()
    csv.writer(file).writerows(from_csv(data))

    assert data.decode() == file.getvalue()


@given(result=results())
def test_safetensors_and_npy_give_back_the_arrays_of_any_result(result):
    arrays = dict(result.matrices)
    for name in ("id", "position", "sequence"):
        if name in result.fields:
            arrays[f"{name}s"] = result.fields[name]

    data = written(result.labelled(), "safetensors")

    assert_same_arrays(safetensors.numpy.load(data), arrays)
    header_length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + header_length])["__metadata__"]
    assert json.loads(metadata["run"]) == RUN
    assert json.loads(metadata["columns"]) == [*result.column_numbers]
    assert len(metadata) == 2

    for name, matrix in result.matrices.items():
        assert written(result.labelled(), "npy", (name,)) == as_npy(matrix)
    if "ids" in arrays and not result.matrices:
        assert written(result.labelled(), "npy") == as_npy(arrays["ids"])


@given(result=results())
def test_parquet_gives_back_any_result_with_a_matrix(result):
    result = result.with_input()
    for name in {*result.fields} - {"id", "short", "token"}:  # Rows of embeddings have only these.
        del result.fields[name]
    rows = result.dictionaries() if result.fields else [{}] * result.rows

    data = written(result.labelled(), "parquet", ("input",))

    table = pyarrow.parquet.read_table(io.BytesIO(data))
    assert table.drop_columns(["vector"]).to_pylist() == rows
    matrix = result.matrices["input"]
    vector = table["vector"].combine_chunks()
    values = vector.flatten()
    assert vector.type == pyarrow.list_(pyarrow.float32(), matrix.shape[1])
    assert vector.null_count == 0
    assert values.null_count == 0
    assert_same_bits(values.to_numpy().reshape(matrix.shape), matrix)
    assert json.loads(table.schema.metadata[b"run"]) == RUN
    assert json.loads(table.schema.metadata[b"columns"]) == [*result.column_numbers]


@given(st.lists(st.lists(st.integers(0, 2**63 - 1), max_size=4), max_size=5), st.integers(1, 4))
@example([[], [1], [], [], [2, 3], []], 1)
def test_ids_are_a_line_for_each_sequence(sequences, step):
    ids = np.array([token_id for ids in sequences for token_id in ids], np.int64)
    lengths = [len(ids) for ids in sequences]
    places = np.repeat(np.arange(len(sequences)), lengths)
    lines = [" ".join(map(str, ids)) + "\n" for ids in sequences]

    many = Result({"sequence": places, "id": ids}, step=step)
    assert written(many.records(sequences=len(sequences)), "ids").decode() == "".join(lines)

    one = Result({"id": ids}, step=step)
    assert written(one.records(), "ids").decode() == " ".join(map(str, ids)) + "\n"


# --- any shape ------------------------------------------------------------------------------------


@cases
def test_a_matrix_of_any_shape_and_type_is_read_back(dtype, values):
    array = np.array(values, dtype)
    records = Result({"row": np.arange(3)}, {"inputs": array}).records()

    loaded = np.load(io.BytesIO(written(records, "npy")))
    assert_same_arrays({"inputs": loaded}, {"inputs": array})
    tensors = safetensors.numpy.load(written(records, "safetensors"))
    assert_same_arrays(tensors, {"inputs": array})

    nested = document(records)["matrices"]["inputs"]
    assert vectors(records, "inputs") == nested
    numbers = np.array(nested, object).reshape(array.shape)
    finite = np.isfinite(array)
    assert np.array_equal(numbers[finite].astype(array.dtype), array[finite])
    assert all(value is None for value in numbers[~finite])


def test_tensors_are_aligned_whatever_their_types():
    matrices = {
        "a": np.ones((3, 1), np.float32),
        "b": np.ones((3, 2), np.int64),
        "c": np.ones((3, 2), np.uint32),
    }
    data = written(Result({"id": np.arange(3)}, matrices).records(), "safetensors")

    (length,) = struct.unpack("<Q", data[:8])
    entries = json.loads(data[8 : 8 + length])
    for name, width in {"a": 4, "b": 8, "c": 4, "ids": 8}.items():
        start = entries[name]["data_offsets"][0]
        assert (8 + length + start) % width == 0


def test_whole_numbers_have_no_decimal_point_in_csv():
    records = Result({"row": np.arange(2)}, {"inputs": np.array([[2**62, -1], [0, 7]])}).records()
    assert written(records, "csv") == b"row,0,1\r\n0,4611686018427387904,-1\r\n1,0,7\r\n"


# --- texts as a whole -----------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "tsv"])
@pytest.mark.parametrize("step", [1, 2])
def test_a_small_result_is_written_as_ever(form, step, snapshot):
    fields = {"position": np.arange(2), "token": ['"\n', "é,\t"]}
    matrices = {
        "token": float32([[1.5, -0.0], [0.1, 2**24]]),
        "input": float32([[np.nan, np.inf], [-np.inf, 0.1]]),
    }
    result = Result(fields, matrices, step)
    records = result.records(run=RUN, unit="tokens", columns=(4, 9), default="input")

    data = written(records, form)

    snapshot(f"writers/small-result.{form}", data.decode())


def test_a_note_says_what_json_lacks(snapshot):
    notes = Notes()
    written(of_matrix(float32([[np.nan]])), "json", notes=notes)
    snapshot("writers/notes.txt", "\n".join(notes) + "\n")


# --- a row without fields -------------------------------------------------------------------------


def test_a_row_without_fields_is_still_an_object():
    records = Result({}, {"token": np.ones((2, 1), np.float32)}).records()
    assert objects(records) == [{"vectors": {"token": [1.0]}}] * 2
    assert document(records)["rows"] == [{}, {}]


# --- any number -----------------------------------------------------------------------------------

finite_bits = st.integers(0, 2**32 - 1).filter(lambda bits: bits & 0x7F800000 != 0x7F800000)
EXTREME_BITS = [
    *(0, 0x80000000, 1, 0x7F7FFFFF),
    *(0x00800000, 0x007FFFFF, 0x3F800001, 0x4B800000, 0x5D000000),
]


def significant_digits(number: str) -> str:
    """Return the digits of a number without its sign, point, exponent and outer zeros."""
    return re.sub(r"[eE].*|[-.]", "", number).strip("0")


@given(st.lists(finite_bits, min_size=1))
@example(EXTREME_BITS)
def test_any_finite_float32_has_the_fewest_digits_that_give_it_back(bits):
    values = from_bits(bits)
    records = of_matrix(values[:, None])

    numbers = [line[1] for line in from_csv(written(records, "csv"))[1:]]

    assert_same_bits(float32(numbers), values)
    for number, value in zip(numbers, values, strict=True):
        shortest = np.format_float_scientific(value)
        assert len(significant_digits(number)) <= len(significant_digits(shortest))
    assert [line[1] for line in from_tsv(written(records, "tsv"))[1:]] == numbers


def test_a_field_of_numbers_is_written_as_a_matrix_is():
    records = Result({"difference": float32([np.nan, np.inf, 0.25]), "id": np.arange(3)}).records()
    notes = Notes()

    assert written(records, "csv", notes=notes) == b"difference,id\r\nnan,0\r\ninf,1\r\n0.25,2\r\n"
    assert [*notes] == []

    rows = objects(records, notes)
    assert [row["difference"] for row in rows] == [None, None, 0.25]
    assert len([*notes]) == 1


def test_a_read_only_file_is_not_replaced(tmp_path):
    """Replacing it needs no permission, but its owner has said no."""
    file = tmp_path / "mine.csv"
    file.write_text("mine")
    file.chmod(0o444)

    with pytest.raises(OutputError, match="read-only"):
        embcli.seeded(vocab=6, dim=3).weights().save(file)

    assert file.read_text() == "mine"
    assert [*tmp_path.iterdir()] == [file]
