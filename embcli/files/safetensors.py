"""The safetensors format: 8 bytes of header length, a JSON header, then the tensors.

Files are read here, and `writers` makes headers here. The format is described in the README of the
safetensors repository. Its own library writes only tensors that are whole in memory, and maps whole
files, so embcli does without it.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

from embcli.binary import Binary, JsonObject, parsed_object
from embcli.errors import Notes
from embcli.files.tensors import Tensor, Tensors
from embcli.names import Shape
from embcli.wording import load_facts

_FACTS = load_facts("safetensors.json")
# The bits of a number by the format's name of its dtype.
BITS: dict[str, int] = _FACTS["bits"]
# numpy's names of the dtypes that become float32. Other dtypes keep the format's name.
NAMES: dict[str, str] = _FACTS["names"]
_DTYPES_BY_NAME = {name: dtype for dtype, name in NAMES.items()}
_WRITTEN_DTYPES = {**_DTYPES_BY_NAME, "bool": "BOOL", "complex64": "C64"}
_LARGEST = 2**63 - 1  # the most values of a tensor


def header(tensors: Mapping[str, tuple[str, Shape]], metadata: dict[str, str]) -> bytes:
    """Return the bytes before the first tensor, padded so that it starts at a multiple of 8.

    `tensors` gives numpy's name of the dtype and the shape of each tensor, in order.
    """
    entries: JsonObject = {}
    if metadata:
        entries["__metadata__"] = metadata
    start = 0
    for name, (numpy_name, shape) in tensors.items():
        dtype = _WRITTEN_DTYPES[numpy_name]
        end = start + BITS[dtype] // 8 * prod(shape)
        entries[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [start, end]}
        start = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    length = -(-len(text) // 8) * 8
    return struct.pack("<Q", length) + text.ljust(length)


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the tensors of a file in the order of their bytes.

    Raises InputError unless the header and the tensors fill the file.
    """
    length = int.from_bytes(binary.read(0, 8), "little")
    entries = _read_entries(binary, length)
    metadata = entries.pop("__metadata__", {})
    is_object = isinstance(metadata, dict)
    if not is_object or not all(map(_is_text, [*entries, *metadata, *metadata.values()])):
        raise binary.file_error("its header has a name or metadata that is not text")

    data_start = 8 + length
    tensors = [_tensor(binary, name, entry, data_start) for name, entry in entries.items()]
    tensors.sort(key=lambda tensor: (tensor.start, tensor.size))
    _check_no_gaps(binary, tensors, data_start)
    by_name = {tensor.name: tensor for tensor in tensors}
    by_name |= _aliases(by_name, metadata)
    return Tensors(binary, "safetensors", by_name, metadata, is_array=False)


def _aliases(tensors: Mapping[str, Tensor], metadata: Mapping[str, str]) -> dict[str, Tensor]:
    """Return the tensors that have other names, too, by these names.

    The library's save_model stores such a tensor once, and notes its other names in the metadata.
    """
    aliases = {}
    for alias, name in metadata.items():
        if name in tensors and alias not in tensors:
            aliases[alias] = replace(tensors[name], name=alias)
    return aliases


def _read_entries(binary: Binary, length: int) -> JsonObject:
    """Return the tensors by name, and the metadata, from a header of this many bytes."""
    longest = 100_000_000  # bytes; a limit of the format
    if binary.size < 8 + length:
        following = max(binary.size - 8, 0)
        raise binary.file_error(
            f"it is cut off: its header has {length:,} bytes, and {following:,} follow"
        )
    if length > longest:
        raise binary.file_error(
            f"its header has {length:,} bytes, more than the {longest:,} that the format allows"
        )
    return parsed_object(binary, binary.read(8, length), "its header")


def _is_text(value: object) -> bool:
    """Return whether a value is a string without half a surrogate pair, which JSON can have."""
    return isinstance(value, str) and not re.search("[\ud800-\udfff]", value)


def _tensor(binary: Binary, name: str, entry: Any, data_start: int) -> Tensor:
    """Return the tensor that an entry of the header describes; raises InputError if it does not."""
    try:
        dtype = entry["dtype"]
        shape = entry["shape"]
        start, end = entry["data_offsets"]
        numbers = [*shape, start, end]
        are_natural = all(type(number) is int and number >= 0 for number in numbers)
        has_types = isinstance(shape, list) and are_natural
        # The library refuses sizes whose product overflows, even if another size is 0.
        is_countable = has_types and prod(size or 1 for size in shape) <= _LARGEST
        if len(entry) == 3 and is_countable and BITS[dtype] * prod(shape) == 8 * (end - start):
            dtype_name = NAMES.get(dtype, dtype)
            size = end - start
            return Tensor(name, tuple(shape), dtype_name, size, binary, data_start + start)
    except (TypeError, KeyError, ValueError):
        pass
    raise binary.file_error(
        f"tensor {name!r} is not described by a dtype, a shape and data_offsets that fit together"
    )


def _check_no_gaps(binary: Binary, tensors: list[Tensor], data_start: int) -> None:
    """Raise InputError unless tensors, ordered by their bytes, fill the file after the header."""
    end = data_start
    for tensor in tensors:
        if tensor.start != end:
            where = f"byte {tensor.start:,}, and the one before it ends at {end:,}"
            raise binary.file_error(f"tensor {tensor.name!r} begins at {where}")
        end += tensor.size
    if end != binary.size:
        cut_off = "it is cut off: " if end > binary.size else ""
        raise binary.file_error(
            f"{cut_off}its tensors end at byte {end:,}, and it has {binary.size:,}"
        )
