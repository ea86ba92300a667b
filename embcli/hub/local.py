"""A path or the name of a model -> the file to read, in the folders where programs keep models.

No network is used here, and nothing is started or written; `remote` reads `hf://` names. The guide
"Understand caching" of huggingface_hub describes its cache, the docs/faq of Ollama its folders.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path, PurePath
from typing import Any, NamedTuple, TypeGuard

from embcli.binary import Binary, JsonObject, objects_in, quoted, read_object, read_whole
from embcli.errors import InputError, MissingFileError, Notes
from embcli.names import Strings
from embcli.wording import first_of, load_facts, nearest

# The files of a model's folder and of a tokenizer, in order of preference: names, and patterns with
# a single match. Then the other files that are downloaded beside a tokenizer.
_FILES = load_facts("model_files.json")
WEIGHTS = _FILES["weights"]
TOKENIZERS = _FILES["tokenizers"]
SETTINGS = _FILES["settings"]
NamedPath = tuple[str, Path]  # a name by which a model is opened, and its file or folder
OLLAMA = "ollama:"  # stands before the name of a model of Ollama
_NAME_PART = r"\w[\w.-]{0,95}"  # the hub allows 96 characters


def is_tokenizer(name: str) -> bool:
    """Return whether a path is a tokenizer's file, or a folder with one and without weights."""
    path = Path(name)
    # Path.is_dir raises an error if the name is too long.
    if os.path.isdir(name):  # noqa: PTH112
        has_weights = any(any(path.glob(pattern)) for pattern in WEIGHTS)
        return not has_weights and any(any(path.glob(pattern)) for pattern in TOKENIZERS)
    is_file = os.path.isfile(name)  # noqa: PTH113
    return is_file and any(path.match(pattern) for pattern in TOKENIZERS)


# The name of one of the files of a sharded model, which an index lists.
PART_WITH_INDEX = re.compile(r".*-[0-9]+-of-(?!0*1\.)[0-9]+\.(?:safetensors|bin)")


class Preference(NamedTuple):
    """Which file of a folder is read, on this machine or not: the first that the patterns name."""

    patterns: Strings
    lack: str  # what a folder without any of them has, in words: "no ..."

    def preferred(self, names: Iterable[str], folder: str) -> str:
        """Return the only name that matches the first pattern that any of them matches.

        Raises InputError for none, and for several.
        """
        ordered_names = sorted(names)
        for pattern in self.patterns:
            found = [name for name in ordered_names if fnmatchcase(name, pattern)]
            if not found:
                continue
            listed = first_of(map(quoted, found), 6)
            if all(map(PART_WITH_INDEX.fullmatch, found)):
                raise InputError(f"{folder!r} has parts of a model, but no index of them: {listed}")
            if len(found) == 1:
                return found[0]
            raise InputError(f"{folder!r} has {len(found)} candidate files: {listed}; choose one")
        raise InputError(f"{folder!r} has {self.lack}")

    def file_in(self, folder: Path) -> Path:
        """Return the preferred file of a folder on this machine."""
        names = [path.name for path in folder.glob("*") if path.is_file()]
        return folder / self.preferred(names, str(folder))

    def file_of_model(self, folder: Path) -> Path:
        """Return the file of a folder, or of a module of Sentence Transformers that has one."""
        try:
            return self.file_in(folder)
        except InputError:
            for name in module_folders(folder):
                with suppress(InputError):
                    return self.file_in(folder / name)
            raise


OF_WEIGHTS = Preference(WEIGHTS, "no file of weights, such as model.safetensors or *.gguf")
OF_TOKENIZER = Preference(
    (*TOKENIZERS, "*.gguf"),
    f"no tokenizer.json and no other vocabulary ({', '.join(TOKENIZERS[1:])}, *.gguf)",
)


def located(name: str, preference: Preference = OF_WEIGHTS) -> Path:
    """Return the file at a path, in a folder or of a model; an existing path comes first.

    `ollama:NAME` is a model of Ollama, other names are those of the Hugging Face cache. Raises
    InputError if nothing is found, or if several files are candidates.
    """
    path = _existing_path(name)
    try:
        if path is None and name.startswith(OLLAMA):
            return _ollama_model(name.removeprefix(OLLAMA))
        path = path or snapshot(name)
        return preference.file_of_model(path) if path.is_dir() else path
    except MissingFileError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot read {quoted(name)}: {error.strerror} ({error.filename})"
        ) from None


def module_folders(folder: Path) -> Iterator[str]:
    """Yield the names of the folders that a modules.json names; that of the folder is empty."""
    longest_list = 1 << 20  # bytes
    try:
        modules = json.loads(read_whole(Binary(folder / "modules.json"), longest_list))
    except (InputError, ValueError, RecursionError):
        return
    for module in objects_in(modules):
        name = module.get("path")
        if is_path_inside(name):
            yield name


def is_path_inside(name: Any) -> TypeGuard[str]:
    """Return whether this is the name of what is in a folder, or in folders of it: `a/b.json`."""
    if not isinstance(name, str) or not name.isprintable():
        return False
    path = PurePath(name)
    is_below = path.name != "" and path.anchor == "" and ".." not in path.parts
    return is_below and path.as_posix() == name  # one spelling


def _existing_path(name: str) -> Path | None:
    # Errors are raised for a name that is too long, a NUL in it, and the home of an unknown user.
    with suppress(OSError, ValueError, RuntimeError):
        path = Path(name).expanduser()
        if name != "" and path.exists():
            return path
    return None


# --- the Hugging Face cache ---------------------------------------------------------------------

_MODEL = re.compile(
    rf"(?P<name>{_NAME_PART}(?:/{_NAME_PART})?)"
    rf"(?:@(?P<revision>{_NAME_PART}(?:/{_NAME_PART}){{0,3}}))?",
    re.ASCII,
)


def cache_folder() -> Path:
    """Return the folder of the Hugging Face cache, which environment variables can name."""
    variable = os.environ.get
    home = variable("HF_HOME") or f"{variable('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    folder = variable("HF_HUB_CACHE") or variable("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    return _expanded(folder)


def _expanded(path: str) -> Path:
    # Path.expanduser raises an error if there is no home; os.path keeps the "~".
    return Path(os.path.expandvars(os.path.expanduser(path)))  # noqa: PTH111


def cached_models(cache: Path) -> Iterator[NamedPath]:
    """Yield the names and the files of the models in a cache, of the main revision of each."""
    for name, folder in _model_folders(cache):
        with suppress(InputError, OSError):
            yield name, OF_WEIGHTS.file_in(_revision_folder(folder, name, "main"))


def cached_names(cache: Path) -> list[str]:
    """Return the names of the models in a cache, with or without weights; opens no file."""
    return [name for name, _ in _model_folders(cache)]


def _model_folders(cache: Path) -> Iterator[NamedPath]:
    for folder in sorted(cache.glob("models--*")):
        name = _model_name(folder)
        if _MODEL.fullmatch(name):
            yield name, folder


def _model_name(folder: Path) -> str:
    return folder.name.removeprefix("models--").replace("--", "/")


def snapshot(name: str) -> Path:
    """Return the folder of a model's revision in the cache.

    The organisation can be omitted, if the cache has only one model of this name.
    """
    match = _MODEL.fullmatch(name)
    if match is None:
        reason = "not found as a file or a folder, and not a name like org/name or name@main"
        error = MissingFileError(f"{quoted(name)} {reason}", _near_file(name))
        error.model = name
        raise error
    model = match["name"]
    cache = cache_folder()
    folders = [cache / f"models--{model.replace('/', '--')}"]
    if not folders[0].is_dir():
        folders = []
        if "/" not in model:
            folders = sorted(cache.glob(f"models--*--{model}"))

    if not folders:
        raise _missing_model_error(model, cache)
    if len(folders) > 1:
        names = ", ".join(_model_name(folder) for folder in folders[:6])
        raise InputError(
            f"the Hugging Face cache has {len(folders)} models {quoted(model)}: {names}; choose one"
        )
    return _revision_folder(folders[0], model, match["revision"] or "main")


def _missing_model_error(model: str, cache: Path) -> InputError:
    suffixes = [Path(pattern).suffix for pattern in (*WEIGHTS, *TOKENIZERS)]
    near_file = _near_file(model)
    if near_file or nearest(Path(model).suffix, suffixes):  # a file rather than a model
        reason = "not found as a file, and the Hugging Face cache has no model of this name"
        return MissingFileError(f"{quoted(model)} {reason}", near_file)
    hint = f"nor in {ollama_places()};"
    if any(_ollama_manifests(model)):
        hint = f"did you mean {OLLAMA}{model}? Or"
    full_name = model if "/" in model else with_organisation(model)
    over_network = f"read hf://{full_name} over the network, or " if full_name else ""
    error = MissingFileError(
        f"{quoted(model)} not found as a file, a folder or in the Hugging Face cache "
        f"{str(cache)!r}",
        f"{hint} {over_network}run hf download {full_name or f'ORG/{model}'}",
    )
    error.model = model
    return error


def with_organisation(model: str) -> str:
    """Return the name today of a model that once had no organisation, or ""."""
    for beginning, organisation in load_facts("organisations.json").items():
        if model.startswith(beginning):
            return f"{organisation}/{model}"
    return ""


def _near_file(name: str) -> str:
    """Return a hint at the file in the same folder whose name is nearest, or ""."""
    path = Path(name)
    near = nearest(path.name, [each.name for each in path.parent.glob("*")])
    return near and f"Did you mean {quoted(str(path.with_name(near)))}?"


def _revision_folder(folder: Path, name: str, revision: str) -> Path:
    """Return the folder of a branch, a tag or a commit, which may be shortened."""
    ref = folder / "refs" / revision
    commit = revision
    if ref.is_file():
        commit = ref.read_text(errors="replace").strip()
    commits = sorted(path.name for path in folder.glob("snapshots/*") if path.is_dir())
    if re.fullmatch("[0-9a-f]{7,64}", commit):
        matches = [known for known in commits if known.startswith(commit)]
        if len(matches) == 1:
            return folder / "snapshots" / matches[0]

    known_revisions = "no revision"
    if commits:
        names = [quoted(known, 12).strip("'") for known in commits[:4]]
        known_revisions = ", ".join(f"@{known}" for known in names)
    raise InputError(
        f"the Hugging Face cache has {quoted(name)}, but not its revision {revision!r}; "
        f"it has {known_revisions}"
    )


# --- Ollama -------------------------------------------------------------------------------------

_OLLAMA_NAME = re.compile(
    rf"(?:(?:(?P<host>{_NAME_PART})/)?(?P<namespace>{_NAME_PART})/)?"
    rf"(?P<model>{_NAME_PART})(?::(?P<tag>{_NAME_PART}))?",
    re.ASCII,
)
_DEFAULT_HOSTS = ("ollama.com", "registry.ollama.ai")
_READS_GGUF = {"ggml": 2, "llamacpp": 1}  # programs; that of the larger number is preferred
_MANIFESTS = ("manifests-v2", "manifests")  # folders; the newer one first


def _ollama_model(name: str) -> Path:
    for folder, manifest in _ollama_manifests(name):
        return _ollama_gguf(folder, manifest)
    raise InputError(
        f"{quoted(name)} not found in {ollama_places()}; "
        f"embcli never downloads: run ollama pull {name[:80]}"
    )


def ollama_models(notes: Notes) -> Iterator[NamedPath]:
    """Yield the names and the files of Ollama's models; a note names a model without a file."""
    for folder in _ollama_folders():
        names = set()
        for manifest in _all_manifests(folder):
            name = _ollama_name(manifest)
            if name in names or not _OLLAMA_NAME.fullmatch(name):
                continue
            names.add(name)
            try:
                yield f"{OLLAMA}{name}", _ollama_gguf(folder, manifest)
            except (InputError, OSError) as error:
                notes.add(str(error))


def _all_manifests(folder: Path) -> Iterator[Path]:
    for manifests in _MANIFESTS:
        yield from sorted(folder.joinpath(manifests).glob("*/*/*/*"))


def _ollama_name(manifest: Path) -> str:
    """Return the name of a model from the end of its manifest's path, HOST/NAMESPACE/MODEL/TAG."""
    host, namespace, model, tag = manifest.parts[-4:]
    name = f"{model}:{tag}"
    is_default_host = host in _DEFAULT_HOSTS
    if not is_default_host or namespace != "library":
        name = f"{namespace}/{name}"
    if not is_default_host:
        name = f"{host}/{name}"
    return name


def _ollama_folders() -> list[Path]:
    folder = os.environ.get("OLLAMA_MODELS")
    if folder:
        return [_expanded(folder)]
    return [_expanded("~/.ollama/models"), Path("/usr/share/ollama/.ollama/models")]


def ollama_places() -> str:
    """Return the folders where Ollama keeps models, in words."""
    folders = [repr(str(folder)) for folder in _ollama_folders()]
    return f"Ollama's {' or '.join(folders)}"


def _ollama_manifests(name: str) -> Iterator[tuple[Path, Path]]:
    """Yield the folders that have a model with this name, and its manifests."""
    match = _OLLAMA_NAME.fullmatch(name)
    if match is None:
        return
    host = match["host"]
    hosts = (host,) if host else _DEFAULT_HOSTS
    namespace = match["namespace"] or "library"
    tag = match["tag"] or "latest"
    for folder in _ollama_folders():
        for manifests in _MANIFESTS:
            for host_folder in hosts:
                path = folder / manifests / host_folder / namespace / match["model"] / tag
                with suppress(OSError):
                    if path.is_file():
                        yield folder, path


def _ollama_gguf(folder: Path, manifest_path: Path) -> Path:
    """Return the GGUF that a manifest leads to; raises InputError if it leads to none."""
    longest_manifest = 1 << 22  # bytes
    binary = Binary(manifest_path)
    manifest = read_object(binary, longest_manifest)

    # There can be a manifest for each program that can run the model; two programs read a GGUF.
    children = objects_in(manifest.get("manifests"))
    if children:
        chosen = max(children, key=lambda child: _READS_GGUF.get(str(child.get("runner")), 0))
        manifest = read_object(Binary(_blob(binary, folder, chosen)), longest_manifest)

    for layer in objects_in(manifest.get("layers")):
        if layer.get("mediaType") == "application/vnd.ollama.image.model":
            return _blob(binary, folder, layer)
    raise binary.file_error("it leads to no GGUF: it has no layer with a model")


def _blob(manifest: Binary, folder: Path, entry: JsonObject) -> Path:
    """Return the file of an entry of a manifest; raises InputError if it is missing."""
    name = str(entry.get("digest"))
    digest = re.fullmatch("sha256:([0-9a-f]{64})", name)
    if digest is None:
        raise manifest.file_error(f"its digest {quoted(name)} is not sha256 and 64 digits")
    path = folder / "blobs" / f"sha256-{digest[1]}"
    if not path.is_file():
        raise manifest.file_error(f"its blob {str(path)!r} is missing")
    return path
