"""A path or the name of a model -> the file to read; models are looked up in the local Hugging Face cache.

The network is never used. The guide "Understand caching" of huggingface_hub describes the cache.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.binary import shortened
from embcli.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable

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


# The files of a tokenizer in order of preference.
TOKENIZERS = ("tokenizer.json",)


def model_file(folder: Path) -> Path:
    """Return the file with a model's weights; raises InputError if there is none, or several are candidates."""
    for pattern in _FILES:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        if files:
            return _only(files, folder)
    raise InputError(f"{str(folder)!r} has no file of weights, such as {', '.join(_FILES[:1] + _FILES[3:5])}")


def _only(files: list[Path], folder: Path) -> Path:
    if len(files) == 1:
        return files[0]
    names = ", ".join(shortened(path.name) for path in files[:6]) + (", ..." if len(files) > 6 else "")
    raise InputError(f"{str(folder)!r} has {len(files)} candidate files: {names}; choose one")


def tokenizer_file(folder: Path, names: tuple[str, ...] = (*TOKENIZERS, "*.gguf")) -> Path:
    """Return the first of these files of a folder; raises InputError if there is none, or several are candidates."""
    for pattern in names:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        if files:
            return _only(files, folder)
    raise InputError(f"{str(folder)!r} has no tokenizer.json and no other vocabulary ({', '.join(names[1:])})")


def located(name: str, of_folder: Callable[[Path], Path] = model_file) -> Path:
    """Return the weights at a path, in a folder or of a model; an existing path comes first.

    `of_folder` finds another file of a folder. Raises InputError if nothing is found, or several files are candidates.
    """
    try:
        path = Path(name).expanduser()
        exists = name != "" and path.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, an unknown user's home
        exists = False
    try:
        if not exists:
            path = _snapshot(name)
        return of_folder(path) if path.is_dir() else path
    except OSError as error:
        raise InputError(f"cannot read {shortened(name)}: {error.strerror} ({error.filename})") from None


def cache_folder() -> Path:
    """Return the folder of the local Hugging Face cache, from the environment variables of huggingface_hub."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _expanded(named)
    home = os.environ.get("HF_HOME")
    if home:
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111 - keeps "~" if there is no home


def _snapshot(name: str) -> Path:
    """Return the folder of a model's revision in the cache."""
    named = _MODEL.fullmatch(name)
    if named is None:
        raise InputError(
            f"{shortened(name)} not found as a file or a folder, and not a name like org/name or name@main"
        )
    cache, revision = cache_folder(), named["revision"] or "main"
    folder = _repository(cache, named["name"])
    commit = revision
    if (folder / "refs" / revision).is_file():
        commit = (folder / "refs" / revision).read_text(errors="replace").strip()
    commits = sorted(path.name for path in folder.glob("snapshots/*") if path.is_dir())
    if _COMMIT.fullmatch(commit):
        matches = [each for each in commits if each.startswith(commit)]
        if len(matches) == 1:
            return folder / "snapshots" / matches[0]
    there = ", ".join(f"@{shortened(each, 12).strip(chr(39))}" for each in commits[:4]) or "no revision"
    raise InputError(
        f"the Hugging Face cache has {shortened(named['name'])}, but not its revision {revision!r}; it has {there}"
    )


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
    raise InputError(
        f"{shortened(name)} not found as a file, a folder or in the Hugging Face cache {str(cache)!r}"
        + (f"; embcli never downloads: run hf download {name}" if "/" in name else "")
    )
