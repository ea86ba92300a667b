"""Other programs' readers read back what embcli writes: bit for bit what torch holds.

Each format has a reader here, which takes a file apart into the fields of its rows and its
matrices. It is the oracle of every test.
"""

from __future__ import annotations

import io
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
import safetensors.torch
import tiktoken
import torch
from pyarrow import parquet

import embcli as package
from embcli import encodings
from embcli.seeded_layers.seeded import Seeded
from tests.oracles import assert_same_bits, live, normal
from tests.readers import float32, from_csv, from_json, from_ndjson, from_tsv

Row = dict[str, Any]

TEXT = 'Tabs\tand\r\nlines, "quotes", \\n, 🦜 and שלום.'
GPT2 = Seeded(50257)
TYPES = {"position": int, "id": int, "token": str}
ONE_MATRIX = ("csv", "tsv", "npy", "parquet")  # the formats that hold one matrix


RUN = {
    "embcli": package.__version__,
    "encoding": "gpt2",
    "sequences": 1,
    "seed": 123,
    "shapes": {"token": [50257, 256], "position": [1024, 256]},
    "torch": torch.__version__,
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
}


# --- the readers ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Contents:
    """What a file holds, as another program reads it."""

    rows: list[Row]
    matrices: dict[str, np.ndarray]
    about: dict[str, Any] = field(default_factory=dict)  # the run and the columns


def read_json(path: Path, matrix: str) -> Contents:
    document = from_json(path.read_bytes())
    matrices = {name: float32(values) for name, values in document["matrices"].items()}
    rows = document.get("tokens") or document["rows"]
    return Contents(rows, matrices, document)


def read_ndjson(path: Path, matrix: str) -> Contents:
    rows = from_ndjson(path.read_bytes())
    vectors = [row.pop("vectors") for row in rows]
    matrices = {}
    for name in vectors[0]:
        matrices[name] = float32([each[name] for each in vectors])
    return Contents(rows, matrices)


def read_separated(parse: Callable[[bytes], list[list[str]]], path: Path, matrix: str) -> Contents:
    """Return what a table of text holds: first the fields of a row, then its 256 numbers."""
    header, *cells = parse(path.read_bytes())
    fields = header[:-256]
    assert header[len(fields) :] == [str(column) for column in range(256)]

    rows = []
    numbers = []
    for line in cells:
        named = zip(fields, line, strict=False)
        rows.append({name: TYPES[name](cell) for name, cell in named})
        numbers.append([float(cell) for cell in line[len(fields) :]])
    return Contents(rows, {matrix: float32(numbers)})


def read_npy(path: Path, matrix: str) -> Contents:
    values = np.load(path)
    saved = io.BytesIO()
    np.save(saved, values)
    assert saved.getvalue() == path.read_bytes()
    return Contents([], {matrix: values})


def read_safetensors(path: Path, matrix: str) -> Contents:
    tensors = safetensors.numpy.load_file(path)
    for name, tensor in safetensors.torch.load_file(path).items():
        assert tensor.numpy().tobytes() == tensors[name].tobytes()

    fields = {}
    for name in ("position", "id"):
        if f"{name}s" in tensors:
            fields[name] = tensors.pop(f"{name}s").tolist()
    rows = [dict(zip(fields, row, strict=True)) for row in zip(*fields.values(), strict=True)]

    with safetensors.safe_open(path, "numpy") as file:
        about = {key: json.loads(text) for key, text in file.metadata().items()}
    return Contents(rows, tensors, about)


def read_parquet(path: Path, matrix: str) -> Contents:
    table = parquet.read_table(path)
    numbers = table["vector"].combine_chunks().flatten().to_numpy()
    rows = table.drop_columns("vector").to_pylist()
    return Contents(rows, {matrix: numbers.reshape(-1, 256)})


# A reader takes the name of the matrix for a format that holds one and does not name it.
READERS: dict[str, Callable[[Path, str], Contents]] = {
    "json": read_json,
    "ndjson": read_ndjson,
    "csv": partial(read_separated, from_csv),
    "tsv": partial(read_separated, from_tsv),
    "npy": read_npy,
    "safetensors": read_safetensors,
    "parquet": read_parquet,
}


# --- the oracles ----------------------------------------------------------------------------------


@lru_cache
def gpt2() -> tiktoken.Encoding:
    """Return tiktoken's own class over the packaged ranks, which test_encodings checks."""
    return encodings.get("gpt2").tiktoken


def token_name(token_id: int) -> str:
    """Return a token as text, or its bytes as escapes."""
    data = gpt2().decode_single_token_bytes(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


def torch_matrices(ids: list[int]) -> dict[str, np.ndarray]:
    """Return the three matrices of IDs, as torch gives them."""
    token = live(GPT2)["token"][ids]
    position = live(GPT2)["position"][: len(ids)]
    added = torch.tensor(token) + torch.tensor(position)
    return {"token": token, "position": position, "input": added.numpy()}


def without_fields(rows: list[Row], *names: str) -> list[Row]:
    """Return rows without some of their fields."""
    return [{name: row[name] for name in row if name not in names} for row in rows]


def rows_in(form: str, rows: list[Row]) -> list[Row]:
    """Return what a format holds of rows: .npy no fields, safetensors only numbers."""
    if form == "npy":
        return []
    if form == "safetensors":
        return without_fields(rows, "token")
    return rows


# --- lookup and weights ---------------------------------------------------------------------------


@pytest.mark.parametrize("form", READERS)
@pytest.mark.parametrize("show", [None, "token", "position"])
def test_lookup_holds_the_tokens_and_the_matrices_of_torch(in_process, tmp_path, show, form):
    path = tmp_path / f"lookup.{form}"
    options = ["--show", show] if show else []
    in_process.ok("lookup", TEXT, "-o", str(path), *options)

    contents = READERS[form](path, show or "input")
    ids = gpt2().encode_ordinary(TEXT)
    rows = []
    for place, token_id in enumerate(ids):
        rows.append({"position": place, "id": token_id, "token": token_name(token_id)})
    assert contents.rows == rows_in(form, rows)

    expected = torch_matrices(ids)
    for name, matrix in contents.matrices.items():
        assert_same_bits(matrix, expected[name])
    if show is None and form not in ONE_MATRIX:
        assert contents.matrices.keys() == expected.keys()
    else:
        assert list(contents.matrices) == [show or "input"]

    if form in ("json", "safetensors"):
        assert contents.about["columns"] == list(range(256))
        assert contents.about["run"] == RUN


# --- rankings -------------------------------------------------------------------------------------


def nan_as_none(row: Row) -> Row:
    """Return a row with None, as JSON has it, in place of NaN."""
    return {name: None if value != value else value for name, value in row.items()}


@pytest.mark.parametrize(
    "command",
    [
        "neighbors --ids 2,3 --lines --dim 3 --vocab 6 -k 3",
        'neighbors "Every effort" --dim 8',
        "diff base.npy tuned.npy --encoding gpt2",
    ],
)
def test_parquet_holds_the_rows_that_ndjson_holds(in_process, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    base = normal(50, 4)
    base[7] = np.nan
    np.save("base.npy", base)
    np.save("tuned.npy", np.concatenate([base[:40], base[:3] * 2]))
    words = shlex.split(command)

    in_process(*words, "-o", "rows.parquet")
    as_ndjson = in_process(*words, "-f", "ndjson")

    lines = without_fields(from_ndjson(as_ndjson.out), "vectors")
    rows = parquet.read_table("rows.parquet").to_pylist()
    assert [nan_as_none(row) for row in rows] == lines
    assert len(rows) > 2
