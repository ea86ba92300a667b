"""Which torch would draw, and on what processor, told without importing torch."""

from __future__ import annotations

import os
import platform
import re
import zlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path


@lru_cache
def torch_build() -> str:
    """Return everything about torch and the machine that can change a bit of what torch draws, as one line.

    torch's version and the commit it was built from stand in its version.py; its CPU capability follows from the
    processor's flags and ATEN_CPU_CAPABILITY; its scalar code calls the C library's logarithm and cosine.
    """
    return " ".join((f"torch={_torch()}", f"machine={platform.machine()}", f"cpu={_processor()}", f"libc={_libc()}"))


def _torch() -> str:
    spec = find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return "none"
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    except OSError:
        return "unknown"
    found = dict(re.findall(r"^(__version__|git_version)\s*(?::[^=]*)?=\s*'([^']*)'", text, re.MULTILINE))
    return f"{found.get('__version__', 'unknown')}+{found.get('git_version', 'unknown')}"


def _processor() -> str:
    forced = os.environ.get("ATEN_CPU_CAPABILITY", "")
    flags = b""
    try:
        with open("/proc/cpuinfo", "rb") as lines:
            flags = next((line for line in lines if line.startswith((b"flags", b"Features"))), b"")
    except OSError:
        pass  # not Linux: the machine's name has to do
    return f"{zlib.crc32(flags):08x}{forced}"


def _libc() -> str:
    try:
        return (os.confstr("CS_GNU_LIBC_VERSION") or "").replace(" ", "-")
    except (AttributeError, ValueError, OSError):
        return platform.release()
