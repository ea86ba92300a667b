"""A checkpoint's file, of any format -> its tensors by name. Here alone formats are told apart, by their content."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from embcli.files.stored import Binary
    from embcli.files.tensors import Tensors

_HEAD = 1 << 16  # bytes by which a format is known: a first line of word vectors is that long
_ZIP = b"PK\x03\x04"
_PICKLE = rb"\x80[\x02-\x05]"
_INDEX = rb'\s*\{\s*["}]'
_VECTORS = rb"(?i)[^\0\n]*\S[ \t]+[-+]?(?:[0-9.]+(?:[eE][-+]?[0-9]+)?|nan|inf)[ \t]*\r?(?:\n|\Z)"


def open_tensors(path: Path) -> Tensors:
    """Return the tensors of a file; raises InputError for a file of no format that is read, and for a damaged one."""
    from embcli.files.stored import Binary

    binary = Binary(path)
    head = binary.read(0, _HEAD)
    for known in _FORMATS:
        if known.begins(head):
            return known.open(binary)
    if head.startswith(b"version https://git-lfs"):
        raise binary.refused("it is a pointer of Git LFS; the file itself has not been downloaded (git lfs pull)")
    what = f"it begins with {head[:16]!r}" if head else "it is empty"
    raise binary.refused(f"{what}, as no file of {', '.join(known.name for known in _FORMATS)} does")


def _safetensors(binary: Binary) -> Tensors:
    from embcli.files.safetensors_layers import SafetensorsFile

    return SafetensorsFile(binary)


def _gguf(binary: Binary) -> Tensors:
    from embcli.files.gguf import Gguf

    return Gguf(binary)


def _npy(binary: Binary) -> Tensors:
    from embcli.files.npy import NpyFile

    return NpyFile(binary)


def _npz(binary: Binary) -> Tensors:
    from embcli.files.npy import NpzFile

    return NpzFile(binary)


def _torch(binary: Binary) -> Tensors:
    from embcli.files.pt import TorchFile

    return TorchFile(binary)


def _index(binary: Binary) -> Tensors:
    from embcli.files.sharded import Sharded

    return Sharded(binary, open_tensors)


def _vectors(binary: Binary) -> Tensors:
    from embcli.files.vectors import VectorsFile

    return VectorsFile(binary)


def _is_npz(head: bytes) -> bool:
    """Say whether a zip archive begins with an array of numpy's; those that do not are torch's."""
    return head.startswith(_ZIP) and head[30 : 30 + int.from_bytes(head[26:28], "little")].endswith(b".npy")


class _Format(NamedTuple):
    """A format: its name, whether a file that begins so is of it, and how it is opened."""

    name: str
    begins: Callable[[bytes], bool]
    open: Callable[[Binary], Tensors]


_FORMATS = (
    # eight bytes of a header's length, which is below 2**32, and the JSON of the header
    _Format("safetensors", lambda head: head[4:9] == b"\0\0\0\0{", _safetensors),
    _Format("GGUF", lambda head: head.startswith(b"GGUF"), _gguf),
    _Format("npy", lambda head: head.startswith(b"\x93NUMPY"), _npy),
    _Format("npz", _is_npz, _npz),
    _Format("PyTorch", lambda head: head.startswith(_ZIP) or bool(re.match(_PICKLE, head)), _torch),
    _Format("a shard index", lambda head: bool(re.match(_INDEX, head)), _index),
    _Format("word vectors", lambda head: bool(re.match(_VECTORS, head)), _vectors),
)
