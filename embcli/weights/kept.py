"""A kept layer: a safetensors file with one matrix and a checksum for each 64 KiB of it; reading needs no torch.

A chunk is verified when a row of it is first read: damage is noticed where it matters, and costs nothing elsewhere.
Nothing is mapped: a file that is cut is damaged, and does not end the process.
"""

from __future__ import annotations

import json
import os
import re
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from io import FileIO
from math import prod
from typing import BinaryIO

import numpy as np

from embcli.binary import Bytes, gather
from embcli.files.numbers import FLOAT32
from embcli.files.safetensors import header, read_header
from embcli.files.stored import StoredLayer
from embcli.layer import Meter, Summary
from embcli.passes import Watch, unwatched
from embcli.store import Damaged
from embcli.strict_json import Malformed
from embcli.weights.build import Build
from embcli.weights.seeded import Seeded

FORMAT = "embcli-1"
_HEADER = 4096  # bytes before the values
_CHUNK = 1 << 14  # values under one checksum
_FIGURES = ("mean", "std", "minimum", "maximum")
_METADATA = {"format", "key", "torch", "cpu_capability", *_FIGURES, "check"}


@dataclass(frozen=True)
class Key:
    """Which layer a file contains, and everything that can change a bit of it."""

    name: str  # "token" or "position"
    seeded: Seeded
    build: Build

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the layer."""
        return self.seeded.shape(self.name)

    def __str__(self) -> str:
        drawn = ("token",) if self.name == "token" else ("token", "position")  # the token layer is drawn first
        order = " ".join(f"{name}={self.seeded.shape(name)[0]}x{self.seeded.shape(name)[1]}" for name in drawn)
        return f"{FORMAT} seed={self.seeded.seed} {order} {self.build}"

    @property
    def file_name(self) -> str:
        """The name of the file."""
        return _file_name(self.name, self.shape, str(self))

    @property
    def file_bytes(self) -> int:
        """The size of the file."""
        return _HEADER + 4 * sum(prod(shape) for _, shape in _tensors(self.name, self.shape).values())


def digest(text: str) -> str:
    """Return eight hexadecimal digits that depend on a text."""
    return f"{zlib.crc32(text.encode()):08x}"


def _file_name(name: str, shape: tuple[int, int], key: str) -> str:
    seed = re.search(" seed=([0-9]+) ", key)
    return f"{name}-{shape[0]}x{shape[1]}-seed{seed[1] if seed else ''}-{digest(key)}.safetensors"


def write(file: BinaryIO, key: Key, blocks: Iterable[np.ndarray], build: dict[str, str]) -> None:
    """Write a layer to a new file; `blocks` are its values in order, float32, and `build` says what drew them."""
    meter, sums, checksum, size = Meter(), [], 0, 0
    file.seek(_HEADER)
    for block in blocks:
        meter.add(block)
        view = block.reshape(-1).view(np.uint8).data
        file.write(view)
        while view:
            part = view[: 4 * _CHUNK - size]
            checksum, size, view = zlib.crc32(part, checksum), size + len(part), view[len(part) :]
            if size == 4 * _CHUNK:
                sums.append(checksum)
                checksum = size = 0
    sums += [checksum] * (size > 0)
    file.write(np.array(sums, np.uint32).tobytes())
    summary = meter.summary()
    metadata = {"format": FORMAT, "key": str(key), **build}
    metadata |= {figure: repr(getattr(summary, figure)) for figure in _FIGURES}
    metadata["check"] = _check(key.name, key.shape, metadata)
    file.seek(0)
    file.write(header(_tensors(key.name, key.shape), metadata, size=_HEADER))


class KeptLayer(StoredLayer):
    """A layer in a kept file, which may be closed afterwards; raises Damaged if it is not what was written."""

    def __init__(self, file: FileIO) -> None:
        self.name, shape, metadata = _described(file)
        self._chunks = _Chunks(file, prod(shape))
        super().__init__(self._chunks, _HEADER, shape, FLOAT32)
        self.key = metadata["key"]
        self.build = {"torch": metadata["torch"], "cpu_capability": metadata["cpu_capability"]}
        self._summary = _summary(metadata)

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return the statistics of the whole matrix, which were computed when it was written."""
        return self._summary

    def check(self) -> None:
        """Verify the whole file."""
        self._chunks.verify(0, 4 * prod(self.shape))


class _Chunks(Bytes):
    """The bytes of a kept file; several threads may read it: they only share a record of sound chunks."""

    is_shared = True

    def __init__(self, file: FileIO, values: int) -> None:
        self._file, self._values = os.dup(file.fileno()), values
        self._sums = np.empty(-(-values // _CHUNK), "<u4")
        self._read(self._sums, [_HEADER + 4 * values], [self._sums.nbytes])
        self._is_sound = np.zeros(len(self._sums), bool)  # whether a chunk was verified

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            os.close(self._file)

    def gather(self, buffer: np.ndarray, offsets: Iterable[int], lengths: Iterable[int]) -> None:
        """Fill a contiguous array with several ranges of values; raises Damaged unless their chunks are sound."""
        places, sizes = [*offsets], [*lengths]
        if not self._is_sound.all():
            for place, size in zip(places, sizes, strict=True):
                self.verify(place - _HEADER, place - _HEADER + size)
        self._read(buffer, places, sizes)

    def verify(self, start: int, stop: int) -> None:
        """Verify the chunks that contain this range of bytes behind the header."""
        buffer, first = np.empty(_CHUNK, "<f4"), start // (4 * _CHUNK)
        for chunk in (first + np.flatnonzero(~self._is_sound[first : -(-stop // (4 * _CHUNK))])).tolist():
            values = buffer[: self._values - chunk * _CHUNK]
            self._read(values, [_HEADER + 4 * chunk * _CHUNK], [values.nbytes])
            if zlib.crc32(values.data) != self._sums[chunk]:
                raise Damaged(f"its bytes from {4 * chunk * _CHUNK:,} on are not what was written")
            self._is_sound[chunk] = True

    def _read(self, buffer: np.ndarray, offsets: list[int], lengths: list[int]) -> None:
        try:
            gather(self._file, buffer, offsets, lengths)
        except EOFError:
            raise Damaged("it was cut off") from None
        except OSError as error:
            raise Damaged(str(error.strerror)) from None


def load(file: FileIO, key: Key) -> KeptLayer:
    """Return a kept layer; raises Damaged if the file contains another one."""
    layer = KeptLayer(file)
    if (layer.name, layer.shape, layer.key) != (key.name, key.shape, str(key)):
        raise Damaged("it contains another layer")
    return layer


def check(file: FileIO, name: str) -> None:
    """Read a whole kept file; raises Damaged if it is not what was written or not what its name says."""
    layer = KeptLayer(file)
    if _file_name(layer.name, layer.shape, layer.key) != name:
        raise Damaged("it contains another layer")
    layer.check()


def _described(file: FileIO) -> tuple[str, tuple[int, int], dict[str, str]]:
    """Return the name and the shape of the layer in a file, and the file's metadata."""
    try:
        described = read_header(file)  # it checks that the tensors fill the file
    except Malformed as error:
        raise Damaged(str(error)) from None
    name, tensor = next(iter(described.tensors.items()), ("", None))
    if tensor is None or len(tensor.shape) != 2 or 0 in tensor.shape or described.metadata.keys() != _METADATA:
        raise Damaged("it contains no layer")
    shape = (tensor.shape[0], tensor.shape[1])
    metadata = dict(described.metadata)
    checksum = metadata.pop("check")
    file.seek(0)
    if (
        file.read(_HEADER) != header(_tensors(name, shape), described.metadata, size=_HEADER)
        or _check(name, shape, metadata) != checksum
    ):
        raise Damaged("its header is damaged")
    return name, shape, metadata


def _summary(metadata: dict[str, str]) -> Summary:
    try:
        return Summary(*(float(metadata[figure]) for figure in _FIGURES))
    except ValueError as error:
        raise Damaged(f"its header is damaged: {error}") from None


def _tensors(name: str, shape: tuple[int, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: ("float32", shape), "crc32": ("uint32", (-(-prod(shape) // _CHUNK),))}


def _check(name: str, shape: tuple[int, int], metadata: dict[str, str]) -> str:
    return digest(json.dumps([name, shape, metadata], sort_keys=True))
