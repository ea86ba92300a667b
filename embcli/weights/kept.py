"""Seeded layers kept as safetensors files in the user's cache folder, and mapped: no torch needed to read them again.

A file holds one layer and a checksum for each 64 KiB of it, which is looked at before a row of that stretch is used, so
that a damaged file is noticed where it matters and costs nothing where it does not.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import secrets
import time
import zlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timezone
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.errors import InputError, OutputError
from embcli.files.safetensors import header, parse_header
from embcli.records import Piece, Records
from embcli.safe import note, printable
from embcli.weights import Layer, Seeded, Summary
from embcli.weights.build import torch_build

if TYPE_CHECKING:
    from collections.abc import Iterator

    from embcli.weights.drawing import DrawnLayer

FORMAT = "embcli-1"
DEFAULT_LIMIT = 2 * 10**9
_SHARE = 2  # a layer that takes more than one part in so many of the limit is not kept
_HEADER = 4096
_STRETCH = 1 << 16  # bytes under one checksum
_ABANDONED = 3600.0  # seconds after which a half-written file cannot be anybody's work any more
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


@dataclass(frozen=True)
class Entry:
    """A file of the cache."""

    path: Path
    size: int  # bytes
    used: float  # when it was last used, seconds since the epoch


class Damaged(Exception):
    """A kept file is not what its name says, or not what was written."""


@dataclass(frozen=True)
class Cache:
    """The folder of kept layers, and how many bytes it may hold."""

    folder: Path
    limit: int = DEFAULT_LIMIT

    @classmethod
    def from_environment(cls) -> Cache:
        """Return the user's cache: EMBCLI_CACHE_DIR and EMBCLI_CACHE_LIMIT, or the platform's folder and 2 GB."""
        limit = os.environ.get("EMBCLI_CACHE_LIMIT")
        return cls(_folder(), parse_size(limit) if limit else DEFAULT_LIMIT)

    def path(self, spec: Seeded, name: str) -> Path:
        """Return where a layer is kept."""
        rows, columns = spec.shape(name)
        return self.folder / f"{name}-{rows}x{columns}-seed{spec.seed}-{_digest(_key(spec, name))}.safetensors"

    def open(self, spec: Seeded, name: str) -> KeptLayer | None:
        """Return a kept layer, or None where there is none that can be used."""
        path = self.path(spec, name)
        try:
            layer = KeptLayer(self, spec, name, path)
        except (OSError, Damaged):
            return None
        with suppress(OSError):
            os.utime(path)
        return layer

    def keep(self, spec: Seeded, layer: DrawnLayer) -> KeptLayer | None:
        """Draw a layer into a file and return it, or None where it is too large or cannot be written."""
        if _file_bytes(layer.name, layer.shape) * _SHARE > self.limit:
            return None
        path = self.path(spec, layer.name)
        half = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                _write(half, spec, layer)
                half.replace(path)
            except BaseException:
                half.unlink(missing_ok=True)
                raise
            self._make_room(path)
            return KeptLayer(self, spec, layer.name, path)
        except (OSError, Damaged) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            note(f"layers are not kept: cannot write to {self.folder} ({reason}); --no-cache does without")
            return None

    def entries(self) -> list[Entry]:
        """Return the kept layers, least recently used first."""
        found = []
        for path in self._paths("*.safetensors"):
            with suppress(OSError):
                status = path.stat()
                found.append(Entry(path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, entry.path))

    def clear(self) -> tuple[int, int]:
        """Remove all kept layers and half-written files; return how many files and bytes that was.

        Raises OutputError for a file that cannot be removed.
        """
        files = size = 0
        for path in [*self._paths("*.safetensors"), *self._paths(".*.part")]:
            try:
                length = path.stat().st_size
                path.unlink()
            except FileNotFoundError:
                continue  # somebody else was faster
            except OSError as error:
                raise OutputError(f"cannot remove {str(path)!r}: {error.strerror}") from None
            files, size = files + 1, size + length
        return files, size

    def verify(self) -> Iterator[tuple[Entry, str | None]]:
        """Yield each kept layer and what is wrong with it (None for nothing), after reading all of it."""
        for entry in self.entries():
            try:
                _Mapped(entry.path).check_all()
            except (OSError, Damaged) as error:
                yield entry, str(error)
            else:
                yield entry, None

    def _paths(self, pattern: str) -> list[Path]:
        kept = re.compile(r"\.?(token|position)-[0-9]+x[0-9]+-seed[0-9]+-[0-9a-f]{8}\.safetensors(\..+\.part)?")
        try:
            return [path for path in self.folder.glob(pattern) if kept.fullmatch(path.name)]
        except OSError:
            return []

    def _make_room(self, newest: Path) -> None:
        for path in self._paths(".*.part"):
            with suppress(OSError):
                if time.time() - path.stat().st_mtime > _ABANDONED:
                    path.unlink()
        entries = self.entries()
        excess = sum(entry.size for entry in entries) - self.limit
        for entry in entries:
            if excess > 0 and entry.path != newest:
                with suppress(OSError):
                    entry.path.unlink()
                    excess -= entry.size


class _Mapped:
    """A kept file, mapped; raises Damaged where it is not whole."""

    def __init__(self, path: Path) -> None:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_size < _HEADER:
                raise Damaged("it is cut off")
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        try:
            entries, _ = parse_header(memoryview(self._map)[:_HEADER])
            self.metadata: dict[str, str] = entries["__metadata__"]
            (self.name,) = entries.keys() - {"__metadata__", "crc32"}
            self.shape: tuple[int, int] = tuple(entries[self.name]["shape"])
            whole = header(_tensors(self.name, self.shape), self.metadata, size=_HEADER)
            check = self.metadata.pop("check")
            intact = check == _check(self.name, self.shape, self.metadata) and self._map[:_HEADER] == whole
            named = f"-{_digest(self.metadata['key'])}.safetensors"
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise Damaged(f"its header cannot be read ({error})") from None
        if not intact:
            raise Damaged("its header is damaged")
        if not path.name.endswith(named):
            raise Damaged("it holds another layer")
        if len(self._map) != _file_bytes(self.name, self.shape):
            raise Damaged("it is cut off")
        data_end = _HEADER + 4 * self.shape[0] * self.shape[1]
        self._bytes = memoryview(self._map)[_HEADER:data_end]
        self.matrix = np.frombuffer(self._bytes, np.float32).reshape(self.shape)
        self._sums = np.frombuffer(self._map, np.uint32, offset=data_end)
        self._checked = np.zeros(len(self._sums), bool)

    def check_rows(self, ids: np.ndarray) -> None:
        """Raise Damaged unless the stretches that these rows lie in are what was written."""
        if self._checked.all():
            return
        width = 4 * self.shape[1]
        starts = ids.astype(np.int64) * width  # tiktoken's IDs have 32 bits, and so many bytes are just 4 GB
        first, last = starts // _STRETCH, (starts + width - 1) // _STRETCH
        touched = np.zeros(len(self._sums) + 1, np.int64)
        np.add.at(touched, first, 1)
        np.add.at(touched, last + 1, -1)
        self._check(np.flatnonzero((np.cumsum(touched[:-1]) > 0) & ~self._checked))

    def check_all(self) -> None:
        """Raise Damaged unless all of the file is what was written."""
        self._check(np.flatnonzero(~self._checked))

    def _check(self, stretches: np.ndarray) -> None:
        for number in stretches.tolist():
            start = number * _STRETCH
            if zlib.crc32(self._bytes[start : start + _STRETCH]) != self._sums[number]:
                raise Damaged(f"its bytes from {start:,} on are not what was written")
        self._checked[stretches] = True


class KeptLayer:
    """A seeded layer in a mapped file; where that turns out to be damaged, the layer is drawn anew."""

    def __init__(self, cache: Cache, spec: Seeded, name: str, path: Path) -> None:
        self.name = name
        self.shape = spec.shape(name)
        self._cache, self._spec, self._path = cache, spec, path
        self._mapped = _Mapped(path)
        self._instead: Layer | None = None
        metadata = self._mapped.metadata
        if metadata.get("key") != _key(spec, name) or self._mapped.name != name or self._mapped.shape != self.shape:
            raise Damaged("it holds another layer")
        self.origin = {"torch": metadata["torch"], "cpu_capability": metadata["cpu_capability"]}

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return rows, (n, D) float32."""
        if self._instead is None:
            try:
                self._mapped.check_rows(ids)
            except Damaged as error:
                self._instead = self._drawn_anew(error)
            else:
                found: np.ndarray = self._mapped.matrix[ids]
                return found
        return self._instead.rows(ids)

    def pin(self, ids: np.ndarray) -> Layer:
        """Return a layer that gives these rows fast: this one."""
        return self

    def summary(self) -> Summary:
        """Return what the whole matrix is like, as it was when it was drawn."""
        return Summary(*(float(self._mapped.metadata[key]) for key in ("mean", "std", "minimum", "maximum")))

    def _drawn_anew(self, error: Damaged) -> Layer:
        from embcli.weights.drawing import Drawing

        note(f"{self._path.name} was damaged ({error}); the layer is drawn anew")
        drawn = Drawing(self._spec).layer(self.name)
        return self._cache.keep(self._spec, drawn) or drawn


def _write(path: Path, spec: Seeded, layer: DrawnLayer) -> None:
    from embcli.weights.drawing import Meter

    meter, sums, crc, filled = Meter(), [], 0, 0
    with open(path, "wb") as file:
        file.seek(_HEADER)
        for piece in layer.flat():
            meter.add(piece)
            view = piece.view(np.uint8).data
            file.write(view)
            while view:
                part = view[: _STRETCH - filled]
                crc, filled, view = zlib.crc32(part, crc), filled + len(part), view[len(part) :]
                if filled == _STRETCH:
                    sums.append(crc)
                    crc = filled = 0
        sums += [crc] * (filled > 0)
        file.write(np.array(sums, np.uint32).tobytes())
        summary = meter.summary()
        metadata = {"format": FORMAT, "key": _key(spec, layer.name), **layer.origin}
        metadata |= {key: repr(getattr(summary, key)) for key in ("mean", "std", "minimum", "maximum")}
        metadata["check"] = _check(layer.name, layer.shape, metadata)
        file.seek(0)
        file.write(header(_tensors(layer.name, layer.shape), metadata, size=_HEADER))


def _tensors(name: str, shape: tuple[int, int]) -> dict[str, tuple[str, tuple[int, ...]]]:
    rows, columns = shape
    return {name: ("float32", (rows, columns)), "crc32": ("uint32", (-(-4 * rows * columns // _STRETCH),))}


def _file_bytes(name: str, shape: tuple[int, int]) -> int:
    """Return the size of the file that holds a layer."""
    return _HEADER + 4 * sum(prod(shape) for _, shape in _tensors(name, shape).values())


def _key(spec: Seeded, name: str) -> str:
    """Return everything that can change a bit of a layer; the position layer is drawn behind the token layer."""
    drawn = ("token",) if name == "token" else ("token", "position")
    order = " ".join(f"{each}={spec.shape(each)[0]}x{spec.shape(each)[1]}" for each in drawn)
    return f"{FORMAT} seed={spec.seed} {order} {torch_build()}"


def _check(name: str, shape: tuple[int, int], metadata: dict[str, str]) -> str:
    return _digest(json.dumps([name, shape, metadata], sort_keys=True))


def _digest(text: str) -> str:
    return f"{zlib.crc32(text.encode()):08x}"


def _folder() -> Path:
    named = os.environ.get("EMBCLI_CACHE_DIR")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    return user_cache_path("embcli", appauthor=False)


def parse_size(text: str) -> int:
    """Return a size in bytes; raises InputError for what is none.

    >>> parse_size("2GB"), parse_size("0")
    (2000000000, 0)
    """
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([KMGT]?B?)\s*", text.upper())
    if match is None or len(match[1]) > 20:
        raise InputError(f"EMBCLI_CACHE_LIMIT {text[:40]!r} is no size; write a number of bytes, or 500MB, or 2GB")
    unit = match[2] if match[2] in _UNITS else f"{match[2]}B"
    return int(float(match[1]) * _UNITS[unit])


@dataclass(frozen=True)
class Contents:
    """What the cache holds, least recently used first; `faults` says what is wrong with each, if that was looked at."""

    cache: Cache
    entries: tuple[Entry, ...]
    faults: tuple[str | None, ...] | None

    @property
    def damaged(self) -> int:
        """How many files are not what was written."""
        return sum(fault is not None for fault in self.faults or ())

    @property
    def size(self) -> int:
        """How many bytes the files take."""
        return sum(entry.size for entry in self.entries)

    def records(self) -> Records:
        """Return the files as rows."""
        fields: dict[str, Any] = {
            "file": [entry.path.name for entry in self.entries],
            "bytes": [entry.size for entry in self.entries],
            "used": [datetime.fromtimestamp(entry.used, timezone.utc).isoformat() for entry in self.entries],
        }
        if self.faults is not None:
            fields["fault"] = list(self.faults)
        return Records(
            run={"folder": printable(str(self.cache.folder)), "bytes": self.size, "limit": self.cache.limit},
            unit="layers",
            rows=len(self.entries),
            fields=tuple(fields),
            matrices={},
            pieces=lambda _: iter([Piece(len(self.entries), lambda: fields, {})]),
        )


def contents(cache: Cache, verify: bool = False) -> Contents:
    """Return what the cache holds; with `verify` every file is read and checked."""
    checked = list(cache.verify()) if verify else [(entry, None) for entry in cache.entries()]
    entries, faults = tuple(entry for entry, _ in checked), tuple(fault for _, fault in checked)
    return Contents(cache, entries, faults if verify else None)
