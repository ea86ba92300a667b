"""PyTorch's files of tensors (.pt, .pth, .bin), read by torch itself in the mode that runs nothing from them."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

from embcli.files.numbers import NAMED
from embcli.files.tensors import Tensor, Tensors, shortened
from embcli.layer import Layer
from embcli.memory import ran_out
from embcli.safe import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from embcli.errors import InputError
    from embcli.files.numbers import Numbers
    from embcli.files.stored import Binary

_LONGEST_PICKLE = 1 << 24  # bytes: a hundred thousand tensors take so many
_LONGEST_NAME = 200  # characters: torch searches names that are no good in a time that grows with their square
_BLOCK = 1 << 20  # values that are read at a time


class TorchFile(Tensors):
    """The tensors of a PyTorch file, by the keys that lead to them, with dots between.

    Raises InputError for a file that torch does not load without running code from it, or does not map.
    """

    format = "PyTorch"

    def __init__(self, binary: Binary) -> None:
        _check_archive(binary)
        self._binary = binary
        self._found = dict(_tensors_in(_loaded(binary), binary.path.stem))
        super().__init__(binary.path, {name: _described(binary, name, found) for name, found in self._found.items()})

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of rows, or of its columns where it is to be transposed."""
        found, stored_as = self._found[tensor.name], NAMED.get(tensor.dtype)
        if stored_as is None or not _is_plain(found):
            raise self.refused(f"{tensor} holds numbers that embcli does not read; it reads {', '.join(NAMED)}")
        return TorchLayer(self._binary, found.T if transposed else found, stored_as)


class TorchLayer(Layer):
    """A matrix that torch has mapped, however it lies in memory.

    `changed` counts the values read so far that float32 cannot hold and that were rounded.
    """

    def __init__(self, binary: Binary, weight: torch.Tensor, stored_as: Numbers) -> None:
        rows, dim = weight.shape
        self.shape, self.dtype = (rows, dim), stored_as.name
        self.changed = 0
        self._binary, self._weight, self._numbers = binary, weight, stored_as

    def rows(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows, (n,) int64 -> (n, D) float32."""
        import torch

        return self._widened(torch.from_numpy(ids.astype(np.int64)))

    def stored(self, ids: np.ndarray) -> np.ndarray:
        """Return these rows as they are stored, (n,) int64 -> (n, D)."""
        import torch

        return self._picked(torch.from_numpy(ids.astype(np.int64)))

    def widened(self, stored: np.ndarray) -> np.ndarray:
        """Return rows as they are stored, (n, D), as float32, (n, D)."""
        return self._numbers.widened(stored, self.shape[1])

    def blocks(self) -> Iterator[np.ndarray]:
        """Yield all rows in order, (n, D) float32 each; a block is valid until the next one."""
        step = max(_BLOCK // self.shape[1], 1)
        for start in range(0, self.shape[0], step):
            yield self._widened(slice(start, start + step))

    def _widened(self, rows: torch.Tensor | slice) -> np.ndarray:
        stored = self._picked(rows)
        found = np.empty(stored.shape, np.float32)
        self.changed += self._numbers.widen(stored, found)
        return found

    def _picked(self, rows: torch.Tensor | slice) -> np.ndarray:
        import torch

        if os.fstat(self._binary.file.fileno()).st_size < self._binary.size:  # what is gone from a map is a SIGBUS
            raise self._binary.refused("it was cut off while it was read")
        picked = self._weight[rows].contiguous()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[picked.element_size()]
        return picked.view(bits).numpy().view(self._numbers.stored)


def _check_archive(binary: Binary) -> None:
    """Raise InputError unless a file is an archive as torch writes it, with all of it stored as it is."""
    try:
        members = zipfile.ZipFile(binary.file).infolist()
        pickles = [info for info in members if info.filename.split("/")[1:] == ["data.pkl"]]
        if not pickles:
            raise binary.refused("it is an archive without the data.pkl of torch.save")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members) or pickles[0].file_size > _LONGEST_PICKLE:
            raise binary.refused("it is an archive that torch.save does not write")
        pickle = zipfile.ZipFile(binary.file).read(pickles[0])
    except (
        zipfile.BadZipFile,
        NotImplementedError,
        RuntimeError,
        OSError,
        ValueError,
        EOFError,
        OverflowError,
    ) as error:
        raise _not_loaded(binary, f"it is a damaged archive, or older than PyTorch 1.6 ({error})") from None
    _check_pickle(binary, pickle)


def _check_pickle(binary: Binary, pickle: bytes) -> None:
    """Raise InputError for a pickle that would take torch memory without bound, or long to refuse; it is not run."""
    import pickletools

    try:
        asked = [str(given) for opcode, given, _ in pickletools.genops(pickle) if opcode.name == "GLOBAL"]
    except Exception as error:  # whatever the bytes of an argument make
        raise _not_loaded(binary, f"its pickle is damaged: {printable(str(error))[:160]}") from None
    for name in asked:
        if name.endswith(" bytearray") or len(name) > _LONGEST_NAME:  # torch makes a bytearray of any length
            raise _not_loaded(binary, f"it asks for {shortened(name.replace(' ', '.'))}")


def _loaded(binary: Binary) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(binary.path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises nearly anything for a damaged file
        if ran_out(error):
            raise binary.refused("torch maps all of it, and there is not as much memory or address space") from None
        raise _not_loaded(binary, _reason(error)) from None


def _reason(error: Exception) -> str:
    """Return the part of torch's message that says what it was about."""
    message = str(error) or type(error).__name__
    asked = re.search(r"GLOBAL ([\w.]+)", message)
    if asked:
        return f"it asks for {asked[1]}"
    found = re.search(r"WeightsUnpickler error: ([^\n]+)", message)
    return printable((found[1] if found else message.strip().splitlines()[0])[:160])


def _described(binary: Binary, name: str, found: torch.Tensor) -> Tensor:
    dtype = str(found.dtype).removeprefix("torch.")
    if not _is_plain(found):
        return Tensor(name, () if found.is_nested else tuple(found.shape), dtype, 0, binary.path, 0)
    size = found.numel() * found.element_size()
    if found.numel() > found.untyped_storage().nbytes():
        raise binary.refused(f"tensor {shortened(name)} claims more numbers than it has bytes")
    return Tensor(name, tuple(found.shape), dtype, size, binary.path, found.data_ptr())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Say whether a tensor is numbers in memory, not sparse, nested or without data."""
    return str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu" and not tensor.is_nested


def _not_loaded(binary: Binary, reason: str) -> InputError:
    return binary.refused(
        f"torch does not load it without running code from it ({reason}); save its state_dict as safetensors"
    )


def _tensors_in(loaded: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in dictionaries and lists by the keys that lead to them; a lone one has the file's name."""
    import torch

    waiting: list[tuple[str, Any]] = [("", loaded)]
    seen = set()  # a pickle can hold a list that holds itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield path or name, value.detach()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(items)]
