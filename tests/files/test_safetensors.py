"""Rows of safetensors files are those of the format's own library, from one file or many.

No header is accepted that the library refuses.
"""

from __future__ import annotations

import json
import math
import os
import resource
import struct
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given, strategies as st
from safetensors.numpy import save_file

from embcli.binary import Binary
from embcli.errors import InputError, Notes
from embcli.files.safetensors import BITS, NAMES, header, read
from embcli.files.tensors import Tensors
from tests.cases import cases
from tests.files.made import (
    assert_rows,
    large,
    layer,
    matrix,
    packed,
    refusal,
    refused,
    safetensors_bytes,
    tensors_of,
)

TENSOR = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}


Found = dict[str, tuple[str, tuple[int, ...], bytes]]


def oracle(whole: bytes) -> Found | None:
    """Return what the library reads, or None where it refuses."""
    try:
        entries = safetensors.deserialize(whole)
    except safetensors.SafetensorError:
        return None
    found = {}
    for name, entry in entries:
        dtype = NAMES.get(entry["dtype"], entry["dtype"])
        found[name] = (dtype, tuple(entry["shape"]), bytes(entry["data"]))
    return found


def opened(whole: bytes) -> Tensors:
    path = Path("any.safetensors")
    path.write_bytes(whole)
    return read(Binary(path), Notes())


def ours(whole: bytes) -> Found:
    """Return what embcli reads."""
    found = {}
    for name, tensor in opened(whole).items():
        data = whole[tensor.start : tensor.start + tensor.size]
        found[name] = (tensor.dtype, tensor.shape, data)
    return found


ANY = st.characters(exclude_categories=["Cs"])
NAMES_OF_TENSORS = st.lists(st.text(ANY, max_size=4), unique=True, max_size=4)
METADATA = st.dictionaries(st.text(ANY, max_size=3), st.text(ANY, max_size=3), max_size=2)
File = tuple[dict[str, Any], bytes]
Draw = Callable[[st.SearchStrategy[Any]], Any]


@st.composite
def files(draw: st.DrawFn) -> File:
    """Draw the entries of a sound file, in any order, and its data."""
    entries = []
    place = 0
    for name in draw(NAMES_OF_TENSORS):
        dtype = draw(st.sampled_from(sorted(BITS)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        if BITS[dtype] % 8:
            shape.append(4)  # Numbers of 4 and 6 bits fill whole bytes then.
        end = place + math.prod(shape) * BITS[dtype] // 8
        entries.append((name, {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}))
        place = end
    header = dict(draw(st.permutations(entries)))
    if draw(st.booleans()):
        header["__metadata__"] = draw(METADATA)
    return header, draw(st.binary(min_size=place, max_size=place))


@given(files())
def test_what_the_library_reads_is_read_the_same(case):
    whole = packed(*case)
    stored = oracle(whole)
    assert stored is not None
    metadata = case[0].get("__metadata__", {})
    aliases = {alias: stored[name] for alias, name in metadata.items() if name in stored}
    assert ours(whole) == aliases | stored
    assert opened(whole).metadata == metadata


def test_a_header_can_begin_with_blanks():
    header = b" \n\t" + json.dumps({"wte": TENSOR | {"shape": [2, 1]}}).encode()
    Path("m.safetensors").write_bytes(packed(header, b"\1\2"))
    held = safetensors.numpy.load_file("m.safetensors")["wte"]
    assert_rows(layer("m.safetensors", "wte"), held.astype(np.float32))


VALUES = [0, 1, 2, 8, -1, True, None, 1.0, 1e400, "1", "F32", "U8", [], [0], [[]], {}]
VALUES += [2**31, 2**62, 2**63, 2**64, 10**30]
VALUES += sorted(BITS)


def with_other_values(draw: Draw, tensors: list[dict[str, Any]]) -> None:
    """Put other values in up to two places of a header."""
    for _ in range(draw(st.integers(0, 2))):
        entry = draw(st.sampled_from(tensors))
        field = draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        value = deepcopy(draw(st.sampled_from(VALUES)))
        old = entry.get(field)
        if isinstance(old, list) and old and draw(st.booleans()):
            old[draw(st.integers(0, len(old) - 1))] = value
        else:
            entry[field] = value


def with_other_bytes(draw: Draw, whole: bytes) -> bytes:
    """Put other bytes in up to two places, and put some in between or leave one out."""
    changed = bytearray(whole)
    for _ in range(draw(st.integers(0, 2))):
        byte = st.integers(0, 255) | st.sampled_from(b'0-{}[]",: ')
        changed[draw(st.integers(0, len(changed) - 1))] = draw(byte)
    if draw(st.booleans()):
        place = draw(st.integers(0, len(changed)))
        end = place + draw(st.integers(0, 1))
        changed[place:end] = draw(st.binary(max_size=3))
    return bytes(changed)


@given(files(), st.data())
def test_a_file_that_the_library_refuses_is_never_accepted(case, data):
    header, content = case
    tensors = [entry for name, entry in header.items() if name != "__metadata__"]
    if tensors:
        with_other_values(data.draw, tensors)
    whole = with_other_bytes(data.draw, packed(header, content))
    try:
        found = ours(whole)
    except InputError:
        return
    aliases = {*header.get("__metadata__", ())} - {*header}  # Other names are ours alone.
    found = {name: tensor for name, tensor in found.items() if name not in aliases}
    # Python's JSON reads -0 as 0, which the library refuses.
    assert found == oracle(whole.replace(b"-0", b" 0"))


@cases
def test_a_header_that_is_wrong_is_refused_with_what_is_wrong(header, data, fault):
    text = header.encode("latin-1") if isinstance(header, str) else header
    with pytest.raises(InputError, match=fault):
        opened(packed(text, data.encode()))


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        (b"[" * 100_000 + b"]" * 100_000, "recursion|not described"),
        (b"9" * 5000, "cannot be read .*digits"),
    ],
    ids=range(2),
)
def test_a_header_that_python_s_json_gives_up_is_refused(value, fault):
    with pytest.raises(InputError, match=fault):
        opened(packed(b'{"a":' + value + b"}"))


@cases
def test_a_header_that_lies_about_its_size_is_refused(whole, fault):
    with pytest.raises(InputError, match=fault):
        opened(whole.encode("latin-1"))


def test_a_header_longer_than_the_format_allows_is_refused_unread():
    with open("long.safetensors", "wb") as file:
        file.write(struct.pack("<Q", 100_000_001) + b"{")
        file.truncate(100_000_100)
    assert "100,000,001 bytes, more than the 100,000,000" in refusal("long.safetensors")


DTYPES = ["bool", "float16", "float32", "float64", "complex64"]
DTYPES += ["int8", "uint8", "int16", "uint32", "int64"]


@pytest.mark.parametrize("dtype", DTYPES)
@cases
def test_a_header_that_is_written_is_read_by_the_library(dtype, shape):
    values = np.ones(shape, dtype)
    first = header({"first": (dtype, shape), "second": ("int64", (1,))}, {"of": "test"})
    assert len(first) % 8 == 0
    found = safetensors.numpy.load(first + values.tobytes() + bytes(8))
    np.testing.assert_array_equal(found["first"], values, strict=True)


def test_every_dtype_that_the_library_knows_is_known_with_its_width():
    for dtype, bits in BITS.items():
        entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}
        assert oracle(packed({"a": entry}, bytes(bits))) is not None
    with pytest.raises(safetensors.SafetensorError) as caught:
        safetensors.deserialize(packed({"a": TENSOR | {"dtype": "?"}}))
    names = str(caught.value).split("`")[3::2]  # The library lists those that it knows.
    assert set(names) == set(BITS)


# --- rows -----------------------------------------------------------------------------------------


@cases
def test_other_numbers_are_named_and_refused(dtype, columns, size, named):
    data = safetensors_bytes({"weight": (dtype, (2, columns), bytes(size))})
    assert named in refused("m.safetensors", data)


@cases
def test_what_is_no_matrix_is_no_layer(shape):
    save_file({"weight": np.zeros(shape, np.float32)}, "m.safetensors")
    assert "not a matrix" in refusal("m.safetensors")


def test_a_file_that_is_cut_while_it_is_read_is_a_sentence():
    save_file({"weight": matrix(1000, 64)}, "m.safetensors")
    found = layer("m.safetensors", "weight")
    os.truncate("m.safetensors", 100_000)
    found.rows(np.arange(300))
    with pytest.raises(InputError, match="it was cut off while it was read"):
        found.rows(np.array([3, 999]))
    with pytest.raises(InputError, match="cut off"):
        list(found.blocks())


# --- shards ---------------------------------------------------------------------------------------


PARTS = {
    "a.weight": "model-1.safetensors",
    "b.weight": "model-2.safetensors",
    "c": "model-2.safetensors",
}


def sharded(folder: Path, weight_map: dict[str, str] = PARTS) -> Path:
    """Make a checkpoint of two parts; return its index."""
    folder.mkdir(parents=True)
    save_file({"a.weight": matrix(seed=1)}, folder / "model-1.safetensors")
    second = {"b.weight": matrix(seed=2), "c": np.zeros(2, np.float32)}
    save_file(second, folder / "model-2.safetensors")
    index = folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return index


def test_shards_are_one_checkpoint():
    tensors = tensors_of(sharded(Path("model")))
    assert list(tensors) == ["a.weight", "b.weight", "c"]
    assert tensors.format == "safetensors"
    names = [Path(file).name for file in tensors.files]
    assert names == ["model-1.safetensors", "model-2.safetensors"]
    assert_rows(tensors.layer("a.weight"), matrix(seed=1))
    assert_rows(tensors.layer("b.weight"), matrix(seed=2))


def test_only_the_shard_of_a_tensor_is_opened():
    index = sharded(Path("model"))
    Path("model/model-1.safetensors").write_bytes(b"garbage")
    assert_rows(layer(index, "b.weight"), matrix(seed=2))


def test_shards_that_are_links_into_the_blobs_of_the_cache_are_read():
    blobs = Path("models--a--b/blobs")
    snapshot = Path("models--a--b/snapshots/0123abc")
    sharded(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert_rows(layer(snapshot / "model.safetensors.index.json", "a.weight"), matrix(seed=1))


@cases
def test_an_index_names_files_of_its_own_folder_or_is_refused(file, reason):
    index = sharded(Path("model"), {"a.weight": file})
    save_file({"a.weight": matrix()}, "out.safetensors")
    Path("model/circle").symlink_to("circle")
    assert reason in refusal(index)


@cases
def test_an_index_that_is_none_is_refused(text, reason):
    data = text.encode(errors="surrogatepass")
    assert reason in refused("model.safetensors.index.json", data)


def test_an_index_nested_more_deeply_than_python_reads_is_refused():
    data = b'{"weight_map": ' + b'{"a":' * 100_000
    assert "recursion" in refused("model.safetensors.index.json", data)


# --- size -----------------------------------------------------------------------------------------

LARGE = r"""
import json, re, sys, time
from pathlib import Path
import numpy as np
from embcli.errors import Notes
from embcli.files.checkpoint import Checkpoint
import embcli.files.safetensors

def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])

before = peak()
start = time.perf_counter()
source = Checkpoint(sys.argv[1])
ids = np.array([0, 7, 599_999, 7], np.uint32)
rows = source.open({"token": None}, Notes())["token"].rows(ids)
slow = ("torch", "gguf", "safetensors", "jsonschema", "tokenizers")
print(json.dumps({
    "first": rows[:, 0].tolist(),
    "seconds": time.perf_counter() - start,
    "megabytes": (peak() - before) / 1024,
    "head": source.head.relation,
    "slow": [name for name in slow if name in sys.modules],
}))
"""


def limit_memory() -> None:
    """Leave a process 4 GB of addresses, so that it cannot map 100."""
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))


@pytest.mark.skipif(sys.platform != "linux", reason="takes sparse files")
def test_rows_of_100_gigabytes_take_milliseconds_and_little_memory_and_no_torch():
    large(Path("large.safetensors"))
    command = [sys.executable, "-c", LARGE, "large.safetensors"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, preexec_fn=limit_memory)
    measured = json.loads(done.stdout)
    assert measured["first"] == [1.5, -2.0, 3.0, -2.0]
    assert measured["head"] == "other"
    assert measured["slow"] == []
    assert measured["seconds"] < 5  # to read all of it would take minutes
    assert measured["megabytes"] < 30
