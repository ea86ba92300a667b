"""A checkpoint's file, of any format -> its tensors by name. The first bytes tell the formats apart."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from embcli.binary import Binary
from embcli.errors import Notes
from embcli.files.tensors import Tensors
from embcli.text import is_text

_HEAD = 1 << 16  # bytes that tell the format: the first line of word vectors can be this long


@dataclass(frozen=True)
class Format:
    """A file format."""

    name: str
    begins: Callable[[bytes], object]  # tells whether a file with these first bytes is of this format
    open: Callable[[Binary, Notes], Tensors]


def open_tensors(path: Path, notes: Notes | None = None) -> Tensors:
    """Return the tensors of a file; raises InputError for an unknown format and for a damaged file."""
    binary = Binary(path)
    head = binary.read(0, _HEAD)
    for known in formats():
        if known.begins(head):
            return known.open(binary, Notes() if notes is None else notes)
    if head.startswith(b"version https://git-lfs"):
        raise binary.refused("it is a Git LFS pointer; download the file itself (git lfs pull)")
    if head.startswith(b"PAR1"):
        raise binary.refused(
            "it is a table in parquet, which embcli writes only",
            "Save its matrix as .npy: numpy.save('matrix.npy', matrix)",
        )
    if head and is_text(head):
        raise binary.refused(
            "it is a text, not a model", "Word vectors are a word and its numbers per line, with spaces"
        )
    start = f"it begins with {head[:16]!r}" if head else "it is empty"
    raise binary.refused(f"{start}, unlike a file of {', '.join(known.name for known in formats())}")


def formats() -> Iterator[Format]:
    """Yield all formats, in the order in which a file is tried; a module is loaded when its turn comes."""
    from embcli.files import safetensors

    # The length of its header, below 2**32, and a JSON object.
    yield Format(
        "safetensors", re.compile(rb"(?s).{4}\0{4}\{").match, lambda binary, _: safetensors.SafetensorsFile(binary)
    )
    from embcli.files import gguf

    yield Format("GGUF", re.compile(b"GGUF").match, lambda binary, _: gguf.Gguf(binary))
    from embcli.files import npy

    yield Format("npy", re.compile(rb"\x93NUMPY").match, lambda binary, _: npy.NpyFile(binary))
    yield Format("npz", npy.npz_begins, lambda binary, _: npy.NpzFile(binary))  # before PyTorch: both are zip archives
    from embcli.files import pt, sharded, vectors

    # A zip archive, or a pickle.
    yield Format("PyTorch", re.compile(rb"PK\x03\x04|\x80[\x02-\x05]").match, lambda binary, _: pt.TorchFile(binary))
    is_object = re.compile(rb'\s*\{\s*["}]').match
    yield Format("a shard index", is_object, lambda binary, _: sharded.Sharded(binary, open_tensors))
    yield Format("word vectors", vectors.FIRST_LINE.match, vectors.VectorsFile)
