"""What embcli writes is read back by other programs' readers, bit for bit what torch holds, in every format."""

from __future__ import annotations

import io
import json
import shlex
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import tiktoken
import torch
from pyarrow import parquet

import embcli as package
from embcli import encodings
from embcli.model import Model
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import SeededSource
from tests.oracles import assert_same_bits, live
from tests.readers import SEPARATED, float32, from_json, from_ndjson, written
from tests.runners import InProcess

MATRICES = ("token", "position", "input")
TEXT = 'Tabs\tand\r\nlines, "quotes", \\n, 🦜 and שלום.'
ROWS = [*range(5), 50256, 220, 220]
GPT2, TOY = Seeded(50257), Seeded(6, 3)
FORMS = ["json", "ndjson", "csv", "tsv", "npy", "safetensors", "parquet"]
ONE = ("csv", "tsv", "npy", "parquet")  # the formats of one matrix


@lru_cache
def gpt2() -> tiktoken.Encoding:
    """Return tiktoken's own class over the packaged ranks; a test of encodings holds these against tiktoken's."""
    return encodings.get("gpt2").tiktoken


def expected(text: str) -> tuple[list[int], dict[str, np.ndarray]]:
    """Return the IDs of a text and its three matrices, as torch gives them."""
    ids = gpt2().encode_ordinary(text)
    token, position = live(GPT2)["token"][ids], live(GPT2)["position"][: len(ids)]
    return ids, {
        "token": token,
        "position": position,
        "input": (torch.tensor(token) + torch.tensor(position)).numpy(),
    }


def as_token(token_id: int) -> str:
    data = gpt2().decode_single_token_bytes(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


def taken_apart(
    data: bytes, form: str, name: str, fields: int
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Return the fields of each row and the matrices of a file; `name` is the matrix of a format that holds one."""
    if form == "json":
        document = from_json(data)
        rows = document["tokens" if "tokens" in document else "rows"]
        return rows, {name: float32(each) for name, each in document["matrices"].items()}
    if form == "ndjson":
        rows = from_ndjson(data)
        vectors = [row.pop("vectors") for row in rows]
        return rows, {name: float32([each[name] for each in vectors]) for name in vectors[0]}
    if form in SEPARATED:
        header, *cells = SEPARATED[form](data)
        assert header[fields:] == [*map(str, range(256))]
        numbers = float32([list(map(float, row[fields:])) for row in cells])
        rows = [dict(zip(header, row[:fields], strict=False)) for row in cells]
        return [
            {key: each if key == "token" else int(each) for key, each in row.items()}
            for row in rows
        ], {name: numbers}
    if form == "npy":
        return [], {name: np.load(io.BytesIO(data))}
    if form == "safetensors":
        tensors = safetensors.numpy.load(data)
        named = {
            field: tensors.pop(f"{field}s").tolist()
            for field in ("position", "id")
            if f"{field}s" in tensors
        }
        return [
            dict(zip(named, each, strict=True)) for each in zip(*named.values(), strict=True)
        ], tensors
    table = parquet.read_table(io.BytesIO(data))
    numbers = table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 256)
    return table.drop_columns("vector").to_pylist(), {name: numbers}


# --- lookup and weights -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [None, "token", "position"])
def test_lookup_in_every_format_holds_the_tokens_and_the_matrices_of_torch(
    in_process: InProcess, tmp_path: Path, form: str, name: str | None
) -> None:
    """A format that holds one matrix holds the input, unless another one is chosen."""
    ids, matrices = expected(TEXT)
    path = tmp_path / f"lookup.{form}"
    in_process.ok("lookup", TEXT, "-o", str(path), *(("--show", name) if name else ()))
    data = path.read_bytes()
    rows, found = taken_apart(data, form, name or "input", 3)
    assert {*found} == ({name or "input"} if form in ONE or name else {*MATRICES})
    for each, numbers in found.items():
        assert_same_bits(numbers, matrices[each])
    told = {
        "position": lambda place: place,
        "id": ids.__getitem__,
        "token": lambda place: as_token(ids[place]),
    }
    fields = {"npy": [], "safetensors": ["position", "id"]}.get(form, [*told])
    assert rows == [
        {field: told[field](place) for field in fields}
        for place in range(len(ids) if fields else 0)
    ]
    if form == "npy":
        file = io.BytesIO()
        np.save(file, matrices[name or "input"])
        assert data == file.getvalue()
    if form == "safetensors":
        with safetensors.safe_open(path, "numpy") as file:
            metadata = {key: json.loads(text) for key, text in file.metadata().items()}
        tensors = safetensors.torch.load(data)
        assert all(tensors[each].numpy().tobytes() == found[each].tobytes() for each in found)
    if form in ("json", "safetensors"):
        document = from_json(data) if form == "json" else metadata
        assert document["columns"] == list(range(256))
        assert document["run"] == {
            "embcli": package.__version__,
            "encoding": "gpt2",
            "sequences": 1,
            "seed": 123,
            "shapes": {"token": [50257, 256], "position": [1024, 256]},
            "torch": torch.__version__,
            "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        }


@pytest.mark.parametrize("layer", ["token", "position"])
@pytest.mark.parametrize("form", FORMS)
def test_weights_in_every_format_are_the_rows_of_torch(layer: str, form: str) -> None:
    ids = ROWS if layer == "token" else [*range(5), 1023, 7]
    spec = ",".join(["0:5", *map(str, ids[5:])])
    data = written(
        Model(SeededSource(GPT2, None, encodings.get("gpt2")))
        .weights(layer=layer, rows=spec)
        .records(),
        form,
    )
    rows, found = taken_apart(data, form, layer, 2 if layer == "token" else 1)
    tokens = layer == "token" and form != "safetensors"
    assert rows in (
        [],
        [{"id": each, **({"token": as_token(each)} if tokens else {})} for each in ids],
    )
    assert (rows == []) == (form == "npy")
    assert [*found] == [layer]
    assert_same_bits(found[layer], live(GPT2)[layer][ids])


@pytest.mark.parametrize(
    "command",
    [
        "neighbors --ids 2,3 --lines --dim 3 --vocab 6 -k 3",
        'neighbors "Every effort" --dim 8',
        "audit --dim 4",
        "diff base.npy tuned.npy --encoding gpt2",
    ],
)
def test_parquet_tells_what_ndjson_tells_of_rows_of_a_matrix(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    base = np.random.default_rng(1).standard_normal((50, 4), np.float32)
    base[7] = np.nan
    np.save("base.npy", base)
    np.save("tuned.npy", np.append(base[:40], base[:3] * 2, 0))
    words = shlex.split(command)
    wrote = in_process(*words, "-o", "rows.parquet")
    assert wrote.status == ("status 1: " in wrote.err), wrote
    lines = from_ndjson(in_process(*words, "-f", "ndjson").out)
    rows = parquet.read_table("rows.parquet").to_pylist()
    told = [
        {name: None if value != value else value for name, value in row.items()} for row in rows
    ]
    assert told == [
        {name: value for name, value in line.items() if name != "vectors"} for line in lines
    ]
    assert len(told) > 2
