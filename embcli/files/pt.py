"""PyTorch's files of tensors (.pt, .pth, .bin): a zip archive of a pickle and of the tensors' numbers.

Python's own unpickler reads the pickle with the few opcodes that torch.save writes, and with functions of this module
for those of torch: nothing is imported or called because a file asks for it. Python's pickletools describes the
opcodes, torch/_utils.py the arguments of the functions.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any, ClassVar, NamedTuple, NoReturn

from embcli.binary import Binary, quoted
from embcli.errors import Notes
from embcli.files import npy
from embcli.files.npy import DAMAGES, member_start, opened_archive
from embcli.files.tensors import Tensor, Tensors

_ADVICE = "save its state_dict as safetensors"
_LONGEST_PICKLE = (
    1 << 22
)  # bytes, enough for ten thousand tensors; each can be an opcode of half a microsecond
_LONGEST_NAMES = 1 << 24  # characters of all names; those of nested values have all keys above them

_OPCODES = """PROTO STOP MARK BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE BUILD
    NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING
    EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS"""
# torch's types of storages -> dtypes, as numpy or torch names them.
_STORAGES = {
    "Double": "float64",
    "Float": "float32",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Bool": "bool",
}
_STORAGES |= {"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8"}
_STORAGES |= {
    "ComplexDouble": "complex128",
    "ComplexFloat": "complex64",
    "storage.Untyped": "uint8",
}
_STORAGES |= {name: name.lower() for name in ("QUInt8", "QInt8", "QInt32", "QUInt4x2", "QUInt2x4")}
_STORAGE = re.compile(r"torch\.(?:cuda\.)?([\w.]+)Storage")
_DTYPE = re.compile(
    r"torch\.((?:bfloat|float|q?u?int|complex|bits)[0-9]{1,3}(?:x[0-9]|_\w+)?|bool)"
)
_KIND = re.compile(r"torch\.(?:(?:cuda\.|sparse\.)?\w*Tensor|per_(?:tensor|channel)_\w+)")
_REBUILT = re.compile(r"torch\._utils\._rebuild_(\w+)")


class Malformed(ValueError):
    """A pickle does not describe tensors; the message says why, without the name of the file."""


class _Storage(NamedTuple):
    """Numbers in a member of the archive, whose name ends with the key."""

    key: str
    dtype: str
    size: int  # bytes


class _Weight(NamedTuple):
    """A tensor: numbers of a storage from the `first` one on; without a storage if they are not plain numbers."""

    dtype: str
    shape: tuple[int, ...]
    storage: _Storage | None = None
    first: int = 0
    strides: tuple[int, ...] = ()


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return the tensors of a PyTorch file, named by the keys that lead to them, joined with dots."""
    if binary.read(0, 2) != b"PK":
        raise binary.file_error(f"it is a pickle, as PyTorch before 1.6 wrote it; {_ADVICE}")
    archive = opened_archive(binary)
    members = archive.NameToInfo
    listed = archive.infolist()
    pickles = [name for name in members if name.endswith("/data.pkl")]
    if not pickles:
        if any(name.endswith(".npy") for name in members):
            return npy.read(binary, notes)  # whose first member is no array
        raise binary.file_error(
            "it is a zip archive without arrays (.npy) and without the data.pkl of torch.save"
        )
    folder = pickles[0].removesuffix("/data.pkl")
    data = members[pickles[0]]
    is_plain = all(
        info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1 for info in listed
    )
    if not is_plain or len(members) < len(listed):
        raise binary.file_error("it is an archive that torch.save does not write")
    if data.file_size > _LONGEST_PICKLE:
        raise binary.file_error(
            f"its pickle has {data.file_size:,} bytes, and embcli reads up to {_LONGEST_PICKLE:,}"
        )

    def described(name: str, weight: _Weight) -> Tensor:
        """Return a tensor whose numbers are in a member of the archive; raises InputError unless all of them are."""
        storage = weight.storage
        if storage is None:
            return Tensor(name, weight.shape, weight.dtype, 0, binary, 0, matrix=_without_numbers)
        what = f"its storage {quoted(storage.key)}"
        info = members.get(f"{folder}/data/{storage.key}")
        if info is None:
            raise binary.file_error(f"{what} is missing")
        start = member_start(binary, info)
        if storage.size != info.file_size or start + storage.size > binary.size:
            raise binary.file_error(
                f"{what} claims {storage.size:,} bytes and has {info.file_size:,}"
            )
        item = _item_size(weight.dtype)
        size = prod(weight.shape) * item
        if size > storage.size:
            raise binary.file_error(f"tensor {quoted(name)} claims more numbers than it has bytes")
        return Tensor(
            name,
            weight.shape,
            weight.dtype,
            size,
            binary,
            start + weight.first * item,
            weight.strides,
        )

    try:
        order = members.get(f"{folder}/byteorder")
        if order and archive.open(order).read(4) == b"big":
            raise Malformed("its numbers are big-endian; embcli reads little-endian ones")
        weights = _named_weights(_unpickled(archive.read(data)), binary.path.stem)
    except Malformed as error:
        raise binary.file_error(str(error)) from None
    except DAMAGES as error:
        raise binary.file_error(f"it is a damaged archive ({str(error)[:200]})") from None
    return Tensors(
        binary, "PyTorch", {name: described(name, weight) for name, weight in weights.items()}
    )


def _without_numbers(tensor: Tensor) -> NoReturn:
    raise tensor.binary.file_error(
        f"{tensor} is negated or without data, so it has no plain numbers"
    )


def _named_weights(whole: Any, name: str) -> dict[str, _Weight]:
    """Return the tensors in dictionaries and lists by the keys that lead to them; a lone tensor has the given name."""
    weights: dict[str, _Weight] = {}
    waiting: list[tuple[str, Any]] = [("", whole)]
    seen, letters = set(), 0  # a list in a pickle can contain itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Weight):
            weights[path or name] = value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            items = [
                (str(key), item) for key, item in pairs if isinstance(item, dict | list | tuple)
            ]
            letters += sum(len(path) + len(key) for key, _ in items)
            if letters > _LONGEST_NAMES:
                raise Malformed(
                    "its values are nested more deeply, or have longer names, than those of any model"
                )
            waiting += [(f"{path}.{key}" if path else key, item) for key, item in reversed(items)]
    return weights


def _unpickled(data: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(data), encoding="utf-8").load()
    except (Malformed, MemoryError):
        raise
    except Exception as error:  # of many kinds, for an argument, a stack or a call that is wrong
        raise Malformed(
            f"its pickle is damaged ({quoted(str(error) or type(error).__name__, 100)})"
        ) from None


class _Checked(dict[Any, Any]):
    def __setitem__(self, key: Any, value: Any) -> None:
        """Refuse what makes a dictionary slow, or Python crash: numbers of one hash, tuples in tuples in tuples."""
        if type(key) not in (str, int, float, bool, type(None)) or (
            type(key) is int and abs(key) >= 1 << 64
        ):
            raise Malformed("its pickle has a key that is neither text nor a number of 64 bits")
        super().__setitem__(key, value)


class _Unpickler(pickle._Unpickler):
    """The values that a pickle may have are plain ones, _Storage, _Weight, and functions of this module."""

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: pickle._Unpickler.dispatch[code]
        for code in (getattr(pickle, name)[0] for name in _OPCODES.split())
    }

    def load_empty_dictionary(self) -> None:
        self.append(_Checked())  # type: ignore[attr-defined]

    def load_build(self) -> None:
        """Drop what else a state_dict has: the versions of its modules."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict):
            raise Malformed("its pickle changes a tensor that it has made")

    dispatch |= {pickle.EMPTY_DICT[0]: load_empty_dictionary, pickle.BUILD[0]: load_build}

    def find_class(self, module: str, name: str) -> Any:
        """Return a function, or the name of a dtype; raises Malformed for what torch.load refuses."""
        name = f"{module}.{name}".replace("__builtin__.", "builtins.")  # as Python 2 named it
        if name in _FUNCTIONS:
            return _FUNCTIONS[name]
        if (found := _STORAGE.fullmatch(name)) and found[1] in _STORAGES:
            return _STORAGES[found[1]]
        if found := _DTYPE.fullmatch(name):
            return found[1]
        if found := _REBUILT.fullmatch(
            name
        ):  # a sparse, a quantised one or another one that has no plain rows
            return partial(lambda kind, *_: _Weight(kind, ()), found[1])
        if not _KIND.fullmatch(name):
            raise Malformed(
                f"it asks for {quoted(name)}, and embcli runs nothing of a file; {_ADVICE}"
            )
        return None

    def persistent_load(self, described: Any) -> _Storage:
        kind, dtype, key, location, count = described
        if kind != "storage" or not isinstance(key, str) or location == "meta":
            raise Malformed("its pickle refers to what is not a storage")
        return _Storage(key, dtype, _natural(count)[0] * _item_size(dtype))


def _item_size(dtype: str) -> int:
    """Return the bytes of a number of a dtype of torch: 1 of "float8_e4m3fn" and "bool", 2 of "bfloat16"."""
    digits = re.search("[0-9]+", dtype)
    return max(int(digits[0]) // 8, 1) if digits else 1


def _natural(*values: Any) -> tuple[int, ...]:
    if not all(type(value) is int and 0 <= value < 1 << 63 for value in values):
        raise Malformed("its pickle has a size or an offset that is out of range")
    return values


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> _Weight:
    """Return a tensor; the rest are requires_grad, hooks, and marks such as that all numbers change their sign."""
    shape, strides, (first,) = _natural(*shape), _natural(*strides), _natural(first)
    if not isinstance(storage, _Storage) or len(shape) > 64:
        raise Malformed("its pickle has a tensor without a storage, or of too many dimensions")
    last = first + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
    if all(shape) and (last + 1) * _item_size(storage.dtype) > storage.size:
        raise Malformed(f"a tensor of shape {shape} has more numbers than its storage")
    return _Weight(storage.dtype, shape, None if any(rest[2:]) else storage, first, strides)


def _tensor_of_dtype(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> _Weight:
    """Return a tensor whose storage is of bytes; its dtype is the third of the rest."""
    return _tensor(storage._replace(dtype=rest[2]), first, shape, strides, *rest[:2], *rest[3:])


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("collections.OrderedDict", "collections.Counter"), lambda *_: _Checked()),
    **dict.fromkeys(
        ("builtins.set", "builtins.complex", "builtins.bytearray", "_codecs.encode"),
        lambda *_: None,
    ),
    **dict.fromkeys(
        ("torch.device", "torch.serialization._get_layout", "torch.Size"), lambda *_: None
    ),
    "torch.nn.parameter.Parameter": lambda weight, *_: weight,
    "torch._utils._rebuild_parameter": lambda weight, *_: weight,
    "torch._utils._rebuild_parameter_with_state": lambda weight, *_: weight,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": lambda weight, *_: weight,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    # A tensor that has attributes, or a class of its own.
    "torch._tensor._rebuild_from_type_v2": lambda function, _, arguments, *state: function(
        *arguments
    ),
}
