"""Which torch would draw, and on what processor, told without importing torch; and how torch is loaded with care."""

from __future__ import annotations

import os
import platform
import re
import signal
import sys
import threading
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.errors import LayerError
from embcli.memory import left_of_addresses, ran_out

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

NO_TORCH = "none"
_CPU_FLAGS = "/proc/cpuinfo"
_X86 = ("x86_64", "AMD64")
_AVX2, _AVX512 = {"avx2", "fma"}, {"avx512vl", "avx512bw", "avx512dq", "fma"}
_FORCED = {"avx512": "AVX512", "avx2": "AVX2", "default": "DEFAULT"}
_ADDRESSES = 550 * 10**6  # bytes of address space that torch takes as it is imported, and some to spare
_TOO_LITTLE = "torch does not load, as memory ran out; it takes some 700 MB"


@dataclass(frozen=True)
class Build:
    """Everything about torch and the machine that can change a bit of what torch draws."""

    torch: str  # its version and the commit it was built from, or NO_TORCH
    machine: str
    cpu: str  # the processor's flags and ATEN_CPU_CAPABILITY, from which torch's CPU capability follows
    libc: str  # whose logarithm and cosine torch's scalar code calls

    def __str__(self) -> str:
        return f"torch={self.torch} machine={self.machine} cpu={self.cpu} libc={self.libc}"

    @property
    def version(self) -> str:
        """What torch calls its version."""
        return self.torch.rpartition("+")[0] or self.torch


@lru_cache
def this_build() -> Build:
    """Return the build that would draw in this process."""
    return Build(_torch(), platform.machine(), _processor(), _libc())


def cpu_capability() -> str | None:
    """Return the CPU capability that torch takes here, by what it decides on; None where that is not known.

    torch decides in aten/src/ATen/native/DispatchStub.cpp, by ATEN_CPU_CAPABILITY and the processor's flags.
    """
    flags = {*_flags().decode("ascii", "replace").split()}
    if platform.machine() not in _X86 or not flags:
        return None
    found = "AVX512" if flags >= _AVX512 else "AVX2" if flags >= _AVX2 else "DEFAULT"
    return _FORCED.get(os.environ.get("ATEN_CPU_CAPABILITY", ""), found)


@contextmanager
def loading_torch() -> Iterator[None]:
    """Hold back signals while torch is imported, and say in a sentence why it cannot be.

    torch's own start calls Python from C++ that lets no exception through: a signal's would end the process there and
    then, with SIGABRT. Raises LayerError where torch is missing or broken.
    """
    if this_build().torch == NO_TORCH:
        raise LayerError("torch is not installed, and this takes it; pip install torch")
    if "torch" not in sys.modules and min(left_of_addresses(), default=_ADDRESSES) < _ADDRESSES:
        raise LayerError(_TOO_LITTLE)  # for torch would end the process there and then
    with _signals_held():
        try:
            yield
        except Exception as error:
            if ran_out(error):
                raise LayerError(_TOO_LITTLE) from None
            reason = " ".join((str(error) or type(error).__name__).split())[:200]
            raise LayerError(
                f"torch does not load ({reason}); to install it anew: pip install --force-reinstall torch"
            ) from None


@contextmanager
def _signals_held() -> Iterator[None]:
    """Run what is inside to its end before a signal's handler is called; handlers belong to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: list[int] = []

    def hold(number: int, _: FrameType | None) -> None:
        came.append(number)

    named = (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP"))
    handlers = {number: signal.getsignal(number) for number in named if number is not None}
    held = {number: handler for number, handler in handlers.items() if callable(handler)}
    try:
        for number in held:
            signal.signal(number, hold)
        yield
    finally:
        for number, handler in held.items():
            signal.signal(number, handler)
        for number in came[:1]:
            signal.raise_signal(number)


def _torch() -> str:
    try:
        spec = find_spec("torch")
    except (ImportError, ValueError):
        spec = None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return NO_TORCH  # a folder without origin is what pip leaves behind of a package that is gone
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text(errors="replace")
    except OSError:
        return "unknown"
    found = dict(re.findall(r"^(__version__|git_version)\s*(?::[^=]*)?=\s*'([^']*)'", text, re.MULTILINE))
    return f"{found.get('__version__', 'unknown')}+{found.get('git_version', 'unknown')}"


def _processor() -> str:
    return f"{zlib.crc32(_flags()):08x}{os.environ.get('ATEN_CPU_CAPABILITY', '')}"


def _flags() -> bytes:
    """Return the line of the processor's flags; nothing where the system is not Linux."""
    try:
        with open(_CPU_FLAGS, "rb") as lines:
            return next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    except OSError:
        return b""


def _libc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")
    except (AttributeError, ValueError, OSError):
        return platform.release()
