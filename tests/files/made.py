"""What the tests of files share: matrices, files of them, and what holds of layers and errors."""

from __future__ import annotations

import io
import json
import math
import struct
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from gguf import GGUFWriter
from tokenizers import Tokenizer, models

from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.safetensors import header
from embcli.files.tensors import Tensors
from embcli.layer import Layer

TOKENS = [b"<s>", b"\xc4\xa0the", b"\xc4\xa0cat", "▁the".encode(), b"<0x0A>", b"", b"\xff\xfe"]


def matrix(rows: int = 50, dim: int = 7, seed: int = 1) -> np.ndarray:
    """Return random rows, (rows, dim) float32."""
    return np.random.default_rng(seed).standard_normal((rows, dim), np.float32)


PLAIN = {"tokenizer_class": "PreTrainedTokenizerFast"}


def numbered(words: Sequence[str]) -> dict[str, int]:
    """Return the ID of each word, which is its place."""
    return {word: place for place, word in enumerate(words)}


def save_words(path: str | Path, words: Sequence[str], special: Sequence[str] = ()) -> None:
    """Write a tokenizer whose tokens are these words, in the order of their IDs.

    Its class leaves it as it is, so that transformers need not be asked.
    """
    ids = numbered(words)
    tokenizer = Tokenizer(models.WordLevel(ids, words[0]))
    tokenizer.add_special_tokens(list(special))
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    tokenizer.save(str(path))
    Path(path).with_name("tokenizer_config.json").write_text(json.dumps(PLAIN))


# --- files ----------------------------------------------------------------------------------------


def safetensors_bytes(tensors: dict[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """Return a file of tensors of any dtype, also of those that numpy has no name for."""
    entries = {}
    data = b""
    for name, (dtype, shape, values) in tensors.items():
        offsets = [len(data), len(data) + len(values)]
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": offsets}
        data += values
    return packed(entries, data)


def packed(entries: object, data: bytes = b"") -> bytes:
    """Return a safetensors file with a header of its own."""
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def large(path: Path) -> None:
    """Make a sparse file of 100 GB of bfloat16; the first numbers of some rows are not 0."""
    rows = 600_000
    dim = 4096  # Both make more bytes than 32 bits can count.
    tensors = {
        "model.embed_tokens.weight": ("bfloat16", (rows, dim)),
        "lm_head.weight": ("bfloat16", (rows, dim)),
    }
    for number in range(750):
        tensors[f"model.layers.{number}.mlp.gate_proj.weight"] = ("bfloat16", (60_000_000,))
    size = sum(2 * math.prod(shape) for _, shape in tensors.values())
    first = header(tensors, {})
    with open(path, "wb") as file:
        file.write(first)
        for row, value in ((0, 1.5), (7, -2.0), (599_999, 3.0)):
            file.seek(len(first) + 2 * row * dim)
            file.write(np.array([value], ml_dtypes.bfloat16).tobytes())
        file.truncate(len(first) + size)


def npy_bytes(header: bytes, data: bytes = b"", version: bytes = b"\1\0") -> bytes:
    """Return a .npy file with a header of its own."""
    digits = 2 if version[0] == 1 else 4
    size = min(len(header), 256**digits - 1)
    return b"\x93NUMPY" + version + size.to_bytes(digits, "little") + header + data


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of some members, whose checksums are right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def written(path: str | Path, tensors: dict[str, Any], **kept: Any) -> Path:
    """Write arrays, or (bytes of blocks, type) pairs, with the gguf package."""
    writer = GGUFWriter(path, "llama", **kept)
    writer.add_context_length(77)
    writer.add_tokenizer_model("gpt2")
    writer.add_token_list(TOKENS)
    writer.add_token_scores([0.5] * len(TOKENS))
    for name, value in tensors.items():
        if isinstance(value, tuple):
            blocks, kind = value
            writer.add_tensor(name, blocks, raw_dtype=kind)
        else:
            writer.add_tensor(name, value)
    return closed(writer)


def closed(writer: GGUFWriter) -> Path:
    """Write all that a writer was given; return the file, or the path that its parts come from."""
    path = Path(writer.path)
    writer.write_header_to_file(path)
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


# --- what must hold -------------------------------------------------------------------------------


def tensors_of(path: str | Path) -> Tensors:
    return open_tensors(Path(path))


def layer(path: str | Path, name: str) -> Layer:
    return tensors_of(path).layer(name)


def assert_rows(layer: Layer, wanted: np.ndarray) -> None:
    """Hold rows in any order and number, and blocks, against a (V, D) float32 matrix.

    A NaN may be any NaN.
    """
    assert layer.shape == wanted.shape
    count = len(wanted)
    in_order = np.arange(count)
    some = np.array([count - 1, 0, count // 2, 0, count - 1])
    drawn = np.random.default_rng(0).integers(0, count, 2 * count)
    for ids in (in_order, in_order[::-1], in_order[:0], some, drawn):
        assert_equal(layer.rows(ids), wanted[ids])
    blocks = [*layer.blocks()]
    assert_equal(np.concatenate(blocks), wanted)


def assert_equal(found: np.ndarray, wanted: np.ndarray) -> None:
    """Hold float32 values against others: shape, and every bit except those of NaN."""
    assert found.dtype == np.float32
    assert found.shape == wanted.shape
    both_nan = np.isnan(found) & np.isnan(wanted)
    same_bits = found.view(np.uint32) == wanted.view(np.uint32)
    assert np.all(both_nan | same_bits)


def refused(file: str, data: bytes) -> str:
    """Write a file and expect that it is refused; return the error."""
    Path(file).write_bytes(data)
    return refusal(file)


def refusal(path: str | Path, name: str | None = None) -> str:
    """Expect that a file, or a tensor of it, is refused; return the error, which names it."""
    with pytest.raises(InputError) as caught:
        read_tensors(path, name)
    message = str(caught.value)
    assert Path(path).name in message
    assert message.count("\n") < 2
    assert message.replace("\n", "").isprintable()
    return message


def read_tensors(path: str | Path, name: str | None) -> None:
    """Read the first and the last row of one tensor, or of all."""
    tensors = tensors_of(path)
    for each in [name] if name else tensors:
        layer = tensors.layer(each)
        layer.rows(np.array([0, layer.shape[0] - 1]))
