"""A path or the name of a model -> the file to read; models are looked up in the places where programs hold them.

The network is never used. The guide "Understand caching" of huggingface_hub describes its cache.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from embcli import ollama
from embcli.binary import shortened
from embcli.errors import InputError
from embcli.ollama import expanded

_PART = r"\w[\w.-]{0,95}"  # of a name, at most as long as the hub allows
_MODEL = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?:@(?P<revision>{_PART}(?:/{_PART}){{0,3}}))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# The files of a model's folder in order of preference: by name, or the only match of a pattern.
_FILES = (
    "model.safetensors",
    "model.safetensors.index.json",
    "*.safetensors.index.json",
    "*.safetensors",
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
    "*-00001-of-?????.gguf",
    "*.gguf",
    "*.pth",
    "*.pt",
    "*.bin",
    "*.npz",
    "*.npy",
    "*.vec",
)


_SUFFIXES = {Path(each).suffix for each in _FILES}  # of files, which nobody means as the name of a model
# The files of a tokenizer in order of preference.
TOKENIZERS = ("tokenizer.json", "tekken.json", "tokenizer.model", "*.tiktoken", "vocab.json", "vocab.txt")


def model_file(folder: Path) -> Path:
    """Return the file with a model's weights; raises InputError if there is none, or several are candidates."""
    return _first(folder, _FILES, f"no file of weights, such as {', '.join(_FILES[:1] + _FILES[3:5])}")


def tokenizer_file(folder: Path, names: tuple[str, ...] = (*TOKENIZERS, "*.gguf")) -> Path:
    """Return the first of these files of a folder; raises InputError if there is none, or several are candidates."""
    return _first(folder, names, f"no tokenizer.json and no other vocabulary ({', '.join(names[1:])})")


def _first(folder: Path, patterns: tuple[str, ...], nothing: str) -> Path:
    """Return the only file of the first pattern that any file matches; `nothing` says what a folder without one has."""
    for pattern in patterns:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(files) == 1:
            return files[0]
        if files:
            names = ", ".join(shortened(path.name) for path in files[:6]) + (", ..." if len(files) > 6 else "")
            raise InputError(f"{str(folder)!r} has {len(files)} candidate files: {names}; choose one")
    raise InputError(f"{str(folder)!r} has {nothing}")


def located(name: str, of_folder: Callable[[Path], Path] = model_file) -> Path:
    """Return the weights at a path, in a folder or of a model; an existing path comes first.

    `ollama:NAME` is a model of Ollama, other names are those of the Hugging Face cache. `of_folder` finds another file
    of a folder. Raises InputError if nothing is found, or several files are candidates.
    """
    try:
        path = Path(name).expanduser()
        exists = name != "" and path.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, an unknown user's home
        exists = False
    try:
        if not exists:
            is_ollamas = name.startswith(ollama.PREFIX)
            path = ollama.located(name.removeprefix(ollama.PREFIX)) if is_ollamas else _snapshot(name)
        return of_folder(path) if path.is_dir() else path
    except OSError as error:
        raise InputError(f"cannot read {shortened(name)}: {error.strerror} ({error.filename})") from None


def cache_folder() -> Path:
    """Return the folder of the local Hugging Face cache, from the environment variables of huggingface_hub."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return expanded(named)
    home = os.environ.get("HF_HOME")
    if home:
        return expanded(home) / "hub"
    return expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def cached_models(cache: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and the files of the models in a Hugging Face cache, of the main revision of each."""
    for folder in sorted(cache.glob("models--*")):
        name = folder.name.removeprefix("models--").replace("--", "/", 1)
        if _MODEL.fullmatch(name):
            with suppress(InputError, OSError):
                yield name, model_file(_revision(folder, name, "main"))


def _snapshot(name: str) -> Path:
    """Return the folder of a model's revision in the cache."""
    named = _MODEL.fullmatch(name)
    if named is None:
        raise InputError(
            f"{shortened(name)} not found as a file or a folder, and not a name like org/name or name@main"
        )
    folder = _repository(cache_folder(), named["name"])
    return _revision(folder, named["name"], named["revision"] or "main")


def _revision(folder: Path, name: str, revision: str) -> Path:
    """Return the folder of a revision of a model."""
    commit = revision
    if (folder / "refs" / revision).is_file():
        commit = (folder / "refs" / revision).read_text(errors="replace").strip()
    commits = sorted(path.name for path in folder.glob("snapshots/*") if path.is_dir())
    if _COMMIT.fullmatch(commit):
        matches = [each for each in commits if each.startswith(commit)]
        if len(matches) == 1:
            return folder / "snapshots" / matches[0]
    there = ", ".join(f"@{shortened(each, 12).strip(chr(39))}" for each in commits[:4]) or "no revision"
    raise InputError(f"the Hugging Face cache has {shortened(name)}, but not its revision {revision!r}; it has {there}")


def _repository(cache: Path, name: str) -> Path:
    """Return the folder of a model in the cache; without an organisation, of the only model with this name."""
    folder = cache / f"models--{name.replace('/', '--')}"
    if folder.is_dir():
        return folder
    models = sorted(cache.glob(f"models--*--{name}")) if "/" not in name else []
    if len(models) == 1:
        return models[0]
    if models:
        names = ", ".join(path.name.removeprefix("models--").replace("--", "/", 1) for path in models[:6])
        raise InputError(f"the Hugging Face cache has {len(models)} models {shortened(name)}: {names}; choose one")
    if Path(name).suffix in _SUFFIXES:
        raise InputError(f"{shortened(name)} not found as a file, and the Hugging Face cache has no model of this name")
    raise InputError(
        f"{shortened(name)} not found as a file, a folder or in the Hugging Face cache {str(cache)!r}; embcli never"
        f" downloads: run hf download {name}",
        f"did you mean {ollama.PREFIX}{name}?" if ollama.has(name) else f"nor in {ollama.places()}",
    )
