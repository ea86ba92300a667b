"""What embcli runs on: versions, the CPU capability that torch uses, the cache folder, the encodings."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from importlib.metadata import version
from typing import ClassVar

from embcli.encodings.tiktoken import DEFINITIONS, rank_file
from embcli.errors import LayerError
from embcli.notes import Notes
from embcli.records import Records, listed
from embcli.result import Result
from embcli.safe import in_data
from embcli.store import Store
from embcli.version import __version__
from embcli.weights.build import NO_TORCH, cpu_capability, loading_torch, this_build


@dataclass(frozen=True, eq=False)
class Info(Result):
    """Versions, the cache folder and the encodings."""

    verb: ClassVar[str] = "info"
    versions: dict[str, str]
    cpu_capability: str | None  # None without torch
    cache: str | None  # a folder; None if this user has none
    encodings: tuple[tuple[str, int, bool], ...]  # name, V, whether embcli carries its rank file

    def records(self) -> Records:
        """Return the encodings as rows."""
        names, sizes, carried = map(list, zip(*self.encodings, strict=True))
        run = {**self.versions, "cpu_capability": self.cpu_capability, "cache": self.cache}
        types = {"encoding": str, "vocabulary_size": int, "carried": bool}
        return listed(run, "encodings", types, {"encoding": names, "vocabulary_size": sizes, "carried": carried})


def info() -> Info:
    """Return what embcli runs on."""
    torch, capability = _torch()
    versions = {"embcli": __version__, "python": platform.python_version(), "torch": torch}
    versions |= {name: version(name) for name in ("tiktoken", "numpy", "typer", "rich")}
    encodings = tuple(
        (name, definition.vocabulary_size, rank_file(definition.ranks).is_file())
        for name, definition in DEFINITIONS.items()
    )
    notes = Notes()
    store = Store.from_environment(notes)
    folder = in_data(str(store.folder)) if store else None
    return Info(versions, capability, folder, encodings, notes=notes)


def _torch() -> tuple[str, str | None]:
    """Return torch's version and the CPU capability that it uses; without torch, the reason and None.

    torch itself is loaded only if nothing else tells the capability.
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
