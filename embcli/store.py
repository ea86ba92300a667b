"""The store: the one folder of seeded layers that embcli keeps for later runs, up to 2 GB; those used longest ago go.

A layer is a .npy file, written atomically. What is no regular file, or belongs to a stranger, counts as missing.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.lib import format as npy

from embcli.atomic import PARTIAL, replacing
from embcli.errors import Notes, OutputError

LIMIT = 2 * 10**9  # bytes
_NAME = re.compile(
    rf"(token|position)-[\w.+-]+\.npy|{PARTIAL.pattern}"
)  # a partial file may be an abandoned one


class KeptFile(NamedTuple):
    path: Path
    size: int  # bytes
    used: float  # time of the last use, seconds since the epoch


@dataclass(frozen=True, eq=False)
class Store:
    folder: Path

    @classmethod
    def from_environment(cls, notes: Notes) -> Store | None:
        """Return the store in EMBCLI_CACHE_DIR or the platform's cache folder; None, and a note, if there is none."""
        named = os.environ.get("EMBCLI_CACHE_DIR")
        folder = Path(named) if named else Path()
        if not named:
            from platformdirs import user_cache_path

            with suppress(RuntimeError, LookupError):
                folder = user_cache_path("embcli", appauthor=False)
            if not folder.is_absolute():  # it starts with "~" if the user's home is unknown
                notes.add(
                    "nothing is cached: this user has no home folder; EMBCLI_CACHE_DIR can name another"
                )
                return None
        return cls(folder)

    def read(self, name: str, shape: tuple[int, int]) -> np.ndarray | None:
        """Return the float32 matrix of a file, which is mapped; None if there is no whole one of this shape."""
        path = self.folder / name
        try:
            status = path.lstat()
            known = hasattr(os, "geteuid") and (os.geteuid(), 0, self.folder.stat().st_uid)
            if not stat.S_ISREG(status.st_mode) or (known and status.st_uid not in known):
                return None
            matrix = npy.open_memmap(path, mode="r")
            os.utime(path)
        except (OSError, ValueError):
            return None
        is_known = matrix.shape == shape and matrix.dtype == np.float32
        return matrix if is_known else None

    def write(
        self, name: str, shape: tuple[int, int], blocks: Iterable[np.ndarray], notes: Notes
    ) -> None:
        """Keep a float32 matrix, whose blocks of rows come in order, unless it is larger than half of the limit.

        A folder that cannot be written adds a remark to the notes.
        """
        if 2 * 4 * prod(shape) > LIMIT:
            return
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with replacing(self.folder / name) as file:
                npy.write_array_header_1_0(
                    file, {"descr": "<f4", "fortran_order": False, "shape": shape}
                )
                for block in blocks:
                    file.write(block.reshape(-1).view(np.uint8).data)
        except OSError as error:
            notes.add(f"nothing is cached: cannot write to {self.folder} ({error.strerror})")
            return
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
        """Remove all kept and partial files, and return them; raises OutputError for a file that cannot be removed."""
        entries = self.entries()
        for entry in entries:
            try:
                entry.path.unlink(missing_ok=True)
            except OSError as error:
                raise OutputError(f"cannot remove {str(entry.path)!r}: {error.strerror}") from None
        return entries
