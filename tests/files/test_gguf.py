"""Rows of GGUF files are those of the gguf package, for each type it knows; headers that lie are refused."""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFReader, GGUFWriter

from embcli.files import gguf, open_tensors
from embcli.files.numbers import STORED_DTYPES
from tests.files.made import TOKENS, assert_rows, closed, matrix, refusal, written


def test_the_sizes_of_types_are_those_of_the_package() -> None:
    sizes = {kind.value: (kind.name, *GGML_QUANT_SIZES[kind]) for kind in GGML_QUANT_SIZES}
    for number, (name, values, size) in gguf.TYPES.items():
        if number in sizes:
            assert sizes.pop(number) == (name if values > 1 else package_name(name), values, size)
        if values == 1:
            assert STORED_DTYPES[name].stored.itemsize == size
    assert not sizes


def package_name(name: str) -> str:
    """Return the package's name of a plain type."""
    return name.replace("bfloat", "BF").replace("float", "F").replace("int", "I")


def test_the_header_is_what_the_package_reads(tmp_path: Path) -> None:
    path = written(
        tmp_path / "m.gguf", {"a": matrix(), "b": matrix(3, 4), "c": np.zeros(5, np.float32)}
    )
    reader, tensors = GGUFReader(path), open_tensors(path)
    for tensor in reader.tensors:
        found = tensors[tensor.name]
        assert (found.start, found.size) == (tensor.data_offset, tensor.n_bytes)
        assert found.shape == tuple(reversed(tensor.shape.tolist()))
    scalars = {
        key: field.contents()
        for key, field in reader.fields.items()
        if not key.startswith("GGUF.") and field.types[0] != 9
    }
    assert tensors.metadata == scalars


@pytest.mark.parametrize("alignment", [1, 4096])
def test_alignment_is_honoured(tmp_path: Path, alignment: int) -> None:
    path = tmp_path / "m.gguf"
    writer = GGUFWriter(path, "llama")
    writer.add_custom_alignment(alignment)
    for name in ("a", "b"):
        writer.add_tensor(name, matrix(seed=ord(name)))
    closed(writer)
    tensors = open_tensors(path)
    assert [tensor.start % alignment for tensor in tensors.values()] == [0, 0]
    for name in ("a", "b"):
        assert_rows(tensors.layer(name), matrix(seed=ord(name)))


# --- parts --------------------------------------------------------------------------------------------------------


def parts(folder: Path) -> list[Path]:
    written(
        folder / "m.gguf",
        {f"{name}.weight": matrix(seed=ord(name)) for name in "abcde"},
        split_max_tensors=2,
    )
    return sorted(folder.glob("m-*.gguf"))


def test_parts_are_one_checkpoint_whichever_is_named(tmp_path: Path) -> None:
    files = parts(tmp_path)
    assert len(files) == 3
    for path in files:
        tensors = open_tensors(path)
        assert sorted(tensors) == [f"{name}.weight" for name in "abcde"]
        assert list(tensors.files) == files
        for name in "abcde":
            assert_rows(tensors.layer(f"{name}.weight"), matrix(seed=ord(name)))
        assert tensors.own_words().vocabulary_size == len(TOKENS)


def test_missing_parts_and_parts_of_other_names_are_refused(tmp_path: Path) -> None:
    first, second, third = parts(tmp_path)
    second.rename(tmp_path / "away")
    assert f"its part {second.name!r} is missing" in refusal(first)
    for name in ("three.gguf", "m-00003-of-00005.gguf"):
        third = third.rename(tmp_path / name)
        assert "one of 3 parts" in refusal(third)


# --- what is not read -------------------------------------------------------------------------------------------------


def test_the_words_of_a_header_longer_than_what_is_read_at_first_are_those_of_the_file(
    tmp_path: Path,
) -> None:
    count = 1 << 17
    writer = GGUFWriter(tmp_path / "m.gguf", "gemma3")
    writer.add_tokenizer_model("llama")
    writer.add_token_list([f"▁word{number}".encode() for number in range(count)])
    writer.add_token_merges([f"wo rd{number}" for number in range(2 * count)])
    writer.add_tensor("token_embd.weight", matrix(64, 16).astype(np.float16))
    closed(writer)
    words = open_tensors(tmp_path / "m.gguf").own_words()
    assert (words.vocabulary_size, words.token_bytes(count - 1)) == (count, b" word131071")


# --- refusals -----------------------------------------------------------------------------------------------------


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def header(
    pairs: bytes = b"",
    keys: int = 0,
    tensors: bytes = b"",
    count: int = 0,
    version: int = 3,
    data: bytes = b"",
) -> bytes:
    whole = b"GGUF" + struct.pack("<IQQ", version, count, keys) + pairs + tensors
    return whole + bytes(-len(whole) % 32) + data


def described(
    name: bytes = b"a", shape: tuple[int, ...] = (4, 2), kind: int = 0, offset: int = 0
) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"GGUF", "cut off"),
        (header(version=1), "version 1"),
        (header(version=2 << 24), "big-endian"),
        (header(version=3 << 24), "big-endian"),
        (header(keys=1 << 60), "cut off"),
        (header(count=1 << 60), "cut off"),
        (header(keys=1, pairs=struct.pack("<Q", 1 << 62)), "cut off"),
        (header(keys=2, pairs=2 * (text(b"a") + struct.pack("<II", 4, 1))), "'a' twice"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<I", 13)), "unknown type 13"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<IQ", 8, 1 << 40)), "cut off"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<IIQ", 9, 4, 1 << 60)), "cut off"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<IIQ", 9, 8, 1 << 60)), "cut off"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<IIQQ", 9, 8, 1, 1 << 60)), "cut off"),
        (header(keys=1, pairs=text(b"a") + struct.pack("<IIQ", 9, 9, 1)), "an array of arrays"),
        (
            header(keys=1, pairs=text(b"general.alignment") + struct.pack("<II", 4, 3)),
            "not a power of two",
        ),
        (
            header(keys=1, pairs=text(b"general.alignment") + struct.pack("<IQ", 8, 0)),
            "not a power of two",
        ),
        (
            header(keys=1, pairs=text(b"split.count") + struct.pack("<II", 4, 0)),
            "not a number of parts",
        ),
        (header(tensors=described(shape=(1,) * 5), count=1), "5 dimensions"),
        (header(tensors=described(), count=1), "cut off"),
        (header(tensors=described(shape=(1 << 63, 1 << 63)), count=1), "cut off"),
        (header(tensors=described(offset=1 << 63), count=1), "cut off"),
        (header(tensors=described(offset=8), count=1, data=bytes(64)), "where no tensor can begin"),
        (
            header(tensors=described() + described(b"b"), count=2, data=bytes(64)),
            "where no tensor can begin",
        ),
        (header(tensors=described() + described(offset=32), count=2, data=bytes(64)), "'a' twice"),
        (header(tensors=described(kind=12), count=1, data=bytes(64)), "blocks of 256"),
        (header(tensors=described(kind=99), count=1, data=bytes(64)), "type 99"),
        (header(tensors=described(kind=4), count=1, data=bytes(64)), "type 4"),
        (header(tensors=described(shape=(32, 1), kind=9), count=1, data=bytes(64)), "Q8_1"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, data: bytes, reason: str) -> None:
    (tmp_path / "m.gguf").write_bytes(data)
    assert reason in refusal(tmp_path / "m.gguf")


def test_a_header_that_no_model_has_is_not_read_even_where_the_file_has_all_of_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(header(keys=1, pairs=text(b"a") + struct.pack("<IIQ", 9, 0, 1 << 28)))
    os.truncate(path, 1 << 29)  # zeros that take no room on a disk
    assert "cut off" in refusal(path)


def test_a_tensor_of_an_unknown_type_leaves_the_others_readable(tmp_path: Path) -> None:
    data = header(
        tensors=described(b"new", kind=99) + described(b"old", offset=32), count=2, data=bytes(64)
    )
    (tmp_path / "m.gguf").write_bytes(data)
    tensors = open_tensors(tmp_path / "m.gguf")
    assert (tensors["new"].dtype, tensors["new"].size) == ("type 99", 32)
    assert_rows(tensors.layer("old"), np.zeros((2, 4), np.float32))


def test_without_the_package_the_command_to_install_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = GGMLQuantizationType.Q8_0
    path = written(tmp_path / "m.gguf", {"a": (np.zeros((4, 34), np.uint8), kind)})
    for name in ("gguf", "gguf.constants", "gguf.quants"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "pip install 'embcli[models]'" in refusal(path)
