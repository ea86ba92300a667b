"""Models that Ollama holds on this machine; nothing is started or written. Its docs/faq describes its folders."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from embcli.binary import Binary, read_object, shortened
from embcli.errors import InputError, Notes

PREFIX = "ollama:"
_LONGEST = 1 << 22  # bytes of a manifest
_PART = r"\w[\w.-]{0,127}"
_NAME = re.compile(
    rf"(?:(?:(?P<host>{_PART}(?::\d+)?)/)?(?P<namespace>{_PART})/)?(?P<model>{_PART})(?::(?P<tag>{_PART}))?", re.ASCII
)
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_HOSTS = ("ollama.com", "registry.ollama.ai")  # of names without a host
_MANIFESTS = ("manifests-v2", "manifests")  # the newer one first
_MODEL_LAYER = "application/vnd.ollama.image.model"
_RUNNERS = ("ggml", "llamacpp")  # of a manifest that lists others, those with a GGUF


def expanded(path: str) -> Path:
    """Return a path with the user's home and variables of the environment in it."""
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111 - keeps "~" if there is no home


def places() -> str:
    """Return where Ollama keeps its models, in words."""
    return f"Ollama's {' or '.join(repr(str(folder)) for folder in _folders())}"


def located(name: str) -> Path:
    """Return the file of a model; raises InputError if there is none."""
    for folder in _folders():
        if (manifest := _manifest(folder, name)) is not None:
            return _file(folder, manifest)
    shown = shortened(name)
    raise InputError(f"{shown} not found in {places()}; embcli never downloads: run ollama pull {name[:80]}")


def has(name: str) -> bool:
    """Return whether Ollama has a model with this name."""
    try:
        return any(_manifest(folder, name) is not None for folder in _folders())
    except OSError:
        return False


def models(notes: Notes) -> Iterator[tuple[str, Path]]:
    """Yield the names and the files of all models; a note names one that cannot be found."""
    for folder in _folders():
        names = set()
        for manifests in (folder / each for each in _MANIFESTS):
            for path in sorted(manifests.glob("*/*/*/*")):
                host, namespace, model, tag = path.relative_to(manifests).parts
                place = "" if host in _HOSTS else f"{host.replace('%3A', ':')}/"
                owner = "" if namespace == "library" and not place else f"{namespace}/"
                name = f"{place}{owner}{model}:{tag}"
                if name in names or not _NAME.fullmatch(name):
                    continue
                names.add(name)
                try:
                    yield f"{PREFIX}{name}", _file(folder, path)
                except (InputError, OSError) as error:
                    notes.add(str(error))


def _folders() -> list[Path]:
    named = os.environ.get("OLLAMA_MODELS")
    if named:
        return [expanded(named)]
    return [expanded("~/.ollama/models"), Path("/usr/share/ollama/.ollama/models")]  # the second one: of a service


def _manifest(folder: Path, name: str) -> Path | None:
    named = _NAME.fullmatch(name)
    if named is None:
        return None
    hosts = (named["host"].replace(":", "%3A"), named["host"]) if named["host"] else _HOSTS
    rest = (named["namespace"] or "library", named["model"], named["tag"] or "latest")
    paths = (folder.joinpath(manifests, host, *rest) for manifests in _MANIFESTS for host in hosts)
    return next((path for path in paths if path.is_file()), None)


def _file(folder: Path, path: Path) -> Path:
    """Return the GGUF that a manifest leads to; raises InputError if it leads to none."""
    binary = Binary(path)
    manifest = read_object(binary, _LONGEST)
    children = _objects(manifest, "manifests")
    if children:
        ranked = [child for runner in _RUNNERS for child in children if child.get("runner") == runner]
        manifest = read_object(Binary(_blob(folder, binary, (ranked or children)[0])), _LONGEST)
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
