"""What the tests of files share: matrices, files made of them, and what must hold of a layer and of an error."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFWriter

from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.safetensors import header
from embcli.layer import Layer

TOKENS = [b"<s>", b"\xc4\xa0the", b"\xc4\xa0cat", "▁the".encode(), b"<0x0A>", b"", b"\xff\xfe"]


def matrix(rows: int = 50, dim: int = 7, seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Write any dtype, which numpy has no name for, by hand."""
    entries, offset = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        entries[name] = {
            "dtype": dtype,
            "shape": shape,
            "data_offsets": [offset, offset + len(data)],
        }
        offset += len(data)
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors.values())


def large(path: Path) -> None:
    """Make a sparse file of 100 GB, bfloat16 tensors; some of its rows begin with other numbers than 0."""
    rows, dim = 600_000, 4096  # more bytes than 32 bits can count
    shapes = {"model.embed_tokens.weight": (rows, dim), "lm_head.weight": (rows, dim)}
    shapes |= {
        f"model.layers.{number}.mlp.gate_proj.weight": (60_000_000,) for number in range(750)
    }
    first = header({name: ("bfloat16", shape) for name, shape in shapes.items()}, {})
    offset = 2 * sum(int(np.prod(shape)) for shape in shapes.values())
    with open(path, "wb") as file:
        file.write(first)
        data = len(first)
        for row, value in ((0, 1.5), (7, -2.0), (599_999, 3.0)):
            file.seek(data + row * dim * 2)
            file.write(np.array([value], ml_dtypes.bfloat16).tobytes())
        file.truncate(data + offset)


def npy_bytes(header: bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """Return a .npy file with a header of its own."""
    size = 2 if version[0] == 1 else 4
    return (
        b"\x93NUMPY"
        + version
        + min(len(header), 256**size - 1).to_bytes(size, "little")
        + header
        + data
    )


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of some members, whose checksums are right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def assert_rows(layer: Layer, wanted: np.ndarray) -> None:
    """Hold every row, in any order and number, and every block, against a (V, D) float32 matrix; NaN is NaN."""
    assert layer.shape == wanted.shape
    rows = len(wanted)
    picks = [
        np.arange(rows),
        np.arange(rows)[::-1],
        np.array([rows - 1, 0, rows // 2, 0, rows - 1]),
        np.arange(0),
    ]
    for ids in [*picks, np.random.default_rng(0).integers(0, rows, 2 * rows)]:
        found = layer.rows(ids)
        assert found.dtype == np.float32
        assert found.shape == (len(ids), wanted.shape[1])
        assert_equal(found, wanted[ids])
    assert_equal(np.concatenate([block.copy() for block in layer.blocks()]), wanted)


def assert_equal(found: np.ndarray, wanted: np.ndarray) -> None:
    """Compare bits, except those of NaN."""
    both = np.isnan(found) & np.isnan(wanted)
    assert np.array_equal(
        np.where(both, 0, found.view(np.uint32)), np.where(both, 0, wanted.view(np.uint32))
    )


def layer(path: Path, name: str) -> Layer:
    return open_tensors(path).layer(name)


def refusal(path: Path, name: str | None = None) -> str:
    """Expect that a file, or a tensor of it, is refused; return the message, which names the file."""

    def read() -> None:
        tensors = open_tensors(path)
        for each in [name] if name else tensors:
            tensors.layer(each).rows(np.arange(1))

    with pytest.raises(InputError) as caught:
        read()
    message = str(caught.value)
    assert path.name in message
    assert message.count("\n") < 2
    assert message.isprintable() or "\n" in message
    return message


def written(path: Path, tensors: dict[str, Any], **kept: Any) -> Path:
    """Write arrays, or (bytes of blocks, type) pairs, with the gguf package."""
    writer = GGUFWriter(path, "llama", **kept)
    writer.add_context_length(77)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5] * len(TOKENS))
    for name, value in tensors.items():
        array, kind = value if isinstance(value, tuple) else (value, None)
        writer.add_tensor(name, array, raw_dtype=kind)
    return closed(writer, path if kept.get("split_max_tensors") else None)


def closed(writer: GGUFWriter, path: Path | None = None) -> Path:
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path or Path(writer.path)
