"""Whether tensors that no row is read from have numbers that a model can use: norms, layers."""

from __future__ import annotations

import re
from collections import defaultdict
from contextlib import suppress

import numpy as np

from embcli.errors import InputError
from embcli.files.quantised import SCALED_DTYPES
from embcli.files.tensors import Tensors
from embcli.layer import Origin
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, NotChecked
from embcli.wording import counted, first_of

_MOST_BYTES = 1 << 30  # of all tensors, above which only vectors are read


def check_other_tensors(files: ModelFiles, origin: Origin) -> Found:
    """Check that the other tensors are finite, and that none is zero where its like are not."""
    names = sorted({*origin.unopened, *files.input_tensors})
    largest: dict[str, float] = {}
    if files.checkpoint and not origin.is_remote:
        largest = _largest_values(files.checkpoint.tensors, names, files.input_tensors)

    # A mask can have infinite values.
    non_finite = [name for name in largest if "mask" not in name and not largest[name] < np.inf]
    if non_finite:
        text = f"{counted(len(non_finite), 'other tensor')} with NaN or infinite values: "
        text += first_of(non_finite, 3)
        yield Finding("alarm", "non-finite", len(non_finite), text)
    unscaled = _without_scale(files)
    if unscaled:
        text = f"{counted(len(unscaled), 'quantised weight')} without a scale: "
        text += first_of(unscaled, 3)
        yield Finding("alarm", "load", len(unscaled), text)
    zero = _zero_weights(largest)
    if zero:
        text = f"{counted(len(zero), 'other tensor')} with only zeros: {first_of(zero, 3)}"
        yield Finding("finding", "zero", len(zero), text)
    if len(largest) < len(names):
        yield NotChecked(counted(len(names) - len(largest), "other tensor"))


def _without_scale(files: ModelFiles) -> list[str]:
    """Return the weights of 8 bits or GPTQ's form whose module has no scale, in a quantised model.

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
            scaled.add(module)
        elif kind == "qweight" or tensor.dtype in SCALED_DTYPES:
            weights.append((module, name))
    return sorted(name for module, name in weights if module not in scaled)


def _largest_values(tensors: Tensors, names: list[str], always: list[str]) -> dict[str, float]:
    """Return the largest absolute value of each tensor that is read; NaN if it has one.

    Vectors and those of the names `always` are read, and the others if all are small.
    """
    largest: dict[str, float] = {}
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


def _zero_weights(largest: dict[str, float]) -> list[str]:
    """Return the zero weights that are not so in another layer; a norm is held against all."""
    kinds: dict[str, list[str]] = defaultdict(list)
    for name in largest:
        if name.endswith("weight"):
            kind = "norm" if re.search("norm|ln_", name) else re.sub("[0-9]+", "0", name)
            kinds[kind].append(name)
    zero: list[str] = []
    for names in kinds.values():
        if any(largest[name] for name in names):
            zero += [name for name in names if not largest[name]]
    return zero
