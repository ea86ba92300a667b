"""The GGUF format: the tensors of a header, in one file or in parts `NAME-00001-of-00009.gguf`.

`encodings.gguf` reads the header and the vocabulary in it. The `gguf` package widens quantised
rows; it is loaded when they are needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial
from math import prod

import numpy as np

from embcli.binary import Binary
from embcli.encodings.gguf.header import GgufHeader, GgufTensor, read_header
from embcli.encodings.gguf.vocabulary import vocabulary_of
from embcli.errors import Notes, missing_extra
from embcli.files.numbers import StoredDtype
from embcli.files.tensors import Tensor, Tensors, file_layer
from embcli.layer import Layer
from embcli.wording import load_facts

# The types of tensors by the format's number: a name, and the values and the bytes of a block.
# Blocks of several values are quantised.
TYPES: dict[str, tuple[str, int, int]] = load_facts("gguf_types.json")


def read(binary: Binary, _: Notes) -> Tensors:
    """Return the tensors of a GGUF file and of the other parts of its model."""
    header = read_header(binary)
    headers = {binary: header}
    if header.metadata.get("split.count", 1) != 1:
        headers = {}
        for name in _part_names(binary, header):
            part = binary.folder.open(name)
            headers[part] = read_header(part)

    tensors = {}
    for part, part_header in headers.items():
        for tensor in _tensors(part, part_header):
            if tensor.name in tensors:
                raise part.file_error(f"it has the tensor {tensor.name!r} twice")
            tensors[tensor.name] = tensor

    # The first part describes the model and its vocabulary.
    first_part, first_header = next(iter(headers.items()))
    own_words = partial(vocabulary_of, first_part, first_header, binary.name)
    files = [part.name for part in headers]
    return Tensors(binary, "GGUF", tensors, first_header.metadata, files, own_words, is_array=False)


def _part_names(binary: Binary, header: GgufHeader) -> Iterator[str]:
    """Yield the names of all parts; raises InputError if one of them is missing."""
    count = header.metadata["split.count"]
    if not isinstance(count, int) or not 0 < count < 10**5:
        raise binary.file_error(f"its split.count is {count!r}, which is not a number of parts")
    name = re.fullmatch(r"(.*-)(\d{5})-of-(\d{5})(\.gguf)", binary.path.name)
    if name is None or int(name[3]) != count:
        raise binary.file_error(
            f"it is one of {count} parts; its name must end like -00001-of-{count:05}.gguf"
        )
    for number in range(1, count + 1):
        part = f"{name[1]}{number:05}-of-{name[3]}{name[4]}"
        if not binary.folder.has(part):
            raise binary.file_error(f"its part {part!r} is missing")
        yield part


def _tensors(binary: Binary, header: GgufHeader) -> Iterator[Tensor]:
    """Yield the tensors of a file in their order, in which their bytes follow each other."""
    alignment = header.metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise binary.file_error(f"its alignment is {alignment!r}, which is not a power of two")
    data_start = -(-header.end // alignment) * alignment
    next_offsets = [tensor.offset for tensor in header.tensors[1:]]
    next_offsets.append(binary.size - data_start)

    offset = 0
    for described, next_offset in zip(header.tensors, next_offsets, strict=False):
        start = data_start + described.offset
        tensor = _tensor(binary, described, start, max(next_offset - described.offset, 0))
        if described.offset != offset:
            raise binary.file_error(
                f"tensor {described.name!r} begins at byte {start:,}, where no tensor can begin"
            )
        end = start + tensor.size
        if end > binary.size:
            raise binary.file_error(
                f"it is cut off: tensor {described.name!r} ends at byte {end:,} of {binary.size:,}"
            )
        offset = -(-(end - data_start) // alignment) * alignment
        yield tensor


def _tensor(binary: Binary, described: GgufTensor, start: int, available: int) -> Tensor:
    """Return a tensor; one of an unknown type has all available bytes."""
    name = described.name
    shape = described.shape
    kind = str(described.kind)
    if kind not in TYPES:
        dtype = f"type {kind}"
        return Tensor(name, shape, dtype, available, binary, start, unreadable="an unknown type")

    dtype, values, block_size = TYPES[kind]
    columns = shape[-1] if shape else 1
    if columns % values:
        raise binary.file_error(
            f"tensor {name!r} has rows that do not divide into {dtype}'s blocks of {values}"
        )
    size = prod(shape) // values * block_size
    matrix = file_layer if values == 1 else _quantised_layer
    return Tensor(name, shape, dtype, size, binary, start, matrix=matrix)


def _quantised_layer(tensor: Tensor) -> Layer:
    """Return a matrix of blocks, which the gguf package widens."""
    try:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise tensor.binary.file_error(missing_extra(str(tensor), "models")) from None

    def widen(stored: np.ndarray) -> np.ndarray:
        if not len(stored):  # the package fails for no rows
            return np.empty((0, tensor.shape[1]), np.float32)
        return np.asarray(dequantize(stored.view(np.uint8), kind))

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


def block_steps(name: str, rows: np.ndarray) -> np.ndarray:
    """Return how far values of a type may be from the numbers that were quantised, (n, D).

    It is a step of their block, whose largest value tells the scale: of b bits, that is 2**(b-1)
    steps. Parts of a block have rounded scales, so a tenth is added; small scales can become 0.
    Values that are not quantised are 0 apart.
    """
    (count,) = [values for dtype, values, _ in TYPES.values() if dtype == name]
    if count == 1:
        return np.zeros_like(rows)
    bits = int(re.findall("[0-9]", name)[0])
    largest = np.abs(rows).reshape(-1, count).max(axis=1, initial=0)
    steps = 2.2 * largest / (2**bits - 1) + count * 2.0**-21
    return np.repeat(steps, count).reshape(rows.shape)
