"""The GGUF format: a header, tensors; also in parts, `NAME-00001-of-00009.gguf`.

The `gguf` package widens quantised rows; it is loaded when they are needed.
"""

from __future__ import annotations

import re
from functools import partial
from math import prod
from pathlib import Path

import numpy as np

from embcli.binary import Binary, quoted
from embcli.encodings.gguf import vocabulary_of
from embcli.errors import Notes, missing_extra
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import Tensor, Tensors, file_layer
from embcli.gguf import GgufHeader, read_header
from embcli.layer import Layer

# Types of tensors by number: name, values per block, bytes per block; what is not quantised has blocks of one value.
TYPES = {
    0: ("float32", 1, 4),
    1: ("float16", 1, 2),
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
    24: ("int8", 1, 1),
    25: ("int16", 1, 2),
    26: ("int32", 1, 4),
    27: ("int64", 1, 8),
    28: ("float64", 1, 8),
    29: ("IQ1_M", 256, 56),
    30: ("bfloat16", 1, 2),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the tensors of a GGUF file and of the other parts of its model."""
    header = read_header(binary)
    headers = {binary: header}
    if header.metadata.get("split.count", 1) != 1:
        headers = {part: read_header(part) for part in map(Binary, _parts(binary, header))}

    tensors: dict[str, Tensor] = {}
    for part, header in headers.items():
        for tensor in _tensors(part, header):
            if tensor.name in tensors:
                raise part.file_error(f"it has the tensor {quoted(tensor.name)} twice")
            tensors[tensor.name] = tensor

    first, header = next(iter(headers.items()))
    own_words = partial(vocabulary_of, first, header, str(binary.path))
    files = [part.path for part in headers]
    return Tensors(binary, "GGUF", tensors, header.metadata, files, own_words)


def _tensors(binary: Binary, header: GgufHeader) -> list[Tensor]:
    """Return the tensors of a file in their order; raises InputError unless each has its own range of bytes."""
    alignment = header.metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise binary.file_error(f"its alignment is {alignment!r}, which is not a power of two")
    data = -(-header.end // alignment) * alignment
    ordered = sorted(header.tensors, key=lambda tensor: tensor.offset)
    ends = [data + tensor.offset for tensor in ordered[1:]]
    ends.append(binary.size)
    tensors: list[Tensor] = []
    place = data
    for (name, shape, kind, offset), end in zip(
        ordered, ends, strict=False
    ):  # one end too many for no tensor
        start = data + offset
        if kind in TYPES:
            dtype, values, block = TYPES[kind]
            if (1, *shape)[-1] % values:
                what = f"rows that do not divide into {dtype}'s blocks of {values}"
                raise binary.file_error(f"tensor {quoted(name)} has {what}")
            size = prod(shape) // values * block
        else:  # it takes all available bytes
            dtype = f"type {kind}"
            values = 1
            size = max(end - start, 0)
        if offset % alignment or start < place:
            raise binary.file_error(
                f"tensor {quoted(name)} begins at byte {start:,}, where no tensor can begin"
            )
        place = start + size
        if place > binary.size:
            raise binary.file_error(
                f"it is cut off: tensor {quoted(name)} ends at byte {place:,} of {binary.size:,}"
            )
        matrix = file_layer if values == 1 else _quantised
        tensors.append(Tensor(name, shape, dtype, size, binary, start, matrix=matrix))
    return tensors


def _quantised(tensor: Tensor) -> Layer:
    """Return a matrix of blocks, which the gguf package widens."""
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise tensor.binary.file_error(missing_extra(str(tensor), "models")) from None

    def widen(stored: np.ndarray) -> np.ndarray:
        if not len(stored):  # the package fails for no rows
            return np.empty((0, tensor.shape[1]), np.float32)
        found: np.ndarray = dequantize(stored.view(np.uint8), kind)
        return found

    try:
        kind = GGMLQuantizationType[tensor.dtype]
        values, size = GGML_QUANT_SIZES[kind]
        block = np.dtype((np.void, size))
        widen(np.zeros((1, 1), block))
    except (KeyError, NotImplementedError, ValueError):
        raise tensor.binary.file_error(
            f"{tensor} has numbers that the installed gguf package does not read"
        ) from None
    return file_layer(tensor, StoredDtype(tensor.dtype, block, widen, values))


def _parts(binary: Binary, header: GgufHeader) -> list[Path]:
    count = header.metadata["split.count"]
    if not isinstance(count, int) or not 0 < count < 10**5:
        raise binary.file_error(f"its split.count is {count!r}, which is not a number of parts")
    named = re.fullmatch(r"(.*-)(\d{5})-of-(\d{5})(\.gguf)", binary.path.name)
    if named is None or int(named[3]) != count:
        raise binary.file_error(
            f"it is one of {count} parts; its name must end like -00001-of-{count:05}.gguf"
        )
    paths = [
        binary.path.with_name(f"{named[1]}{number:05}-of-{named[3]}{named[4]}")
        for number in range(1, count + 1)
    ]
    for path in paths:
        if not path.is_file():
            raise binary.file_error(f"its part {path.name!r} is missing")
    return paths
