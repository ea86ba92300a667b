"""Windows of a file that are mapped while nobody else may change it, so that no page of them can go away."""

from __future__ import annotations

import mmap
import os
import signal
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from io import FileIO

_PAGE = 1 << 21  # bytes: pages as large as this are mapped at once where they are mapped whole


class Mapping:
    """An open file that is mapped window by window, under a lease (fcntl(2), on Linux).

    While it is held, whoever opens the file for writing or cuts it waits: until `window` sees that somebody does, and
    gives the lease back, or for 45 seconds. Raises OSError where there is none to be had, as for files of other users
    and those that somebody has open for writing already, and AttributeError or ImportError on other systems.
    """

    def __init__(self, file: FileIO) -> None:
        import fcntl

        self._descriptor = os.open(f"/proc/self/fd/{file.fileno()}", os.O_RDONLY)  # for a lease of its own
        try:
            fcntl.fcntl(self._descriptor, fcntl.F_SETSIG, signal.SIGURG)  # which nobody hears
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_RDLCK)
        except OSError:
            os.close(self._descriptor)
            raise

    def window(self, offset: int, length: int) -> np.ndarray | None:
        """Return bytes of the file, (length,) uint8; None where they are not there, or somebody wants to write."""
        import fcntl

        if fcntl.fcntl(self._descriptor, fcntl.F_GETLEASE) != fcntl.F_RDLCK:
            return None
        first = offset // _PAGE * _PAGE
        last = min(-(-(offset + length) // _PAGE) * _PAGE, os.fstat(self._descriptor).st_size)
        if last < offset + length:
            return None
        try:
            mapped = mmap.mmap(self._descriptor, last - first, access=mmap.ACCESS_READ, offset=first)
        except OSError:
            return None
        return np.frombuffer(mapped, np.uint8, length, offset - first)

    def close(self) -> None:
        """Give the lease back, which windows that are still there would keep. None may be read after this."""
        import fcntl

        with suppress(OSError):  # it is gone after 45 seconds
            fcntl.fcntl(self._descriptor, fcntl.F_SETLEASE, fcntl.F_UNLCK)
        os.close(self._descriptor)
