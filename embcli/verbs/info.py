"""What embcli runs on, what a checkpoint contains, and which models programs hold on this machine."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from embcli.errors import InputError, LayerError, Notes
from embcli.names import __version__
from embcli.opened import Opened
from embcli.records import Records, listed
from embcli.result import Result
from embcli.wording import counted, in_bytes, in_data

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderResult

    from embcli.files.checkpoint import Checkpoint
    from embcli.files.tensors import Tensor

_ROLES = ("token", "position", "token_type", "head")


@dataclass(frozen=True, eq=False)
class Info(Result, verb="info", content="list"):
    versions: dict[str, str]
    cpu_capability: str | None  # None without torch
    cache: str | None  # a folder; None if this user has none
    encodings: dict[str, tuple[int, bool]]  # by name: V, and whether embcli carries its rank file

    def records(self) -> Records:
        sizes, carried = map(list, zip(*self.encodings.values(), strict=True))
        run = {**self.versions, "cpu_capability": self.cpu_capability, "cache": self.cache}
        named = (str, [*self.encodings])
        return listed(
            run, "encodings", encoding=named, vocabulary_size=(int, sizes), carried=(bool, carried)
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, ruled, safe_text

        lines = {
            **self.versions,
            "CPU capability": self.cpu_capability or "",
            "cache": self.cache or "none",
        }
        width = max(map(len, lines))
        yield from (safe_text(f"{name:{width}}  {value}") for name, value in lines.items())
        yield ""
        tokens = Label("tokens", [f"{size:,}" for size, _ in self.encodings.values()])
        carried = Label(
            "carried", ["yes" if each else "no" for _, each in self.encodings.values()], "left"
        )
        yield ruled([Label("encoding", [*self.encodings], "left"), tokens, carried])


def this_machine() -> Info:
    """Return what embcli runs on; torch itself is loaded only if its CPU capability is not known otherwise."""
    import platform
    from importlib.metadata import version

    from embcli.encodings.tiktoken import DEFINITIONS, rank_file
    from embcli.seeded_layers.build import NO_TORCH, cpu_capability, loading_torch, this_build
    from embcli.store import Store

    build, capability = this_build(), cpu_capability()
    versions = {"embcli": __version__, "python": platform.python_version(), "torch": build.version}
    if build.torch == NO_TORCH or capability is None:
        try:
            with loading_torch():
                import torch
            versions["torch"], capability = (
                torch.__version__,
                torch.backends.cpu.get_cpu_capability(),
            )
        except LayerError as error:
            versions["torch"], capability = str(error), None
    for name in ("tiktoken", "numpy", "typer", "rich"):
        versions[name] = version(name)
    encodings = {
        name: (each.vocabulary_size, rank_file(each.ranks).is_file())
        for name, each in DEFINITIONS.items()
    }
    notes = Notes()
    store = Store.from_environment(notes)
    return Info(versions, capability, str(store.folder) if store else None, encodings, notes=notes)


@dataclass(frozen=True, eq=False)
class ModelInfo(Result, verb="info", content="list"):
    checkpoint: Checkpoint
    roles: dict[str, str]  # of the tensors that are listed, by their names; empty if unknown

    @property
    def tensors(self) -> list[Tensor]:
        return [self.checkpoint.tensors[name] for name in self.roles]

    @cached_property
    def recipe(self) -> str | None:
        """What the first block reads, in words, or why this is not known; None if nothing says so."""
        try:
            recipe = self.checkpoint.recipe
        except InputError as error:
            return f"not known: {error}"
        if recipe is None:
            return None
        from embcli.binary import quoted

        if recipe.is_known:
            return "; ".join(filter(None, (recipe.words, recipe.blocks)))
        return f"not known for {quoted(recipe.model)} models{f': {recipe.unknown}' if recipe.unknown else ''}"

    def records(self) -> Records:
        """Return the tensors as rows; `run` has the files, the output head, the recipe, positions and guesses."""
        checkpoint, head = self.checkpoint, self.checkpoint.head
        run = {
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
            "part": checkpoint.roles.part,
            "positions": checkpoint.positions,
            "first_position": checkpoint.roles.first_position,
            "guesses": dict(checkpoint.reasons),
        }
        return listed(
            run,
            "tensors",
            role=(str, [role or None for role in self.roles.values()]),
            tensor=(str, [*self.roles]),
            shape=(list[int], [list(tensor.shape) for tensor in self.tensors]),
            dtype=(str, [tensor.dtype for tensor in self.tensors]),
            bytes=(int, [tensor.size for tensor in self.tensors]),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, LeftOut, ruled, safe_text, title
        from embcli.page.labels import guess, head_in_words

        checkpoint, head, recipe = self.checkpoint, self.checkpoint.head, self.recipe
        part = checkpoint.roles.part
        yield title(f"{checkpoint.path}: {checkpoint.tensors.format}")
        yield from map(safe_text, checkpoint.tensors.files)
        encoding = checkpoint.encoding.name if checkpoint.encoding else "none"
        yield safe_text(f"{counted(len(checkpoint.tensors), 'tensor')}; encoding: {encoding}")
        yield ""
        labels = [
            Label("role", [*self.roles.values()], "left"),
            Label("tensor", [*self.roles], "left", short=True),
            Label(
                "shape",
                [" x ".join(f"{size:,}" for size in tensor.shape) for tensor in self.tensors],
                "left",
            ),
            Label("dtype", [tensor.dtype for tensor in self.tensors], "left"),
            Label("bytes", [in_bytes(tensor.size) for tensor in self.tensors]),
        ]
        needed = sum(min(label.width, 12) if label.short else label.width + 2 for label in labels)
        yield ruled(labels if needed <= options.max_width else labels[:3])
        if others := len(checkpoint.tensors) - len(self.roles):
            yield LeftOut(f"Left out: {counted(others, 'other tensor')}.", "tensors")
        yield ""
        yield safe_text(f"output head: {head_in_words(head.relation, head.rows, head.reason)}")
        if recipe is not None:
            yield safe_text(f"hidden{f' of the {part}' if part else ''} = {recipe}")
        yield from (safe_text(f"{name}: {value}") for name, value in checkpoint.positions.items())
        if checkpoint.roles.first_position and "first_position" not in checkpoint.reasons:
            yield safe_text(
                f"position 0: row {checkpoint.roles.first_position} of the position matrix"
            )
        yield from (guess(reason) for reason in dict.fromkeys(checkpoint.reasons.values()))


def info(model: Opened, *, tensors: bool = False) -> ModelInfo:
    """Return which tensors the model's file contains and what they are for; `tensors` lists all of them.

    Raises InputError for a model that is not from a file.
    """
    from embcli.files.checkpoint import Checkpoint

    if not isinstance(model.source, Checkpoint):
        raise InputError("a seeded model has no file")
    roles_of_file = model.source.roles
    other = roles_of_file.find("token") if roles_of_file.is_custom_tensor else None
    checkpoint = model.source.without_other()
    roles = {
        tensor.name: role for role in _ROLES if (tensor := checkpoint.roles.find(role)) is not None
    }
    if other is not None:
        roles[other.name] = ", ".join(filter(None, (roles.get(other.name), "chosen")))
    shown = {name: roles.get(name, "") for name in (checkpoint.tensors if tensors else roles)}
    return ModelInfo(checkpoint, shown, notes=model.notes.begun())


class LocalModel(NamedTuple):
    name: str  # that a model is opened by
    format: str
    shape: tuple[int, int] | None  # (V, D); None if its token matrix is not known
    size: int  # in bytes


@dataclass(frozen=True, eq=False)
class Models(Result, verb="info", content="list"):
    """The models that programs hold on this machine, and where they were looked for."""

    models: tuple[LocalModel, ...]
    places: tuple[str, ...]  # in words

    def records(self) -> Records:
        return listed(
            {"embcli": __version__, "places": list(self.places)},
            "models",
            model=(str, [each.name for each in self.models]),
            format=(str, [each.format for each in self.models]),
            vocabulary_size=(int, [each.shape and each.shape[0] for each in self.models]),
            dim=(int, [each.shape and each.shape[1] for each in self.models]),
            bytes=(int, [each.size for each in self.models]),
        )

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from embcli.page import Label, ruled, safe_text

        yield ruled(
            [
                Label("model", [each.name for each in self.models], "left", short=True),
                Label("format", [each.format for each in self.models], "left"),
                Label(
                    "V x D",
                    [" x ".join(f"{size:,}" for size in each.shape or ()) for each in self.models],
                ),
                Label("bytes", [in_bytes(each.size) for each in self.models]),
            ]
        )
        yield ""
        yield safe_text(f"{counted(len(self.models), 'model')} in {', '.join(self.places)}")


def local_models(notes: Notes) -> Models:
    """Return the models in the Hugging Face cache and those of Ollama; a note names one that cannot be read."""
    from embcli.files import open_tensors
    from embcli.files.checkpoint import Checkpoint
    from embcli.hub import cache_folder, cached_models, ollama_models, ollama_places

    cache, models = cache_folder(), []
    for name, path in (*cached_models(cache), *ollama_models(notes)):
        try:
            tensors, shape = open_tensors(path), None
            with suppress(InputError):  # no tensor is known to be the token matrix
                shape = Checkpoint(str(path)).shape("token")
            size = sum(file.stat().st_size for file in tensors.files)
            models.append(LocalModel(in_data(name), tensors.format, shape, size))
        except (InputError, OSError) as error:
            notes.add(str(error))
    places = (f"the Hugging Face cache {str(cache)!r}", ollama_places())
    return Models(tuple(models), tuple(map(in_data, places)), notes=notes)
