"""The tokenizer of a folder, as transformers reads it, kept in the cache folder.

An answer is kept under a hash of all files that it may depend on, and of the versions of the
packages, so that a second start asks nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import orjson

from embcli.asked.process import Facts, NotAskedError, RefusedError, ask, why_not
from embcli.binary import Binary, read_whole
from embcli.errors import Notes
from embcli.store import Store

# The ends of the names of files that a tokenizer can be read from.
_READ = (".json", ".txt", ".model", ".spm", ".bpe", ".codes", ".tokenizer", ".jinja")
_PACKAGES = ("transformers", "tokenizers", "sentencepiece", "protobuf")  # what reads them
_LONGEST = 1 << 27  # bytes of such a file


@dataclass(frozen=True, eq=False)
class AskedTokenizer:
    """A tokenizer as transformers reads it; the fields are those of `child.tokenizer`."""

    kind: str  # the name of its class
    special_ids: dict[str, int]  # by role: "bos"
    splits_special: bool  # whether the names of special tokens are plain text for it
    described: str | None  # its tokenizer.json; None for a class that is Python's only
    names: list[str | None]  # by ID, for such a class
    around: list[list[int]]  # the IDs before and after a text, for such a class


def tokenizer_of(folder: Path, notes: Notes) -> AskedTokenizer:
    """Return what transformers makes of a folder; a note says that this takes some seconds.

    Raises RefusedError if transformers cannot read the files, NotAskedError if it was not asked,
    and InputError for a file that is not a regular one.
    """
    reason = why_not()
    if reason:
        raise NotAskedError(reason)
    digest = sha256(Path(__file__).with_name("child.py").read_bytes())
    digest.update(" ".join(_installed()).encode())
    for path in _read_files(folder):
        data = read_whole(Binary(path), _LONGEST)
        digest.update(f"\0{path.name} {len(data)} ".encode())
        digest.update(data)

    store = Store.from_environment(notes)
    name = f"tokenizer-{digest.hexdigest()[:32]}.npy"
    kept = store.read(name, None, np.uint8) if store else None
    if kept is not None:
        with suppress(ValueError, KeyError, TypeError):  # It may be damaged.
            return _parsed(kept.tobytes())
    notes.add(f"asking transformers for the tokenizer of {str(folder)!r}: some seconds")
    answer = orjson.dumps(_answer(folder))
    if store:
        array = np.frombuffer(answer, np.uint8)
        store.write(name, array.shape, [array], notes, np.uint8)
    return _parsed(answer)


def _answer(folder: Path) -> Facts:
    """Return the facts, or why transformers cannot read the files: both are kept."""
    try:
        return {"facts": ask("tokenizer", folder=str(folder.absolute()))}
    except RefusedError as error:
        return {"refused": str(error)}


@lru_cache(2)
def _parsed(answer: bytes) -> AskedTokenizer:
    """Return the tokenizer of an answer; raises RefusedError if the answer is a refusal."""
    found = orjson.loads(answer)
    if "refused" in found:
        raise RefusedError(found["refused"])
    return AskedTokenizer(**found["facts"])


def _installed() -> list[str]:
    """Return the names of the folders in which pip describes the packages, with their versions.

    importlib.metadata would take longer than all else that a kept answer takes.
    """
    spec = find_spec("transformers")
    origin = spec.origin if spec else None
    if origin is None:
        return []
    site = Path(origin).parents[1]
    names: list[str] = []
    for package in _PACKAGES:
        names += [path.name for path in site.glob(f"{package}-*.dist-info")]
    return names


def _read_files(folder: Path) -> Iterator[Path]:
    """Yield the files that transformers can read a tokenizer from, by name."""
    for path in sorted(folder.iterdir()):
        is_index = path.name.endswith(".index.json")
        if path.suffix in _READ and not is_index and path.exists() and not path.is_dir():
            yield path
