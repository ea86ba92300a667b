"""What embcli runs on, and what a checkpoint contains.

Three results answer these: Info, ModelInfo and Models. Each is plain data, and `page`
shows them.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from embcli.errors import InputError, Notes
from embcli.names import __version__
from embcli.opened import Opened
from embcli.records import Records, listed
from embcli.result import Result
from embcli.wording import Sentence, in_data

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint, Head
    from embcli.files.special_ids import SpecialId
    from embcli.files.tensors import Tensors


@dataclass(frozen=True, eq=False)
class Info(Result, verb="info"):
    """The versions, the processor, the cache and the encodings of this machine."""

    versions: dict[str, str]
    cpu_capability: str  # that of torch, or the machine's name if only torch knows it
    cache: str | None  # a folder; None if this user has none
    encodings: dict[str, int]  # V, by name

    def _records(self) -> Records:
        run = {**self.versions, "cpu_capability": self.cpu_capability, "cache": self.cache}
        return listed(
            run,
            "encodings",
            encoding=(str, list(self.encodings)),
            vocabulary_size=(int, list(self.encodings.values())),
        )


def this_machine() -> Info:
    """Return what embcli runs on."""
    import platform
    from importlib.metadata import version

    from embcli.encodings.tiktoken import DEFINITIONS
    from embcli.seeded_layers.build import this_build
    from embcli.store import Store

    build = this_build()
    versions = {
        "embcli": __version__,
        "python": platform.python_version(),
        "torch": build.version,
    }
    for package in ("tiktoken", "numpy", "typer", "rich"):
        versions[package] = version(package)

    encodings = {name: each.vocabulary_size for name, each in DEFINITIONS.items()}
    notes = Notes()
    store = Store.from_environment(notes)
    cache = str(store.folder) if store else None
    return Info(versions, build.capability, cache, encodings, notes=notes)


@dataclass(frozen=True, eq=False)
class ModelInfo(Result, verb="info"):
    """The tensors of a checkpoint, and what was found out about them."""

    checkpoint: Checkpoint
    roles: dict[str, str]  # by the names of the listed tensors; "" if a tensor has no known role
    special_ids: tuple[SpecialId, ...]  # as each file gives them

    @cached_property
    def head(self) -> Head:
        """The output head; an unknown one, with the reason, if it cannot be read."""
        from embcli.files.checkpoint import Head

        try:
            return self.checkpoint.head
        except InputError as error:
            return Head("other", reason=str(error))

    @cached_property
    def recipe(self) -> str | None:
        """What the first block reads, or why this is not known; None if no file says it."""
        from embcli.binary import quoted

        try:
            recipe = self.checkpoint.recipe
        except InputError as error:
            return f"not known: {error}"
        if recipe is None:
            return None
        if not recipe.is_known:
            reason = f": {recipe.unknown}" if recipe.unknown else ""
            return f"not known for {quoted(recipe.model)} models{reason}"
        return "; ".join(filter(None, (recipe.words, recipe.blocks)))

    def _records(self) -> Records:
        """Return a row for each tensor; what holds for the whole checkpoint is in `run`."""
        checkpoint = self.checkpoint
        head = self.head
        head_facts = {
            "tensor": head.tensor.name if head.tensor else None,
            "relation": head.relation,
            "rows_compared": head.rows,
            "reason": head.reason,
        }
        tensors = checkpoint.tensors
        run = {
            "embcli": __version__,
            "from": checkpoint.path,
            "format": tensors.format,
            "files": list(tensors.files),
            "encoding": checkpoint.encoding.name if checkpoint.encoding else None,
            "head": head_facts,
            "recipe": self.recipe,
            "part": checkpoint.roles.part,
            "positions": checkpoint.positions,
            "first_position": checkpoint.roles.first_position,
            "guesses": checkpoint.reasons,
            "special_ids": [special._asdict() for special in self.special_ids],
            "parameters": parameters_of(tensors),
            "metadata": facts_of(tensors),
        }
        chosen = [tensors[name] for name in self.roles]
        return listed(
            run,
            "tensors",
            role=(str, [role or None for role in self.roles.values()]),
            tensor=(str, list(self.roles)),
            shape=(list[int], [list(tensor.shape) for tensor in chosen]),
            dtype=(str, [tensor.dtype for tensor in chosen]),
            bytes=(int, [tensor.size for tensor in chosen]),
        )


def parameters_of(tensors: Tensors) -> int | None:
    """Return how many numbers the tensors have; one with two names counts once.

    It is None if a file of several cannot be read.
    """
    try:
        sizes = {tensor.stored_at: math.prod(tensor.shape) for tensor in tensors.values()}
    except InputError:
        return None
    return sum(sizes.values())


def facts_of(tensors: Tensors) -> dict[str, str]:
    """Return what the file says of itself: `__metadata__` of safetensors, GGUF's general keys."""
    facts = {}
    for key, value in tensors.metadata.items():
        if tensors.format == "safetensors" or key.startswith("general."):
            facts[in_data(key)] = in_data(str(value))
    return facts


def info(model: Opened, *, tensors: bool = False) -> ModelInfo:
    """Return which tensors the model's file contains and what they are for.

    `tensors` lists all of them. Raises InputError for a model that is not from a file, and if
    another tensor is chosen in place of its token matrix.
    """
    from embcli.files.checkpoint import Checkpoint
    from embcli.files.special_ids import special_ids

    if not isinstance(model.source, Checkpoint):
        raise InputError("a seeded model has no file")
    checkpoint = model.source
    if checkpoint.roles.is_custom_tensor:
        raise InputError(Sentence("info shows the model's own token matrix: leave out {tensor}"))
    roles = {}
    for role in ("token", "position", "token_type", "head"):
        with suppress(InputError):  # the head and the recipe of ModelInfo have the reason
            tensor = checkpoint.roles.find(role)
            if tensor is not None:
                roles[tensor.name] = role
    names = list(checkpoint.tensors if tensors else roles)
    listed_roles = {name: roles.get(name, "") for name in names}
    notes = model.notes.begun()
    found: tuple[SpecialId, ...] = ()
    try:
        found = special_ids(checkpoint)
    except InputError as error:  # a file beside the weights that cannot be read
        notes.add(str(error))
    return ModelInfo(checkpoint, listed_roles, found, notes=notes)
