"""Headers of safetensors files are read strictly: never is one accepted that the format's own library refuses.

Rows are those that the library gives, from one file or many.
"""

from __future__ import annotations

import itertools
import json
import os
import resource
import struct
import subprocess
import sys
import tempfile
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import save_file

from embcli.binary import Binary
from embcli.errors import InputError, Notes
from embcli.files import open_tensors
from embcli.files.safetensors import BITS, NAMES, header, read
from embcli.files.tensors import Tensors
from tests.files.made import assert_rows, large, layer, matrix, refusal, safetensors_bytes

TENSOR = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
DTYPES = [
    "bool",
    "float16",
    "float32",
    "float64",
    "complex64",
    "int8",
    "uint8",
    "int16",
    "uint32",
    "int64",
]


def packed(entries: object, data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def oracle(whole: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]] | None:
    """Return what the library reads, or None where it refuses."""
    try:
        found = safetensors.deserialize(whole)
    except safetensors.SafetensorError:
        return None
    names = NAMES.get
    return {
        name: (names(each["dtype"], each["dtype"]), tuple(each["shape"]), bytes(each["data"]))
        for name, each in found
    }


def opened(whole: bytes) -> Tensors:
    with tempfile.NamedTemporaryFile() as file:
        file.write(whole)
        file.flush()
        return read(Binary(Path(file.name)), Notes())


def ours(whole: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    tensors = opened(whole)
    return {
        name: (each.dtype, each.shape, whole[each.start :][: each.size])
        for name, each in tensors.items()
    }


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """Draw the entries of a sound file and its data."""
    entries: dict[str, Any] = {}
    place = 0
    for name in draw(
        st.lists(
            st.text(st.characters(exclude_categories=["Cs"]), max_size=4), unique=True, max_size=4
        )
    ):
        dtype = draw(st.sampled_from(sorted(BITS)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        if BITS[dtype] % 8:
            shape.append(4)  # so many take whole bytes
        end = place + int(np.prod(shape, dtype=int)) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}
        place = end
    entries = dict(draw(st.permutations([*entries.items()])))  # tensors may be in any order
    words = st.text(st.characters(exclude_categories=["Cs"]), max_size=3)
    if draw(st.booleans()):
        entries["__metadata__"] = draw(st.dictionaries(words, words, max_size=2))
    return entries, draw(st.binary(min_size=place, max_size=place))


@given(files())
def test_what_the_library_reads_is_read_the_same(case: tuple[dict[str, Any], bytes]) -> None:
    whole = packed(*case)
    assert ours(whole) == oracle(whole)
    assert opened(whole).metadata == case[0].get("__metadata__", {})


VALUES = [0, 1, 2, 8, -1, True, None, 1.0, 1e400, "1", "F32", "U8", [], [0], [[]], {}]
VALUES += [2**31, 2**62, 2**63, 2**64, 10**30]


@given(files(), st.data())
def test_a_file_that_the_library_refuses_is_never_accepted(
    case: tuple[dict[str, Any], bytes], data: st.DataObject
) -> None:
    """Other values in any place of the header, and other bytes anywhere."""
    entries, content = case
    tensors = [entry for name, entry in entries.items() if name != "__metadata__"]
    for _ in range(data.draw(st.integers(0, 2)) if tensors else 0):
        entry = data.draw(st.sampled_from(tensors))
        field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        value = deepcopy(data.draw(st.sampled_from([*VALUES, *sorted(BITS)])))
        if isinstance(entry.get(field), list) and entry[field] and data.draw(st.booleans()):
            entry[field][data.draw(st.integers(0, len(entry[field]) - 1))] = value
        else:
            entry[field] = value
    whole = bytearray(packed(entries, content))
    for _ in range(data.draw(st.integers(0, 2))):
        letter = st.integers(0, 255) | st.sampled_from(b'0-{}[]",: ')
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(letter)
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(whole)))
        rest = whole[data.draw(st.sampled_from([place, place + 1])) :]
        whole = whole[:place] + data.draw(st.binary(max_size=3)) + rest
    try:
        found = ours(bytes(whole))
    except InputError:
        return
    assert found == oracle(bytes(whole))


def changed(**entry: object) -> dict[str, object]:
    return {"a": {**TENSOR, **entry}}


@pytest.mark.parametrize(
    ("whole", "fault"),
    [
        (b"\x02\0\0", "it is cut off: its header has 2 bytes"),
        (
            struct.pack("<Q", 2**64 - 1) + b"{}",
            "its header has 18,446,744,073,709,551,615 bytes, and 2 follow",
        ),
        (packed([]), r"its header begins with b'\['"),
        (packed(b'{"\xff":1}'), "its header cannot be read .*utf-8"),
        (packed(b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"), "recursion|not described"),
        (packed(b'{"a":{"dtype":"U8","dtype":"U8"}}'), "its header has 'dtype' twice"),
        (packed(rb'{"\ud800":1}'), "a name or metadata that is not text"),
        (packed({"__metadata__": {"a": 1}}), "a name or metadata that is not text"),
        (packed(changed(more=1), b"ab"), "tensor 'a' is not described by"),
        (
            packed(changed(shape=[2**62, 4, 0], data_offsets=[0, 0])),
            "tensor 'a' is not described by",
        ),
        (packed(changed(shape=[-2]), b"ab"), "a number out of range, -2"),
        (packed(b'{"a":' + b"9" * 5000 + b"}"), "a number out of range, 9{40}$"),
        (packed(changed(data_offsets=[1, 3]), b"abc"), "tensor 'a' leaves a hole before it"),
        (packed({"a": TENSOR, "b": TENSOR}, b"ab"), "tensor 'b' overlaps the one before it"),
        (packed(changed(), b"a"), "it is cut off: its tensors end at byte 70, and it has 69"),
        (packed(changed(), b"abc"), "its tensors end at byte 70, and it has 71"),
    ],
    ids=itertools.count(),
)
def test_a_header_that_is_wrong_is_refused_with_what_is_wrong(whole: bytes, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        ours(whole)


def test_a_header_longer_than_the_format_allows_is_refused_unread(tmp_path: Path) -> None:
    with (tmp_path / "long.safetensors").open("wb+") as file:
        file.write(struct.pack("<Q", 100_000_001) + b"{")
        file.truncate(100_000_100)
    assert "100,000,001 bytes, more than the 100,000,000" in refusal(tmp_path / "long.safetensors")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 5)])
def test_a_header_that_is_written_is_read_by_the_library_and_here(
    dtype: str, shape: tuple[int, ...]
) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    first = header({"first": (dtype, shape), "second": ("int64", (1,))}, {"of": "test"})
    whole = first + values.tobytes() + np.int64(7).tobytes()
    found = safetensors.numpy.load(whole)
    assert found["first"].tobytes() == values.tobytes()
    assert (found["first"].dtype, found["first"].shape, found["second"].tolist()) == (
        values.dtype,
        shape,
        [7],
    )
    assert ours(whole) == oracle(whole)
    assert len(first) % 8 == 0


def test_every_dtype_that_the_library_knows_is_known_with_its_width() -> None:
    for dtype, bits in BITS.items():
        entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}
        assert oracle(packed({"a": entry}, bytes(bits))) is not None
    with pytest.raises(safetensors.SafetensorError) as error:
        safetensors.deserialize(packed(changed(dtype="?")))
    assert set(str(error.value).split("`")[3::2]) == set(BITS)


# --- rows ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["BOOL", "C64", "F8_E8M0", "F8_E4M3FNUZ"])
def test_other_numbers_are_named_and_refused(tmp_path: Path, dtype: str) -> None:
    size = 8 if dtype == "C64" else 1
    path = tmp_path / "m.safetensors"
    path.write_bytes(safetensors_bytes({"weight": (dtype, (2, 3), bytes(6 * size))}))
    assert dtype in refusal(path)


@pytest.mark.parametrize("shape", [(6,), (1, 2, 3), (0, 3), (3, 0), ()])
def test_what_is_no_matrix_is_no_layer(tmp_path: Path, shape: tuple[int, ...]) -> None:
    save_file({"weight": np.zeros(shape, np.float32)}, tmp_path / "m.safetensors")
    assert "not a matrix" in refusal(tmp_path / "m.safetensors")


def test_a_file_that_is_cut_while_it_is_read_is_a_sentence(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    save_file({"weight": matrix(1000, 64)}, path)
    found = layer(path, "weight")
    os.truncate(path, 100_000)
    assert found.rows(np.arange(300)).shape == (300, 64)
    with pytest.raises(
        InputError, match="cut off while it was read, from 256,080 to 100,000 bytes"
    ):
        found.rows(np.array([3, 999]))
    with pytest.raises(InputError, match="cut off"):
        list(found.blocks())


# --- shards -------------------------------------------------------------------------------------------------------


def sharded(folder: Path, weight_map: dict[str, str] | None = None) -> Path:
    """Make a checkpoint of two parts; return its index."""
    folder.mkdir(exist_ok=True, parents=True)
    save_file({"a.weight": matrix(seed=1)}, folder / "model-1.safetensors")
    save_file(
        {"b.weight": matrix(seed=2), "c": np.zeros(2, np.float32)}, folder / "model-2.safetensors"
    )
    index = folder / "model.safetensors.index.json"
    mapped = {
        "a.weight": "model-1.safetensors",
        "b.weight": "model-2.safetensors",
        "c": "model-2.safetensors",
    }
    index.write_text(
        json.dumps({"metadata": {}, "weight_map": mapped if weight_map is None else weight_map})
    )
    return index


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    tensors = open_tensors(sharded(tmp_path))
    assert (list(tensors), len(tensors), tensors.format) == (
        ["a.weight", "b.weight", "c"],
        3,
        "safetensors",
    )
    assert [path.name for path in tensors.files] == ["model-1.safetensors", "model-2.safetensors"]
    assert_rows(tensors.layer("a.weight"), matrix(seed=1))
    assert_rows(tensors.layer("b.weight"), matrix(seed=2))
    (tmp_path / "model-1.safetensors").write_bytes(
        b"garbage"
    )  # only the shard of a tensor is opened
    assert_rows(layer(tmp_path / "model.safetensors.index.json", "b.weight"), matrix(seed=2))


def test_shards_that_are_links_into_the_blobs_of_the_cache_are_read(tmp_path: Path) -> None:
    blobs, snapshot = tmp_path / "models--a--b/blobs", tmp_path / "models--a--b/snapshots/0123abc"
    sharded(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert_rows(layer(snapshot / "model.safetensors.index.json", "a.weight"), matrix(seed=1))


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("../out.safetensors", "outside its folder"),
        ("/etc/passwd", "outside its folder"),
        ("deep/../../out.safetensors", "outside its folder"),
        ("../model/model-1.safetensors", "outside its folder"),
        ("none.safetensors", "missing"),
        ("", "missing"),
        ("a\0b", "missing"),
        ("x" * 5000, "missing"),
        ("circle", "missing"),
        ("model.safetensors.index.json", "itself an index"),
        ("model-2.safetensors", "has no tensor 'a.weight'"),
    ],
)
def test_an_index_names_files_of_its_own_folder_or_is_refused(
    tmp_path: Path, file: str, reason: str
) -> None:
    index = sharded(tmp_path / "model", {"a.weight": file})
    save_file({"a.weight": matrix()}, tmp_path / "out.safetensors")
    (tmp_path / "model/circle").symlink_to("circle")
    assert reason in refusal(index)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1}', "no weight_map"),
        ('{"weight_map": ["a"]}', "no weight_map"),
        ('{"weight_map": {"a": 1}}', "no weight_map"),
        ('{"weight_map": {"a": "b", "a": "c"}}', "has 'a' twice"),
        ('{"weight_map": ' + '{"a":' * 100_000, "recursion"),
        ('{"weight_map": {', "its JSON cannot be read"),
        ('{"a": \x1b[2J}', "its JSON cannot be read"),
        ('{"\ud800": 1}', "its JSON cannot be read"),
    ],
)
def test_an_index_that_is_none_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_bytes(text.encode(errors="surrogatepass"))
    assert reason in refusal(path)


# --- size ---------------------------------------------------------------------------------------------------------

LARGE = r"""
import json, re, sys, time
from pathlib import Path
import numpy as np
from embcli.files.checkpoint import Checkpoint
import embcli.files.safetensors
def peak():
    return int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
before, start = peak(), time.perf_counter()
source = Checkpoint(sys.argv[1])
rows = source.open({"token": None})["token"].rows(np.array([0, 7, 599_999, 7], np.uint32))
seconds, after = time.perf_counter() - start, peak()
head = source.head
slow = [name for name in ("torch", "gguf", "safetensors", "jsonschema", "tokenizers") if name in sys.modules]
print(json.dumps([rows[:, 0].tolist(), seconds, (after - before) / 1024, slow, head.relation]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="takes sparse files")
def test_rows_of_100_gigabytes_take_milliseconds_and_little_memory_and_no_torch(
    tmp_path: Path,
) -> None:
    path = tmp_path / "large.safetensors"
    large(path)
    done = subprocess.run(
        [sys.executable, "-c", LARGE, path],
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )
    first, seconds, megabytes, slow, head = json.loads(done.stdout)
    assert (first, slow, head) == ([1.5, -2.0, 3.0, -2.0], [], "other")
    assert seconds < 5  # to read all of it would take minutes
    assert megabytes < 30
