"""A checkpoint's file, of any format -> its tensors by name. The first bytes tell the formats apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from embcli.binary import Binary
from embcli.notes import Notes

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embcli.files.tensors import Tensors

_HEAD = 1 << 16  # bytes that tell the format: the first line of word vectors can be this long


@dataclass(frozen=True)
class Format:
    """A file format."""

    name: str
    begins: Callable[[bytes], bool]  # whether a file with these first bytes is of this format
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
    start = f"it begins with {head[:16]!r}" if head else "it is empty"
    raise binary.refused(f"{start}, unlike a file of {', '.join(known.name for known in formats())}")


def formats() -> tuple[Format, ...]:
    """Return all formats, in the order in which a file is tried; their modules load here, with the first file."""
    from embcli.files import gguf, npy, pt, safetensors, sharded, vectors

    return (
        Format("safetensors", safetensors.begins, lambda binary, _: safetensors.SafetensorsFile(binary)),
        Format("GGUF", gguf.begins, lambda binary, _: gguf.Gguf(binary)),
        Format("npy", npy.npy_begins, lambda binary, _: npy.NpyFile(binary)),
        Format("npz", npy.npz_begins, lambda binary, _: npy.NpzFile(binary)),  # before PyTorch: both are zip archives
        Format("PyTorch", pt.begins, lambda binary, _: pt.TorchFile(binary)),
        Format("a shard index", sharded.begins, lambda binary, _: sharded.Sharded(binary, open_tensors)),
        Format("word vectors", vectors.begins, vectors.VectorsFile),
    )
