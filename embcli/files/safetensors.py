"""The safetensors format: 8 bytes of header length, a JSON header, the tensors; headers are also written.

The format is described in the safetensors repository's README. Its own library writes only tensors that are whole in
memory, and maps whole files, so headers are written and read here.
"""

from __future__ import annotations

import json
import os
import re
import struct
from dataclasses import dataclass
from typing import Any, BinaryIO

from embcli.binary import Binary
from embcli.files.tensors import Tensor, Tensors
from embcli.strict_json import Malformed, parsed_object

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E4M3FNUZ": 8, "F8_E5M2": 8}
BITS |= {"F8_E5M2FNUZ": 8, "F8_E8M0": 8, "BF16": 16, "F16": 16, "F32": 32, "F64": 64, "C64": 64}
BITS |= {f"{sign}{width}": width for sign in "IU" for width in (8, 16, 32, 64)}
# The format's names of dtypes that become float32 -> numpy's names; other dtypes keep the format's name.
_READ = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
_READ |= {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
_READ |= {f"{sign.upper() or 'I'}{width}": f"{sign}int{width}" for sign in ("", "u") for width in (8, 16, 32, 64)}
_WRITTEN = {name: dtype for dtype, name in _READ.items()} | {"bool": "BOOL", "complex64": "C64"}
_LONGEST = 100_000_000  # bytes of a header, a limit of the format
_LARGEST = 2**63 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")
_FIELDS = {"dtype", "shape", "data_offsets"}


@dataclass(frozen=True)
class Entry:
    """A tensor in a header."""

    dtype: str  # the format's name: "F32", "BF16"
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    end: int


@dataclass(frozen=True)
class Header:
    """The tensors of a file, in the order of their offsets, and its metadata."""

    tensors: dict[str, Entry]
    metadata: dict[str, str]


class SafetensorsFile(Tensors):
    """The tensors of one safetensors file; raises InputError for every file that the safetensors library refuses."""

    format = "safetensors"

    def __init__(self, binary: Binary) -> None:
        try:
            contents = read_header(binary.file)
        except Malformed as error:
            raise binary.refused(str(error)) from None
        tensors = {
            name: Tensor(
                name, each.shape, _READ.get(each.dtype, each.dtype), each.end - each.start, binary.path, each.start
            )
            for name, each in contents.tensors.items()
        }
        super().__init__(binary, tensors, contents.metadata)


def header(tensors: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str], size: int | None = None) -> bytes:
    """Return the bytes before the first tensor; `tensors` gives numpy's name of the dtype and the shape, in order.

    The header is padded with spaces so that the tensors start at a multiple of 8, or at `size` if given.
    """
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + BITS[_WRITTEN[dtype]] // 8 * _elements(shape)
        entries[name] = {"dtype": _WRITTEN[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    length = size - 8 if size else -(-len(text) // 8) * 8
    if len(text) > length:
        raise ValueError(f"a header of {len(text)} bytes does not fit into {length}")
    return struct.pack("<Q", length) + text.ljust(length)


def read_header(file: BinaryIO) -> Header:
    """Read the header of an open file, and nothing after it; raises Malformed unless it describes the whole file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(8)
    if len(first) < 8:
        raise Malformed(f"it is too short, with {len(first)} of the 8 bytes of its header's length")
    (length,) = struct.unpack("<Q", first)
    if length > size - 8:
        raise Malformed(f"it is cut off: its header has {length:,} bytes, and {size - 8:,} follow")
    if length > _LONGEST:
        raise Malformed(f"its header has {length:,} bytes, more than the {_LONGEST:,} that the format allows")
    data = file.read(length)
    if data[:1] != b"{":
        raise Malformed(f"its header begins with {data[:1]!r} where a JSON object begins with b'{{'")
    entries = parsed_object(data, "its header", _number)
    metadata = _metadata(entries.pop("__metadata__", {}))
    tensors = {name: _entry(name, entry, 8 + length) for name, entry in entries.items()}
    return Header(_in_place(tensors, 8 + length, size), metadata)


def _number(text: str) -> int:
    if text[0] == "-" or len(text) > 19 or int(text) > _LARGEST:
        raise Malformed(f"its header has a number out of range, {text[:40]}; sizes and offsets go from 0 to {_LARGEST}")
    return int(text)


def _is_text(value: object) -> bool:
    """Return whether a value is a string of whole characters; JSON can spell half a surrogate pair."""
    return isinstance(value, str) and not _SURROGATES.search(value)


def _metadata(entry: object) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise Malformed("its metadata is not a JSON object")
    for name, value in entry.items():
        if not _is_text(name) or not _is_text(value):
            raise Malformed(f"its metadata has {name[:60]!r}, which is not text")
    return entry


def _entry(name: str, entry: object, data: int) -> Entry:
    if not _is_text(name):
        raise Malformed(f"its header has a name that is not text, {name[:60]!r}")
    what = f"tensor {name[:60]!r}"
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        raise Malformed(f"{what} has other fields than dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise Malformed(f"{what} has an unknown dtype, {str(dtype)[:40]!r}")
    if not _are_numbers(shape):
        raise Malformed(f"{what} has a shape that is not a list of sizes")
    if not _are_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Malformed(f"{what} has data_offsets that are not a start and an end")
    start, end = offsets
    if BITS[dtype] * _elements(tuple(shape), what) != 8 * (end - start):
        raise Malformed(f"{what} has {end - start:,} bytes instead of those of {dtype} of shape {shape}")
    return Entry(dtype, tuple(shape), data + start, data + end)


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _in_place(tensors: dict[str, Entry], data: int, size: int) -> dict[str, Entry]:
    """Return the tensors in the order of their offsets; raises Malformed unless they fill the file without overlap."""
    ordered = sorted(tensors.items(), key=lambda item: (item[1].start, item[1].end))
    place = data
    for name, tensor in ordered:
        if tensor.start != place:
            fault = "overlaps the one before it" if tensor.start < place else "leaves a hole before it"
            raise Malformed(f"tensor {name[:60]!r} {fault}")
        place = tensor.end
    if place > size:
        raise Malformed(f"it is cut off: its tensors end at byte {place:,}, and it has {size:,}")
    if place < size:
        raise Malformed(f"its last {size - place:,} bytes belong to no tensor")
    return dict(ordered)


def _elements(shape: tuple[int, ...], what: str = "a tensor") -> int:
    count = 1
    for size in shape:
        count *= size
        if count > _LARGEST:
            raise Malformed(f"{what} has a shape out of range, {str(shape)[:60]}")
    return count
