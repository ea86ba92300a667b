"""Whether quantised weights have all of their parts, of the sizes that config.json states.

A weight is stored as several tensors: packed numbers, scales, zero points. transformers reads them
only with the package that unpacks them, and often on a GPU.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from contextlib import suppress

import numpy as np

from embcli.binary import JsonObject
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.quantised import INTEGERS, SCALED_DTYPES
from embcli.files.tensors import Tensor, Tensors

# The module and the part that a tensor's name has; the parts of NF4 follow those of the weight.
_NAME = re.compile(r"(.*?)\.(weight\..+|[^.]+)")
_WEIGHTS = ("qweight", "weight", "weight_packed")  # the parts that have the packed numbers
# The largest number that can be stored; numbers of a weight are smaller.
_LARGEST = {"float8_e4m3fn": 448, "float8_e5m2": 57_344}

_Parts = dict[str, Tensor]  # of a weight, by name


def faults_of_packed(checkpoint: Checkpoint, largest: Mapping[str, float]) -> dict[str, list[str]]:
    """Return the names of the quantised weights that a model cannot unpack, by what is wrong.

    `largest` has the largest absolute values of tensors. Without a `quantization_config`, no scale
    is applied: then 8-bit floats that have none may be plain numbers.
    """
    faulty = defaultdict(list)
    config = checkpoint.config
    settings = config.get("quantization_config") or config.get("quantization")
    for weights in _packed_weights(checkpoint.tensors).values() if config else ():
        counts = Counter(part for _, parts in weights for part in parts)
        common = {part for part, count in counts.items() if 2 * count > len(weights)}
        for weight, parts in weights:
            lost = sorted(common - {*parts, "bias"})
            if lost and settings:
                faulty[f"without {', '.join(lost)}, which others have"].append(weight.name)
                continue
            for problem in _problems(weight, parts, settings, largest):
                faulty[problem].append(weight.name)
    return faulty


def _packed_weights(tensors: Tensors) -> dict[str, list[tuple[Tensor, _Parts]]]:
    """Return the quantised weights and their parts, by the weights' dtypes."""
    modules: dict[str, _Parts] = defaultdict(dict)
    with suppress(InputError):  # Another check names a damaged file.
        for tensor in tensors.in_files():
            named = _NAME.fullmatch(tensor.name)
            if named:
                modules[named[1]][named[2]] = tensor
    packed = defaultdict(list)
    for _, parts in sorted(modules.items()):
        for part in parts.keys() & _WEIGHTS:
            weight = parts[part]
            if weight.dtype in (*INTEGERS, *SCALED_DTYPES):
                packed[weight.dtype].append((weight, parts))
    return packed


def _problems(
    weight: Tensor, parts: _Parts, settings: JsonObject | None, largest: Mapping[str, float]
) -> Iterator[str]:
    """Yield in words why a weight with all of its parts cannot be unpacked."""
    scales = [parts[part] for part in parts if "scale" in part or part in ("SCB", "weight.absmax")]
    sizes = ((), (1,), weight.shape[:1])  # of the scales of rows
    index = parts.get("g_idx")  # of GPTQ: the group of each input
    if settings is None:
        if scales or weight.dtype == "int8":
            yield "and no quantization_config in config.json"
    elif not scales:
        yield "without a scale"
    elif any(largest.get(scale.name) == 0 for scale in scales):
        yield "with a scale of zero"
    elif largest.get(weight.name, 0) >= _LARGEST.get(weight.dtype, np.inf):
        yield "with a scale of 1 or more"
    elif weight.dtype == "int8" and any(scale.shape[:1] not in sizes for scale in scales):
        yield "whose scales are not one for each row"
    elif index is not None and scales[0].shape[:1] <= (largest.get(index.name, 0),):
        yield "whose g_idx names groups without a scale"
    elif not _has_groups(settings, parts):
        yield "whose scales do not fit bits and group_size of config.json"
    start = weight.binary.read(weight.start, min(weight.size, 1 << 22))  # bytes tell enough
    if not start.strip(b"\0"):
        yield "with only zeros"


def _has_groups(settings: JsonObject, parts: _Parts) -> bool:
    """Return whether a weight of GPTQ or AWQ has scales for each group of its inputs."""
    method = settings.get("quant_method")
    if method not in ("gptq", "awq") or not {"scales", "qweight"} <= parts.keys():
        return True
    inputs = parts["qweight"].shape[0]
    with suppress(KeyError, TypeError, ZeroDivisionError):  # of odd settings
        if method == "gptq":  # which packs the rows, and AWQ columns
            inputs = inputs * 32 // settings["bits"]
        groups = -(-inputs // settings["group_size"])
        is_known = settings["group_size"] > 0 and settings.get("version", "gemm") == "gemm"
        return not is_known or parts["scales"].shape[0] == groups
    return True
