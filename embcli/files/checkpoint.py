"""A real model's file as a source of weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import numpy as np

from embcli.binary import Binary, quoted, read_object
from embcli.encodings import Encoding
from embcli.errors import InputError, Notes
from embcli.files import open_tensors
from embcli.files.families import HEADED, HEADLESS, NORMS
from embcli.files.recipes import SUFFIXES, recipe_of
from embcli.files.roles import Roles, equal_rows
from embcli.files.tensors import Tensor
from embcli.hub import located
from embcli.layer import Layer, Layers, Origin
from embcli.recipe import Recipe

_LAYER_OF_GUESS = {
    "encoding": "token",
    "first_position": "position",
}  # others are about the layer of their name
_CONFIG_LONGEST = 1 << 24  # bytes
_ABOUT_POSITIONS = (
    "model_type",
    "position_embedding_type",
    "max_position_embeddings",
    "n_positions",
    "rope_theta",
)


class Head(NamedTuple):
    """The output head: `same` as the token matrix in the file, `equal` to it in the rows compared, or `other`.

    `tensor` is None if the file has none: then the token matrix replaces it, for a `reason`, or nothing is known.
    """

    tensor: Tensor | None
    relation: Literal["same", "equal", "other", "none"]
    rows: int = 0  # how many were compared
    reason: str = ""  # if it does not follow from the tensors


class ShiftedLayer(Layer):
    """The rows of a layer from a first one on: those of the positions from 0 on."""

    def __init__(self, layer: Layer, first: int) -> None:
        self.shape, self.dtype = (layer.shape[0] - first, layer.shape[1]), layer.dtype
        self._layer, self._first = layer, first

    def rows(self, ids: np.ndarray) -> np.ndarray:
        return self._layer.rows(ids + self._first)


class Checkpoint:
    """A source of weights: the tensors of a real model by their roles.

    `path` is a file, a folder, or a model of the local Hugging Face cache; `token` names a token matrix that is not
    found by name. Raises InputError for a file that cannot be read, and if the token matrix is unknown.
    """

    def __init__(self, path: str, token: str | None = None, notes: Notes | None = None) -> None:
        self.path = path
        self.token = token
        self.encoding: Encoding | None = None  # of the token rows
        self.tensors = open_tensors(located(path), notes)
        beside, config = self.tensors.path.parent / "config.json", {}
        self._config_error: InputError | None = None
        try:
            config = read_object(Binary(beside), _CONFIG_LONGEST) if beside.is_file() else {}
        except (
            InputError
        ) as error:  # raised by what needs it: what is only about token rows does not
            self._config_error = error
        self.roles = Roles(self.tensors, config, token)
        self.reasons = dict(self.roles.reasons)  # a role -> why this tensor, if it is a guess
        if notes is not None:
            notes.count(self._ignored)

    def __reduce__(self) -> tuple[Any, ...]:
        state = {"encoding": self.encoding, "reasons": self.reasons}
        return Checkpoint, (self.path, self.token), state  # read anew

    def _ignored(self) -> str:
        return f"{self._config_error}; it is ignored" if self._config_error else ""

    def name_encoding(self, encoding: Encoding | None, reason: str = "") -> None:
        """Set the encoding of the token rows; `reason` says why, if it is a guess."""
        self.encoding = encoding
        if reason:
            self.reasons["encoding"] = reason

    def without_other(self) -> Checkpoint:
        """Return this checkpoint with its own token matrix, if the user named another tensor in place of it."""
        if not self.roles.is_custom_tensor:
            return self
        own = Checkpoint(self.path)
        own.name_encoding(self.encoding)
        return own

    @property
    def has_tokens(self) -> bool:
        """Whether the rows of the `token` layer can stand for tokens: those of another tensor if it has as many."""
        return not self.roles.is_custom_tensor or self.roles.token.shape[0] in [
            each.shape[0] for each in self.roles.known
        ]

    def resized(self, context_length: int) -> Checkpoint:
        """Return this checkpoint, whose position layer has the length that it has."""
        return self

    def shape(self, name: str) -> tuple[int, int] | None:
        """Return the shape of the `token`, `position`, `token_type` or `head` layer; None if there is no such layer."""
        tensor = self.roles.find(name)
        if tensor is None:
            return None
        rows, dim = tensor.shape
        return rows - (self.roles.first_position if name == "position" else 0), dim

    @property
    def origin(self) -> Origin:
        return Origin(path=self.path)

    def open(self, wanted: Mapping[str, np.ndarray | None], notes: Notes | None = None) -> Layers:
        """Return the named layers; any IDs may be asked of them, whichever are announced."""
        if (
            self._config_error and "position" in wanted
        ):  # config.json says which row is that of position 0
            raise self._config_error
        opened: dict[str, Tensor] = {}
        layers: dict[str, Layer] = {}
        for name in wanted:
            tensor = self.roles.find(name)
            if tensor is None:
                raise self.tensors.file_error(f"it has no {name.replace('_', ' ')} matrix")
            opened[name] = tensor
            layers[name] = self.tensors.layer(tensor.name)
        if notes is not None:
            notes.count(partial(_rounded, tuple(layers.values())))  # as they are in the file
        first = self.roles.first_position if "position" in wanted else 0
        if first:
            layers["position"] = ShiftedLayer(layers["position"], first)
        origin = Origin(
            shapes={name: layer.shape for name, layer in layers.items()},
            path=self.path,
            tensors={name: tensor.name for name, tensor in opened.items()},
            dtypes={name: tensor.dtype for name, tensor in opened.items()},
            sizes={name: tensor.size for name, tensor in opened.items()},
            guesses={
                about: why
                for about, why in self.reasons.items()
                if _LAYER_OF_GUESS.get(about, about) in opened
            },
            first_position=first,
            unopened=len(self.tensors) - len(opened),
            is_custom_tensor=self.roles.is_custom_tensor,
        )
        return Layers(layers, origin, self)

    @cached_property
    def recipe(self) -> Recipe | None:
        """How token rows become what the first block reads; None without a config.json that names the model's type."""
        if self._config_error:
            raise self._config_error
        return None if self.roles.is_custom_tensor else recipe_of(self.roles, self.values)

    def values(self, name: str) -> np.ndarray:
        return self.tensors.array(
            name
        )  # a recipe is pickled with this method, and so with what reads the file anew

    @property
    def orphan_norm(self) -> str:
        """The name of a norm beside the token matrix, if nothing says how the model applies it; otherwise empty."""
        module = self.roles.token.name.split(".")[:-2]
        beside = (".".join([*module, norm, end]) for norm in NORMS for end in SUFFIXES["weight"])
        return next((name for name in beside if name in self.tensors), "")

    @property
    def positions(self) -> dict[str, str | int | float]:
        """What config.json or the metadata of a GGUF file says about positions."""
        metadata = self.tensors.metadata
        architecture = metadata.get("general.architecture")
        rope = self.roles.config.get("rope_parameters")
        known = {
            "model_type": architecture,
            "max_position_embeddings": metadata.get(f"{architecture}.context_length"),
            "rope_theta": metadata.get(f"{architecture}.rope.freq_base"),
            **(rope if isinstance(rope, dict) else {}),
            **self.roles.config,
        }
        return {
            key: known[key]
            for key in _ABOUT_POSITIONS
            if isinstance(known.get(key), str | int | float)
        }

    @cached_property
    def head(self) -> Head:
        """The output head, and whether it is tied to the token matrix.

        Hugging Face's config.json omits `tie_word_embeddings` if it is true, its default; llama.cpp uses token_embd if
        a causal model has no output.weight.
        """
        roles, metadata = self.roles, self.tensors.metadata
        token, tensor, config = roles.token, roles.find("head"), roles.config
        if tensor is not None and tensor.place == token.place:
            return Head(tensor, "same")
        if tensor is not None:
            rows = equal_rows(token, tensor)
            return Head(tensor, "equal" if rows else "other", rows)
        architecture, reason = metadata.get("general.architecture"), ""
        relation: Literal["same", "none"] = "none"
        tied, classes = config.get("tie_word_embeddings"), config.get("architectures")
        named = [str(each) for each in classes] if isinstance(classes, list) else []
        headed = next(filter(HEADED.search, named), "")
        if named and not headed and all(map(HEADLESS.search, named)):
            reason = f"config.json names {quoted(named[0])}, which has none"
        elif isinstance(tied, bool):
            relation = "same" if tied else "none"
            reason = (
                "config.json says so" if tied else "config.json says that it is a separate matrix"
            )
        elif headed:
            relation, reason = "same", f"config.json names {quoted(headed)} and no head of its own"
        elif self.tensors.format == "GGUF" and re.search(
            "bert|encoder|embedding", str(architecture)
        ):
            reason = f"{quoted(str(architecture))} is an encoder, which has none"
        elif self.tensors.format == "GGUF" and token.name.split(".")[0] == "token_embd":
            relation = "same" if metadata.get(f"{architecture}.attention.causal", True) else "none"
            reason = "the file has no output.weight" if relation == "same" else ""
        return Head(None, relation, reason=reason)


def _rounded(layers: Iterable[Layer]) -> str:
    count = sum(layer.rounded_values for layer in layers)
    return (
        f"{count:,} values were rounded to float32, which does not hold them exactly"
        if count
        else ""
    )
