"""Headers of safetensors files are read strictly: never is one accepted that the format's own library refuses."""

from __future__ import annotations

import io
import itertools
import json
import struct
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from embcli.files.safetensors import BITS, Header, header, read_header
from embcli.strict_json import Malformed


def packed(entries: object, data: bytes = b"") -> bytes:
    text = entries if isinstance(entries, bytes) else json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + data


def read(whole: bytes) -> Header:
    return read_header(io.BytesIO(whole))


def oracle(whole: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]] | None:
    """Return what the library reads, or None where it refuses."""
    try:
        found = safetensors.deserialize(whole)
    except safetensors.SafetensorError:
        return None
    return {name: (entry["dtype"], tuple(entry["shape"]), bytes(entry["data"])) for name, entry in found}


def ours(whole: bytes) -> dict[str, tuple[str, tuple[int, ...], bytes]]:
    return {
        name: (tensor.dtype, tensor.shape, whole[tensor.start : tensor.end])
        for name, tensor in read(whole).tensors.items()
    }


@st.composite
def files(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """Draw the entries of a sound file and its data."""
    entries: dict[str, Any] = {}
    place = 0
    for name in draw(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), unique=True, max_size=4)):
        dtype = draw(st.sampled_from(sorted(BITS)))
        shape = draw(st.lists(st.integers(0, 3), max_size=3))
        if BITS[dtype] % 8:
            shape.append(4)  # so many take whole bytes
        end = place + int(np.prod(shape, dtype=int)) * BITS[dtype] // 8
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [place, end]}
        place = end
    if draw(st.booleans()):
        entries["__metadata__"] = draw(st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=2))
        try:
            json.dumps(entries["__metadata__"], ensure_ascii=False).encode()
        except UnicodeEncodeError:
            entries["__metadata__"] = {}
    return entries, draw(st.binary(min_size=place, max_size=place))


@settings(max_examples=100, deadline=None)
@given(files())
def test_what_the_library_reads_is_read_the_same(case: tuple[dict[str, Any], bytes]) -> None:
    entries, data = case
    whole = packed(entries, data)
    assert ours(whole) == oracle(whole)
    assert read(whole).metadata == entries.get("__metadata__", {})


VALUES = [
    0,
    1,
    2,
    8,
    -1,
    True,
    None,
    1.0,
    1e400,
    "1",
    "F32",
    "U8",
    [],
    [0],
    [[]],
    {},
    2**31,
    2**62,
    2**63,
    2**64,
    10**30,
]


@settings(max_examples=120, deadline=None)
@given(files(), st.data())
def test_a_file_that_the_library_refuses_is_never_accepted(
    case: tuple[dict[str, Any], bytes], data: st.DataObject
) -> None:
    """Other values in any place of the header, other bytes anywhere, and lengths that do not fit."""
    entries, content = case
    tensors = [entry for name, entry in entries.items() if name != "__metadata__"]
    for _ in range(data.draw(st.integers(0, 2)) if tensors else 0):
        entry = data.draw(st.sampled_from(tensors))
        field = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        if isinstance(entry.get(field), list) and entry[field] and data.draw(st.booleans()):
            entry[field][data.draw(st.integers(0, len(entry[field]) - 1))] = deepcopy(
                data.draw(st.sampled_from(VALUES))
            )
        elif data.draw(st.booleans()):
            entry[field] = deepcopy(data.draw(st.sampled_from([*VALUES, *sorted(BITS)])))
        else:
            entry.pop(field, None)
    whole = bytearray(packed(entries, content))
    for _ in range(data.draw(st.integers(0, 2))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(
            st.integers(0, 255) | st.sampled_from(b'0-{}[]",: ')
        )
    if data.draw(st.booleans()):
        place = data.draw(st.integers(0, len(whole)))
        whole = (
            whole[:place] + data.draw(st.binary(max_size=3)) + whole[data.draw(st.sampled_from([place, place + 1])) :]
        )
    expected = oracle(bytes(whole))
    try:
        found = ours(bytes(whole))
    except Malformed:
        return
    assert found == expected


TENSOR = {"dtype": "U8", "shape": [2], "data_offsets": [0, 2]}
DEEP = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"


@pytest.mark.parametrize(
    ("whole", "fault"),
    [
        (b"", "it is cut off: its header has 0 bytes"),
        (b"\x02\0\0", "it is cut off: its header has 2 bytes"),
        (struct.pack("<Q", 3) + b"{}", "its header has 3 bytes, and 2 follow"),
        (struct.pack("<Q", 2**64 - 1) + b"{}", "its header has 18,446,744,073,709,551,615 bytes, and 2 follow"),
        (packed(b""), "its header begins with b''"),
        (packed(b" {}"), "its header begins with b' '"),
        (packed([]), r"its header begins with b'\['"),
        (packed(b"\xef\xbb\xbf{}"), "its header begins with"),
        (packed(b'{"\xff":1}'), "its header cannot be read .*utf-8"),
        (packed(b"{"), "its header cannot be read"),
        (packed(b"{}x"), "its header cannot be read"),
        (packed(b'{"a":1e}'), "its header cannot be read"),
        (packed(DEEP), "nested too deeply|not described"),
        (packed(b'{"a":1,"a":2}'), "its header has 'a' twice"),
        (packed(b'{"a":{"dtype":"U8","dtype":"U8"}}'), "its header has 'dtype' twice"),
        (packed(rb'{"\ud800":1}'), "a name or metadata that is not text"),
        (packed({"__metadata__": None}), "a name or metadata that is not text"),
        (packed({"__metadata__": {"a": 1}}), "a name or metadata that is not text"),
        (packed(rb'{"__metadata__":{"a":"\udfff"}}'), "a name or metadata that is not text"),
        (packed({"a": {**TENSOR, "more": 1}}, b"ab"), "tensor 'a' is not described by"),
        (packed({"a": {**TENSOR, "dtype": "F33"}}, b"ab"), "tensor 'a' is not described by"),
        (packed({"a": {**TENSOR, "shape": [2.0]}}, b"ab"), "tensor 'a' is not described by"),
        (packed({"a": {**TENSOR, "shape": [True, 2]}}, b"ab"), "tensor 'a' is not described by"),
        (packed({"a": {**TENSOR, "shape": [-2]}}, b"ab"), "a number out of range, -2"),
        (packed(b'{"a":{"dtype":"U8","shape":[2],"data_offsets":[-0,2]}}', b"ab"), "a number out of range, -0"),
        (packed({"a": {**TENSOR, "shape": [2**63]}}, b"ab"), f"a number out of range, {2**63}"),
        (packed(b'{"a":' + b"9" * 5000 + b"}"), "a number out of range, 9{40}$"),
        (
            packed({"a": {**TENSOR, "shape": [2**62, 4, 0], "data_offsets": [0, 0]}}),
            "tensor 'a' is not described by",
        ),
        (
            packed({"a": {**TENSOR, "data_offsets": [0, 1]}}, b"a"),
            "tensor 'a' is not described by",
        ),
        (
            packed({"a": {**TENSOR, "data_offsets": [2, 0]}}, b"ab"),
            "tensor 'a' is not described by",
        ),
        (packed({"a": {**TENSOR, "data_offsets": [1, 3]}}, b"abc"), "tensor 'a' leaves a hole before it"),
        (
            packed({"a": TENSOR, "b": {**TENSOR, "data_offsets": [1, 3]}}, b"abc"),
            "tensor 'b' overlaps the one before it",
        ),
        (packed({"a": TENSOR, "b": TENSOR}, b"ab"), "tensor 'b' overlaps the one before it"),
        (packed({"a": TENSOR}, b"a"), "it is cut off: its tensors end at byte 70, and it has 69"),
        (packed({"a": TENSOR}, b"abc"), "its tensors end at byte 70, and it has 71"),
        (packed({}, b"abc"), "its tensors end at byte 10, and it has 13"),
    ],
    ids=itertools.count(),
)
def test_a_header_that_is_wrong_is_refused_with_what_is_wrong(whole: bytes, fault: str) -> None:
    with pytest.raises(Malformed, match=fault):
        read(whole)


def test_a_header_longer_than_the_format_allows_is_refused_unread(tmp_path: Any) -> None:
    path = tmp_path / "long.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 100_000_001))
        file.truncate(100_000_100)
    with path.open("rb") as file:
        with pytest.raises(Malformed, match="100,000,001 bytes, more than the 100,000,000"):
            read_header(file)
        assert file.tell() == 8


@given(st.integers(0, 3))
@example(0)
def test_nothing_behind_the_header_is_read(count: int) -> None:
    class Watched(io.BytesIO):
        furthest = 0

        def read(self, size: int | None = -1, /) -> bytes:
            data = super().read(size)
            self.furthest = max(self.furthest, self.tell())
            return data

    whole = packed({"a": {"dtype": "U8", "shape": [count], "data_offsets": [0, count]}}, bytes(count))
    file = Watched(whole)
    read_header(file)
    assert file.furthest == len(whole) - count


WRITTEN = ["bool", "float16", "float32", "float64", "complex64"] + [
    f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)
]


@pytest.mark.parametrize("dtype", WRITTEN)
@pytest.mark.parametrize("shape", [(), (3,), (2, 0), (2, 3, 5)])
def test_a_header_that_is_written_is_read_by_the_library_and_here(dtype: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype)
    tensors = {"first": (dtype, shape), "second": ("int64", (1,))}
    whole = header(tensors, {"of": "test"}) + values.tobytes() + np.int64(7).tobytes()
    found = safetensors.numpy.load(whole)
    assert found["first"].tobytes() == values.tobytes()
    assert (found["first"].dtype, found["first"].shape, found["second"].tolist()) == (values.dtype, shape, [7])
    assert ours(whole) == oracle(whole)


def test_a_header_is_padded_to_the_size_that_is_asked_for_and_no_smaller() -> None:
    tensors = {"a": ("uint8", (1,))}
    assert len(header(tensors, {}, size=4096)) == 4096
    assert len(header(tensors, {})) % 8 == 0
    with pytest.raises(ValueError, match=r"a header of .* does not fit into 8"):
        header(tensors, {}, size=16)


def test_every_dtype_that_the_library_knows_is_known_with_its_width() -> None:
    for dtype, bits in BITS.items():
        entry = {"dtype": dtype, "shape": [8], "data_offsets": [0, bits]}
        assert oracle(packed({"a": entry}, bytes(bits))) is not None
    with pytest.raises(safetensors.SafetensorError) as error:
        safetensors.deserialize(packed({"a": {**TENSOR, "dtype": "?"}}))
    assert set(str(error.value).split("`")[3::2]) == set(BITS)
