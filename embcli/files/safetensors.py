"""The safetensors format: 8 bytes of header length, a JSON header, the tensors; its headers written and read.

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

BITS = {"BOOL": 8, "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "F8_E4M3": 8, "F8_E4M3FNUZ": 8, "F8_E5M2": 8}
BITS |= {"F8_E5M2FNUZ": 8, "F8_E8M0": 8, "BF16": 16, "F16": 16, "F32": 32, "F64": 64, "C64": 64}
BITS |= {f"{sign}{width}": width for sign in "IU" for width in (8, 16, 32, 64)}
_NAMES = {"bool": "BOOL", "bfloat16": "BF16", "complex64": "C64"}  # numpy's names of what can be written
_NAMES |= {f"float{width}": f"F{width}" for width in (16, 32, 64)}
_NAMES |= {f"{sign}int{width}": f"{sign.upper() or 'I'}{width}" for sign in ("", "u") for width in (8, 16, 32, 64)}
_LONGEST = 100_000_000  # bytes of a header, as the format has it
_LARGEST = 2**63 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")
_FIELDS = {"dtype", "shape", "data_offsets"}


class Malformed(ValueError):
    """A file is not of the format; the message says what is wrong with it, and its reader knows its name."""


@dataclass(frozen=True)
class Tensor:
    """What the header says of a tensor."""

    dtype: str  # as the format names it: "F32", "BF16"
    shape: tuple[int, ...]
    start: int  # bytes from the beginning of the file
    end: int


@dataclass(frozen=True)
class Header:
    """The tensors of a file, in the order in which they lie there, and what else it says of itself."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str]


def header(tensors: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str], size: int | None = None) -> bytes:
    """Return the bytes before the first tensor; `tensors` gives numpy dtype name and shape, in order.

    The header is padded with spaces so that the tensors start at a multiple of 8, or at `size` where that is given.
    """
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + BITS[_NAMES[dtype]] // 8 * _elements(shape)
        entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    length = size - 8 if size else -(-len(text) // 8) * 8
    if len(text) > length:
        raise ValueError(f"a header of {len(text)} bytes does not fit into {length}")
    return struct.pack("<Q", length) + text.ljust(length)


def read_header(file: BinaryIO) -> Header:
    """Read the header of an open file, and nothing behind it; raises Malformed unless it describes the whole file."""
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    first = file.read(8)
    if len(first) < 8:
        raise Malformed(f"it is too short, with {len(first)} of the 8 bytes that tell how long its header is")
    (length,) = struct.unpack("<Q", first)
    if length > size - 8:
        raise Malformed(f"it is cut off: its header has {length:,} bytes, and {size - 8:,} follow")
    if length > _LONGEST:
        raise Malformed(f"its header has {length:,} bytes, more than the {_LONGEST:,} that the format allows")
    entries = _parsed(file.read(length))
    metadata = _metadata(entries.pop("__metadata__", {}))
    tensors = {name: _tensor(f"tensor {name[:60]!r}", entry, 8 + length) for name, entry in entries.items()}
    return Header(_in_place(tensors, 8 + length, size), metadata)


def _parsed(data: bytes) -> dict[str, Any]:
    if data[:1] != b"{":
        raise Malformed(f"its header begins with {data[:1]!r} where a JSON object begins with b'{{'")
    try:
        entries: dict[str, Any] = json.loads(data.decode(), object_pairs_hook=_distinct, parse_int=_number)
    except Malformed:
        raise
    except RecursionError:
        raise Malformed("its header is nested too deeply") from None
    except ValueError as error:  # no UTF-8, or no JSON
        raise Malformed(f"its header cannot be read ({error})") from None
    return entries


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise Malformed(f"its header has {name[:60]!r} twice")
        if not _is_text(name):
            raise Malformed(f"its header has a name that is no text, {name[:60]!r}")
        found[name] = value
    return found


def _number(text: str) -> int:
    if text[0] == "-" or len(text) > 19 or int(text) > _LARGEST:
        raise Malformed(f"its header has a number out of range, {text[:40]}; sizes and places go from 0 to {_LARGEST}")
    return int(text)


def _is_text(value: object) -> bool:
    """Say whether a value is a string of whole characters; JSON can name half a surrogate pair."""
    return isinstance(value, str) and not _SURROGATES.search(value)


def _metadata(entry: object) -> dict[str, str]:
    if not isinstance(entry, dict):
        raise Malformed("its metadata is no JSON object")
    for name, value in entry.items():
        if not _is_text(value):
            raise Malformed(f"its metadata has {name[:60]!r}, which is no text")
    return entry


def _tensor(what: str, entry: object, data: int) -> Tensor:
    if not isinstance(entry, dict) or entry.keys() != _FIELDS:
        raise Malformed(f"{what} has other fields than dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in BITS:
        raise Malformed(f"{what} has an unknown dtype, {str(dtype)[:40]!r}")
    if not _are_numbers(shape):
        raise Malformed(f"{what} has a shape that is no list of sizes")
    if not _are_numbers(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise Malformed(f"{what} has data_offsets that are no start and end")
    start, end = offsets
    if BITS[dtype] * _elements(tuple(shape), what) != 8 * (end - start):
        raise Malformed(f"{what} has {end - start:,} bytes, which is not what {dtype} of shape {shape} takes")
    return Tensor(dtype, tuple(shape), data + start, data + end)


def _are_numbers(values: object) -> bool:
    return isinstance(values, list) and all(type(value) is int for value in values)


def _in_place(tensors: dict[str, Tensor], data: int, size: int) -> dict[str, Tensor]:
    """Return the tensors in the order of their places; raises Malformed unless they fill the file, each its own."""
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
        raise Malformed(f"its last {size - place:,} bytes are no tensor's")
    return dict(ordered)


def _elements(shape: tuple[int, ...], what: str = "a tensor") -> int:
    count = 1
    for size in shape:
        count *= size
        if count > _LARGEST:
            raise Malformed(f"{what} has a shape out of range, {str(shape)[:60]}")
    return count
