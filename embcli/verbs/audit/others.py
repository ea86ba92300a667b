"""Whether tensors that no row is read from have numbers that a model can use: norms, layers."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress

from embcli.asked.weights import NUMBER, ModelFacts
from embcli.errors import InputError
from embcli.files.quantised import SCALED_DTYPES
from embcli.files.tensors import Tensor, Tensors
from embcli.layer import Origin
from embcli.names import Fault
from embcli.verbs.audit.files import OVERFLOW_AT, ModelFiles
from embcli.verbs.audit.finding import Finding, Found, Level, not_checked
from embcli.wording import counted, first_of

_MOST_BYTES = 1 << 30  # of all tensors, above which only vectors are read


def check_other_tensors(files: ModelFiles, origin: Origin, facts: ModelFacts | None) -> Found:
    """Check that the other tensors are finite, that none has only zeros, and no layer is a copy."""
    names = sorted({*origin.unopened, *files.input_tensors})
    largest = {}
    if files.checkpoint and not origin.is_remote:
        largest = _largest_values(files.checkpoint.tensors, names, files.input_tensors)

    # A mask can have infinite values.
    non_finite = []
    for name, value in largest.items():
        if "mask" not in name and not value < OVERFLOW_AT:
            non_finite.append(name)
    yield from _said(
        "alarm",
        "non-finite",
        non_finite,
        "other tensor",
        "with NaN, infinite or overflowing values",
    )
    unscaled = _without_scale(files, largest)
    yield from _said("alarm", "load", unscaled, "quantised weight", "without a non-zero scale")
    zero = _zero_weights(largest, facts)
    yield from _said("finding", "zero", zero, "other tensor", "with only zeros")
    if files.checkpoint:
        yield from _copied_layers(files.checkpoint.tensors, largest)
    if len(largest) < len(names):
        yield not_checked(counted(len(names) - len(largest), "other tensor"))


def _said(level: Level, kind: Fault, names: list[str], noun: str, problem: str) -> Found:
    """Yield a finding about the tensors of these names, or nothing if there are none."""
    if names:
        text = f"{counted(len(names), noun)} {problem}: {first_of(names, 3)}"
        yield Finding(level, kind, len(names), text)


def _without_scale(files: ModelFiles, largest: dict[str, float]) -> list[str]:
    """Return the weights of 8 bits or GPTQ's form whose module has no scale except zeros.

    Without a `quantization_config`, 8-bit floats may be plain numbers.
    """
    checkpoint = files.checkpoint
    if checkpoint is None or "quantization_config" not in checkpoint.config:
        return []
    weights = []
    scaled = set()
    for name, tensor in checkpoint.tensors.items():
        module, _, kind = name.rpartition(".")
        if "scale" in kind or kind == "SCB":
            if largest.get(name) != 0:
                scaled.add(module)
        elif kind == "qweight" or tensor.dtype in SCALED_DTYPES:
            weights.append((module, name))
    return sorted(name for module, name in weights if module not in scaled)


def _largest_values(tensors: Tensors, names: list[str], always: list[str]) -> dict[str, float]:
    """Return the largest absolute value of each tensor that is read; NaN if it has one.

    Vectors and those of the names `always` are read, and the others if all are small.
    """
    largest = {}
    are_small = False
    with suppress(InputError):  # An index names what its files lack.
        are_small = sum(tensor.size for tensor in tensors.values()) <= _MOST_BYTES
    for name in names:
        with suppress(InputError):
            tensor = tensors[name]
            is_vector = len(tensor.shape) < 2
            if tensor.size and (is_vector or are_small or name in always):
                values = tensors.array(name)
                largest[name] = max(abs(float(values.min())), abs(float(values.max())))
    return largest


def _zero_weights(largest: dict[str, float], facts: ModelFacts | None) -> list[str]:
    """Return the weights with only zeros, except where a new norm is zero, and all norms are.

    A weight without a layer can be zero as well: a model need not have token types.
    """
    kinds = defaultdict(list)
    for name in largest:
        if name.endswith("weight"):
            kind = "norm" if re.search("norm|ln_", name) else NUMBER.sub("*", name)
            kinds[kind].append(name)
    zero = []
    for kind, names in kinds.items():
        are_zero = [name for name in names if not largest[name]]
        if len(are_zero) == len(names) and "*" not in kind:
            are_zero = [name for name in are_zero if facts and facts.is_one(name)]
        zero += are_zero
    return zero


def _copied_layers(tensors: Tensors, largest: dict[str, float]) -> Found:
    """Yield the layers that have the tensors of an earlier one.

    Only layers are compared whose tensors have the same largest values.
    """
    layers = defaultdict(list)
    for name, value in largest.items():
        number = NUMBER.search(name)
        if number:
            layers[name[: number.end()]].append(value)
    first_layers: dict[tuple[float, ...], str] = {}
    for layer, values in layers.items():
        first = first_layers.setdefault(tuple(values), layer)
        if first != layer and _are_copies(tensors, first, layer):
            text = f"{layer} is a copy of {first}: all their tensors are equal"
            yield Finding("finding", "equal", 1, text)


def _are_copies(tensors: Tensors, first: str, other: str) -> bool:
    """Return whether two layers have equal bytes in all tensors, of which one is a matrix."""
    has_matrix = False
    for name, tensor in tensors.items():
        if name.startswith(f"{first}."):
            twin = tensors.get(other + name.removeprefix(first))
            if twin is None or _bytes_of(tensor) != _bytes_of(twin):
                return False
            has_matrix |= tensor.is_matrix
    return has_matrix


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.binary.read(tensor.start, tensor.size)
