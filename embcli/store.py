"""The store: seeded layers, and answers of transformers.

They are kept for later runs, each as a .npy file, written atomically; what is not a layer is an
array of bytes. Above `LIMIT` the least recently used ones are removed. Whatever is not a regular
file, or belongs to a stranger, counts as missing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.lib import format as npy

from embcli.atomic import PARTIAL, replacing
from embcli.errors import InputError, Notes, OutputError, variable
from embcli.names import Shape

LIMIT = 2 * 10**9  # bytes
Value = TypeVar("Value")


class KeptFile(NamedTuple):
    """A layer in the store, or a partial file, whose writing may have been abandoned."""

    path: Path
    size: int  # bytes
    used: float  # time of the last use, seconds since the epoch


_NAME = re.compile(rf"(token|position|tokenizer|weights)-[\w.+-]+\.npy|{PARTIAL.pattern}")


@dataclass(frozen=True, eq=False)
class Store:
    """The kept layers of one folder; several processes can read and write it at the same time."""

    folder: Path

    @classmethod
    def from_environment(cls, notes: Notes) -> Store | None:
        """Return the store in EMBCLI_CACHE_DIR or the platform's cache folder.

        If there is neither, it returns None, and a note says so.
        """
        named = variable("EMBCLI_CACHE_DIR", None)
        if named:
            return cls(Path(named))
        from platformdirs import user_cache_path

        folder = Path()
        with suppress(RuntimeError, LookupError):
            folder = user_cache_path("embcli", appauthor=False)
        # The path starts with "~" if the user's home is unknown.
        if not folder.is_absolute():
            notes.add(
                "nothing is cached: this user has no home folder; EMBCLI_CACHE_DIR can name another"
            )
            return None
        return cls(folder)

    def read(self, name: str, shape: Shape | None, dtype: type = np.float32) -> np.ndarray | None:
        """Return the array of a file, which is mapped.

        It returns None if there is no whole file with an array of this type, and of this shape
        unless any will do.
        """
        path = self.folder / name
        try:
            if not stat.S_ISREG(path.lstat().st_mode):
                return None
            matrix = npy.open_memmap(path, mode="r")
            os.utime(path)
        except Exception:  # Python's parser raises many kinds for a damaged header.
            return None
        is_known = shape in (None, matrix.shape) and matrix.dtype == dtype
        return matrix if is_known else None

    def write(
        self,
        name: str,
        shape: Shape,
        blocks: Iterable[np.ndarray],
        notes: Notes,
        dtype: type = np.float32,
    ) -> None:
        """Keep an array, whose blocks of rows come in order.

        One that is larger than half of the limit is not kept. A note says if the folder cannot be
        written.
        """
        kept_dtype = np.dtype(dtype)
        if 2 * kept_dtype.itemsize * prod(shape) > LIMIT:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / name) as file:
                description = {"descr": kept_dtype.str, "fortran_order": False, "shape": shape}
                npy.write_array_header_1_0(file, description)
                for block in blocks:
                    file.write(block.ravel().view(np.uint8).data)
        except OSError as error:
            notes.add(f"nothing is cached: cannot write to {self.folder} ({error.strerror})")
            return

        # The least recently used files are removed until the rest is within the limit.
        entries = self.entries()
        excess = sum(entry.size for entry in entries) - LIMIT
        for entry in entries:
            if excess > 0:
                entry.path.unlink(missing_ok=True)
                excess -= entry.size

    def entries(self) -> list[KeptFile]:
        """Return the kept and the partial files, least recently used first."""
        found = []
        with suppress(OSError):
            for path in self.folder.iterdir():
                if _NAME.fullmatch(path.name):
                    status = path.lstat()
                    found.append(KeptFile(path, status.st_size, status.st_mtime))
        return sorted(found, key=lambda entry: (entry.used, entry.path))

    def clear(self) -> list[KeptFile]:
        """Remove all kept and partial files, and return them.

        Raises OutputError for a file that cannot be removed.
        """
        entries = self.entries()
        for entry in entries:
            try:
                entry.path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"cannot remove {str(entry.path)!r}: {error.strerror}") from None
        return entries


def kept(
    name: str, notes: Notes, read: Callable[[bytes], Value], make: Callable[[], bytes]
) -> Value:
    """Return what `read` makes of the bytes of a file in the store.

    If the store has no such file, or a damaged one, its bytes are made, and kept.
    """
    store = Store.from_environment(notes)
    stored = store.read(name, None, np.uint8) if store else None
    if stored is not None:
        try:
            return read(stored.tobytes())
        except InputError:  # that is what the file says
            raise
        except (ValueError, KeyError, TypeError):
            pass
    data = make()
    if store:
        array = np.frombuffer(data, np.uint8)
        store.write(name, array.shape, [array], notes, np.uint8)
    return read(data)
