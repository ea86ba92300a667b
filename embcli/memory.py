"""How much memory is available, and a sentence for when it runs out."""

from __future__ import annotations

import errno
import math
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from embcli.errors import LayerError
from embcli.words import in_bytes

_MOST_HEAPS = -8  # M_ARENA_MAX in malloc.h
_PROC = Path("/proc")
_GROUPS = Path("/sys/fs/cgroup")
_MESSAGES = re.compile("allocate memory|not enough memory|bad_alloc|start new thread|failed to map segment")


def total() -> int:
    """Return the memory of this machine, in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if hasattr(os, "sysconf") else 2**40


def free() -> int:
    """Return how many bytes this process may still take: the least of free memory and what its limits leave."""
    return int(max(min([total(), *_available(), *_left_in_groups(), *left_of_limits()]), 0))


@contextmanager
def explaining_shortage(what: str) -> Iterator[None]:
    """Raise LayerError if memory runs out."""
    try:
        yield
    except Exception as error:
        if not ran_out(error):
            raise
        raise LayerError(f"memory ran out over {what}; choose fewer rows, or smaller layers") from None


def ran_out(error: Exception) -> bool:
    """Return whether an error says that memory ran out; Python, numpy, torch and the system say it differently."""
    if isinstance(error, (RuntimeError, ImportError)):
        return bool(_MESSAGES.search(str(error)))
    return isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM)


def _available() -> Iterator[int]:
    with suppress(OSError):
        for line in (_PROC / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                yield int(line.split()[1]) * 1024


def _left_in_groups() -> Iterator[int]:
    """Yield what the limit of each control group (version 1 or 2) of this process leaves."""
    with suppress(OSError):
        for line in (_PROC / "self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                yield from _left(_GROUPS, path, "memory.max", "memory.current", "inactive_file")
            elif "memory" in controllers.split(","):
                files = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
                yield from _left(_GROUPS / "memory", path, *files)


def _left(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> Iterator[int]:
    """Yield what the limits of a group and of its parents leave; a container may see only the root."""
    own = PurePosixPath(path.lstrip("/"))
    for group in (root / own, *(root / parent for parent in own.parents)):
        with suppress(OSError, ValueError):  # missing, or without a limit
            maximum, taken = int((group / limit).read_text()), int((group / usage).read_text())
            cached = re.search(rf"^{reclaimable} (\d+)$", (group / "memory.stat").read_text(), re.MULTILINE)
            yield maximum - taken + (int(cached[1]) if cached else 0)


def left_of_limits() -> tuple[float, float]:
    """Return the bytes that limits on addresses and on data (`ulimit -v` and `-d`) leave; infinity without a limit."""
    with suppress(ImportError, OSError):
        import resource

        pages = (_PROC / "self/statm").read_text().split()
        limits = resource.getrlimit(resource.RLIMIT_AS)[0], resource.getrlimit(resource.RLIMIT_DATA)[0]
        addresses, data = (
            math.inf if limit == resource.RLIM_INFINITY else limit - int(count) * resource.getpagesize()
            for limit, count in zip(limits, (pages[0], pages[5]), strict=True)
        )
        return addresses, data
    return math.inf, math.inf


def refuse_shortage(what: str, addresses: int, data: int) -> None:
    """Raise LayerError if a limit leaves fewer bytes of addresses, or of data, than something takes.

    Libraries written in C++ and Rust end the process when they get no memory.
    """
    for left, needed in zip(left_of_limits(), (addresses, data), strict=True):
        if left < needed:
            limit = f"a limit of this process leaves {in_bytes(max(int(left), 0))}"
            raise LayerError(f"memory ran out: {what} takes some {in_bytes(needed)}, and {limit}")


def end_with_2_when_libraries_exit() -> None:
    """End with status 2, where memory can run out, if a library calls C's `exit`: OpenBLAS does so, with status 1.

    Where the system promises more memory than it has, a process without limits pays nothing for this.
    """
    with suppress(OSError):
        strict = (_PROC / "sys/vm/overcommit_memory").read_text().strip() == "2"
        if strict or min(left_of_limits()) < math.inf:
            import ctypes

            libc = ctypes.CDLL(None)
            libc.__cxa_atexit(libc._exit, ctypes.c_void_p(2), None)


def share_heaps() -> None:
    """Let all threads share two heaps: glibc gives each thread its own, and keeps what each once took."""
    import ctypes

    with suppress(AttributeError, OSError, TypeError):  # other systems have no such setting
        ctypes.CDLL(None).mallopt(_MOST_HEAPS, 2)
