"""The GGUF format: metadata, tensor descriptions, tensors; also in parts, `NAME-00001-of-00009.gguf`.

The header is skipped through, so that a vocabulary of 262,144 words takes as many steps but no objects. The `gguf`
package widens quantised rows; it is loaded when they are needed. The format is described in ggml's docs/gguf.md.
"""

from __future__ import annotations

import re
from array import array
from dataclasses import dataclass, field
from functools import partial
from math import prod
from struct import Struct, error
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.binary import Binary, shortened
from embcli.encodings.own import OwnWords, Vocabulary
from embcli.encodings.spelling import from_characters, from_piece
from embcli.errors import InputError, lacks
from embcli.files.numbers import NAMED, NumberFormat
from embcli.files.stored import StoredLayer, stored_layer
from embcli.files.tensors import Tensor, Tensors

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embcli.layer import Layer

# Types of quantised tensors by number: name, values per block, bytes per block.
_QUANTISED = {
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
_PLAIN = {0: "float32", 1: "float16", 24: "int8", 25: "int16", 26: "int32", 27: "int64", 28: "float64", 30: "bfloat16"}
_TYPE_NUMBERS = {name: number for number, (name, _, _) in _QUANTISED.items()}

_U32, _U64, _TENSOR_END = Struct("<I"), Struct("<Q"), Struct("<IQ")
_STRING, _ARRAY = 8, 9  # types of metadata
_WORD_TYPE = (4, 5)  # types of an array with the type of each word: converters write both
_CONTROL, _USER_DEFINED = 3, 4  # types of words
_SCALARS = {number: Struct(f"<{form}") for number, form in enumerate("BbHhIif?")}
_SCALARS |= {10: Struct("<Q"), 11: Struct("<q"), 12: Struct("<d")}

# No honest file exceeds these; each bounds the work that a header can cause.
_MOST_KEYS, _MOST_TENSORS, _MOST_WORDS = 1 << 16, 1 << 17, 1 << 22
_LONGEST_NAME, _LONGEST_TEXT, _LONGEST_VOCABULARY = 1 << 16, 1 << 20, 1 << 28
_DIMENSIONS = 4
_WINDOW = 1 << 20  # bytes of the header that are read at a time


@dataclass(frozen=True)
class _Array:
    """An array of the metadata, not read."""

    kind: int
    count: int
    start: int
    end: int


@dataclass
class _Header:
    """The header of one file."""

    metadata: dict[str, Any] = field(default_factory=dict)
    arrays: dict[str, _Array] = field(default_factory=dict)
    tensors: list[Tensor] = field(default_factory=list)


def begins(head: bytes) -> bool:
    """Return whether a file begins with GGUF's magic bytes."""
    return head.startswith(b"GGUF")


class Gguf(Tensors):
    """The tensors of a GGUF file and of the other parts of its model.

    Raises InputError for a header that does not describe the file, and for missing parts.
    """

    format = "GGUF"

    def __init__(self, binary: Binary) -> None:
        first = _read_header(binary)
        self._binaries = {binary.path: binary}
        headers = [first]
        if first.metadata.get("split.count", 1) != 1:
            self._binaries = {path: binary if path == binary.path else Binary(path) for path in _parts(binary, first)}
            headers = [first if part is binary else _read_header(part) for part in self._binaries.values()]
        tensors: dict[str, Tensor] = {}
        for tensor in (tensor for header in headers for tensor in header.tensors):
            if tensor.name in tensors:
                raise self._binaries[tensor.file].refused(f"it has the tensor {shortened(tensor.name)} twice")
            tensors[tensor.name] = tensor
        super().__init__(binary.path, tensors, headers[0].metadata, self._binaries)
        self._arrays = headers[0].arrays

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of its rows, or of its columns if `transposed`."""
        binary = self._binaries[tensor.file]
        if tensor.dtype not in _TYPE_NUMBERS:
            return stored_layer(binary, tensor, transposed)
        if transposed:
            raise binary.refused(f"{tensor} is quantised in rows; it cannot be transposed")
        rows, dim = tensor.shape
        return StoredLayer(binary, tensor.start, (rows, dim), _quantised(binary, tensor))

    def own_words(self) -> OwnWords | None:
        """Return the encoding that the file's own tokens make, or None; they are read when the first is needed."""
        words = self._arrays.get("tokenizer.ggml.tokens")
        has_words = words is not None and words.kind == _STRING
        return OwnWords(self.path, self.vocabulary, are_whole=False) if has_words else None

    def vocabulary(self) -> Vocabulary:
        """Return the tokens that the file has for the rows."""
        words, binary = self._arrays["tokenizer.ggml.tokens"], next(iter(self._binaries.values()))
        if words.end - words.start > _LONGEST_VOCABULARY:
            raise binary.refused(f"its vocabulary has {words.end - words.start:,} bytes, more than any model's")
        text = binary.read(words.start, words.end - words.start)
        places, place, length = array("q"), 0, _U64.unpack_from
        for _ in range(words.count):
            places.append(place)
            place += 8 + length(text, place)[0]
        places.append(place)
        edges = np.frombuffer(places, np.int64)
        spelled = _SPELLED.get(self.metadata.get("tokenizer.ggml.model"), bytes)
        return Vocabulary(text, edges[:-1] + 8, edges[1:], spelled, self._plain(binary, words.count, spelled))

    def _plain(self, binary: Binary, count: int, spelled: Callable[[bytes], bytes]) -> np.ndarray | None:
        """Return which words are their own bytes, (V,) bool: control tokens and user-defined ones; None if unknown.

        SentencePiece spells user-defined tokens like others.
        """
        kinds = self._arrays.get("tokenizer.ggml.token_type")
        if kinds is None or kinds.kind not in _WORD_TYPE or kinds.count != count:
            return None
        plain = (_CONTROL,) if spelled is from_piece else (_CONTROL, _USER_DEFINED)
        return np.isin(np.frombuffer(binary.read(kinds.start, 4 * count), "<i4"), plain)


class _Reader:
    """Reads a header from its beginning, a window at a time."""

    def __init__(self, binary: Binary) -> None:
        self.binary = binary
        self.place = 0
        self._window, self._start = b"", 0
        self._words = 0

    def take(self, count: int) -> bytes:
        """Return the next bytes."""
        first = self.place - self._start
        if not 0 <= first <= len(self._window) - count:
            self._need(count)
            self._window, self._start, first = self.binary.read(self.place, max(count, _WINDOW)), self.place, 0
        self.place += count
        return self._window[first : first + count]

    def number(self, form: Struct) -> Any:
        """Return the next number."""
        return form.unpack(self.take(form.size))[0]

    def text(self, what: str, longest: int) -> str:
        """Return the next string."""
        length = self.number(_U64)
        if length > longest:
            raise self.binary.refused(f"{what} has {length:,} bytes, more than the limit of {longest:,}")
        return self.take(length).decode("utf-8", "backslashreplace")

    def skip(self, count: int) -> None:
        """Skip bytes."""
        self._need(count)
        self.place += count

    def skip_strings(self, count: int) -> None:
        """Skip strings, each by its length."""
        self._words += count
        if self._words > _MOST_WORDS:
            raise self.binary.refused(f"its metadata has {self._words:,} words, more than any vocabulary has")
        length = _U64.unpack_from
        while count:
            self.take(8)  # fills the window
            window, place, done = self._window, self.place - 8 - self._start, 0
            try:
                for done in range(1, count + 1):  # noqa: B007 - used after the loop
                    place += 8 + length(window, place)[0]
            except (error, OverflowError):  # the next length is beyond the window, or far beyond the file
                done -= 1
            count -= done
            self.place = self._start + place
        self._need(0)

    def _need(self, count: int) -> None:
        if self.place + count > self.binary.size:
            raise self.binary.refused(
                f"it is cut off: its header reaches byte {self.place + count:,} of {self.binary.size:,}"
            )


def _read_header(binary: Binary) -> _Header:
    reader = _Reader(binary)
    magic, version = reader.take(4), reader.number(_U32)
    if magic != b"GGUF":
        raise binary.refused(f"it begins with {magic!r}, and not with b'GGUF'")
    if version not in (2, 3):
        what = "its numbers are big-endian" if version in (2 << 24, 3 << 24) else f"it has GGUF version {version}"
        raise binary.refused(f"{what}; embcli reads little-endian versions 2 and 3")
    tensors, keys = reader.number(_U64), reader.number(_U64)
    if tensors > _MOST_TENSORS or keys > _MOST_KEYS:
        raise binary.refused(f"its header claims {tensors:,} tensors and {keys:,} keys, more than any has")
    header = _Header()
    for _ in range(keys):
        _read_pair(reader, header)
    described = [_read_tensor(reader) for _ in range(tensors)]
    alignment = header.metadata.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise binary.refused(f"its alignment is {alignment!r}, which is not a power of two")
    data = -(-reader.place // alignment) * alignment
    header.tensors += _in_place(binary, described, data, alignment)
    return header


def _read_pair(reader: _Reader, header: _Header) -> None:
    """Read a key of the metadata and its value; skip the items of an array."""
    key = reader.text("a key of its metadata", _LONGEST_NAME)
    if key in header.metadata or key in header.arrays:
        raise reader.binary.refused(f"its metadata has {shortened(key)} twice")
    kind = reader.number(_U32)
    if kind in _SCALARS:
        header.metadata[key] = reader.number(_SCALARS[kind])
    elif kind == _STRING:
        header.metadata[key] = reader.text(f"{shortened(key)} of its metadata", _LONGEST_TEXT)
    elif kind == _ARRAY:
        kind, count = reader.number(_U32), reader.number(_U64)
        start = reader.place
        if kind in _SCALARS:
            reader.skip(count * _SCALARS[kind].size)
        elif kind == _STRING:
            reader.skip_strings(count)
        else:
            raise reader.binary.refused(f"{shortened(key)} of its metadata is an array of the unknown type {kind}")
        header.arrays[key] = _Array(kind, count, start, reader.place)
    else:
        raise reader.binary.refused(f"{shortened(key)} of its metadata is of the unknown type {kind}")


def _read_tensor(reader: _Reader) -> tuple[str, tuple[int, ...], int, int]:
    """Return a tensor's name, its shape as numpy has it, its type and its offset."""
    name = reader.text("a tensor's name", _LONGEST_NAME)
    dimensions = reader.number(_U32)
    if dimensions > _DIMENSIONS:
        raise reader.binary.refused(f"tensor {shortened(name)} has {dimensions:,} dimensions, more than {_DIMENSIONS}")
    shape = Struct(f"<{dimensions}Q").unpack(reader.take(8 * dimensions))
    kind, offset = _TENSOR_END.unpack(reader.take(_TENSOR_END.size))
    return name, shape[::-1], kind, offset


def _in_place(
    binary: Binary, described: list[tuple[str, tuple[int, ...], int, int]], data: int, alignment: int
) -> list[Tensor]:
    """Return the tensors in the order of the file; raises InputError unless each has its own range of bytes."""
    tensors: list[Tensor] = []
    place = data
    ordered = sorted(described, key=lambda tensor: tensor[3])
    ends = (*(data + offset for *_, offset in ordered[1:]), binary.size)
    for (name, shape, kind, offset), limit in zip(ordered, ends, strict=False):  # one end too many for no tensor
        start = data + offset
        dtype, size = _described(binary, name, shape, kind, limit - start)
        if offset % alignment or start < place:
            raise binary.refused(f"tensor {shortened(name)} begins at byte {start:,}, where no tensor can begin")
        place = start + size
        if place > binary.size:
            raise binary.refused(f"it is cut off: tensor {shortened(name)} ends at byte {place:,} of {binary.size:,}")
        tensors.append(Tensor(name, shape, dtype, size, binary.path, start))
    return tensors


def _described(binary: Binary, name: str, shape: tuple[int, ...], kind: int, available: int) -> tuple[str, int]:
    """Return a tensor's dtype and size in bytes; one of an unknown type takes all available bytes."""
    if kind in _PLAIN:
        return _PLAIN[kind], prod(shape) * NAMED[_PLAIN[kind]].stored.itemsize
    if kind not in _QUANTISED:
        return f"type {kind}", max(available, 0)
    dtype, values, size = _QUANTISED[kind]
    if not shape or shape[-1] % values:
        raise binary.refused(f"tensor {shortened(name)} has rows that do not divide into {dtype}'s blocks of {values}")
    return dtype, prod(shape) // values * size


def _quantised(binary: Binary, tensor: Tensor) -> NumberFormat:
    """Return how the blocks of a tensor become float32."""
    try:
        from gguf.constants import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise binary.refused(lacks(str(tensor), "models")) from None
    number = _TYPE_NUMBERS[tensor.dtype]
    _, values, size = _QUANTISED[number]
    try:
        widen = partial(_widened, dequantize, GGMLQuantizationType(number))
        widen(np.zeros((1, size), np.uint8), np.empty((1, values), np.float32))
    except (NotImplementedError, ValueError):
        raise binary.refused(f"{tensor} has numbers that the installed gguf package does not read") from None
    return NumberFormat(tensor.dtype, np.dtype("u1"), widen, (values, size))


def _widened(dequantize: Callable[..., np.ndarray], kind: Any, stored: np.ndarray, rows: np.ndarray) -> int:
    if len(stored):  # the package fails for no rows
        with np.errstate(all="ignore"):  # a block can have an infinite scale
            rows[...] = dequantize(stored, kind)
    return 0


def _parts(binary: Binary, header: _Header) -> list[Path]:
    """Return the files of a split checkpoint in order."""
    count = header.metadata["split.count"]
    if not isinstance(count, int) or not 0 < count < 10**5:
        raise binary.refused(f"its split.count is {count!r}, which is not a number of parts")
    named = re.fullmatch(r"(.*-)(\d{5})-of-(\d{5})(\.gguf)", binary.path.name)
    if named is None or int(named[3]) != count:
        raise binary.refused(f"it is one of {count} parts; its name must end like -00001-of-{count:05}.gguf")
    paths = [binary.path.with_name(f"{named[1]}{number:05}-of-{named[3]}{named[4]}") for number in range(1, count + 1)]
    missing = next((path for path in paths if not path.is_file()), None)
    if missing is not None:
        raise InputError(f"cannot read {str(binary.path)!r}: its part {missing.name!r} is missing")
    return paths


_SPELLED: dict[Any, Callable[[bytes], bytes]] = {
    "gpt2": from_characters,
    "llama": from_piece,
    "t5": from_piece,
    "bert": from_piece,
}
