"""PyTorch's files of tensors (.pt, .pth, .bin), read by torch itself, in its mode that runs no code from a file."""

from __future__ import annotations

import os
import re
import warnings
import zipfile
from typing import TYPE_CHECKING, Any

from embcli.binary import shortened
from embcli.files.numbers import NAMED
from embcli.files.stored import WidenedLayer, unknown_numbers
from embcli.files.tensors import Tensor, Tensors
from embcli.memory import ran_out
from embcli.safe import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch

    from embcli.binary import Binary
    from embcli.errors import InputError
    from embcli.files.numbers import NumberFormat
    from embcli.layer import Layer

_LONGEST_PICKLE = 1 << 24  # bytes, enough for a hundred thousand tensors
_LONGEST_NAME = 200  # characters: torch takes quadratic time to refuse a name


def begins(head: bytes) -> bool:
    """Return whether a file is a zip archive or a pickle."""
    return re.match(rb"PK\x03\x04|\x80[\x02-\x05]", head) is not None


class TorchFile(Tensors):
    """The tensors of a PyTorch file, named by the keys that lead to them, joined with dots.

    Raises InputError for a file that torch does not load without running code from it, or cannot map.
    """

    format = "PyTorch"

    def __init__(self, binary: Binary) -> None:
        _check_archive(binary)
        self._binary = binary
        self._weights = dict(_tensors_in(_loaded(binary), binary.path.stem))
        super().__init__(binary.path, {name: _described(binary, name, each) for name, each in self._weights.items()})

    def matrix(self, tensor: Tensor, transposed: bool) -> Layer:
        """Return a two-dimensional tensor as a layer of its rows, or of its columns if `transposed`."""
        weight, numbers = self._weights[tensor.name], NAMED.get(tensor.dtype)
        if numbers is None or not _is_plain(weight):
            raise self.refused(unknown_numbers(tensor))
        weight = weight.reshape(tensor.shape) if weight.dim() == 1 else weight  # a vector as a row
        return TorchLayer(self._binary, weight.T if transposed else weight, numbers)


class TorchLayer(WidenedLayer):
    """A matrix that torch has mapped, in any memory layout."""

    def __init__(self, binary: Binary, weight: torch.Tensor, numbers: NumberFormat) -> None:
        rows, dim = weight.shape
        super().__init__((rows, dim), numbers)
        self._binary, self._weight = binary, weight

    def _read(self, ids: np.ndarray) -> np.ndarray:
        import torch

        if os.fstat(self._binary.file.fileno()).st_size < self._binary.size:  # a missing page is a SIGBUS
            raise self._binary.refused("it was cut off while it was read")
        picked = self._weight[torch.from_numpy(ids)].contiguous()
        bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[picked.element_size()]
        return picked.view(bits).numpy().view(self._numbers.stored)


def _check_archive(binary: Binary) -> None:
    """Raise InputError unless a file is an archive that torch.save can have written, with nothing compressed."""
    try:
        members = zipfile.ZipFile(binary.file).infolist()
        pickles = [info for info in members if info.filename.split("/")[1:] == ["data.pkl"]]
        if not pickles:
            raise binary.refused("it is an archive without the data.pkl of torch.save")
        if any(info.compress_type != zipfile.ZIP_STORED for info in members) or pickles[0].file_size > _LONGEST_PICKLE:
            raise binary.refused("it is an archive that torch.save does not write")
        pickle = zipfile.ZipFile(binary.file).read(pickles[0])
    except (zipfile.BadZipFile, RuntimeError, OSError, ValueError, EOFError, OverflowError) as error:
        raise _not_loaded(binary, f"it is a damaged archive, or older than PyTorch 1.6 ({error})") from None
    _check_pickle(binary, pickle)


def _check_pickle(binary: Binary, pickle: bytes) -> None:
    """Raise InputError for a pickle that would cost torch unbounded memory or time; the pickle is not run."""
    import pickletools

    try:
        names = [str(argument) for opcode, argument, _ in pickletools.genops(pickle) if opcode.name == "GLOBAL"]
    except Exception as error:  # of many kinds
        raise _not_loaded(binary, f"its pickle is damaged: {printable(str(error))[:160]}") from None
    for name in names:
        if name.endswith(" bytearray") or len(name) > _LONGEST_NAME:  # torch allocates a bytearray of any length
            raise _not_loaded(binary, f"it asks for {shortened(name.replace(' ', '.'))}")


def _loaded(binary: Binary) -> Any:
    import torch

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(binary.path, map_location="cpu", weights_only=True, mmap=True)
    except Exception as error:  # torch raises many kinds for a damaged file
        if ran_out(error):
            raise binary.refused("torch maps the whole file, and memory or address space is insufficient") from None
        raise _not_loaded(binary, _reason(error)) from None


def _reason(error: Exception) -> str:
    """Return the part of torch's message that names the reason."""
    message = str(error) or type(error).__name__
    name = re.search(r"GLOBAL ([\w.]+)", message)
    if name:
        return f"it asks for {name[1]}"
    detail = re.search(r"WeightsUnpickler error: ([^\n]+)", message)
    return printable((detail[1] if detail else message.strip().splitlines()[0])[:160])


def _described(binary: Binary, name: str, weight: torch.Tensor) -> Tensor:
    dtype = str(weight.dtype).removeprefix("torch.")
    if not _is_plain(weight):
        return Tensor(name, () if weight.is_nested else tuple(weight.shape), dtype, 0, binary.path, 0)
    size = weight.numel() * weight.element_size()
    if weight.numel() > weight.untyped_storage().nbytes():
        raise binary.refused(f"tensor {shortened(name)} claims more numbers than it has bytes")
    return Tensor(name, tuple(weight.shape), dtype, size, binary.path, weight.data_ptr())


def _is_plain(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has dense numbers in memory: not sparse, nested or without data."""
    return str(tensor.layout) == "torch.strided" and tensor.device.type == "cpu" and not tensor.is_nested


def _not_loaded(binary: Binary, reason: str) -> InputError:
    return binary.refused(
        f"torch does not load it without running code from it ({reason}); save its state_dict as safetensors"
    )


def _tensors_in(loaded: Any, name: str) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the tensors in dictionaries and lists with the keys that lead to them; a lone one gets the given name."""
    import torch

    waiting: list[tuple[str, Any]] = [("", loaded)]
    seen = set()  # a list in a pickle can contain itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, torch.Tensor):
            yield path or name, value.detach()
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            items = list(value.items() if isinstance(value, dict) else enumerate(value))
            waiting += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(items)]
