"""The models that programs hold on this machine; of each, only a header is read."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from embcli import ollama
from embcli.binary import Binary
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.hub import cache_folder, cached_models, model_file
from embcli.notes import Notes
from embcli.records import Records, listed
from embcli.result import Result
from embcli.safe import in_data
from embcli.version import __version__

_PARTS = {"model.safetensors.index.json": "*.safetensors", "pytorch_model.bin.index.json": "*.bin"}


@dataclass(frozen=True)
class LocalModel:
    """A model that a program holds."""

    name: str  # that a model is opened by
    format: str
    shape: tuple[int, int] | None  # (V, D); None if its token matrix is not known
    size: int  # in bytes


@dataclass(frozen=True, eq=False)
class Models(Result, verb="info", content="list"):
    """The models that were found, and where they were looked for."""

    models: tuple[LocalModel, ...]
    places: tuple[str, ...]  # in words

    def records(self) -> Records:
        """Return the models as rows."""
        return listed(
            {"embcli": __version__, "places": list(self.places)},
            "models",
            model=(str, [each.name for each in self.models]),
            format=(str, [each.format for each in self.models]),
            vocabulary_size=(int, [each.shape and each.shape[0] for each in self.models]),
            dim=(int, [each.shape and each.shape[1] for each in self.models]),
            bytes=(int, [each.size for each in self.models]),
        )


def local_models(notes: Notes) -> Models:
    """Return the models in the Hugging Face cache and those of Ollama; a note names one that cannot be read."""
    cache = cache_folder()
    models: list[LocalModel] = []
    for name, folder in cached_models(cache):
        with suppress(InputError):  # a repository without weights, or with those of several models
            models.append(_described(name, model_file(folder)))
    for name, path in ollama.models(notes):
        try:
            models.append(_described(name, path))
        except (InputError, OSError) as error:
            notes.add(str(error))
    places = (f"the Hugging Face cache {str(cache)!r}", ollama.places())
    return Models(tuple(models), tuple(map(in_data, places)), notes=notes)


def _described(name: str, path: Path) -> LocalModel:
    """Return what the header of a model's file says; raises InputError for a file that cannot be read."""
    files = list(path.parent.glob(_PARTS[path.name])) if path.name in _PARTS else [path]
    is_gguf = Binary(path).read(0, 4) == b"GGUF"
    format = "GGUF" if is_gguf else path.name.removesuffix(".index.json").rpartition(".")[2]
    shape = None
    with suppress(InputError):  # damaged, or no tensor is known to be the token matrix
        shape = Checkpoint(str(path)).shape("token")
    return LocalModel(in_data(name), in_data(format), shape, sum(file.stat().st_size for file in files))
