"""A checkpoint in several files, and the JSON index that says which tensor lies in which; of any format."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING

from embcli.files.strict_json import parsed
from embcli.files.tensors import Tensor, Tensors, shortened

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from embcli.files.stored import Binary
    from embcli.layer import Layer

_LONGEST = 1 << 26  # bytes of an index


class Sharded(Tensors):
    """The tensors that an index names; a file of them is opened when the first of its tensors is asked for.

    Raises InputError for an index that names files which are missing or lie outside its folder. The blobs of the
    Hugging Face cache, which it links to, are where they belong.
    """

    def __init__(self, binary: Binary, open_part: Callable[[Path], Tensors]) -> None:
        super().__init__(binary.path, {})
        if binary.size > _LONGEST:
            raise self.refused(f"an index of {binary.size:,} bytes is longer than any")
        index = parsed(binary.path, binary.read(0, binary.size))
        weight_map = index.get("weight_map")
        if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
            raise self.refused("it is JSON, but no index: it has no weight_map from tensors to files")
        self._names: dict[str, str] = weight_map
        self._paths = {file: self._path(file) for file in dict.fromkeys(weight_map.values())}
        self._open_part = open_part
        self._parts: dict[str, Tensors] = {}

    def __getitem__(self, name: str) -> Tensor:
        return self._part(name)[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    @property
    def format(self) -> str:  # type: ignore[override]
        """The format of the parts, in words."""
        return self._part(next(iter(self._names))).format if self._names else "index"

    @property
    def files(self) -> tuple[Path, ...]:
        """The files that the tensors lie in."""
        return tuple(self._paths.values())

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of rows, or of its columns where it is to be transposed."""
        return self._part(tensor.name).matrix(tensor, transposed)

    def _part(self, name: str) -> Tensors:
        file = self._names[name]
        if file not in self._parts:
            part = self._open_part(self._paths[file])
            if isinstance(part, Sharded):
                raise self.refused(f"its file {shortened(file)} is an index itself")
            self._parts[file] = part
        if name not in self._parts[file]:
            raise self.refused(f"its file {shortened(file)} has no tensor {shortened(name)}")
        return self._parts[file]

    def _path(self, file: str) -> Path:
        """Return where a file that the index names lies."""
        folder = self.path.parent
        real = folder.resolve()
        allowed = [real]
        if real.parent.name == "snapshots":  # of the Hugging Face cache: NAME/snapshots/REVISION links to NAME/blobs
            allowed.append(real.parent.parent / "blobs")
        try:
            path = (folder / file).resolve()
            found = path.is_file()
        except (OSError, ValueError, RuntimeError):  # too long a name, a NUL in it, links in a circle
            raise self.refused(f"its file {shortened(file)} is missing") from None
        named = PurePath(file)
        if named.is_absolute() or ".." in named.parts or not any(map(path.is_relative_to, allowed)):
            raise self.refused(f"it names a file outside of its folder, {shortened(file)}")
        if not found:
            raise self.refused(f"its file {shortened(file)} is missing")
        return folder / file
