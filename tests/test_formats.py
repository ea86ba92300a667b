"""A lookup in each format: bit for bit what torch holds, as the writers write it.

That other programs read back what the writers write is tested in test_writers.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import fields
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
import tiktoken
import torch
from pyarrow import parquet

import embcli as package
from embcli import encodings
from embcli.cli.app import COMMANDS
from embcli.cli.command import NUMBERS, PAGE
from embcli.formats import CONTENTS, FORMATS, FormatName
from embcli.result import _WITHOUT_BARE, PageStyle
from embcli.seeded_layers.seeded import Seeded
from embcli.wording import load_facts
from tests.oracles import assert_same_bits, live, normal
from tests.readers import float32, from_json, from_ndjson
from tests.runners import PARSERS

Row = dict[str, Any]

TEXT = 'Tabs\tand\r\nlines, "quotes", \\n, 🦜 and שלום.'
GPT2 = Seeded(50257)
RUN = {
    "embcli": package.__version__,
    "encoding": "gpt2",
    "sequences": 1,
    "seed": 123,
    "shapes": {"token": [50257, 256], "position": [1024, 256]},
    "torch": torch.__version__,
    "cpu_capability": torch.backends.cpu.get_cpu_capability(),
}


# --- lookup ---------------------------------------------------------------------------------------


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


@pytest.mark.parametrize("show", [None, "token", "position"])
def test_lookup_holds_the_tokens_and_the_matrices_of_torch(in_process, show):
    options = ["--show", show] if show else []
    document = from_json(in_process.ok("lookup", TEXT, "-f", "json", *options).out)
    ids = gpt2().encode_ordinary(TEXT)
    rows = []
    for place, token_id in enumerate(ids):
        rows.append({"position": place, "id": token_id, "token": token_name(token_id)})
    assert document["tokens"] == rows
    assert document["columns"] == list(range(256))
    assert document["run"] == RUN
    expected = torch_matrices(ids)
    assert list(document["matrices"]) == ([show] if show else list(expected))
    for name, values in document["matrices"].items():
        assert_same_bits(float32(values), expected[name])


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

    lines = from_ndjson(as_ndjson.out)
    for line in lines:
        line.pop("vectors", None)
    rows = parquet.read_table("rows.parquet").to_pylist()
    assert [nan_as_none(row) for row in rows] == lines
    assert len(rows) > 2


# --- all verbs ------------------------------------------------------------------------------------


def test_each_verb_has_a_row_for_its_content_and_for_what_its_page_leaves_out():
    assert {*FORMATS} == {*get_args(FormatName)}
    assert CONTENTS.keys() == {*COMMANDS, "merges", "tokenizers"} - {"explore"}
    pages = {verb for verb, content in CONTENTS.items() if content != "text"}
    data = {verb for verb in pages if CONTENTS[verb] != "page"}
    suggested = load_facts("suggestions.json")
    assert suggested["fewer lines"].keys() == pages
    assert suggested["formats"].keys() == data


def test_each_suggestion_is_of_an_option_that_a_page_names():
    options = {each.name for one in PARSERS.values() for each in one.params}
    sources = Path(package.__file__).parent.glob("[pv]*/**/*.py")  # page, positions, verbs
    named = {*re.findall(r'"(\w+)"', "".join(map(Path.read_text, sources)))}
    suggested = load_facts("suggestions.json")["options"].keys()
    assert suggested <= options & named


def test_each_option_of_a_page_is_part_of_its_style():
    options = {flag.name for group in NUMBERS for flag in group.flags()}
    style = {field.name for field in fields(PageStyle)}
    assert options - {"color", "format", "output"} == style - {"keeps_precision"}
    without_bare = {verb for verb, (command, _) in COMMANDS.items() if command.view == PAGE}
    assert without_bare == {*_WITHOUT_BARE}
