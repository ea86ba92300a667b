"""The safetensors format: 8 bytes of header length, a JSON header, the tensors; headers are also written.

The format is described in the safetensors repository's README. Its own library writes only tensors that are whole in
memory, and maps whole files, so headers are written and read here.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from math import prod
from typing import Any

from embcli.binary import Binary, parsed_object
from embcli.errors import Notes
from embcli.files.tensors import Tensor, Tensors

BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "F8_E4M3": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2": 8,
}
BITS |= {"F8_E5M2FNUZ": 8, "F8_E8M0": 8, "BF16": 16, "F16": 16, "F32": 32, "F64": 64, "C64": 64}
BITS |= {f"{sign}{width}": width for sign in "IU" for width in (8, 16, 32, 64)}
# The format's names of dtypes that become float32 -> numpy's names; other dtypes keep the format's name.
NAMES = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
NAMES |= {"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2"}
NAMES |= {
    f"{sign.upper() or 'I'}{width}": f"{sign}int{width}"
    for sign in ("", "u")
    for width in (8, 16, 32, 64)
}
_WRITTEN = {name: dtype for dtype, name in NAMES.items()} | {"bool": "BOOL", "complex64": "C64"}
_LONGEST = 100_000_000  # bytes of a header, a limit of the format
_LARGEST = 2**63 - 1
_SURROGATES = re.compile("[\ud800-\udfff]")


def header(tensors: Mapping[str, tuple[str, tuple[int, ...]]], metadata: dict[str, str]) -> bytes:
    """Return the bytes before the first tensor; `tensors` gives numpy's name of the dtype and the shape, in order.

    The header is padded with spaces so that the tensors start at a multiple of 8.
    """
    entries: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    offset = 0
    for name, (dtype, shape) in tensors.items():
        end = offset + BITS[_WRITTEN[dtype]] // 8 * prod(shape)
        entries[name] = {
            "dtype": _WRITTEN[dtype],
            "shape": list(shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    length = -(-len(text) // 8) * 8
    return struct.pack("<Q", length) + text.ljust(length)


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the tensors of a file in the order of their bytes; raises InputError unless these fill the file."""
    length = int.from_bytes(binary.read(0, 8), "little")
    place = 8 + length
    if binary.size < place:
        follow = max(binary.size - 8, 0)
        raise binary.file_error(
            f"it is cut off: its header has {length:,} bytes, and {follow:,} follow"
        )
    if length > _LONGEST:
        raise binary.file_error(
            f"its header has {length:,} bytes, more than the {_LONGEST:,} that the format allows"
        )
    data = binary.read(8, length)
    if data[:1] != b"{":
        raise binary.file_error(
            f"its header begins with {data[:1]!r} where a JSON object begins with b'{{'"
        )

    def natural(text: str) -> int:
        if not text.isdigit() or len(text) > 19 or int(text) > _LARGEST:
            raise binary.file_error(f"its header has a number out of range, {text[:40]}")
        return int(text)

    entries = parsed_object(binary, data, "its header", natural)
    metadata = entries.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(
        map(_is_text, (*entries, *metadata, *metadata.values()))
    ):
        raise binary.file_error("its header has a name or metadata that is not text")
    described = [_tensor(binary, name, entry, place) for name, entry in entries.items()]
    ordered = sorted(described, key=lambda tensor: (tensor.start, tensor.size))
    for tensor in ordered:
        if tensor.start != place:
            fault = (
                "overlaps the one before it" if tensor.start < place else "leaves a hole before it"
            )
            raise binary.file_error(f"tensor {tensor.name[:60]!r} {fault}")
        place += tensor.size
    if place != binary.size:
        cut = "it is cut off: " if place > binary.size else ""
        raise binary.file_error(
            f"{cut}its tensors end at byte {place:,}, and it has {binary.size:,}"
        )
    return Tensors(binary, "safetensors", {tensor.name: tensor for tensor in ordered}, metadata)


def _is_text(value: object) -> bool:
    """Return whether a value is a string of whole characters; JSON can spell half a surrogate pair."""
    return isinstance(value, str) and not _SURROGATES.search(value)


def _tensor(binary: Binary, name: str, entry: Any, data: int) -> Tensor:
    try:
        dtype = entry["dtype"]
        shape = entry["shape"]
        start, end = entry["data_offsets"]
        fits = (
            isinstance(shape, list)
            and len(entry) == 3
            and all(type(each) is int for each in (*shape, start, end))
        )
        # The library refuses sizes whose product overflows, also beside a size of 0.
        if (
            fits
            and BITS[dtype] * prod(shape) == 8 * (end - start)
            and prod(each or 1 for each in shape) <= _LARGEST
        ):
            return Tensor(
                name, tuple(shape), NAMES.get(dtype, dtype), end - start, binary, data + start
            )
    except (TypeError, KeyError, ValueError):
        pass
    raise binary.file_error(
        f"tensor {name[:60]!r} is not described by a dtype, a shape and data_offsets that fit together"
    )
