"""Rows of GGUF files are those of the gguf package; headers that lie are refused."""

from __future__ import annotations

import os
import struct
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter

from embcli.files import gguf
from embcli.files.numbers import STORED_DTYPES
from tests.cases import cases
from tests.files.made import (
    TOKENS,
    assert_rows,
    closed,
    layer,
    matrix,
    refusal,
    refused,
    tensors_of,
    written,
)

# --- what the package writes ----------------------------------------------------------------------


def test_the_sizes_of_types_are_those_of_the_package():
    ours = {}
    for number, (name, values, size) in gguf.TYPES.items():
        if values == 1:
            assert STORED_DTYPES[name].stored.itemsize == size
            name = name.replace("bfloat", "BF").replace("float", "F").replace("int", "I")
        ours[number] = (name, values, size)
    for kind, sizes in GGML_QUANT_SIZES.items():
        assert ours[str(kind.value)] == (kind.name, *sizes)


def test_the_header_is_what_the_package_reads():
    tensors = {"a": matrix(), "b": matrix(3, 4), "c": np.zeros(5, np.float32)}
    path = written("m.gguf", tensors)
    reader = GGUFReader(path)
    found = tensors_of(path)
    for tensor in reader.tensors:
        ours = found[tensor.name]
        assert ours.start == tensor.data_offset
        assert ours.size == tensor.n_bytes
        assert ours.shape == tuple(reversed(tensor.shape.tolist()))
    for key, field in reader.fields.items():
        is_list = field.types[0] == 9
        if is_list or key.startswith("GGUF."):
            assert key not in found.metadata
        else:
            assert found.metadata[key] == field.contents()


@pytest.mark.parametrize("alignment", [1, 4096])
def test_alignment_is_honoured(alignment):
    writer = GGUFWriter("m.gguf", "llama")
    writer.add_custom_alignment(alignment)
    writer.add_tensor("a", matrix(seed=1))
    writer.add_tensor("b", matrix(seed=2))
    tensors = tensors_of(closed(writer))
    assert tensors["b"].start % alignment == 0
    assert_rows(tensors.layer("a"), matrix(seed=1))
    assert_rows(tensors.layer("b"), matrix(seed=2))


def test_the_words_of_a_header_longer_than_what_is_read_at_first_are_those_of_the_file():
    count = 1 << 17
    writer = GGUFWriter("m.gguf", "gemma3")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"▁word{number}" for number in range(count)])
    writer.add_token_merges([f"wo rd{number}" for number in range(2 * count)])
    writer.add_tensor("token_embd.weight", matrix(64, 16).astype(np.float16))
    words = tensors_of(closed(writer)).own_words()
    assert words.token_bytes(count - 1) == b" word131071"


# --- parts ----------------------------------------------------------------------------------------


@pytest.fixture
def parts() -> list[Path]:
    """Return the three files of a model of five tensors."""
    tensors = {name: matrix(seed=ord(name)) for name in "abcde"}
    written("m.gguf", tensors, split_max_tensors=2)
    return sorted(Path().glob("m-*.gguf"))


def test_parts_are_one_checkpoint_whichever_is_named(parts):
    for path in parts:
        tensors = tensors_of(path)
        assert sorted(tensors) == [*"abcde"]
        assert list(tensors.files) == [*map(str, parts)]
        for name in "abcde":
            assert_rows(tensors.layer(name), matrix(seed=ord(name)))
        assert tensors.own_words().vocabulary_size == len(TOKENS)


def test_missing_parts_are_refused(parts):
    first, second, _ = parts
    second.unlink()
    assert f"its part {second.name!r} is missing" in refusal(first)


@pytest.mark.parametrize("name", ["three.gguf", "m-00003-of-00005.gguf"])
def test_parts_of_other_names_are_refused(parts, name):
    renamed = parts[2].rename(parts[2].with_name(name))
    assert "one of 3 parts" in refusal(renamed)


# --- headers that lie -----------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(fields: bytes = b"", keys: int = 0, count: int = 0, version: int = 3) -> bytes:
    """Return a header of some keys and of a count of tensors."""
    numbers = struct.pack("<IQQ", version, count, keys)
    whole = b"GGUF" + numbers + fields
    return whole + bytes(-len(whole) % 32)


def of_key(key: str, types: str, *values: int) -> bytes:
    """Return a header with one key; values are its type, and what struct packs.

    Type 4 is a uint32, 8 a string, and 9 an array, whose first value is the type of its values.
    """
    return header(text(key.encode()) + struct.pack(f"<{types}", *values), keys=1)


def described(
    name: str = "a", shape: Sequence[int] = (4, 2), kind: int = 0, offset: int = 0
) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name.encode()) + sizes + struct.pack("<IQ", kind, offset)


@cases
def test_headers_of_another_version_or_of_more_than_they_have_are_refused(numbers, reason):
    assert reason in refused("m.gguf", header(**numbers))


@cases
def test_headers_whose_keys_lie_are_refused(key, types, values, reason):
    assert reason in refused("m.gguf", of_key(key, types, *values))


def test_headers_of_odd_bytes_are_refused():
    assert "cut off" in refused("m.gguf", b"GGUF")
    assert "cut off" in refused("m.gguf", header(struct.pack("<Q", 1 << 62), keys=1))
    twice = 2 * (text(b"a") + struct.pack("<II", 4, 1))
    assert "'a' twice" in refused("m.gguf", header(twice, keys=2))


@cases
def test_headers_whose_tensors_lie_are_refused(tensors, size, reason):
    fields = b"".join(described(**tensor) for tensor in tensors)
    data = header(fields, count=len(tensors)) + bytes(size)
    assert reason in refused("m.gguf", data)


def test_a_header_that_no_model_has_is_not_read_even_where_the_file_has_all_of_it():
    Path("m.gguf").write_bytes(of_key("a", "IIQ", 9, 0, 1 << 28))
    os.truncate("m.gguf", 1 << 29)  # Zeros take no room on a disk.
    assert "cut off" in refusal("m.gguf")


def test_a_tensor_of_an_unknown_type_leaves_the_others_readable():
    both = described("old") + described("new", kind=99, offset=32)
    Path("m.gguf").write_bytes(header(both, count=2) + bytes(64))
    new = tensors_of("m.gguf")["new"]
    assert new.dtype == "type 99"
    assert new.size == 32
    assert_rows(layer("m.gguf", "old"), np.zeros((2, 4), np.float32))


def test_without_the_package_the_command_to_install_it_is_named(
    monkeypatch,
):
    blocks = (np.zeros((4, 34), np.uint8), GGMLQuantizationType.Q8_0)
    path = written("m.gguf", {"a": blocks})
    for name in ("gguf", "gguf.constants", "gguf.quants"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'embcli[models]'" in refusal(path)
