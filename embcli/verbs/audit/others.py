"""Whether tensors that no row is read from have numbers that a model can use."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress

import numpy as np

from embcli.asked.weights import NUMBER, ModelFacts
from embcli.errors import InputError
from embcli.files.tensors import Tensors
from embcli.layer import Origin
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Found, not_checked, of_tensors
from embcli.verbs.audit.layers import Numbers, check_layers
from embcli.verbs.audit.packed import faults_of_packed
from embcli.wording import counted, in_data

_MOST_BYTES = 1 << 33  # of all tensors, above which only vectors are read
_LEAST_SIZE = 32  # of a matrix in which a part of zeros is none by chance
# What is in the names of tensors that can have zeros, such as the rows of tokens without a text.
_MAY_BE_ZERO = re.compile("mask|bias|norm|emb|position|wpe|wte|idx|index|zero")


def check_other_tensors(files: ModelFiles, origin: Origin, facts: ModelFacts | None) -> Found:
    """Check that the other tensors are finite, and none has only zeros.

    Those of layers are compared with one another.
    """
    names = sorted({*origin.unopened, *files.input_tensors})
    numbers = {}
    with_zeros = []
    local = None if origin.is_remote else files.tensors
    if local:
        for name, values in _arrays(local, names, files.input_tensors):
            numbers[name] = Numbers.of(values)
            if not _MAY_BE_ZERO.search(name) and _has_many_zeros(values):
                with_zeros.append(name)

    largest = {name: each.largest for name, each in numbers.items()}
    # A mask can have infinite values.
    unmasked = [name for name in largest if "mask" not in name]
    non_finite = [name for name in unmasked if not largest[name] < files.overflow_at]
    yield from of_tensors(
        "alarm", "non-finite", non_finite, "with NaN, infinite or overflowing values"
    )
    faulty = faults_of_packed(files.checkpoint, largest) if local and files.checkpoint else {}
    for problem, unscaled in faulty.items():
        yield from of_tensors("alarm", "load", unscaled, problem, noun="quantised weight")
    zero = sorted({*_zero_weights(largest, facts)}.difference(*faulty.values()))
    yield from of_tensors("finding", "zero", zero, "with only zeros")
    yield from of_tensors(
        "finding",
        "zero",
        with_zeros,
        "zero in a block of rows or columns, or outside of a diagonal",
    )
    if local:
        yield from check_layers(local, numbers, files.deviation)
    unread = [name for name in names if name not in largest]
    if unread:
        yield not_checked(in_data(f"{counted(len(unread), 'other tensor')}, such as {unread[0]}"))


def _arrays(
    tensors: Tensors, names: list[str], always: list[str]
) -> Iterator[tuple[str, np.ndarray]]:
    """Yield tensors with values: vectors, those named `always`, and the others if all are small."""
    are_small = False
    with suppress(InputError):  # An index names what its files lack.
        are_small = sum(tensor.size for tensor in tensors.values()) <= _MOST_BYTES
    for name in names:
        with suppress(InputError):
            tensor = tensors[name]
            is_vector = len(tensor.shape) < 2
            if tensor.size and (is_vector or are_small or name in always):
                yield name, tensors.array(name)


def _has_many_zeros(values: np.ndarray) -> bool:
    """Return whether a matrix is zero outside of a diagonal, or in a block.

    A block is a sixteenth of the rows or columns, side by side.
    """
    if values.ndim < 2:
        return False
    matrix = values.reshape(-1, values.shape[-1])
    if min(matrix.shape) < _LEAST_SIZE or not matrix.any():
        return False
    parts = [*np.array_split(matrix, 16), *np.array_split(matrix, 16, axis=1)]
    if np.count_nonzero(matrix) <= max(matrix.shape):
        return True
    return not all(part.any() for part in parts)


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
