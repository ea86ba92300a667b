"""Models that other programs hold on this machine: Ollama, LM Studio and llama.cpp; nothing is started or written.

Ollama's store is described in its docs/faq and by its manifests, which are JSON; LM Studio's folder in its "Import
models"; llama.cpp's cache in its tools' help for `-hf`.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from embcli.binary import Binary, shortened
from embcli.errors import InputError
from embcli.notes import Notes
from embcli.strict_json import read_object

_LONGEST = 1 << 22  # bytes of a manifest
_PART = r"\w[\w.-]{0,127}"
_OLLAMA = re.compile(
    rf"(?:(?:(?P<host>{_PART}(?::\d+)?)/)?(?P<namespace>{_PART})/)?(?P<model>{_PART})(?::(?P<tag>{_PART}))?", re.ASCII
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_HOSTS = ("ollama.com", "registry.ollama.ai")  # of names without a host
_MANIFESTS = ("manifests-v2", "manifests")  # the newer one first
_MODEL_LAYER = "application/vnd.ollama.image.model"
_LM_STUDIO = ("~/.lmstudio/models", "~/.cache/lm-studio/models")  # the second one: of old versions
_RUNNERS = ("ggml", "llamacpp")  # of a manifest that lists others, those with a GGUF


def expanded(path: str) -> Path:
    """Return a path with the user's home and variables of the environment in it."""
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111 - keeps "~" if there is no home


@dataclass(frozen=True)
class Program:
    """A program that holds models in folders: each has entries with a name, which are GGUF files or lead to one."""

    name: str
    command: str  # that brings a model
    folders: Callable[[], list[Path]]
    pattern: str  # of its files in a folder

    def located(self, name: str) -> Path:
        """Return the file of a model; raises InputError if there is none."""
        for folder in self.folders():
            entry = self.find(folder, name)
            if entry is not None:
                return self.file(folder, entry)
        raise InputError(
            f"{shortened(name)} not found in {self.places()}; embcli never downloads: run {self.command} {name[:80]}"
        )

    def models(self, notes: Notes) -> Iterator[tuple[str, Path]]:
        """Yield the names and the files of all models; a note names one that cannot be found."""
        for folder in self.folders():
            for name, entry in self.entries(folder):
                try:
                    yield name, self.file(folder, entry)
                except (InputError, OSError) as error:
                    notes.add(str(error))

    def places(self) -> str:
        """Return where it holds its models, in words."""
        return f"{self.name}'s {' or '.join(repr(str(folder)) for folder in self.folders())}"

    def has(self, name: str) -> bool:
        """Return whether it holds a model with this name."""
        try:
            return any(self.find(folder, name) is not None for folder in self.folders())
        except (InputError, OSError):
            return False

    def entries(self, folder: Path) -> Iterator[tuple[str, Path]]:
        """Yield the entries of a folder with their names; of a model in several parts, the first one."""
        for path in sorted(folder.glob(self.pattern)):
            if path.is_file() and not re.search(r"-(?!00001)\d{5}-of-\d{5}\.gguf$", path.name):
                yield path.relative_to(folder).as_posix().removesuffix(".gguf"), path

    def find(self, folder: Path, name: str) -> Path | None:
        """Return the entry with a name, or the only one of which this is a part between slashes."""
        wanted, listed = f"/{name.removesuffix('.gguf').casefold()}/", dict(self.entries(folder))
        exact = [each for each in listed if f"/{each.casefold()}/" == wanted]
        matches = exact or [each for each in listed if wanted in f"/{each.casefold()}/"]
        if len(matches) > 1:
            names = ", ".join(map(shortened, matches[:6]))
            raise InputError(f"{str(folder)!r} has {len(matches)} models {shortened(name)}: {names}; choose one")
        return listed[matches[0]] if matches else None

    def file(self, folder: Path, entry: Path) -> Path:
        """Return the file that an entry of a folder leads to; raises InputError if it leads to none."""
        return entry


class _Ollama(Program):
    """Ollama, whose entries are manifests."""

    def entries(self, folder: Path) -> Iterator[tuple[str, Path]]:
        names = set()
        for manifests in _MANIFESTS:
            for path in sorted((folder / manifests).glob(self.pattern)):
                host, namespace, model, tag = path.relative_to(folder / manifests).parts
                place = "" if host in _HOSTS else f"{host.replace('%3A', ':')}/"
                owner = "" if namespace == "library" and not place else f"{namespace}/"
                name = f"{place}{owner}{model}:{tag}"
                if name not in names and _OLLAMA.fullmatch(name):
                    names.add(name)
                    yield name, path

    def find(self, folder: Path, name: str) -> Path | None:
        named = _OLLAMA.fullmatch(name)
        if named is None:
            return None
        hosts = (named["host"].replace(":", "%3A"), named["host"]) if named["host"] else _HOSTS
        rest = (named["namespace"] or "library", named["model"], named["tag"] or "latest")
        paths = (folder.joinpath(manifests, host, *rest) for manifests in _MANIFESTS for host in hosts)
        return next((path for path in paths if path.is_file()), None)

    def file(self, folder: Path, entry: Path) -> Path:
        binary = Binary(entry)
        manifest = read_object(binary, _LONGEST)
        children = _objects(manifest, "manifests")
        if children:
            ranked = [child for runner in _RUNNERS for child in children if child.get("runner") == runner]
            child = Binary(_blob(folder, binary, (ranked or children)[0]))
            manifest = read_object(child, _LONGEST)
        layers = [layer for layer in _objects(manifest, "layers") if layer.get("mediaType") == _MODEL_LAYER]
        if not layers:
            raise binary.refused("it leads to no GGUF: it has no layer with a model")
        return _blob(folder, binary, layers[0])


def _objects(manifest: dict[str, Any], name: str) -> list[dict[str, Any]]:
    listed = manifest.get(name)
    return [each for each in listed if isinstance(each, dict)] if isinstance(listed, list) else []


def _blob(folder: Path, binary: Binary, described: dict[str, Any]) -> Path:
    digest = _DIGEST.fullmatch(str(described.get("digest")))
    if digest is None:
        raise binary.refused(f"its digest {shortened(str(described.get('digest')))} is not sha256 and 64 digits")
    path = folder / "blobs" / f"sha256-{digest[1]}"
    if not path.is_file():
        raise binary.refused(f"its blob {str(path)!r} is missing")
    return path


def _ollama_folders() -> list[Path]:
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return [expanded(named)]
    return [expanded("~/.ollama/models"), Path("/usr/share/ollama/.ollama/models")]  # the second one: of a service


def _llama_folders() -> list[Path]:
    named = os.environ.get("LLAMA_CACHE")
    if named:
        return [expanded(named)]
    if sys.platform == "darwin":
        return [expanded("~/Library/Caches/llama.cpp")]
    return [expanded(os.environ.get("LOCALAPPDATA") or os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "llama.cpp"]


PROGRAMS: dict[str, Program] = {
    "ollama": _Ollama("Ollama", "ollama pull", _ollama_folders, "*/*/*/*"),
    "lmstudio": Program("LM Studio", "lms get", lambda: [*map(expanded, _LM_STUDIO)], "*/*/*.gguf"),
    "llama.cpp": Program("llama.cpp", "llama-cli -hf", _llama_folders, "*.gguf"),
}
