"""A path or the name of a model -> the file to read; models are looked up in the places where programs hold them.

The network is never used, nothing is started or written. The guide "Understand caching" of huggingface_hub describes
its cache, the docs/faq of Ollama its folders.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from embcli.binary import Binary, quoted, read_object
from embcli.errors import InputError, Notes

_PART = r"\w[\w.-]{0,95}"  # of a name, at most as long as the hub allows
_MODEL = re.compile(
    rf"(?P<name>{_PART}(?:/{_PART})?)(?:@(?P<revision>{_PART}(?:/{_PART}){{0,3}}))?", re.ASCII
)
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
_SUFFIXES = {
    Path(each).suffix for each in _FILES
}  # of files, which nobody means as the name of a model
# The files of a tokenizer in order of preference.
TOKENIZERS = (
    "tokenizer.json",
    "tekken.json",
    "tokenizer.model",
    "*.tiktoken",
    "vocab.json",
    "vocab.txt",
)

OLLAMA = "ollama:"  # before the name of a model that Ollama holds
_OLLAMAS_NAME = re.compile(
    rf"(?:(?:(?P<host>{_PART}(?::\d+)?)/)?(?P<namespace>{_PART})/)?(?P<model>{_PART})(?::(?P<tag>{_PART}))?",
    re.ASCII,
)
_HOSTS = ("ollama.com", "registry.ollama.ai")  # of names without a host
_MANIFESTS = ("manifests-v2", "manifests")  # the newer one first
_LONGEST_MANIFEST = 1 << 22  # bytes
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def model_file(folder: Path) -> Path:
    """Return the file with a model's weights; raises InputError if there is none, or several are candidates."""
    return _first(
        folder, _FILES, f"no file of weights, such as {', '.join(_FILES[:1] + _FILES[3:5])}"
    )


def tokenizer_file(folder: Path, names: tuple[str, ...] = (*TOKENIZERS, "*.gguf")) -> Path:
    """Return the first of these files of a folder; raises InputError if there is none, or several are candidates."""
    return _first(
        folder, names, f"no tokenizer.json and no other vocabulary ({', '.join(names[1:])})"
    )


def _first(folder: Path, patterns: tuple[str, ...], nothing: str) -> Path:
    """Return the only file of the first pattern that any file matches; `nothing` says what a folder without one has."""
    for pattern in patterns:
        files = sorted(path for path in folder.glob(pattern) if path.is_file())
        if len(files) == 1:
            return files[0]
        if files:
            names = ", ".join(quoted(path.name) for path in files[:6]) + (
                ", ..." if len(files) > 6 else ""
            )
            raise InputError(
                f"{str(folder)!r} has {len(files)} candidate files: {names}; choose one"
            )
    raise InputError(f"{str(folder)!r} has {nothing}")


def located(name: str, of_folder: Callable[[Path], Path] = model_file) -> Path:
    """Return the weights at a path, in a folder or of a model; an existing path comes first.

    `ollama:NAME` is a model of Ollama, other names are those of the Hugging Face cache. `of_folder` finds another file
    of a folder. Raises InputError if nothing is found, or several files are candidates.
    """
    try:
        path = Path(name).expanduser()
        exists = name != "" and path.exists()
    except (
        OSError,
        ValueError,
        RuntimeError,
    ):  # too long a name, a NUL in it, an unknown user's home
        exists = False
    try:
        if not exists and name.startswith(OLLAMA):
            model = name.removeprefix(OLLAMA)
            for folder, manifest in _manifests_of(model):
                return _blob_of(folder, manifest)
            found = f"{quoted(model)} not found in {ollama_places()}"
            raise InputError(f"{found}; embcli never downloads: run ollama pull {model[:80]}")
        path = path if exists else _snapshot(name)
        return of_folder(path) if path.is_dir() else path
    except OSError as error:
        raise InputError(
            f"cannot read {quoted(name)}: {error.strerror} ({error.filename})"
        ) from None


# --- the Hugging Face cache ---------------------------------------------------------------------------------------


def cache_folder() -> Path:
    """Return the folder of the local Hugging Face cache, from the environment variables of huggingface_hub."""
    named = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    home = (
        os.environ.get("HF_HOME") or f"{os.environ.get('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    )
    return _expanded(named or f"{home}/hub")


def _expanded(path: str) -> Path:
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111 - keeps "~" if there is no home


def cached_models(cache: Path) -> Iterator[tuple[str, Path]]:
    """Yield the names and the files of the models in a Hugging Face cache, of the main revision of each."""
    for folder in sorted(cache.glob("models--*")):
        name = _name_of(folder)
        if _MODEL.fullmatch(name):
            with suppress(InputError, OSError):
                yield name, model_file(_revision(folder, name, "main"))


def _name_of(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/", 1)


def _snapshot(name: str) -> Path:
    """Return the folder of a model's revision in the cache; without an organisation, of the only model of this name."""
    named = _MODEL.fullmatch(name)
    if named is None:
        why = "not found as a file or a folder, and not a name like org/name or name@main"
        raise InputError(f"{quoted(name)} {why}")
    cache, model = cache_folder(), named["name"]
    folders = [cache / f"models--{model.replace('/', '--')}"]
    if not folders[0].is_dir():
        folders = sorted(cache.glob(f"models--*--{model}")) if "/" not in model else []
    if len(folders) == 1:
        return _revision(folders[0], model, named["revision"] or "main")
    if folders:
        names = ", ".join(map(_name_of, folders[:6]))
        raise InputError(
            f"the Hugging Face cache has {len(folders)} models {quoted(model)}: {names}; choose one"
        )
    if Path(model).suffix in _SUFFIXES:
        why = "not found as a file, and the Hugging Face cache has no model of this name"
        raise InputError(f"{quoted(model)} {why}")
    raise InputError(
        f"{quoted(model)} not found as a file, a folder or in the Hugging Face cache {str(cache)!r}; embcli never"
        f" downloads: run hf download {model}",
        f"did you mean {OLLAMA}{model}?"
        if any(_manifests_of(model))
        else f"nor in {ollama_places()}",
    )


def _revision(folder: Path, name: str, revision: str) -> Path:
    ref = folder / "refs" / revision
    commit = ref.read_text(errors="replace").strip() if ref.is_file() else revision
    commits = sorted(path.name for path in folder.glob("snapshots/*") if path.is_dir())
    if _COMMIT.fullmatch(commit):
        matches = [each for each in commits if each.startswith(commit)]
        if len(matches) == 1:
            return folder / "snapshots" / matches[0]
    there = (
        ", ".join(f"@{quoted(each, 12).strip(chr(39))}" for each in commits[:4]) or "no revision"
    )
    raise InputError(
        f"the Hugging Face cache has {quoted(name)}, but not its revision {revision!r}; it has {there}"
    )


# --- Ollama -------------------------------------------------------------------------------------------------------


def ollama_models(notes: Notes) -> Iterator[tuple[str, Path]]:
    """Yield the names and the files of all models that Ollama holds; a note names one that cannot be found."""
    for folder in _ollamas_folders():
        names = set()
        for manifests in (folder / each for each in _MANIFESTS):
            for path in sorted(manifests.glob("*/*/*/*")):
                host, namespace, model, tag = path.relative_to(manifests).parts
                place = "" if host in _HOSTS else f"{host.replace('%3A', ':')}/"
                owner = "" if namespace == "library" and not place else f"{namespace}/"
                name = f"{place}{owner}{model}:{tag}"
                if name in names or not _OLLAMAS_NAME.fullmatch(name):
                    continue
                names.add(name)
                try:
                    yield f"{OLLAMA}{name}", _blob_of(folder, path)
                except (InputError, OSError) as error:
                    notes.add(str(error))


def _ollamas_folders() -> list[Path]:
    named = os.environ.get("OLLAMA_MODELS")
    both = [
        _expanded("~/.ollama/models"),
        Path("/usr/share/ollama/.ollama/models"),
    ]  # the second one: of a service
    return [_expanded(named)] if named else both


def ollama_places() -> str:
    return f"Ollama's {' or '.join(repr(str(folder)) for folder in _ollamas_folders())}"


def _manifests_of(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield the folders that have a model with this name, and its manifests."""
    if (named := _OLLAMAS_NAME.fullmatch(name)) is None:
        return
    hosts = (named["host"].replace(":", "%3A"), named["host"]) if named["host"] else _HOSTS
    for folder in _ollamas_folders():
        for manifests in _MANIFESTS:
            for host in hosts:
                path = folder.joinpath(
                    manifests, host, named["namespace"] or "library", named["model"]
                )
                path /= named["tag"] or "latest"
                with suppress(OSError):
                    if path.is_file():
                        yield folder, path


def _blob_of(folder: Path, path: Path) -> Path:
    """Return the GGUF that a manifest leads to; raises InputError if it leads to none."""

    def objects(name: str) -> list[dict[str, Any]]:
        listed = manifest.get(name)
        return (
            [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []
        )

    def blob(described: dict[str, Any]) -> Path:
        given = str(described.get("digest"))
        if (digest := _DIGEST.fullmatch(given)) is None:
            raise binary.file_error(f"its digest {quoted(given)} is not sha256 and 64 digits")
        found = folder / "blobs" / f"sha256-{digest[1]}"
        if not found.is_file():
            raise binary.file_error(f"its blob {str(found)!r} is missing")
        return found

    binary = Binary(path)
    manifest = read_object(binary, _LONGEST_MANIFEST)
    if children := objects(
        "manifests"
    ):  # one for each program that can run it, of which two have a GGUF
        ranked = [
            child
            for runner in ("ggml", "llamacpp")
            for child in children
            if child.get("runner") == runner
        ]
        manifest = read_object(Binary(blob((ranked or children)[0])), _LONGEST_MANIFEST)
    for layer in objects("layers"):
        if layer.get("mediaType") == "application/vnd.ollama.image.model":
            return blob(layer)
    raise binary.file_error("it leads to no GGUF: it has no layer with a model")
