"""What is larger than this machine's memory, and errors that say that memory ran out."""

from __future__ import annotations

import errno
import os
import re

from embcli.errors import LayerError
from embcli.words import in_bytes

_MESSAGES = re.compile("allocate memory|not enough memory|bad_alloc|start new thread|failed to map segment")


def total() -> int:
    """Return the memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40


def refuse_too_large(what: str, shape: tuple[int, int], copies: int = 1, more: int = 0) -> None:
    """Raise LayerError if float32 matrices of this shape, and `more` bytes, are larger than this machine's memory."""
    size = 4 * shape[0] * shape[1] * copies + more
    if size > total():
        raise LayerError(
            f"{what} of {shape[0]:,} x {shape[1]:,} takes {in_bytes(size)}, and this machine has "
            f"{in_bytes(total())} of memory"
        )


def ran_out(error: Exception) -> bool:
    """Return whether an error says that memory ran out; Python, numpy, torch and the system say it differently."""
    if isinstance(error, (RuntimeError, ImportError)):
        return bool(_MESSAGES.search(str(error)))
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)
