"""The pickle in a PyTorch file, read as a description: which tensors it has, and where their numbers are.

Nothing is imported, called or allocated because the file asks for it. A name that torch.load takes with `weights_only`
stands for a function of this module; any other name is refused. All work is bounded by the length of the pickle.
Python's pickletools describes the opcodes, torch/_utils.py the arguments of the functions.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from math import prod
from types import FunctionType
from typing import Any

from embcli.binary import shortened
from embcli.strict_json import Malformed

ADVICE = "save its state_dict as safetensors"
_MOST_STEPS = 1 << 20  # opcodes: a tensor and its name take some 35
_MOST_DIMENSIONS = 64
_LONGEST_NAMES = 1 << 24  # characters of all names; those of nested values have all keys above them

# torch's types of storages -> dtypes, as numpy or torch names them.
_STORAGES = {"Double": "float64", "Float": "float32", "Half": "float16", "BFloat16": "bfloat16", "Bool": "bool"}
_STORAGES |= {"Long": "int64", "Int": "int32", "Short": "int16", "Char": "int8", "Byte": "uint8"}
_STORAGES |= {"ComplexDouble": "complex128", "ComplexFloat": "complex64", "storage.Untyped": "uint8"}
_STORAGES |= {name: name.lower() for name in ("QUInt8", "QInt8", "QInt32", "QUInt4x2", "QUInt2x4")}
_STORAGE = re.compile(r"torch\.(?:cuda\.)?([\w.]+)Storage")
_CLASS = re.compile(r"torch\.(?:(?:cuda\.|sparse\.)?\w*Tensor|per_(?:tensor|channel)_\w+)")  # they only name a kind
_DTYPE = re.compile(r"torch\.((?:bfloat|float|q?u?int|complex|bits)([0-9]{1,3})(?:x[0-9]|_\w+)?|bool)")


@dataclass(frozen=True)
class Storage:
    """Numbers of one dtype in a member of the archive."""

    key: str  # the last part of the member's name
    dtype: str
    size: int  # bytes


@dataclass(frozen=True)
class Weight:
    """A tensor: numbers of a storage from the `first` one on; without a storage if they are not plain numbers."""

    dtype: str
    shape: tuple[int, ...]
    storage: Storage | None = None
    first: int = 0
    strides: tuple[int, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of the numbers; 0 if they are not plain."""
        return prod(self.shape) * item_size(self.dtype) if self.storage else 0

    @property
    def end(self) -> int:
        """Where the last number ends, in bytes from the beginning of the storage."""
        steps = sum((size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True))
        return (self.first + steps + 1) * item_size(self.dtype) if all(self.shape) else 0


def item_size(dtype: str) -> int:
    """Return the bytes of a number of a dtype of torch.

    >>> item_size("float8_e4m3fn"), item_size("bfloat16"), item_size("bool")
    (1, 2, 1)
    """
    digits = re.search("[0-9]+", dtype)
    return max(int(digits[0]) // 8, 1) if digits else 1


def weights_in(pickle: bytes, name: str) -> dict[str, Weight]:
    """Return the tensors in dictionaries and lists by the keys that lead to them, joined with dots.

    A lone tensor has the given name. Raises Malformed for a pickle of other things than tensors and plain values.
    """
    weights: dict[str, Weight] = {}
    waiting: list[tuple[str, Any]] = [("", _described(pickle))]
    seen, letters = set(), 0  # a list in a pickle can contain itself
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, Weight):
            weights[path or name] = value
        elif isinstance(value, dict | list | tuple) and id(value) not in seen:
            seen.add(id(value))
            pairs = value.items() if isinstance(value, dict) else enumerate(value)
            items = [(key, item) for key, item in pairs if isinstance(item, Weight | dict | list | tuple)]
            letters += len(path) * len(items) + (sum(map(len, value)) if isinstance(value, dict) else 0)
            if letters > _LONGEST_NAMES:
                raise Malformed("its values are nested more deeply, or have longer names, than those of any model")
            waiting += [(f"{path}.{key}" if path else str(key), item) for key, item in reversed(items)]
    return weights


def _described(pickle: bytes) -> Any:
    """Return what a pickle describes: dictionaries, lists and tuples, and a Weight for each tensor."""
    import pickletools

    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(pickletools.genops(pickle)):
            if count == _MOST_STEPS:
                raise Malformed(f"its pickle has more than {_MOST_STEPS:,} opcodes")
            if opcode.name not in _STEPS:
                raise Malformed(f"its pickle has an opcode that torch.save does not write, {opcode.name}")
            _STEPS[opcode.name](machine, argument)
        return machine.stack[-1]
    except (Malformed, MemoryError):
        raise
    except Exception as error:  # of many kinds, for an argument, a stack or a call that is wrong
        reason = shortened(str(error) or type(error).__name__, 100)
        raise Malformed(f"its pickle is damaged ({reason})") from None


@dataclass
class _Machine:
    """The stack and the memo of a pickle."""

    stack: list[Any] = field(default_factory=list)
    outer: list[list[Any]] = field(default_factory=list)  # the stacks below the marks
    memo: dict[int, Any] = field(default_factory=dict)
    storages: dict[str, Storage] = field(default_factory=dict)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def keep(self, place: int) -> None:
        self.memo[place] = self.stack[-1]

    def mark(self, _: None) -> None:
        self.outer.append(self.stack)
        self.stack = []

    def marked(self) -> list[Any]:
        """Return the values above the last mark."""
        values, self.stack = self.stack, self.outer.pop()
        return values

    def tuple_of(self, count: int) -> None:
        values = [self.stack.pop() for _ in range(count)]
        self.push(tuple(reversed(values)))

    def append(self, values: list[Any]) -> None:
        _checked(self.stack[-1], list).extend(values)

    def set_items(self, values: list[Any]) -> None:
        _checked(self.stack[-1], dict).update(_mapping(zip(values[::2], values[1::2], strict=True)))

    def call(self, _: None) -> None:
        arguments, function = _checked(self.stack.pop(), tuple), self.stack.pop()
        if not isinstance(function, FunctionType):
            raise Malformed("its pickle calls what is not a function")
        self.push(function(*arguments))

    def build(self, _: None) -> None:
        """Drop the state of a value: that of a state_dict has the versions of its modules."""
        self.stack.pop()
        if isinstance(self.stack[-1], Weight):
            raise Malformed("its pickle changes a tensor")

    def load_storage(self, _: None) -> None:
        kind, dtype, key, location, count = _checked(self.stack.pop(), tuple)
        if kind != "storage" or not isinstance(dtype, _Dtype) or not isinstance(key, str) or location == "meta":
            raise Malformed("its pickle refers to what is not a storage")
        storage = Storage(key, dtype.name, _natural(count) * item_size(dtype.name))
        if self.storages.setdefault(key, storage) != storage:
            raise Malformed(f"its storage {shortened(key)} has two types or two sizes")
        self.push(storage)


@dataclass(frozen=True)
class _Dtype:
    """A dtype, or a storage's type."""

    name: str


def _checked(value: Any, kind: type) -> Any:
    if type(value) is not kind:
        raise Malformed(f"its pickle has {type(value).__name__} in place of {kind.__name__}")
    return value


def _natural(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 63:
        raise Malformed("its pickle has a size or an offset that is out of range")
    return value


def _sizes(values: Any) -> tuple[int, ...]:
    if len(_checked(values, tuple)) > _MOST_DIMENSIONS:
        raise Malformed(f"its pickle has a tensor of {len(values):,} dimensions")
    return tuple(map(_natural, values))


def _mapping(items: Any = ()) -> dict[str, Any]:
    """Return a dictionary with the keys as text: text has no hash that a file could choose."""
    result = {}
    for key, value in items.items() if isinstance(items, dict) else items:
        if key is not None and not isinstance(key, str | int | float):
            raise Malformed(f"its pickle has a key that is {type(key).__name__}, neither text nor a number")
        result[str(key)] = value
    return result


def _tensor(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> Weight:
    """Return a tensor; the rest are requires_grad, hooks, and marks such as that all numbers change their sign."""
    _checked(storage, Storage)
    weight = Weight(storage.dtype, _sizes(shape), storage, _natural(first), _sizes(strides))
    if weight.end > storage.size:
        raise Malformed(f"a tensor of shape {weight.shape} has more numbers than its storage")
    return replace(weight, storage=None) if any(rest[2:]) else weight


def _tensor_of_dtype(storage: Any, first: Any, shape: Any, strides: Any, *rest: Any) -> Weight:
    """Return a tensor whose storage is of bytes; its dtype is the third of the rest."""
    named = replace(_checked(storage, Storage), dtype=_checked(rest[2], _Dtype).name)
    return _tensor(named, first, shape, strides, *rest[:2], *rest[3:])


def _parameter(weight: Any, *_: Any) -> Weight:
    checked: Weight = _checked(weight, Weight)
    return checked


def _of_type(function: Any, _: Any, arguments: Any, *state: Any) -> Weight:
    """Return a tensor that has attributes, or a class of its own."""
    if function not in _FUNCTIONS.values() or function is _of_type:
        raise Malformed("its pickle makes a tensor with what is not a function of torch")
    return _parameter(function(*_checked(arguments, tuple)))


def _sparse(_: Any, data: Any) -> Weight:
    """Return a sparse tensor: `data` has its places, numbers and shape."""
    weights = [each for each in _checked(data, tuple) if isinstance(each, Weight)]
    return Weight(weights[-1].dtype, _sizes(next(each for each in data if isinstance(each, tuple))))


def _without_numbers(dtype: Any, shape: Any, *_: Any) -> Weight:
    return Weight(_checked(dtype, _Dtype).name, _sizes(shape))


def _other(*_: Any) -> None:
    """Stand for a value that is not read."""


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("collections.OrderedDict", "collections.Counter"), _mapping),
    **dict.fromkeys(("builtins.set", "builtins.complex", "builtins.bytearray", "_codecs.encode"), _other),
    **dict.fromkeys(("torch.device", "torch.serialization._get_layout"), _other),
    "torch.Size": lambda sizes=(): _sizes(sizes),
    "torch.nn.parameter.Parameter": _parameter,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _parameter,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_of_dtype,
    "torch._utils._rebuild_qtensor": lambda storage, first, shape, strides, *_: _tensor(storage, first, shape, strides),
    "torch._utils._rebuild_sparse_tensor": _sparse,
    "torch._utils._rebuild_nested_tensor": lambda weight, *_: Weight(_parameter(weight).dtype, ()),
    "torch._utils._rebuild_meta_tensor_no_storage": _without_numbers,
    "torch._utils._rebuild_wrapper_subclass": lambda _, dtype, shape, *rest: _without_numbers(dtype, shape),
    "torch._tensor._rebuild_from_type_v2": _of_type,
}


def _global(name: str) -> Any:
    """Return what a name stands for, "MODULE NAME" as pickletools gives it; raises Malformed for an unknown one."""
    name = name.replace("__builtin__ ", "builtins ").replace(" ", ".")  # as Python 2 named it
    storage, dtype = _STORAGE.fullmatch(name), _DTYPE.fullmatch(name)
    if name in _FUNCTIONS:
        return _FUNCTIONS[name]
    if storage and storage[1] in _STORAGES:
        return _Dtype(_STORAGES[storage[1]])
    if dtype:
        return _Dtype(dtype[1])
    if not _CLASS.fullmatch(name):
        raise Malformed(f"it asks for {shortened(name)}, and embcli runs nothing of a file; {ADVICE}")
    return None


_PUSHED = ("BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINSTRING")
_STEPS: dict[str, Callable[[_Machine, Any], object]] = {
    **dict.fromkeys(("PROTO", "STOP"), lambda *_: None),
    **dict.fromkeys(_PUSHED, _Machine.push),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "MARK": _Machine.mark,
    "TUPLE": lambda machine, _: machine.push(tuple(machine.marked())),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "APPEND": lambda machine, _: machine.append([machine.stack.pop()]),
    "APPENDS": lambda machine, _: machine.append(machine.marked()),
    "SETITEM": lambda machine, _: machine.set_items([machine.stack.pop(-2), machine.stack.pop()]),
    "SETITEMS": lambda machine, _: machine.set_items(machine.marked()),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda machine, place: machine.keep(place)),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, place: machine.push(machine.memo[place])),
    "GLOBAL": lambda machine, name: machine.push(_global(name)),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Machine.call),
    "BUILD": _Machine.build,
    "BINPERSID": _Machine.load_storage,
}
