"""LoRA adapters of embeddings, as PEFT writes them: a base model with what an adapter adds to rows.

An adapter has two matrices for an embedding, `lora_embedding_A`, (r, V), and `lora_embedding_B`,
(D, r). The row of a token is that of the base plus its column of A times B, scaled as its
adapter_config.json says. In PEFT, this is `Embedding.get_delta_weight` of tuners/lora/layer.py.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from embcli.binary import quoted
from embcli.encodings.encoding import Encoding, sibling_json
from embcli.errors import InputError, Notes
from embcli.files import open_named
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.layer import Layer, Layers, Origin

_FIRST = "lora_embedding_A"
_SECOND = "lora_embedding_B"


def adapted_modules(names: Iterable[str]) -> list[str]:
    """Return the modules that an adapter adds to, as they are named in its file."""
    ends = [re.search(rf"(.*)\.{_FIRST}(\.\w+)?$", name) for name in names]
    return [end[1] for end in ends if end]


class AdaptedLayer(Layer):
    """The rows of a base, and what an adapter adds to them."""

    dtype = "float32"

    def __init__(self, base: Layer, first: np.ndarray, second: np.ndarray, scale: float) -> None:
        self.shape = base.shape
        self.parts = (base,)
        self._base = base
        self._first = first  # (r, V) float32
        self._second = second  # (D, r) float32
        self._scale = np.float32(scale)

    def rows(self, ids: np.ndarray) -> np.ndarray:
        added = self._first[:, ids].T @ self._second.T
        rows: np.ndarray = self._base.rows(ids) + added * self._scale
        return rows


class AdaptedSource:
    """A checkpoint whose token rows an adapter changes; its other layers are those of the base.

    Raises InputError for an adapter of another matrix or of a kind that is not known.
    """

    recipe = None
    orphan_norm = ""

    def __init__(self, base: Checkpoint, path: str) -> None:
        self.base = base
        self.path = path
        tensors = open_named(path)
        self.module = _module_of(tensors, base)
        self._first = _array(tensors, self.module, _FIRST)
        self._second = _array(tensors, self.module, _SECOND)
        rank = self._first.shape[0]
        size, dim = base.roles.token.shape
        if self._first.shape != (rank, size) or self._second.shape != (dim, rank):
            sizes = f"{self._first.shape} and {self._second.shape}"
            raise tensors.file_error(
                f"its {_FIRST} and {_SECOND} have the shapes {sizes}; {base.roles.token} needs "
                f"(r, {size}) and ({dim}, r)"
            )
        self._scale = _scale_of(tensors, self.module, rank)

    def __reduce__(self) -> tuple[Any, ...]:
        return AdaptedSource, (self.base, self.path)

    @property
    def origin(self) -> Origin:
        return Origin(path=self.path)

    @property
    def encoding(self) -> Encoding | None:
        return self.base.encoding

    def resized(self, context_length: int) -> AdaptedSource:
        return self

    def shape(self, name: str) -> tuple[int, int] | None:
        return self.base.shape(name)

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        layers = self.base.open(wanted, notes)
        tensors = dict(layers.origin.tensors)
        opened: dict[str, Layer] = {**layers}
        if "token" in opened:
            opened["token"] = AdaptedLayer(layers["token"], self._first, self._second, self._scale)
            tensors["token"] += " + lora_embedding"
        origin = replace(layers.origin, path=self.path, tensors=tensors)
        return Layers(opened, origin, self)


def _module_of(tensors: Tensors, base: Checkpoint) -> str:
    """Return the module whose name ends as that of the token matrix: `wte`, `embed_tokens`."""
    token = base.roles.token
    last_part = token.name.removesuffix(".weight").split(".")[-1]
    modules = adapted_modules(tensors)
    for module in modules:
        if module.split(".")[-1] == last_part:
            return module
    names = ", ".join(map(quoted, modules))
    raise tensors.file_error(f"it adapts {names}, and the base has {token}")


def _array(tensors: Tensors, module: str, part: str) -> np.ndarray:
    names = [name for name in tensors if name.startswith(f"{module}.{part}")]
    if not names:
        raise tensors.file_error(f"it has no {part} of {quoted(module)}")
    return tensors.array(names[0])


def _scale_of(tensors: Tensors, module: str, rank: int) -> float:
    """Return lora_alpha / r, or lora_alpha / sqrt(r), as adapter_config.json says."""
    config = sibling_json(tensors.path, "adapter_config.json")
    if config.get("use_dora"):
        raise tensors.file_error("it uses DoRA, which embcli does not apply")
    alpha = _alpha_of(config, module)
    if type(alpha) not in (int, float):
        raise InputError(f"{quoted(str(tensors.path))} needs a lora_alpha in adapter_config.json")
    divisor = math.sqrt(rank) if config.get("use_rslora") else rank
    return float(alpha) / divisor


def _alpha_of(config: Mapping[str, Any], module: str) -> Any:
    """Return the lora_alpha of a module, which a pattern of its name can set."""
    patterns = config.get("alpha_pattern")
    for pattern, alpha in patterns.items() if isinstance(patterns, dict) else ():
        try:
            if re.fullmatch(rf"(.*\.)?({pattern})", module):
                return alpha
        except re.error:
            raise InputError(f"alpha_pattern {pattern[:40]!r} is not a pattern") from None
    return config.get("lora_alpha")
