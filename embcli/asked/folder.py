"""The tokenizer of a folder, as transformers reads it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from embcli.asked.kept import kept_answer
from embcli.binary import Binary, read_whole
from embcli.errors import Notes

# The ends of the names of files that a tokenizer can be read from.
_READ = (".json", ".txt", ".model", ".spm", ".bpe", ".codes", ".tokenizer", ".jinja")
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
    return kept_answer(
        AskedTokenizer,
        _described(folder),
        notes,
        "tokenizer",
        remark=f"asking transformers for the tokenizer of {str(folder)!r}: some seconds",
        folder=str(folder.absolute()),
    )


def _described(folder: Path) -> Iterator[bytes]:
    """Yield the names and the content of the files that transformers can read a tokenizer from."""
    for path in sorted(folder.iterdir()):
        is_index = path.name.endswith(".index.json")
        if path.suffix in _READ and not is_index and path.exists() and not path.is_dir():
            yield os.fsencode(path.name)
            yield read_whole(Binary(path), _LONGEST)
