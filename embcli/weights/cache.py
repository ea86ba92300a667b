"""The cache: a folder of kept layers by their keys, and how many bytes it may hold."""

from __future__ import annotations

import os
import re
import stat
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.errors import InputError, OutputError
from embcli.safe import note
from embcli.weights.kept import Damaged, KeptLayer, digest, file_bytes, write

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np

    from embcli.weights.kept import Key

DEFAULT_LIMIT = 2 * 10**9
_SHARE = 2  # a layer that takes more than one part in so many of the limit is not kept
_ABANDONED = 3600.0  # seconds after which a half-written file cannot be anybody's work any more
_LATEST = 253_370_764_800.0  # the first second of the last year that dates have
_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_KEPT = re.compile(r"(token|position)-[0-9]+x[0-9]+-seed[0-9]+-[0-9a-f]{8}\.safetensors")
_HALF = re.compile(rf"\.{_KEPT.pattern}\..+\.part")


@dataclass(frozen=True, eq=False)
class Entry:
    """A file of the cache."""

    path: Path
    size: int  # bytes
    used: float  # when it was last used, seconds since the epoch


@dataclass(frozen=True, eq=False)
class Cache:
    """The folder of kept layers, and how many bytes it may hold."""

    folder: Path
    limit: int = DEFAULT_LIMIT

    @classmethod
    def from_environment(cls) -> Cache | None:
        """Return the user's cache: EMBCLI_CACHE_DIR and EMBCLI_CACHE_LIMIT, or the platform's folder and 2 GB.

        None, and a note, where the platform knows no folder for this user.
        """
        limit = os.environ.get("EMBCLI_CACHE_LIMIT")
        size, folder = parse_size(limit) if limit else DEFAULT_LIMIT, _folder()
        if folder is None:
            note("layers are not kept: this user has no home folder; EMBCLI_CACHE_DIR can name another")
            return None
        return cls(folder, size)

    def path(self, key: Key) -> Path:
        """Return where a layer is kept."""
        return self.folder / key.file_name

    def open(self, key: Key, hold: bool = False) -> KeptLayer | None:
        """Return a kept layer, or None where there is none that can be used; `hold` if few rows of it are to come."""
        path = self.path(key)
        try:
            layer = self._opened(path, hold)
        except (OSError, Damaged):
            return None
        if layer.key != str(key):
            return None
        with suppress(OSError):
            os.utime(path)
        return layer

    def keep(
        self, key: Key, pieces: Iterable[np.ndarray], origin: dict[str, str], hold: bool = False
    ) -> KeptLayer | None:
        """Write a layer into a file and return it, or None where it is too large or cannot be written.

        `pieces` are its values in order, flat float32; they are not asked for where the layer is too large.
        """
        if file_bytes(key.name, key.shape) * _SHARE > self.limit:
            return None
        path = self.path(key)
        half = path.with_name(f".{path.name}.{os.getpid()}-{os.urandom(4).hex()}.part")
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            try:
                write(half, key, pieces, origin)
                half.replace(path)
            except BaseException:
                half.unlink(missing_ok=True)
                raise
            self._make_room(path)
            return self._opened(path, hold)
        except (OSError, Damaged) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            note(f"layers are not kept: cannot write to {self.folder} ({reason}); --no-cache does without")
            return None

    def torches(self, key: Key) -> Iterator[str]:
        """Yield each torch, as keys name it, of which there is a layer of otherwise the same key, last used first."""
        before, after = str(key).split(f"torch={key.build.torch}")
        same = re.compile(rf"{re.escape(before)}torch=(\S+){re.escape(after)}")
        for entry in reversed(self.entries()):
            with suppress(OSError, Damaged):
                match = same.fullmatch(self._opened(entry.path).key)
                if match and entry.path.name.startswith(f"{key.name}-"):
                    yield match[1]

    def entries(self) -> list[Entry]:
        """Return the kept layers, least recently used first."""
        return sorted(self._found(_KEPT), key=lambda entry: (entry.used, entry.path))

    def clear(self) -> list[Entry]:
        """Remove all kept layers and half-written files, and return them.

        Raises OutputError for a file that cannot be removed.
        """
        removed = []
        for entry in [*self.entries(), *self._found(_HALF)]:
            try:
                entry.path.unlink()
            except FileNotFoundError:
                continue  # somebody else was faster
            except OSError as error:
                raise OutputError(f"cannot remove {str(entry.path)!r}: {error.strerror}") from None
            removed.append(entry)
        return removed

    def verify(self) -> Iterator[tuple[Entry, str | None]]:
        """Yield each kept layer and what is wrong with it (None for nothing), after reading all of it."""
        for entry in self.entries():
            try:
                self._opened(entry.path).check()
            except (OSError, Damaged) as error:
                yield entry, (error.strerror if isinstance(error, OSError) else None) or str(error)
            else:
                yield entry, None

    def _opened(self, path: Path, hold: bool = False) -> KeptLayer:
        layer = KeptLayer(path, hold)
        rows, columns = layer.shape
        named = re.escape(f"{layer.name}-{rows}x{columns}-") + "seed[0-9]+" + f"-{digest(layer.key)}[.]safetensors"
        if not re.fullmatch(named, path.name):
            raise Damaged("it holds another layer")
        if self._is_strangers(layer.owner):
            raise Damaged("it belongs to another user, and anyone may write to its folder")
        return layer

    def _is_strangers(self, owner: int) -> bool:
        """Say whether anyone may have put a file here, and somebody did: neither this user nor root."""
        if not hasattr(os, "geteuid") or owner in (os.geteuid(), 0):
            return False
        return bool(self.folder.stat().st_mode & stat.S_IWOTH)

    def _found(self, pattern: re.Pattern[str]) -> Iterator[Entry]:
        try:
            paths = [path for path in self.folder.iterdir() if pattern.fullmatch(path.name)]
        except OSError:
            return
        for path in paths:
            with suppress(OSError):
                status = path.lstat()
                yield Entry(path, status.st_size, min(max(status.st_mtime, 0.0), _LATEST))

    def _make_room(self, newest: Path) -> None:
        for entry in self._found(_HALF):
            if time.time() - entry.used > _ABANDONED:
                with suppress(OSError):
                    entry.path.unlink()
        entries = self.entries()
        excess = sum(entry.size for entry in entries) - self.limit
        for entry in entries:
            if excess > 0 and entry.path != newest:
                with suppress(OSError):
                    entry.path.unlink()
                    excess -= entry.size


def _folder() -> Path | None:
    named = os.environ.get("EMBCLI_CACHE_DIR")
    if named:
        return Path(named)
    from platformdirs import user_cache_path

    try:
        folder = user_cache_path("embcli", appauthor=False)
    except (RuntimeError, LookupError):
        return None
    return folder if folder.is_absolute() else None  # "~" stands for itself where nobody knows the user's home


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
