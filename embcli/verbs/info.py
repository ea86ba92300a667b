"""What embcli runs on, and what a checkpoint contains: its tensors, which are layers, and why."""

from __future__ import annotations

import platform
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from embcli.binary import shortened
from embcli.encodings.tiktoken import DEFINITIONS, rank_file
from embcli.errors import InputError, LayerError
from embcli.notes import Notes
from embcli.records import Records, listed
from embcli.result import Result
from embcli.store import Store
from embcli.version import __version__
from embcli.weights.build import NO_TORCH, cpu_capability, loading_torch, this_build

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint
    from embcli.files.tensors import Tensor

_ROLES = ("token", "position", "token_type", "head")


@dataclass(frozen=True, eq=False)
class Info(Result, verb="info", content="list"):
    """Versions, the cache folder and the encodings."""

    versions: dict[str, str]
    cpu_capability: str | None  # None without torch
    cache: str | None  # a folder; None if this user has none
    encodings: tuple[tuple[str, int, bool], ...]  # name, V, whether embcli carries its rank file

    def records(self) -> Records:
        """Return the encodings as rows."""
        names, sizes, carried = map(list, zip(*self.encodings, strict=True))
        run = {**self.versions, "cpu_capability": self.cpu_capability, "cache": self.cache}
        return listed(run, "encodings", encoding=(str, names), vocabulary_size=(int, sizes), carried=(bool, carried))


def info() -> Info:
    """Return what embcli runs on."""
    torch, capability = _torch()
    versions = {"embcli": __version__, "python": platform.python_version(), "torch": torch}
    versions |= {name: _version(name) for name in ("tiktoken", "numpy", "typer", "rich")}
    encodings = tuple(
        (name, definition.vocabulary_size, rank_file(definition.ranks).is_file())
        for name, definition in DEFINITIONS.items()
    )
    notes = Notes()
    store = Store.from_environment(notes)
    folder = str(store.folder) if store else None
    return Info(versions, capability, folder, encodings, notes=notes)


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _torch() -> tuple[str, str | None]:
    """Return torch's version and the CPU capability that it uses; without torch, the reason and None.

    torch itself is loaded only if the capability is not known otherwise.
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


@dataclass(frozen=True, eq=False)
class ModelInfo(Result, verb="info", content="list"):
    """A checkpoint and the tensors of it that are listed."""

    checkpoint: Checkpoint
    tensors: tuple[tuple[str, Tensor], ...]  # role (empty if unknown) and tensor

    @cached_property
    def recipe(self) -> str | None:
        """What the first block reads, in words, or why this is not known; None if nothing says so."""
        try:
            recipe = self.checkpoint.recipe
        except InputError as error:
            return f"not known: {error}"
        if recipe is None:
            return None
        if not recipe.is_known:
            return f"not known for {shortened(recipe.model)} models{f': {recipe.unknown}' if recipe.unknown else ''}"
        return "; ".join(filter(None, (recipe.words, recipe.blocks)))

    @property
    def run(self) -> dict[str, Any]:
        """The files, the output head, the recipe, the positions, and the guesses."""
        checkpoint = self.checkpoint
        head = checkpoint.head
        return {
            "embcli": __version__,
            "from": checkpoint.path,
            "format": checkpoint.tensors.format,
            "files": [str(path) for path in checkpoint.tensors.files],
            "encoding": checkpoint.encoding.name if checkpoint.encoding else None,
            "head": {
                "tensor": head.tensor.name if head.tensor else None,
                "relation": head.relation,
                "rows_compared": head.rows,
                "reason": head.reason,
            },
            "recipe": self.recipe,
            "part": checkpoint.part,
            "positions": checkpoint.positions,
            "first_position": checkpoint.first_position,
            "guesses": dict(checkpoint.reasons),
        }

    def records(self) -> Records:
        """Return the tensors as data."""
        return listed(
            self.run,
            "tensors",
            role=(str, [role or None for role, _ in self.tensors]),
            tensor=(str, [tensor.name for _, tensor in self.tensors]),
            shape=(str, ["x".join(map(str, tensor.shape)) for _, tensor in self.tensors]),
            dtype=(str, [tensor.dtype for _, tensor in self.tensors]),
            bytes=(int, [tensor.size for _, tensor in self.tensors]),
        )


def model_info(checkpoint: Checkpoint, every: bool = False) -> ModelInfo:
    """Return the contents of a checkpoint: the tensors with a known role, or all tensors.

    A tensor that the user named in place of the token matrix is listed as `chosen`. Raises InputError if several
    tensors could have one role.
    """
    other = checkpoint.find("token") if checkpoint.is_other else None
    checkpoint = checkpoint.without_other()
    roles = {tensor.name: role for role in _ROLES if (tensor := checkpoint.find(role)) is not None}
    if other is not None:
        roles[other.name] = ", ".join(filter(None, (roles.get(other.name), "chosen")))
    shown = checkpoint.tensors if every else roles
    listed_tensors = tuple((roles.get(name, ""), checkpoint.tensors[name]) for name in shown)
    return ModelInfo(checkpoint, listed_tensors, notes=checkpoint.notes)
