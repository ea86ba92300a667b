"""What embcli runs on: versions, the CPU capability torch uses, the encodings, the cache."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version

import embcli
from embcli.encodings.tiktoken import DEFINITIONS, rank_file
from embcli.errors import LayerError
from embcli.records import Records, listed
from embcli.safe import in_data
from embcli.weights.build import NO_TORCH, cpu_capability, loading_torch, this_build
from embcli.weights.cache import Cache


@dataclass(frozen=True)
class Info:
    """Versions, and the encodings with V and whether their rank files are carried."""

    versions: dict[str, str]
    cpu_capability: str | None  # None where there is no torch
    cache: str | None  # its folder; None where this user has none
    encodings: tuple[tuple[str, int, bool], ...]

    def records(self) -> Records:
        """Return the encodings as rows, and the rest beside them."""
        names, sizes, carried = map(list, zip(*self.encodings, strict=True))
        run = {**self.versions, "cpu_capability": self.cpu_capability, "cache": self.cache}
        types = {"encoding": str, "vocabulary_size": int, "carried": bool}
        return listed(run, "encodings", types, {"encoding": names, "vocabulary_size": sizes, "carried": carried})


def info() -> Info:
    """Return what embcli runs on."""
    torch, capability = _torch()
    versions = {"embcli": embcli.__version__, "python": platform.python_version(), "torch": torch}
    versions |= {name: version(name) for name in ("tiktoken", "numpy", "typer", "rich")}
    encodings = tuple(
        (name, definition.vocabulary_size, rank_file(definition.ranks).is_file())
        for name, definition in DEFINITIONS.items()
    )
    cache = Cache.from_environment()
    folder = in_data(str(cache.folder)) if cache else None
    return Info(versions, capability, folder, encodings)


def _torch() -> tuple[str, str | None]:
    """Return torch's version and the CPU capability that it uses; or why there is none to use, and None.

    torch itself is loaded only where nothing else tells the capability.
    """
    build, capability = this_build(), cpu_capability()
    if build.torch != NO_TORCH and capability is not None:
        return build.version, capability
    try:
        with loading_torch():
            import torch
    except LayerError as error:
        return str(error), None
    return torch.__version__, torch.backends.cpu.get_cpu_capability()
