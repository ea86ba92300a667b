"""PyTorch's files of tensors (.pt, .pth, .bin): a zip archive of a pickle and of numbers.

Python's own unpickler reads the pickle, with the few opcodes that torch.save writes and with
functions of this module in place of torch's: nothing is imported or called because a file asks for
it. Python's pickletools describes the opcodes, torch/_utils.py the arguments of the functions.
"""

from __future__ import annotations

import io
import pickle
import re
import zipfile
from collections.abc import Callable
from math import prod
from typing import Any, ClassVar, NamedTuple

from embcli.binary import Binary
from embcli.errors import Notes, refuse_too_large
from embcli.files import npy
from embcli.files.npy import member_start, opened_archive
from embcli.files.tensors import Tensor, Tensors
from embcli.names import Shape
from embcli.wording import load_facts

_ADVICE = "save its state_dict as safetensors"


class Malformed(ValueError):
    """A pickle does not describe tensors; the message says why, without the name of the file."""


class UnknownName(Malformed):
    """A pickle asks for a class or a function that embcli has no stand-in for."""


class _Inert:
    """Stands for what is no tensor: nothing is made or called, and nothing in it is looked at."""

    def __new__(cls, *_: object) -> _Inert:
        return super().__new__(cls)


class _Storage(NamedTuple):
    """The numbers of one or several tensors: a member of the archive whose name ends with a key."""

    key: str
    dtype: str
    size: int  # bytes


class _Weight(NamedTuple):
    """A tensor as the pickle describes it; without a storage if it has no plain numbers."""

    dtype: str
    shape: Shape
    storage: _Storage | None = None
    first: int = 0  # the index of its first number in the storage
    strides: tuple[int, ...] = ()


def read(binary: Binary, notes: Notes) -> Tensors:
    """Return the tensors of a PyTorch file, named by the keys that lead to them, with dots."""
    if binary.read(0, 2) != b"PK":
        raise binary.file_error(_pickle_in_words(binary.read(0, 1 << 16)))
    zip_file = opened_archive(binary)
    pickles = [name for name in zip_file.NameToInfo if name.endswith("/data.pkl")]
    if not pickles:
        if any(name.endswith(".npy") for name in zip_file.NameToInfo):
            return npy.read(binary, notes)  # the archive only begins with another member
        raise binary.file_error(
            "it is a zip archive without arrays (.npy) and without the data.pkl of torch.save"
        )

    folder = pickles[0].removesuffix("/data.pkl")
    archive = _Archive(binary, zip_file, zip_file.NameToInfo, folder)
    try:
        archive.check()
        weights = _named_weights(_unpickled(zip_file.read(pickles[0])), binary.path.stem)
    except Malformed as error:
        raise binary.file_error(str(error)) from None
    except Exception as error:  # zipfile raises many kinds for a damaged archive
        raise binary.file_error(f"it is a damaged archive ({error})") from None
    tensors = {name: archive.tensor(name, weight) for name, weight in weights.items()}
    return Tensors(binary, "PyTorch", tensors, is_array=False)


def _pickle_in_words(data: bytes) -> str:
    """Return what a pickle that is not in an archive is, by the first name that it asks for."""
    try:
        _unpickled(data)
    except UnknownName as error:
        return f"it is a plain pickle: {error}"
    except Malformed:
        pass
    return f"it is a plain pickle, like those of PyTorch before 1.6; {_ADVICE}"


class _Archive(NamedTuple):
    """The archive that torch.save writes: in a folder, a pickle and a member for each storage."""

    binary: Binary
    zip_file: zipfile.ZipFile
    members: dict[str, zipfile.ZipInfo]
    folder: str

    def check(self) -> None:
        """Raise Malformed for what torch.save does not write, big-endian and giant files."""
        members = self.zip_file.infolist()
        is_stored = all(member.compress_type == zipfile.ZIP_STORED for member in members)
        is_encrypted = any(member.flag_bits & 1 for member in members)
        if not is_stored or is_encrypted or len(self.members) < len(members):
            raise Malformed("it is an archive that torch.save does not write")

        # Each byte can be an opcode of half a microsecond; ten thousand tensors need fewer bytes.
        longest_pickle = 1 << 22
        size = self.members[f"{self.folder}/data.pkl"].file_size
        if size > longest_pickle:
            raise Malformed(
                f"its pickle has {size:,} bytes, and embcli reads up to {longest_pickle:,}"
            )
        member = self.members.get(f"{self.folder}/byteorder")
        if member and self.zip_file.open(member).read(4) == b"big":
            raise Malformed("its numbers are big-endian; embcli reads little-endian ones")

    def tensor(self, name: str, weight: _Weight) -> Tensor:
        """Return a tensor; raises InputError unless all its numbers are in its storage."""
        binary = self.binary
        dtype = weight.dtype
        storage = weight.storage
        if storage is None:
            reason = "it is negated or without data, so it has no plain numbers"
            return Tensor(name, weight.shape, dtype, 0, binary, 0, unreadable=reason)

        member = self.members.get(f"{self.folder}/data/{storage.key}")
        if member is None:
            raise binary.file_error(f"its storage {storage.key!r} is missing")
        storage_start = member_start(binary, member)
        if storage.size != member.file_size or storage_start + storage.size > binary.size:
            raise binary.file_error(
                f"its storage {storage.key!r} claims {storage.size:,} bytes "
                f"and has {member.file_size:,}"
            )
        numbers = prod(weight.shape)
        size = numbers * _item_size(dtype)
        if size > storage.size:  # It is expanded: the same numbers are read again and again.
            refuse_too_large(f"tensor {name!r}", (numbers, 1))
            size = storage.size
        start = storage_start + weight.first * _item_size(dtype)
        return Tensor(name, weight.shape, dtype, size, binary, start, weight.strides)


def _named_weights(root: Any, default_name: str) -> dict[str, _Weight]:
    """Return the tensors in dictionaries and lists, named by the keys that lead to them.

    A tensor that is not in any has the default name.
    """
    longest_names = 1 << 24  # characters of all names; the name of a nested value has all its keys
    weights = {}
    waiting = [("", root)]
    seen = set()  # a list in a pickle can contain itself
    characters = 0
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, _Weight):
            weights[path or default_name] = value
            continue
        if not isinstance(value, dict | list | tuple) or id(value) in seen:
            continue
        seen.add(id(value))
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        # The last one waiting is the next.
        for key, item in reversed(list(pairs)):
            if isinstance(item, dict | list | tuple):  # a _Weight is a tuple, too
                name = f"{path}.{key}" if path else str(key)
                waiting.append((name, item))
                characters += len(name)
        if characters > longest_names:
            raise Malformed(
                "its values are nested more deeply, or have longer names, than those of any model"
            )
    return weights


def _unpickled(data: bytes) -> Any:
    try:
        return _Unpickler(io.BytesIO(data), encoding="utf-8").load()
    except (Malformed, MemoryError):
        raise
    except Exception as error:  # an argument, a stack or a call that is wrong can raise any kind
        raise Malformed(f"its pickle is damaged ({error!r})") from None


_KEY_TYPES = (str, int, float, bool, type(None))


class _Checked(dict[Any, Any]):
    """A dictionary of a pickle, whose keys are checked when they are set.

    Integers with the same hash would make it slow, and deeply nested tuples would crash Python.
    """

    def __setitem__(self, key: Any, value: Any) -> None:
        is_plain = type(key) in _KEY_TYPES
        is_long = type(key) is int and abs(key) >= 1 << 64
        if not is_plain or is_long:
            raise Malformed("its pickle has a key that is neither text nor a number of 64 bits")
        super().__setitem__(key, value)


# The opcodes that torch.save writes.
_OPCODES = (
    "PROTO STOP MARK BINPUT LONG_BINPUT BINGET LONG_BINGET GLOBAL BINPERSID REDUCE BUILD "
    "NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT BINUNICODE SHORT_BINSTRING "
    "EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 "
    "EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS NEWOBJ "
    # Those of later protocols.
    "FRAME MEMOIZE STACK_GLOBAL SHORT_BINUNICODE SHORT_BINBYTES BINBYTES"
)
_CODES = [getattr(pickle, name)[0] for name in _OPCODES.split()]


class _Unpickler(pickle._Unpickler):
    """Python's unpickler, whose values are plain ones, _Storage, _Weight and our functions.

    Raises Malformed for a pickle that asks for anything else.
    """

    stack: list[Any]
    dispatch: ClassVar[dict[int, Callable[[Any], None]]] = {
        code: pickle._Unpickler.dispatch[code] for code in _CODES
    }

    def load_empty_dictionary(self) -> None:
        self.append(_Checked())  # type: ignore[attr-defined]

    def load_build(self) -> None:
        """Drop the attributes of an object, such as the versions of the modules of a state_dict."""
        self.stack.pop()
        if not isinstance(self.stack[-1], dict | _Inert):
            raise Malformed("its pickle changes a tensor that it has made")

    dispatch[pickle.EMPTY_DICT[0]] = load_empty_dictionary
    dispatch[pickle.BUILD[0]] = load_build

    def find_class(self, module: str, name: str) -> Any:
        """Return a function, or the name of a dtype; raises Malformed for other names."""
        # A pickle can ask often for a name of megabytes. Python 2 had another name for builtins.
        full_name = f"{module[:99]}.{name[:99]}".replace("__builtin__.", "builtins.")
        if full_name in _FUNCTIONS:
            return _FUNCTIONS[full_name]

        storage = re.fullmatch(r"torch\.(?:cuda\.)?([\w.]+)Storage", full_name)
        if storage and storage[1] in _STORAGES:
            return _STORAGES[storage[1]]
        dtype = re.fullmatch(_DTYPE, full_name)
        if dtype:
            return dtype[1]
        # Sparse, quantised and other tensors have no plain rows.
        rebuilt = re.fullmatch(r"torch\._utils\._rebuild_(\w+)", full_name)
        if rebuilt:
            return lambda *_: _Weight(rebuilt[1], ())

        if re.fullmatch(_INERT_NAMES, full_name):
            return _Inert
        if full_name.startswith("torch.distributed."):
            raise Malformed("its tensors are divided among several processes; merge them first")
        advice = _ADVICE
        if full_name.startswith("gensim."):
            advice = "save_word2vec_format of gensim writes its rows"
        raise UnknownName(f"it asks for {full_name!r}, and embcli runs nothing of a file; {advice}")

    def persistent_load(self, description: Any) -> _Storage:
        kind, dtype, key, location, count = description
        if kind != "storage" or not isinstance(key, str) or location == "meta":
            raise Malformed("its pickle refers to what is not a storage")
        (length,) = _natural(count)
        return _Storage(key, dtype, length * _item_size(dtype))


# torch's types of storages -> dtypes, as numpy or torch names them.
_STORAGES = load_facts("torch_storages.json")
# What arguments of tensors are, and what people save beside tensors.
_INERT_NAMES = (
    r"torch\.(?:(?:cuda\.|sparse\.)?\w*Tensor|per_(?:tensor|channel)_\w+|device|Size)"
    r"|torch\.serialization\._get_layout|builtins\.(?:set|complex|bytearray)|_codecs\.encode"
    r"|numpy\.(?:dtype|ndarray|_?core\.multiarray\.(?:scalar|_reconstruct))"
    r"|argparse\.Namespace|types\.SimpleNamespace|pathlib\.\w*Path"
)
_DTYPE = r"torch\.((?:bfloat|float|q?u?int|complex|bits)[0-9]{1,3}(?:x[0-9]|_\w+)?|bool)"


def _item_size(dtype: str) -> int:
    """Return the bytes of a number of a dtype of torch.

    >>> _item_size("float8_e4m3fn"), _item_size("bool"), _item_size("bfloat16")
    (1, 1, 2)
    """
    bits = re.search("[0-9]+", dtype)
    return max(int(bits[0]) // 8, 1) if bits else 1


def _natural(*values: Any) -> tuple[int, ...]:
    for value in values:
        if type(value) is not int or not 0 <= value < 1 << 63:
            raise Malformed("its pickle has a size or an offset that is out of range")
    return values


# --- the functions in place of torch's, with the arguments that torch.save gives them -------------


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *marks: Any) -> _Weight:
    """Return a tensor; marks are requires_grad, hooks, and whether it is negated or conjugated."""
    sizes = _natural(*shape)
    steps = _natural(*strides)
    (offset,) = _natural(first)
    if not isinstance(storage, _Storage) or len(sizes) > 64:
        raise Malformed("its pickle has a tensor without a storage, or of too many dimensions")

    last = offset
    for size, step in zip(sizes, steps, strict=True):
        last += (size - 1) * step
    if all(sizes) and (last + 1) * _item_size(storage.dtype) > storage.size:
        raise Malformed(f"a tensor of shape {sizes} has more numbers than its storage")
    has_marks = any(marks[2:])
    return _Weight(storage.dtype, sizes, None if has_marks else storage, offset, steps)


def _tensor_of_dtype(storage: Any, first: Any, shape: Any, strides: Any, *marks: Any) -> _Weight:
    """Return a tensor whose storage has bytes; its dtype stands after requires_grad and hooks."""
    typed_storage = storage._replace(dtype=marks[2])
    return _tensor(typed_storage, first, shape, strides, *marks[:2], *marks[3:])


def _first_argument(weight: Any, *_: Any) -> Any:
    return weight


def _empty(*_: Any) -> _Checked:
    return _Checked()


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _empty,
    "collections.Counter": _empty,
    "torch.nn.parameter.Parameter": _first_argument,
    "torch._utils._rebuild_parameter": _first_argument,
    "torch._utils._rebuild_parameter_with_state": _first_argument,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _first_argument,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    # This tensor has attributes, or a class that is not torch's; both are ignored.
    "torch._tensor._rebuild_from_type_v2": (
        lambda function, _, arguments, *state: function(*arguments)
    ),
}
