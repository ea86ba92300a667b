"""What embcli writes is read back by other programs' readers, bit for bit what torch holds, in every format."""

from __future__ import annotations

import io
import json
import shlex
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import tiktoken
import torch
from pyarrow import parquet

import embcli as package
from embcli import encodings
from embcli.text import Sequences
from embcli.tokens import tokenize
from embcli.verbs.lookup import lookup
from embcli.verbs.tokenize import Tokenization
from embcli.verbs.weights import weights
from embcli.weights.seeded import Seeded
from embcli.weights.source import SeededSource
from tests.conftest import Embcli
from tests.inside import Inside
from tests.oracles import assert_same_bits, live
from tests.readers import SEPARATED, float32, from_csv, from_json, from_ndjson, from_tsv, written

MATRICES = ("token", "position", "input")
TEXT = 'Tabs\tand\r\nlines, "quotes", \\n, 🦜 and שלום.'
ROWS = [*range(5), 50256, 220, 220]


GPT2, TOY = Seeded(50257), Seeded(6, 3)


@pytest.fixture
def embcli() -> Embcli:
    """Return a runner within this process: what a command writes is the point here, and not the process."""
    return Inside()


@lru_cache
def gpt2() -> tiktoken.Encoding:
    """Return tiktoken's own class over the packaged ranks; a test of encodings holds these against tiktoken's."""
    return encodings.get("gpt2").tiktoken


def expected(text: str) -> tuple[list[int], dict[str, np.ndarray]]:
    """Return the IDs of a text and its three matrices, as torch gives them."""
    ids = gpt2().encode_ordinary(text)
    token, position = live(GPT2)["token"][ids], live(GPT2)["position"][: len(ids)]
    return ids, {"token": token, "position": position, "input": (torch.tensor(token) + torch.tensor(position)).numpy()}


def as_token(token_id: int) -> str:
    data = gpt2().decode_single_token_bytes(token_id)
    try:
        return data.decode()
    except UnicodeDecodeError:
        return "".join(f"\\x{byte:02x}" for byte in data)


# --- lookup -------------------------------------------------------------------------------------------------------


def test_lookup_as_json_holds_the_tokens_and_all_three_matrices(embcli: Embcli) -> None:
    ids, matrices = expected(TEXT)
    document = from_json(embcli.ok("lookup", TEXT, "-f", "json").out)
    assert document["tokens"] == [
        {"position": place, "id": token_id, "token": as_token(token_id)} for place, token_id in enumerate(ids)
    ]
    assert document["columns"] == list(range(256))
    assert list(document["matrices"]) == list(MATRICES)
    for name in MATRICES:
        assert_same_bits(float32(document["matrices"][name]), matrices[name])
    assert document["run"] == {
        "embcli": package.__version__,
        "encoding": "gpt2",
        "sequences": 1,
        "seed": 123,
        "shapes": {"token": [50257, 256], "position": [1024, 256]},
        "torch": torch.__version__,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
    }


def test_lookup_as_ndjson_holds_a_token_and_its_three_vectors_in_each_line(embcli: Embcli) -> None:
    ids, matrices = expected(TEXT)
    rows = from_ndjson(embcli.ok("lookup", TEXT, "-f", "ndjson").out)
    assert [(row["position"], row["id"], row["token"]) for row in rows] == [
        (place, token_id, as_token(token_id)) for place, token_id in enumerate(ids)
    ]
    for name in MATRICES:
        assert_same_bits(float32([row["vectors"][name] for row in rows]), matrices[name])


@pytest.mark.parametrize(("form", "name"), [("csv", None), ("csv", "token"), ("csv", "position"), ("tsv", None)])
def test_lookup_as_csv_and_tsv_holds_one_matrix_the_input_unless_chosen(
    embcli: Embcli, form: str, name: str | None
) -> None:
    ids, matrices = expected(TEXT)
    header, *rows = SEPARATED[form](embcli.ok("lookup", TEXT, "-f", form, *(("--show", name) if name else ())).out)
    assert header == ["position", "id", "token", *map(str, range(256))]
    assert [row[:3] for row in rows] == [
        [str(place), str(token_id), as_token(token_id)] for place, token_id in enumerate(ids)
    ]
    assert_same_bits(float32([list(map(float, row[3:])) for row in rows]), matrices[name or "input"])


@pytest.mark.parametrize("name", [None, "token", "position"])
def test_lookup_as_npy_is_the_file_that_numpy_saves(embcli: Embcli, name: str | None) -> None:
    file = io.BytesIO()
    np.save(file, expected(TEXT)[1][name or "input"])
    assert embcli.ok("lookup", TEXT, "-f", "npy", *(("--show", name) if name else ())).out == file.getvalue()


@pytest.mark.parametrize("show", [None, "token,input"])
def test_lookup_as_safetensors_holds_the_chosen_matrices_and_the_ids(
    embcli: Embcli, tmp_path: Path, show: str | None
) -> None:
    ids, matrices = expected(TEXT)
    path = tmp_path / "lookup.safetensors"
    embcli.ok("lookup", TEXT, "-o", str(path), *(("--show", show) if show else ()))
    names = show.split(",") if show else list(MATRICES)
    for tensors in (
        safetensors.numpy.load_file(path),
        {name: tensor.numpy() for name, tensor in safetensors.torch.load_file(path).items()},
    ):
        assert set(tensors) == {"ids", "positions", *names}
        for name in names:
            assert_same_bits(tensors[name], matrices[name])
        for name, wanted in (("ids", ids), ("positions", list(range(len(ids))))):
            assert tensors[name].dtype == np.int64
            assert tensors[name].tolist() == wanted
    with safetensors.safe_open(path, "numpy") as file:
        run = json.loads(file.metadata()["run"])
        assert json.loads(file.metadata()["columns"]) == list(range(256))
    assert (run["seed"], run["encoding"], run["torch"]) == (123, "gpt2", torch.__version__)


def test_chosen_columns_come_in_every_format_as_they_were_named() -> None:
    columns = [255, 0, 1]
    wanted = expected("Every effort")[1]["input"][:, columns]
    tokens = tokenize(Sequences(texts=("Every effort",)), encodings.get("gpt2"))
    records = lookup(tokens, SeededSource(GPT2), columns="255,0:2").records()
    document = from_json(written(records, "json"))
    assert document["columns"] == columns
    assert_same_bits(float32(document["matrices"]["input"]), wanted)
    assert from_csv(written(records, "csv"))[0] == ["position", "id", "token", "255", "0", "1"]
    assert_same_bits(np.load(io.BytesIO(written(records, "npy"))), wanted)
    assert_same_bits(safetensors.numpy.load(written(records, "safetensors"))["input"], wanted)


def test_sequences_are_told_apart_in_every_format() -> None:
    given = Sequences(ids=tuple(np.array(line, np.int64) for line in ([2, 3], [5, 1], [], [0])), many=True)
    records = lookup(tokenize(given, None), SeededSource(TOY)).records()
    places = [(0, 0), (0, 1), (1, 0), (1, 1), (3, 0)]
    rows = from_ndjson(written(records, "ndjson"))
    assert [(row["sequence"], row["position"]) for row in rows] == places
    table = from_tsv(written(records, "tsv"))
    assert [row[:3] for row in table[:2]] == [["sequence", "position", "id"], ["0", "0", "2"]]
    tensors = safetensors.numpy.load(written(records, "safetensors"))
    assert list(zip(tensors["sequences"].tolist(), tensors["positions"].tolist(), strict=True)) == places
    assert_same_bits(tensors["position"], live(TOY)["position"][[place for _, place in places]])


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
    inside: Inside, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.chdir(tmp_path)
    base = np.random.default_rng(1).standard_normal((50, 4), np.float32)
    base[7] = np.nan
    np.save("base.npy", base)
    np.save("tuned.npy", np.append(base[:40], base[:3] * 2, 0))
    words = shlex.split(command)
    wrote = inside(*words, "-o", "rows.parquet")
    assert wrote.err == "" or wrote.err.startswith("embcli: status 1: "), wrote
    lines = from_ndjson(inside(*words, "-f", "ndjson").out)
    rows = parquet.read_table("rows.parquet").to_pylist()
    told = [{name: None if value != value else value for name, value in row.items()} for row in rows]
    assert told == [{name: value for name, value in line.items() if name != "vectors"} for line in lines]
    assert len(told) > 2


# --- weights, tokenize, info, cache -------------------------------------------------------------------------------


@pytest.mark.parametrize("layer", ["token", "position"])
@pytest.mark.parametrize("form", ["json", "ndjson", "csv", "tsv", "npy", "safetensors", "parquet"])
def test_weights_in_every_format_are_the_rows_of_torch(layer: str, form: str) -> None:
    rows = ROWS if layer == "token" else [*range(5), 1023, 7]
    spec = ",".join(["0:5", *map(str, rows[5:])])
    data = written(weights(SeededSource(GPT2, None, encodings.get("gpt2")), layer, spec).records(), form)
    tokens = [as_token(row) for row in rows] if layer == "token" else None
    ids: list[int] = rows
    if form in SEPARATED:
        header, *cells = SEPARATED[form](data)
        start = 1 + (tokens is not None)
        assert header == ["id", "token"][:start] + list(map(str, range(256)))
        ids = [int(row[0]) for row in cells]
        assert tokens is None or [row[1] for row in cells] == tokens
        values = float32([list(map(float, row[start:])) for row in cells])
    elif form == "npy":
        values = np.load(io.BytesIO(data))
    elif form == "safetensors":
        tensors = safetensors.numpy.load(data)
        assert set(tensors) == {"ids", layer}
        ids, values = tensors["ids"].tolist(), tensors[layer]
    elif form == "parquet":
        table = parquet.read_table(io.BytesIO(data))
        assert table.column_names == (["id", "token", "vector"] if tokens else ["id", "vector"])
        assert tokens is None or table["token"].to_pylist() == tokens
        ids, values = table["id"].to_pylist(), table["vector"].combine_chunks().flatten().to_numpy().reshape(-1, 256)
    else:
        document = from_json(data) if form == "json" else {"rows": from_ndjson(data)}
        ids = [row["id"] for row in document["rows"]]
        assert [row.get("token") for row in document["rows"]] == (tokens or [None] * len(rows))
        lines = [row.get("vectors", {}).get(layer) for row in document["rows"]]
        values = float32(lines if form == "ndjson" else document["matrices"][layer])
    assert ids == rows
    assert_same_bits(values, live(GPT2)[layer][rows])


def test_tokenize_in_every_format_gives_the_tokens_of_tiktoken(embcli: Embcli) -> None:
    ids, _ = expected(TEXT)
    fields = ["position", "id", "token", "bytes", "start", "end"]
    pieces = [gpt2().decode_single_token_bytes(token_id) for token_id in ids]
    arguments = ("tokenize", TEXT, "-f")
    document = from_json(embcli.ok(*arguments, "json").out)
    rows = document["tokens"]
    assert document["run"] == {"embcli": package.__version__, "encoding": "gpt2", "sequences": 1}
    assert [row["id"] for row in rows] == ids
    assert [row["token"] for row in rows] == [as_token(token_id) for token_id in ids]
    assert [bytes.fromhex(row["bytes"]) for row in rows] == pieces
    for row, piece in zip(rows, pieces, strict=True):
        assert piece in TEXT[row["start"] : row["end"]].encode()
    records = Tokenization(tokenize(Sequences(texts=(TEXT,)), encodings.get("gpt2"))).records()
    assert from_ndjson(written(records, "ndjson")) == rows
    for form, read in SEPARATED.items():
        header, *cells = read(written(records, form))
        assert header == fields
        assert cells == [[str(row[name]) for name in fields] for row in rows]
    loaded = np.load(io.BytesIO(written(records, "npy")))
    assert (loaded.dtype, loaded.tolist()) == (np.dtype(np.int64), ids)
    tensors = safetensors.numpy.load(written(records, "safetensors"))
    assert {name: tensor.tolist() for name, tensor in tensors.items()} == {
        "ids": ids,
        "positions": list(range(len(ids))),
    }
    assert embcli.ok(*arguments, "ids").text == " ".join(map(str, ids)) + "\n"


@pytest.mark.parametrize(
    ("arguments", "form"),
    [
        (("info",), "npy"),
        (("cache",), "safetensors"),
        (("lookup", "--ids", "1"), "ids"),
        (("weights", "--vocab", "6", "--dim", "3"), "ids"),
    ],
)
def test_a_form_that_a_result_does_not_have_is_refused_with_those_it_has(
    embcli: Embcli, arguments: tuple[str, ...], form: str
) -> None:
    message = embcli.refused(*arguments, "-f", form)
    assert f"cannot be written as {form}; it can be written as table, markdown, svg, html, png, json" in message


@pytest.mark.parametrize("form", ["csv", "tsv", "npy"])
def test_a_format_with_room_for_one_matrix_refuses_two(embcli: Embcli, form: str) -> None:
    message = embcli.refused("lookup", "hi", "--show", "token,position", "-f", form)
    assert "holds one matrix, not token, position; choose one with --show" in message
