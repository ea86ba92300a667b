"""A checkpoint's file, of any format -> its tensors by name. The first bytes tell the formats apart."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path, PurePath

from embcli.binary import Binary, quoted, read_object
from embcli.errors import Notes
from embcli.files.tensors import Tensor, Tensors
from embcli.text import is_text

_HEAD = 1 << 16  # bytes that tell the format: the first line of word vectors can be this long
_LONGEST_INDEX = 1 << 26  # bytes
# The formats in the order in which a file is tried: a name, how a file begins, and the module whose `read` reads it.
_FORMATS = (
    (
        "safetensors",
        rb".{4}\0{4}\{",
        "safetensors",
    ),  # the length of its header, below 2**32, and a JSON object
    ("GGUF", b"GGUF", "gguf"),
    ("npy", rb"\x93NUMPY", "npy"),
    (
        "npz",
        rb"PK\x03\x04.{26}[^\0]{1,999}?\.npy",
        "npy",
    ),  # a zip archive whose first member is an array
    ("PyTorch", rb"PK\x03\x04|\x80[\x02-\x05]", "pt"),  # another zip archive, or a pickle
    ("a shard index", rb'\s*\{\s*["}]', ""),
    (
        "word vectors",
        rb"(?i)[^\0\n]*\S[ \t]+[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)[ \t]*\r?(?:\n|\Z)",
        "vectors",
    ),
)


def open_tensors(path: Path, notes: Notes | None = None) -> Tensors:
    """Return the tensors of a file; raises InputError for an unknown format and for a damaged file."""
    binary = Binary(path)
    head = binary.read(0, _HEAD)
    for _, begins, module in _FORMATS:
        if re.match(begins, head, re.DOTALL):
            if not module:
                return _read_index(binary)
            tensors: Tensors = import_module(f"embcli.files.{module}").read(
                binary, Notes() if notes is None else notes
            )
            return tensors
    if head.startswith(b"version https://git-lfs"):
        raise binary.file_error("it is a Git LFS pointer; download the file itself (git lfs pull)")
    if head.startswith(b"PAR1"):
        raise binary.file_error(
            "it is a table in parquet, which embcli writes only",
            "Save its matrix as .npy: numpy.save('matrix.npy', matrix)",
        )
    if head and is_text(head):
        raise binary.file_error(
            "it is a text, not a model",
            "Word vectors are a word and its numbers per line, with spaces",
        )
    start = f"it begins with {head[:16]!r}" if head else "it is empty"
    raise binary.file_error(f"{start}, unlike a file of {', '.join(name for name, *_ in _FORMATS)}")


def _read_index(binary: Binary) -> Tensors:
    """Return the tensors of several files that an index maps them to; raises InputError for a file that is missing.

    No file may be outside the folder, except through links, as those of the Hugging Face cache.
    """
    names = read_object(binary, _LONGEST_INDEX).get("weight_map")
    paths: list[Path] = []
    if not isinstance(names, dict) or not all(isinstance(file, str) for file in names.values()):
        raise binary.file_error(
            "it is JSON, but not an index: it has no weight_map from tensors to files"
        )
    for file in dict.fromkeys(names.values()):
        named = PurePath(file)
        if named.is_absolute() or ".." in named.parts:
            raise binary.file_error(f"it names a file outside its folder, {quoted(file)}")
        path = binary.path.parent / file
        if not os.path.isfile(path):  # noqa: PTH113 - Path.is_file raises errors for some names
            raise binary.file_error(f"its file {quoted(file)} is missing")
        paths.append(path)
    name = (
        "safetensors"
        if all(file.endswith(".safetensors") for file in names.values())
        else "PyTorch"
    )
    return _Shards(binary, name, names, paths)


class _Shards(Tensors):
    """The tensors of several files; each is opened when the first of its tensors is needed."""

    def __init__(
        self, binary: Binary, format: str, names: dict[str, str], files: list[Path]
    ) -> None:
        super().__init__(binary, format, {}, files=files)
        self._names = names
        self._opened = cache(open_tensors)

    def __getitem__(self, name: str) -> Tensor:
        file = self._names[name]
        part = self._opened(self.path.parent / file)
        if isinstance(part, _Shards):
            raise self.file_error(f"its file {quoted(file)} is itself an index")
        if name not in part:
            raise self.file_error(f"its file {quoted(file)} has no tensor {quoted(name)}")
        return part[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
