"""What a user names, a path or a model -> the file to read; models are looked up in the local Hugging Face cache.

The network is never used. The cache is laid out as huggingface_hub's guide "Understand caching" has it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from embcli.errors import InputError
from embcli.files.tensors import shortened

if TYPE_CHECKING:
    from collections.abc import Callable

_PART = r"\w[\w.-]{0,95}"  # of a name, as long as the hub allows
_MODEL = re.compile(rf"(?P<name>{_PART}(?:/{_PART})?)(?:@(?P<revision>{_PART}(?:/{_PART}){{0,3}}))?", re.ASCII)
_COMMIT = re.compile(r"[0-9a-f]{7,64}")
# The files of a model's folder, the first that is there: by name, or the only one of a pattern.
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


def located(name: str) -> Path:
    """Return the file that a path, a folder or a model's name stands for; an existing path comes first.

    Raises InputError where there is none, or where several files of a folder could be meant.
    """
    return _located(name, model_file)


def tokenizer_file(name: str) -> Path:
    """Return the tokenizer.json that a path, a folder or a model's name stands for; an existing path comes first.

    Raises InputError where there is none.
    """
    return _located(name, _tokenizer_of)


def _located(name: str, of_folder: Callable[[Path], Path]) -> Path:
    try:
        path = Path(name).expanduser()
        exists = name != "" and path.exists()
    except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, a home that nobody has
        exists = False
    try:
        if not exists:
            path = _snapshot(name)
        return of_folder(path) if path.is_dir() else path
    except OSError as error:
        raise InputError(f"cannot read {shortened(name)}: {error.strerror} ({error.filename})") from None


def _tokenizer_of(folder: Path) -> Path:
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise InputError(f"{str(folder)!r} has no tokenizer.json")
    return path


def model_file(folder: Path) -> Path:
    """Return the file that holds a model's weights; raises InputError where there is none, or several."""
    for pattern in _FILES:
        found = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(found) == 1:
            return found[0]
        if found:
            names = ", ".join(shortened(path.name) for path in found[:6]) + (", ..." if len(found) > 6 else "")
            raise InputError(f"{str(folder)!r} has {len(found)} files that could be meant: {names}; name one of them")
    raise InputError(f"{str(folder)!r} has no file of weights: no {', '.join(_FILES[:1] + _FILES[3:5])} or the like")


def cache_folder() -> Path:
    """Return the folder of the local Hugging Face cache, as its own variables say."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    if named:
        return _expanded(named)
    home = os.environ.get("HF_HOME")
    if home:
        return _expanded(home) / "hub"
    return _expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "huggingface" / "hub"


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111 - "~" stays where there is no home


def _snapshot(name: str) -> Path:
    """Return the folder of a model in the cache, of the revision that is asked for."""
    named = _MODEL.fullmatch(name)
    if named is None:
        raise InputError(f"{shortened(name)} is no file and no folder, and no model's name like org/name or name@main")
    cache, revision = cache_folder(), named["revision"] or "main"
    folder = _repository(cache, named["name"])
    commit = revision
    if (folder / "refs" / revision).is_file():
        commit = (folder / "refs" / revision).read_text(errors="replace").strip()
    commits = sorted(path.name for path in folder.glob("snapshots/*") if path.is_dir())
    if _COMMIT.fullmatch(commit):
        found = [each for each in commits if each.startswith(commit)]
        if len(found) == 1:
            return folder / "snapshots" / found[0]
    there = ", ".join(f"@{shortened(each, 12).strip(chr(39))}" for each in commits[:4]) or "none"
    raise InputError(
        f"the Hugging Face cache has {shortened(named['name'])}, but not its revision {revision!r}; there: {there}"
    )


def _repository(cache: Path, name: str) -> Path:
    """Return the folder of a model in the cache; without an organisation, that of the only one of this name."""
    folder = cache / f"models--{name.replace('/', '--')}"
    if folder.is_dir():
        return folder
    found = sorted(cache.glob(f"models--*--{name}")) if "/" not in name else []
    if len(found) == 1:
        return found[0]
    if found:
        names = ", ".join(path.name.removeprefix("models--").replace("--", "/", 1) for path in found[:6])
        raise InputError(f"the Hugging Face cache has {len(found)} models {shortened(name)}: {names}; name one of them")
    raise InputError(
        f"{shortened(name)} is no file and no folder, nor in the Hugging Face cache {str(cache)!r}"
        + (f"; nothing is ever downloaded: hf download {name} does that" if "/" in name else "")
    )
