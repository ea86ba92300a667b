"""Whether the layers of a model are trained, and each has weights of its own."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from embcli.asked.weights import NUMBER
from embcli.files.quantised import INTEGERS
from embcli.files.tensors import Tensor, Tensors
from embcli.verbs.audit.finding import Found, of_tensors

# How many times as large as most matrices of layers, or as small, one is by a fault.
_TIMES = 100
_MOST_TIMES = 1000  # as a drawn one, for all layers
_TIMES_IN_KIND = 15  # as most of its kind, if there are three
# What is in the names of weights that are added to numbers, and can have any size.
_ADDED = re.compile("bias|emb|pos|lora_")


class Numbers(NamedTuple):
    """What is known of the values of a tensor."""

    least: float
    most: float
    size: float  # the root of the mean of their squares

    @classmethod
    def of(cls, values: np.ndarray) -> Numbers:
        with np.errstate(all="ignore"):  # The square of a large value overflows.
            size = float(np.linalg.norm(values)) / math.sqrt(values.size)
        return cls(float(values.min()), float(values.max()), size)

    @property
    def largest(self) -> float:
        return max(abs(self.least), abs(self.most))

    @property
    def is_constant(self) -> bool:
        return self.least == self.most


def check_layers(tensors: Tensors, numbers: dict[str, Numbers], deviation: float | None) -> Found:
    """Check that no weight of a layer is a copy, as it was initialised, or of another size.

    `deviation` is the standard deviation of drawn weights, if it is known.
    """
    weights = [name for name in numbers if NUMBER.search(name) and name.endswith("weight")]
    norms = [name for name in numbers if re.search("(norm|ln_).*weight$", name)]
    constant = [name for name in norms if numbers[name].is_constant and numbers[name].largest]
    if 2 * len(constant) <= len(norms):
        yield from of_tensors("finding", "initial", constant, "constant, as norms are initialised")
    matrices = [name for name in weights if _is_matrix(tensors[name], numbers[name])]
    constant = [name for name in matrices if numbers[name].is_constant]
    yield from of_tensors("finding", "constant", constant, "with one number everywhere")
    yield from of_tensors(
        "finding", "equal", [*_copies(tensors, matrices, numbers)], "with another one's numbers"
    )
    sizes = {name: numbers[name].size for name in matrices if not _ADDED.search(name)}
    if sizes:
        yield from _check_sizes(sizes, deviation)


def _check_sizes(sizes: dict[str, float], deviation: float | None) -> Found:
    """Check that no matrix is far larger or smaller than most, or than those of its kind."""
    typical = float(np.median([*sizes.values()]))
    if deviation and typical > _MOST_TIMES * deviation:
        text = f"about {typical:.2g} in size, far larger than drawn ones"
        yield from of_tensors("finding", "outliers", [*sizes], text)

    kinds: dict[str, dict[str, float]] = defaultdict(dict)
    for name, size in sizes.items():
        kinds[NUMBER.sub("*", name)][name] = size
    others = {*_of_another_size(sizes, _TIMES)}
    for of_kind in kinds.values():
        if len(of_kind) > 2:
            others |= {*_of_another_size(of_kind, _TIMES_IN_KIND)}
    yield from of_tensors(
        "finding", "outliers", sorted(others), "far larger or smaller than those of other layers"
    )


def _of_another_size(sizes: dict[str, float], times: float) -> list[str]:
    """Return the names of weights so many times as large as the median, or as small."""
    typical = float(np.median([*sizes.values()]))
    return [name for name in sizes if not typical / times < sizes[name] < typical * times]


def _is_matrix(tensor: Tensor, numbers: Numbers) -> bool:
    """Return whether a tensor is a matrix of numbers, not packed, finite and not all zero."""
    return tensor.is_matrix and tensor.dtype not in INTEGERS and 0 < numbers.size < math.inf


def _copies(tensors: Tensors, names: Iterable[str], numbers: dict[str, Numbers]) -> Iterator[str]:
    """Yield the names of the matrices with the bytes of an earlier one, each with that one's."""
    first_names: dict[Numbers, str] = {}
    for name in names:
        first = first_names.setdefault(numbers[name], name)
        if first != name and _is_copy(tensors[first], tensors[name]):
            yield f"{name} of {first}"


def _is_copy(first: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have equal bytes, each its own."""
    return first.stored_at != other.stored_at and _bytes_of(first) == _bytes_of(other)


def _bytes_of(tensor: Tensor) -> bytes:
    return tensor.binary.read(tensor.start, tensor.size)
