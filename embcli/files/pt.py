"""PyTorch's files of tensors (.pt, .pth, .bin): zip archives of a pickle, which is never run, and of their numbers."""

from __future__ import annotations

import zipfile
from struct import Struct

from embcli.binary import Binary, shortened
from embcli.files.numbers import NumberFormat
from embcli.files.pickled import ADVICE, Storage, Weight, item_size, weights_in
from embcli.files.tensors import Tensor, Tensors
from embcli.strict_json import Malformed

_LONGEST_PICKLE = 1 << 24  # bytes, enough for a hundred thousand tensors
_LOCAL_HEADER = Struct("<4s22x2H")  # of a member: a signature, the lengths of its name and of its extra field
_SIGNATURE = b"PK\x03\x04"
# What zipfile raises for a damaged archive.
_DAMAGES = (zipfile.BadZipFile, RuntimeError, OSError, ValueError, EOFError, OverflowError)


class TorchFile(Tensors):
    """The tensors of a PyTorch file, named by the keys that lead to them, joined with dots.

    Raises InputError for a file that torch.load refuses with `weights_only`, and for storages that are not in the file.
    """

    format = "PyTorch"

    def __init__(self, binary: Binary) -> None:
        archive, folder = _opened(binary)
        if _member(binary, archive, f"{folder}/byteorder") == b"big":
            raise binary.refused("its numbers are big-endian; embcli reads little-endian ones")
        try:
            weights = weights_in(_member(binary, archive, f"{folder}/data.pkl"), binary.path.stem)
        except Malformed as error:
            raise binary.refused(str(error)) from None
        members = archive.NameToInfo
        storages = {each.storage.key: each.storage for each in weights.values() if each.storage}
        starts = {key: _start(binary, members.get(f"{folder}/data/{key}"), each) for key, each in storages.items()}
        super().__init__(binary, {name: _described(binary, name, each, starts) for name, each in weights.items()})

    def _numbers(self, tensor: Tensor) -> NumberFormat:
        numbers = super()._numbers(tensor)
        if tensor.strides is None:
            raise self.refused(f"{tensor} is sparse, negated or without data, so it has no plain numbers")
        return numbers


def _opened(binary: Binary) -> tuple[zipfile.ZipFile, str]:
    """Return an archive of torch.save, with nothing compressed, and the folder that its members are in."""
    try:
        archive = zipfile.ZipFile(binary.file)
    except _DAMAGES as error:
        raise binary.refused(f"it is a damaged archive, or older than PyTorch 1.6 ({error}); {ADVICE}") from None
    listed = archive.infolist()
    folders = [folder for folder, _, name in (info.filename.partition("/") for info in listed) if name == "data.pkl"]
    if not folders:
        raise binary.refused("it is an archive without the data.pkl of torch.save")
    plain = all(info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1 for info in listed)
    if not plain or len(archive.NameToInfo) < len(listed):
        raise binary.refused("it is an archive that torch.save does not write")
    return archive, folders[0]


def _member(binary: Binary, archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a small member; nothing if there is none."""
    info = archive.NameToInfo.get(name)
    if info is not None and info.file_size > _LONGEST_PICKLE:
        raise binary.refused("it is an archive that torch.save does not write")
    try:
        return archive.read(info) if info else b""
    except _DAMAGES as error:
        raise binary.refused(f"it is a damaged archive ({error})") from None


def _start(binary: Binary, info: zipfile.ZipInfo | None, storage: Storage) -> int:
    """Return where the numbers of a storage begin; raises InputError unless all of them are in its member."""
    what = f"its storage {shortened(storage.key)}"
    if info is None:
        raise binary.refused(f"{what} is missing")
    local = binary.read(info.header_offset, _LOCAL_HEADER.size)
    if len(local) < _LOCAL_HEADER.size or not local.startswith(_SIGNATURE):
        raise binary.refused(f"it is a damaged archive: {what} has no header")
    _, name, extra = _LOCAL_HEADER.unpack(local)
    start: int = info.header_offset + _LOCAL_HEADER.size + name + extra
    if storage.size != info.file_size or start + storage.size > binary.size:
        raise binary.refused(f"{what} claims {storage.size:,} bytes and has {info.file_size:,}")
    return start


def _described(binary: Binary, name: str, weight: Weight, starts: dict[str, int]) -> Tensor:
    if weight.storage is None:
        return Tensor(name, weight.shape, weight.dtype, 0, binary.path, 0)
    if weight.size > weight.storage.size:
        raise binary.refused(f"tensor {shortened(name)} claims more numbers than it has bytes")
    start = starts[weight.storage.key] + weight.first * item_size(weight.dtype)
    return Tensor(name, weight.shape, weight.dtype, weight.size, binary.path, start, weight.strides)
