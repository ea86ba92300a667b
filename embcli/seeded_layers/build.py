"""The torch that would draw here, and the processor, found without importing torch.

Kept layers are named after it, so that a lookup in one needs no torch. `load_torch` is the one
way to load torch.
"""

from __future__ import annotations

import os
import platform
import re
import sys
import zlib
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from embcli.errors import LayerError, Notes, does_not_load, ran_out

NO_TORCH = "none"
CPU_FLAGS = "/proc/cpuinfo"
PATIENCE = 0.5  # seconds that loading torch may take before a note says so


class Build(NamedTuple):
    """Everything about torch and the machine that can change a bit of what torch draws."""

    torch: str  # its version and commit, or NO_TORCH
    machine: str
    cpu: str  # the processor's flags and ATEN_CPU_CAPABILITY, which decide torch's CPU capability
    libc: str  # torch's scalar code calls its logarithm and cosine
    version: str  # torch's version without the commit
    capability: str  # torch's CPU capability; the machine's name if only torch knows it


@lru_cache
def this_build() -> Build:
    library, version = platform.libc_ver()
    torch = _torch()
    flags = b""  # the line of the processor's flags, which only Linux has
    with suppress(OSError), open(CPU_FLAGS, "rb") as lines:
        for line in lines:
            if line.startswith((b"flags", b"Features")):
                flags = line
                break
    forced = os.environ.get("ATEN_CPU_CAPABILITY", "")
    return Build(
        torch=torch,
        machine=platform.machine(),
        cpu=f"{zlib.crc32(flags):08x}{forced}",
        libc=f"{library}-{version}" if library else platform.release(),
        version=torch.rpartition("+")[0] or torch,
        capability=_capability(flags, forced),
    )


_X86 = ("x86_64", "AMD64")
_AVX2 = {"avx2", "fma"}
_AVX512 = {"avx512vl", "avx512bw", "avx512dq", "fma"}


def _capability(line: bytes, forced: str) -> str:
    """Return the CPU capability that torch uses here, by the line of the processor's flags.

    torch decides by ATEN_CPU_CAPABILITY, here `forced`, and by the flags, in
    aten/src/ATen/native/DispatchStub.cpp. It is the name of the machine if that cannot be known
    without torch.
    """
    flags = set(line.decode("ascii", "replace").split())
    if platform.machine() not in _X86 or not flags:
        return platform.machine()
    if forced in ("avx512", "avx2", "default"):
        return forced.upper()
    if flags >= _AVX512:
        return "AVX512"
    return "AVX2" if flags >= _AVX2 else "DEFAULT"


def load_torch(notes: Notes | None = None) -> None:
    """Import torch, in a thread of its own; raises LayerError, with the reason, if that fails.

    The notes are told if it takes long. While torch starts, its C++ code calls Python and lets no
    exception through: the exception of a signal's handler would end the process with SIGABRT.
    Handlers run in the main thread only.
    """
    if this_build().torch == NO_TORCH:
        raise LayerError("torch is not installed, and is needed here; pip install torch")
    if "torch" in sys.modules:
        return
    from concurrent.futures import ThreadPoolExecutor, wait

    try:
        with ThreadPoolExecutor(1) as pool:
            loading = pool.submit(import_module, "torch")
            if wait([loading], PATIENCE).not_done and notes:
                with notes.slow("loading torch"):
                    wait([loading])
            loading.result()
    except Exception as error:  # An installed package can fail to load in any way.
        if ran_out(error):
            raise error from None
        raise LayerError(does_not_load("torch", error)) from None


def _torch() -> str:
    """Return the version and the commit of the installed torch, or NO_TORCH."""
    spec = find_spec("torch")
    # pip can leave a folder behind when it removes a package; its spec has no origin.
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        return NO_TORCH
    try:
        text = Path(spec.submodule_search_locations[0], "version.py").read_text(errors="replace")
    except OSError:
        return "unknown"
    assignment = r"^(__version__|git_version)\s*(?::[^=]*)?=\s*'([^']*)'"
    values = dict(re.findall(assignment, text, re.MULTILINE))
    version = values.get("__version__", "unknown")
    commit = values.get("git_version", "unknown")
    return f"{version}+{commit}"
