"""A checkpoint in several files of any format, with a JSON index that maps tensors to files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path, PurePath

from embcli.binary import Binary, read_object, shortened
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Layer

_LONGEST = 1 << 26  # bytes of an index


class Sharded(Tensors):
    """The tensors in an index; a file is opened when the first of its tensors is needed.

    Raises InputError for an index whose files are missing or outside its folder, except through links, as those of the
    Hugging Face cache.
    """

    def __init__(self, binary: Binary, open_part: Callable[[Path], Tensors]) -> None:
        weight_map = read_object(binary, _LONGEST).get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
            raise binary.refused("it is JSON, but not an index: it has no weight_map from tensors to files")
        self._names: dict[str, str] = weight_map
        self._paths = {file: _path(binary, file) for file in dict.fromkeys(weight_map.values())}
        self._open_part = open_part
        self._parts: dict[str, Tensors] = {}
        super().__init__(binary, {}, files=self._paths.values())

    def __getitem__(self, name: str) -> Tensor:
        return self._part(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def format(self) -> str:  # type: ignore[override]
        """The format of the parts."""
        return self._part(next(iter(self._names))).format if self._names else "index"

    def matrix(self, tensor: Tensor) -> Layer:
        """Return a two-dimensional tensor as a layer."""
        return self._part(tensor.name).matrix(tensor)

    def _part(self, name: str) -> Tensors:
        """Return the tensors of the file with this one, opened."""
        file = self._names[name]
        if file not in self._parts:
            part = self._open_part(self._paths[file])
            if isinstance(part, Sharded):
                raise self.refused(f"its file {shortened(file)} is itself an index")
            self._parts[file] = part
        if name not in self._parts[file]:
            raise self.refused(f"its file {shortened(file)} has no tensor {shortened(name)}")
        return self._parts[file]


def _path(binary: Binary, file: str) -> Path:
    """Return the path of a file of an index; raises InputError if it is missing or outside the index's folder."""
    named, path = PurePath(file), binary.path.parent / file
    if named.is_absolute() or ".." in named.parts:
        raise binary.refused(f"it names a file outside its folder, {shortened(file)}")
    try:
        exists = path.is_file()
    except (OSError, ValueError):  # too long a name, a NUL in it, a cycle of links
        exists = False
    if not exists:
        raise binary.refused(f"its file {shortened(file)} is missing")
    return path
