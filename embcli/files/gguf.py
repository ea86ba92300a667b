"""The GGUF format: metadata, tensor descriptions, tensors; also in parts, `NAME-00001-of-00009.gguf`.

The header is skipped through, so that a vocabulary of 262,144 words takes as many steps but no objects. The `gguf`
package widens quantised rows; it is loaded when they are needed. The format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import re
from math import prod
from pathlib import Path

import numpy as np

from embcli.binary import Binary, GgufHeader, quoted, read_header
from embcli.encodings.gguf import GgufEncoding
from embcli.errors import Notes, lacks
from embcli.files.numbers import NUMBER_FORMATS, NumberFormat
from embcli.files.tensors import Tensor, Tensors, file_layer
from embcli.layer import Layer

# Types of quantised tensors by number: name, values per block, bytes per block.
QUANTISED = {
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    9: ("Q8_1", 32, 40),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    20: ("IQ4_NL", 32, 18),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    23: ("IQ4_XS", 256, 136),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the tensors of a GGUF file and of the other parts of its model."""
    first, tensors = read_header(binary), {}
    paths = _parts(binary, first) if first.metadata.get("split.count", 1) != 1 else [binary.path]
    parts = [binary if path == binary.path else Binary(path) for path in paths]
    headers = [first if part is binary else read_header(part) for part in parts]
    for part, header in zip(parts, headers, strict=True):
        for tensor in _tensors(part, header):
            if tensor.name in tensors:
                raise part.refused(f"it has the tensor {quoted(tensor.name)} twice")
            tensors[tensor.name] = tensor
    header, words = headers[0], headers[0].arrays.get("tokenizer.ggml.tokens")
    has_words = words is not None and words.has_strings
    return Tensors(
        binary,
        "GGUF",
        tensors,
        header.metadata,
        paths,
        lambda: GgufEncoding(parts[0], header, str(binary.path)) if has_words else None,
    )


def _tensors(binary: Binary, header: GgufHeader) -> list[Tensor]:
    """Return the tensors of a file in their order; raises InputError unless each has its own range of bytes."""
    alignment = header.metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise binary.refused(f"its alignment is {alignment!r}, which is not a power of two")
    tensors: list[Tensor] = []
    place = data = -(-header.end // alignment) * alignment
    ordered = sorted(header.tensors, key=lambda tensor: tensor[3])
    ends = (*(data + offset for *_, offset in ordered[1:]), binary.size)
    for (name, shape, kind, offset), limit in zip(ordered, ends, strict=False):  # one end too many for no tensor
        start = data + offset
        if kind in QUANTISED:
            dtype, values, size = QUANTISED[kind]
            if not shape or shape[-1] % values:
                what = f"rows that do not divide into {dtype}'s blocks of {values}"
                raise binary.refused(f"tensor {quoted(name)} has {what}")
            size *= prod(shape) // values
        elif kind in PLAIN:
            dtype, size = PLAIN[kind], prod(shape) * NUMBER_FORMATS[PLAIN[kind]].stored.itemsize
        else:  # an unknown type takes all available bytes
            dtype, size = f"type {kind}", max(limit - start, 0)
        if offset % alignment or start < place:
            raise binary.refused(f"tensor {quoted(name)} begins at byte {start:,}, where no tensor can begin")
        place = start + size
        if place > binary.size:
            raise binary.refused(f"it is cut off: tensor {quoted(name)} ends at byte {place:,} of {binary.size:,}")
        matrix = _quantised if kind in QUANTISED else file_layer
        tensors.append(Tensor(name, shape, dtype, size, binary, start, matrix=matrix))
    return tensors


def _quantised(tensor: Tensor) -> Layer:
    """Return a matrix of blocks, which the gguf package widens."""
    try:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise tensor.binary.refused(lacks(str(tensor), "models")) from None
    number, values, size = next((number, *row[1:]) for number, row in QUANTISED.items() if row[0] == tensor.dtype)

    def widen(stored: np.ndarray) -> np.ndarray:
        if not len(stored):  # the package fails for no rows
            return np.empty((0, tensor.shape[1]), np.float32)
        found: np.ndarray = dequantize(stored, GGMLQuantizationType(number))
        return found

    try:
        widen(np.zeros((1, size), np.uint8))
    except (NotImplementedError, ValueError):
        raise tensor.binary.refused(f"{tensor} has numbers that the installed gguf package does not read") from None
    return file_layer(tensor, NumberFormat(tensor.dtype, np.dtype("u1"), widen, (values, size)))


def _parts(binary: Binary, header: GgufHeader) -> list[Path]:
    count = header.metadata["split.count"]
    if not isinstance(count, int) or not 0 < count < 10**5:
        raise binary.refused(f"its split.count is {count!r}, which is not a number of parts")
    named = re.fullmatch(r"(.*-)(\d{5})-of-(\d{5})(\.gguf)", binary.path.name)
    if named is None or int(named[3]) != count:
        raise binary.refused(f"it is one of {count} parts; its name must end like -00001-of-{count:05}.gguf")
    paths = [binary.path.with_name(f"{named[1]}{number:05}-of-{named[3]}{named[4]}") for number in range(1, count + 1)]
    for path in paths:
        if not path.is_file():
            raise binary.refused(f"its part {path.name!r} is missing")
    return paths
