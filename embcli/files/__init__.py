"""A checkpoint's file, of any format -> its tensors by name.

The first bytes of a file tell its format, and the `read` of the format's module returns the
tensors. What looks like text goes to `table`, which looks at more lines and finds None if they are
neither numbers nor words with numbers. A checkpoint can also be several files with an index, whose
tensors are read as if they were in one file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from embcli.atomic import opened_files
from embcli.binary import Binary, is_text, read_object
from embcli.errors import InputError, Notes
from embcli.files.tensors import Tensor, Tensors
from embcli.hub import remote
from embcli.hub.local import located

# What files are that embcli does not read, by patterns of their first bytes.
_UNREAD = {
    b"version https://git-lfs": "a Git LFS pointer; download the file itself: git lfs pull",
    rb"\s*<(?i:!doctype|html)": "a web page, such as one about an error; download the file itself",
    b"\x1f\x8b": "compressed by gzip; unpack it: gunzip",
    rb"BZh[1-9]1AY&SY": "compressed by bzip2; unpack it: bunzip2",
    b"\xfd7zXZ\0": "compressed by xz; unpack it: unxz",
    b"\xba\x16O/": "a model of fastText, which adds up rows of parts of words; use its .vec",
    rb"[0-9]+ [0-9]+\n[^\0]*\0": "binary vectors of word2vec; gensim writes them as text: "
    "KeyedVectors.load_word2vec_format(path, binary=True).save_word2vec_format(other_path)",
    rb"[^\s,;]+(;[^\s,;]*)+\r?\n[^\s;]+(;[^\s;]*)+\r?\n": "a table with semicolons; csv has commas "
    'between numbers, and a point in them: sep=",", decimal="."',
    rb'\s*{\s*"cells"': "a notebook; numpy.savetxt in it writes an array that embcli reads",
}


class _Format(NamedTuple):
    name: str
    start: bytes  # a pattern of the first bytes
    module: str  # the module of this folder that reads it; empty for an index


# The formats in the order in which a file is compared with them.
_FORMATS = (
    # The length of a safetensors header is below 2**32, and the header is a JSON object.
    _Format("safetensors", rb".{4}\0{4}\s*\{", "safetensors"),
    _Format("GGUF", b"GGUF", "gguf"),
    _Format("npy", rb"\x93NUMPY", "npy"),
    # A .npz is a zip archive whose first member is an array.
    _Format("npz", rb"PK\x03\x04.{26}[^\0]{1,999}?\.npy", "npy"),
    # PyTorch writes other zip archives; it wrote plain pickles before.
    _Format("PyTorch", rb"PK\x03\x04|\x80[\x02-\x05]", "pt"),
    _Format("a shard index", rb'\s*\{\s*["}]', ""),
    _Format("text (numbers or words)", rb"[^\0\n]+(?:\n|\Z)", "table"),
)
_REMOTE = ("safetensors", "gguf")  # whose rows can be found without reading what is before them


def open_tensors(path: Path, notes: Notes | None = None) -> Tensors:
    """Return the tensors of a file; raises InputError if it is damaged or of an unknown format."""
    return tensors_of(Binary(path), notes or Notes())


def open_named(name: str, notes: Notes) -> Tensors:
    """Return the tensors of a model by its path or name, also over the network."""
    if name.startswith(remote.PREFIX):
        return tensors_of(remote.opened(name, notes), notes)
    return open_tensors(located(name), notes)


def tensors_of(binary: Binary, notes: Notes) -> Tensors:
    """Return the tensors of an open file, as `open_tensors` does."""
    longest_start = 1 << 16  # bytes; the first line of word vectors can be as long
    start = binary.read(0, longest_start)
    for pattern, what in _UNREAD.items():
        if re.match(pattern, start):
            raise binary.file_error(f"it is {what}")
    for format in _FORMATS:
        if re.match(format.start, start, re.DOTALL):
            tensors = _read(binary, notes, format)
            if tensors is not None:
                return tensors
    raise _unknown_format_error(binary, start)


def _read(binary: Binary, notes: Notes, format: _Format) -> Tensors | None:
    """Return the tensors of a file of a format; None for a text that has no table."""
    if not format.module:
        return _read_index(binary)
    if binary.is_remote and format.module not in _REMOTE:
        raise binary.file_error(
            f"it is of {format.name}; over the network, embcli reads safetensors and GGUF",
            "Download it: hf download; then the same command without hf://",
        )
    module = import_module(f"embcli.files.{format.module}")
    tensors: Tensors | None = module.read(binary, notes)
    return tensors


def _unknown_format_error(binary: Binary, start: bytes) -> InputError:
    if start and is_text(start):
        return binary.file_error(
            "it is a text, not a model",
            'An array is saved with numpy.save; csv has commas between numbers: sep=","; '
            "word vectors are a word and its numbers per line, with spaces",
        )
    found = f"it begins with {start[:16]!r}" if start else "it is empty"
    names = ", ".join(format.name for format in _FORMATS)
    return binary.file_error(f"{found}, unlike a file of {names}")


def _read_index(binary: Binary) -> Tensors:
    """Return the tensors of the files of an index; raises InputError if a file is missing.

    No file may be outside the folder, except through links, like those of the Hugging Face cache.
    """
    longest_index = 1 << 26  # bytes
    file_names: Any = read_object(binary, longest_index).get("weight_map")
    is_map = isinstance(file_names, dict)
    if not is_map or not all(isinstance(name, str) for name in file_names.values()):
        raise binary.file_error(
            "it is JSON, but not an index: it has no weight_map from tensors to files"
        )

    names = dict.fromkeys(file_names.values())
    for name in names:
        pure_path = PurePath(name)
        if pure_path.is_absolute() or ".." in pure_path.parts:
            raise binary.file_error(f"it names a file outside its folder, {name!r}")
        if not binary.folder.has(name):
            raise binary.file_error(f"its file {name!r} is missing")
        opened_files.add(binary.folder.path.absolute() / name)  # It is a part of the model.

    is_safetensors = all(name.endswith(".safetensors") for name in file_names.values())
    format_name = "safetensors" if is_safetensors else "PyTorch"
    return _Shards(binary, format_name, file_names, names)


class _Shards(Tensors):
    """The tensors of several files; a file is opened when the first of its tensors is needed.

    It stays open after that. `file_names` gives the file of each tensor.
    """

    def __init__(
        self, binary: Binary, format: str, file_names: dict[str, str], files: Iterable[str]
    ) -> None:
        locations = map(binary.folder.location, files)
        super().__init__(binary, format, {}, files=locations, is_array=False)
        self._file_names = file_names
        self._open_file = cache(lambda name: tensors_of(binary.folder.open(name), Notes()))

    def __getitem__(self, name: str) -> Tensor:
        file_name = self._file_names[name]
        tensors = self._open_file(file_name)
        if isinstance(tensors, _Shards):
            raise self.file_error(f"its file {file_name!r} is itself an index")
        if name not in tensors:
            raise self.file_error(f"its file {file_name!r} has no tensor {name!r}")
        return tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._file_names)

    def __len__(self) -> int:
        return len(self._file_names)

    def in_files(self) -> Iterator[Tensor]:
        files = map(self._open_file, dict.fromkeys(self._file_names.values()))
        return chain.from_iterable(file.in_files() for file in files)
