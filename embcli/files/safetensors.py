"""The safetensors format: 8 bytes of header length, a JSON header, the tensors; written in pieces, read by mapping.

The format is described in the safetensors repository's README. Its own library writes only tensors that are whole in
memory, so the header is written here.
"""

from __future__ import annotations

import json
import struct
from typing import Any

_NAMES = {"float32": "F32", "int64": "I64", "uint32": "U32"}
_WIDTHS = {"F32": 4, "I64": 8, "U32": 4}


def header(tensors: dict[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str], size: int | None = None) -> bytes:
    """Return the bytes before the first tensor; `tensors` gives numpy dtype name and shape, in order.

    The header is padded with spaces so that the tensors start at a multiple of 8, or at `size` where that is given.
    """
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + _WIDTHS[_NAMES[dtype]] * _elements(shape)
        entries[name] = {"dtype": _NAMES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    length = size - 8 if size else -(-len(text) // 8) * 8
    if len(text) > length:
        raise ValueError(f"a header of {len(text)} bytes does not fit into {length}")
    return struct.pack("<Q", length) + text.ljust(length)


def parse_header(data: bytes | memoryview) -> tuple[dict[str, Any], int]:
    """Return the header's entries and where the tensors start; raises ValueError for bytes that are no such file."""
    if len(data) < 8:
        raise ValueError("too short for a safetensors file")
    (length,) = struct.unpack("<Q", data[:8])
    if length > len(data) - 8:
        raise ValueError("cut off in the header")
    entries = json.loads(bytes(data[8 : 8 + length]))
    if not isinstance(entries, dict):
        raise ValueError("the header is no JSON object")
    return entries, 8 + length


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
