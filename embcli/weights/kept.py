"""A kept file: one layer as a safetensors file, with a checksum for each 64 KiB of it; no torch is needed to read it.

The checksum of a chunk is looked at before a row of it is used, so that damage is noticed where it matters and costs
nothing where it does not. Chunks are read, not mapped: a mapped file that somebody cuts would end the process.
"""

from __future__ import annotations

import json
import os
import stat
import zlib
from contextlib import suppress
from dataclasses import dataclass
from io import FileIO
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from embcli.files.safetensors import Malformed, header, read_header
from embcli.layer import Layer, Meter, Summary
from embcli.passes import unwatched

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from embcli.passes import Watch
    from embcli.weights.build import Build
    from embcli.weights.seeded import Seeded

FORMAT = "embcli-1"
_HEADER = 4096
_CHUNK = 1 << 14  # values under one checksum
_AT_ONCE = 64  # chunks that are read in one go where they only pass through
_FIGURES = ("mean", "std", "minimum", "maximum")
_METADATA = {"format", "key", "torch", "cpu_capability", *_FIGURES, "check"}


class Damaged(Exception):
    """A kept file is not what its name says, or not what was written."""


@dataclass(frozen=True)
class Key:
    """Which layer a file holds, and everything that can change a bit of it."""

    name: str  # "token" or "position"
    seeded: Seeded
    build: Build

    @property
    def shape(self) -> tuple[int, int]:
        """The shape of the layer."""
        return self.seeded.shape(self.name)

    def __str__(self) -> str:
        drawn = ("token",) if self.name == "token" else ("token", "position")  # which is drawn behind the token layer
        order = " ".join(f"{name}={self.seeded.shape(name)[0]}x{self.seeded.shape(name)[1]}" for name in drawn)
        return f"{FORMAT} seed={self.seeded.seed} {order} {self.build}"

    @property
    def file_name(self) -> str:
        """What the file is called."""
        rows, columns = self.shape
        return f"{self.name}-{rows}x{columns}-seed{self.seeded.seed}-{digest(str(self))}.safetensors"


def digest(text: str) -> str:
    """Return eight hexadecimal digits that stand for a text."""
    return f"{zlib.crc32(text.encode()):08x}"


def file_bytes(name: str, shape: tuple[int, int]) -> int:
    """Return the size of the file that holds a layer."""
    return _HEADER + 4 * sum(prod(shape) for _, shape in _tensors(name, shape).values())


def write(path: Path, key: Key, pieces: Iterable[np.ndarray], origin: dict[str, str]) -> None:
    """Write a new file; `pieces` are all values in order, flat float32, and `origin` tells what drew them."""
    meter, sums, crc, filled = Meter(), [], 0, 0
    with open(path, "xb") as file:
        file.seek(_HEADER)
        for piece in pieces:
            meter.add(piece)
            view = piece.view(np.uint8).data
            file.write(view)
            while view:
                part = view[: 4 * _CHUNK - filled]
                crc, filled, view = zlib.crc32(part, crc), filled + len(part), view[len(part) :]
                if filled == 4 * _CHUNK:
                    sums.append(crc)
                    crc = filled = 0
        sums += [crc] * (filled > 0)
        file.write(np.array(sums, np.uint32).tobytes())
        summary = meter.summary()
        metadata = {"format": FORMAT, "key": str(key), **origin}
        metadata |= {figure: repr(getattr(summary, figure)) for figure in _FIGURES}
        metadata["check"] = _check(key.name, key.shape, metadata)
        file.seek(0)
        file.write(header(_tensors(key.name, key.shape), metadata, size=_HEADER))


class KeptLayer(Layer):
    """A layer in a kept file; raises Damaged where that is not what was written.

    What was read is held in memory if `hold`, that is, if the rows to come are known; otherwise it passes through.
    """

    dtype = "float32"

    def __init__(self, path: Path, hold: bool = False) -> None:
        self._file = FileIO(path, opener=_unwaiting)
        status = os.fstat(self._file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise Damaged("it is no regular file")
        self.owner = status.st_uid
        self.name, self.shape, metadata = _described(self._file)
        self.key = metadata["key"]
        self.origin = {"torch": metadata["torch"], "cpu_capability": metadata["cpu_capability"]}
        self._summary = _figures(metadata)
        self._values = prod(self.shape)
        self._sums = np.empty(-(-self._values // _CHUNK), np.uint32)
        self._fill(self._sums, _HEADER + 4 * self._values)
        self._hold = hold
        self._held = np.empty(self._values if hold else 0, np.float32)  # which takes no memory before it is written to
        self._there = np.zeros(len(self._sums), bool)  # which chunks of it are
        self._passing = np.empty(0, np.float32)

    def __del__(self) -> None:
        with suppress(AttributeError):  # where there was no file to open
            self._file.close()

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32."""
        if self._hold:
            if not self._there.all():
                self._read_for(ids)
            found: np.ndarray = self._held.reshape(self.shape)[ids]
        elif (ids[1:] < ids[:-1]).any():
            order = np.argsort(ids)
            found = np.empty((len(ids), self.shape[1]), np.float32)
            found[order] = self.rows(ids[order])
        else:
            found = self._passed(ids)
        return found

    def summary(self, watch: Watch = unwatched) -> Summary:
        """Return what the whole matrix is like, as it was when it was drawn."""
        return self._summary

    def check(self) -> None:
        """Read all of the file."""
        for first in range(0, len(self._sums), _AT_ONCE):
            self._pass(first, min(first + _AT_ONCE, len(self._sums)))

    def _read_for(self, ids: np.ndarray) -> None:
        """Read the chunks that these rows lie in and that are not there yet."""
        starts = ids.astype(np.int64) * self.shape[1]
        touched = np.zeros(len(self._sums) + 1, np.int64)
        np.add.at(touched, starts // _CHUNK, 1)
        np.add.at(touched, (starts + self.shape[1] - 1) // _CHUNK + 1, -1)
        missing = np.flatnonzero((np.cumsum(touched[:-1]) > 0) & ~self._there)
        if len(missing):
            for run in np.split(missing, np.flatnonzero(np.diff(missing) > 1) + 1):
                first, stop = int(run[0]), int(run[-1]) + 1
                self._read(self._held[first * _CHUNK : stop * _CHUNK], first)
                self._there[first:stop] = True

    def _passed(self, ids: np.ndarray) -> np.ndarray:
        """Return rows whose IDs are in order, read through a small buffer."""
        found = np.empty((len(ids), self.shape[1]), np.float32)
        starts = ids.astype(np.int64) * self.shape[1]  # tiktoken's IDs have 32 bits, which so many values exceed
        chunks = starts // _CHUNK
        done = 0
        while done < len(ids):
            first = int(chunks[done])
            end = int(np.searchsorted(chunks, first + _AT_ONCE))
            start, stop = int(starts[done]), int(starts[end - 1]) + self.shape[1]
            values = self._pass(first, (stop - 1) // _CHUNK + 1)[start - first * _CHUNK : stop - first * _CHUNK]
            rows = values.reshape(-1, self.shape[1])
            np.take(rows, ids[done:end] - ids[done], axis=0, out=found[done:end], mode="clip")
            done = end
        return found

    def _pass(self, first: int, stop: int) -> np.ndarray:
        """Return chunks, flat, that are valid until the next ones."""
        count = min(stop * _CHUNK, self._values) - first * _CHUNK
        if count > len(self._passing):
            self._passing = np.empty(count, np.float32)
        self._read(self._passing[:count], first)
        return self._passing[:count]

    def _read(self, values: np.ndarray, first: int) -> None:
        """Read chunks into values, and see whether they are what was written."""
        self._fill(values, _HEADER + 4 * first * _CHUNK)
        for start in range(0, len(values), _CHUNK):
            number = first + start // _CHUNK
            if zlib.crc32(values[start : start + _CHUNK].data) != self._sums[number]:
                raise Damaged(f"its bytes from {4 * number * _CHUNK:,} on are not what was written")

    def _fill(self, values: np.ndarray, place: int) -> None:
        view = values.view(np.uint8).data
        self._file.seek(place)
        while view:
            try:
                count = self._file.readinto(view)
            except OSError as error:
                raise Damaged(f"it cannot be read: {error.strerror}") from None
            if not count:
                raise Damaged("it is cut off")
            view = view[count:]


def _unwaiting(path: str, flags: int) -> int:
    """Open a file without waiting for somebody at the other end, where it turns out to be a pipe."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _described(file: FileIO) -> tuple[str, tuple[int, int], dict[str, str]]:
    """Return name and shape of the layer, and what else its file says of itself."""
    try:
        found = read_header(file)
    except Malformed as error:
        raise Damaged(str(error)) from None
    name, tensor = next(iter(found.tensors.items()), ("", None))
    if tensor is None or len(tensor.shape) != 2 or 0 in tensor.shape or found.metadata.keys() != _METADATA:
        raise Damaged("it holds no layer")
    shape = (tensor.shape[0], tensor.shape[1])
    file.seek(0)
    if file.read(_HEADER) != header(_tensors(name, shape), found.metadata, size=_HEADER):
        raise Damaged("its header is damaged")
    metadata = dict(found.metadata)
    if metadata.pop("check") != _check(name, shape, metadata):
        raise Damaged("its header is damaged")
    return name, shape, metadata


def _figures(metadata: dict[str, str]) -> Summary:
    try:
        figures = [float(metadata[figure]) for figure in _FIGURES]
    except ValueError as error:
        raise Damaged(f"its header is damaged: {error}") from None
    return Summary(*figures)


def _tensors(name: str, shape: tuple[int, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    return {name: ("float32", shape), "crc32": ("uint32", (-(-prod(shape) // _CHUNK),))}


def _check(name: str, shape: tuple[int, int], metadata: dict[str, str]) -> str:
    return digest(json.dumps([name, shape, metadata], sort_keys=True))
