"""Rows of safetensors files are those that the safetensors library gives, from one file or many."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from embcli.errors import InputError
from embcli.files import open_tensors
from tests.files.made import assert_rows, layer, matrix, refusal, safetensors_bytes


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
    with pytest.raises(InputError, match="cut off while it was read, from 256,080 to 100,000 bytes"):
        found.rows(np.array([3, 999]))
    with pytest.raises(InputError, match="cut off"):
        list(found.blocks())


# --- shards -------------------------------------------------------------------------------------------------------


def sharded(folder: Path, weight_map: dict[str, str] | None = None) -> Path:
    """Make a checkpoint of two parts; return its index."""
    folder.mkdir(exist_ok=True, parents=True)
    save_file({"a.weight": matrix(seed=1)}, folder / "model-1.safetensors")
    save_file({"b.weight": matrix(seed=2), "c": np.zeros(2, np.float32)}, folder / "model-2.safetensors")
    index = folder / "model.safetensors.index.json"
    mapped = {"a.weight": "model-1.safetensors", "b.weight": "model-2.safetensors", "c": "model-2.safetensors"}
    index.write_text(json.dumps({"metadata": {}, "weight_map": mapped if weight_map is None else weight_map}))
    return index


def test_shards_are_one_checkpoint(tmp_path: Path) -> None:
    tensors = open_tensors(sharded(tmp_path))
    assert (list(tensors), len(tensors), tensors.format) == (["a.weight", "b.weight", "c"], 3, "safetensors")
    assert [path.name for path in tensors.files] == ["model-1.safetensors", "model-2.safetensors"]
    assert_rows(tensors.layer("a.weight"), matrix(seed=1))
    assert_rows(tensors.layer("b.weight"), matrix(seed=2))


def test_only_the_shard_of_a_tensor_is_opened(tmp_path: Path) -> None:
    index = sharded(tmp_path)
    (tmp_path / "model-1.safetensors").write_bytes(b"garbage")
    assert_rows(layer(index, "b.weight"), matrix(seed=2))


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
def test_an_index_names_files_of_its_own_folder_or_is_refused(tmp_path: Path, file: str, reason: str) -> None:
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
        ('{"weight_map": ' + '{"a":' * 100_000, "too deeply"),
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


def large(path: Path, tensors: int = 800, gigabytes: int = 100) -> None:
    """Make a sparse file of bfloat16 tensors, some of whose rows begin with other numbers than 0."""
    rows, dim = 600_000, 4096  # more bytes than 32 bits can count
    others = (gigabytes * 10**9 - 2 * rows * dim * 2) // (tensors - 2) // 2
    shapes = {"model.embed_tokens.weight": (rows, dim), "lm_head.weight": (rows, dim)}
    shapes |= {f"model.layers.{number}.mlp.gate_proj.weight": (others,) for number in range(tensors - 2)}
    entries, offset = {}, 0
    for name, shape in shapes.items():
        end = offset + 2 * int(np.prod(shape))
        entries[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, end]}
        offset = end
    header = json.dumps(entries).encode()
    with open(path, "wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        data = file.tell()
        for row, value in ((0, 1.5), (7, -2.0), (599_999, 3.0)):
            file.seek(data + row * dim * 2)
            file.write(np.array([value], ml_dtypes.bfloat16).tobytes())
        file.truncate(data + offset)


@pytest.mark.skipif(sys.platform != "linux", reason="takes sparse files")
def test_rows_of_100_gigabytes_take_milliseconds_and_little_memory_and_no_torch(tmp_path: Path) -> None:
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
