"""A path or the name of a model -> the file to read, in a folder or in the Hugging Face cache.

No network is used here, and nothing is started or written; `remote` reads `hf://` names. The guide
"Understand caching" of huggingface_hub describes its cache.
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

from embcli.binary import Binary, objects_in, read_whole
from embcli.errors import InputError, MissingFileError
from embcli.names import Strings
from embcli.wording import first_of, load_facts, nearest

# The files of a model's folder and of a tokenizer, in order of preference: names, and patterns with
# a single match. Then the other files that are downloaded beside a tokenizer.
_FILES = load_facts("model_files.json")
WEIGHTS = _FILES["weights"]
TOKENIZERS = _FILES["tokenizers"]
SETTINGS = _FILES["settings"]
NamedPath = tuple[str, Path]  # a name by which a model is opened, and its file or folder
_NAME_PART = r"\w[\w.-]{0,95}"  # the hub allows 96 characters


def is_tokenizer(name: str) -> bool:
    """Return whether a path is a tokenizer's file, or a folder with one and without weights."""
    path = Path(name)
    # Path.is_dir raises an error if the name is too long.
    if os.path.isdir(name):  # noqa: PTH112
        return _has_files(path, TOKENIZERS) and not _has_files(path, WEIGHTS)
    is_file = os.path.isfile(name)  # noqa: PTH113
    return is_file and any(path.match(pattern) for pattern in TOKENIZERS)


def _has_files(folder: Path, patterns: Iterable[str]) -> bool:
    return any(any(folder.glob(pattern)) for pattern in patterns)


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
            listed = first_of(map(repr, found), 6)
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

    Other names are those of the Hugging Face cache. Raises InputError if nothing is found, or if
    several files are candidates.
    """
    try:
        path = _existing_path(name) or snapshot(name)
        return preference.file_of_model(path) if path.is_dir() else path
    except MissingFileError:
        raise
    except OSError as error:
        raise InputError(f"cannot read {name!r}: {error.strerror} ({error.filename})") from None


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
    given = os.environ.get
    home = given("HF_HOME") or f"{given('XDG_CACHE_HOME') or '~/.cache'}/huggingface"
    folder = given("HF_HUB_CACHE") or given("HUGGINGFACE_HUB_CACHE") or f"{home}/hub"
    # Path.expanduser raises an error if there is no home; os.path keeps the "~".
    return Path(os.path.expandvars(os.path.expanduser(folder)))  # noqa: PTH111


def model_folders(cache: Path) -> Iterator[NamedPath]:
    """Yield the names and the folders of the models in a cache; opens no file."""
    for folder in sorted(cache.glob("models--*")):
        name = folder.name.removeprefix("models--").replace("--", "/")
        if _MODEL.fullmatch(name):
            yield name, folder


def snapshot(name: str) -> Path:
    """Return the folder of a model's revision in the cache.

    The organisation can be omitted, if the cache has only one model of this name.
    """
    match = _MODEL.fullmatch(name)
    if match is None:
        raise MissingFileError(
            f"{name!r} not found as a file or a folder, and not a name like org/name or name@main",
            _near_file(name),
            model=name,
        )
    model = match["name"]
    cache = cache_folder()
    folders = dict(model_folders(cache))
    names = [model]
    if model not in folders:
        names = [name for name in folders if name.endswith(f"/{model}")]

    if not names:
        raise _missing_model_error(model, cache)
    if len(names) > 1:
        listed = first_of(names, 6)
        raise InputError(
            f"the Hugging Face cache has {len(names)} models {model!r}: {listed}; choose one"
        )
    return _revision_folder(folders[names[0]], model, match["revision"] or "main")


def _missing_model_error(model: str, cache: Path) -> InputError:
    suffixes = [Path(pattern).suffix for pattern in (*WEIGHTS, *TOKENIZERS)]
    near_file = _near_file(model)
    if near_file or nearest(Path(model).suffix, suffixes):  # a file rather than a model
        return MissingFileError(
            f"{model!r} not found as a file, and the Hugging Face cache has no model of this name",
            near_file,
        )
    full_name = model if "/" in model else with_organisation(model)
    over_network = f"read hf://{full_name} over the network, or " if full_name else ""
    return MissingFileError(
        f"{model!r} not found as a file, a folder or in the Hugging Face cache {str(cache)!r}",
        f"{over_network}run hf download {full_name or f'ORG/{model}'}",
        model=model,
    )


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
    return near and f"Did you mean {str(path.with_name(near))!r}?"


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

    known_revisions = first_of((f"@{known[:12]}" for known in commits), 4)
    raise InputError(
        f"the Hugging Face cache has {name!r}, but not its revision {revision!r}; "
        f"it has {known_revisions or 'no revision'}"
    )
