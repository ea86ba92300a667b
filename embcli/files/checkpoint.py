"""A real model's file as a source of weights, with what its config.json says about them.

`embcli.open` makes a Checkpoint, and the verbs ask it for layers. Nothing in the file is trusted:
InputError is raised for damaged files, and for settings that contradict the tensors.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cached_property, partial
from typing import Literal, NamedTuple

import numpy as np

from embcli.binary import JsonObject, quoted
from embcli.encodings.encoding import sibling_json
from embcli.errors import InputError, Notes
from embcli.files import open_named
from embcli.files.families import NORMS
from embcli.files.quantised import INTEGERS, UnpackedTensors
from embcli.files.recipes import PARAMETER_NAMES, recipe_of
from embcli.files.roles import Roles, equal_rows
from embcli.files.tensors import Tensor, computed_layer
from embcli.layer import Layer, Layers, Origin, Source, Wanted
from embcli.names import MatrixShape
from embcli.recipe import Norm, Project, Recipe
from embcli.wording import Sentence, counted


class Head(NamedTuple):
    """The output head and its relation to the token matrix.

    It is the `same` tensor, `equal` in the rows that were compared, or an `other` matrix. `tensor`
    is None if the file has no head. Then `same` says that the token matrix is used instead,
    `stated` that config.json says so, and `none` that there is no head, or that nothing is known.
    """

    relation: Literal["same", "stated", "equal", "other", "none"]
    tensor: Tensor | None = None
    rows: int = 0  # the number of rows compared
    reason: str = ""  # empty if the relation follows from the tensors

    @property
    def is_own(self) -> bool:
        """Whether it is another tensor than the token matrix."""
        return self.relation in ("equal", "other")

    @property
    def compared(self) -> str:
        """The rows that were compared, in words: `50 rows`, or `8 of 3,000 rows`."""
        if self.tensor is None or self.rows == self.tensor.shape[0]:
            return counted(self.rows, "row")
        return f"{self.rows:,} of {counted(self.tensor.shape[0], 'row')}"


class Checkpoint(Source):
    """A source of weights: the tensors of a real model by their roles.

    `path` is a file, a folder, or a model of the local Hugging Face cache; `token` names a token
    matrix that is not found by name. Raises InputError for a file that cannot be read, and if the
    token matrix is unknown.

    The file stays open, and rows are read when they are needed. Only the encoding, and the reason
    for it, are set later.
    """

    def __init__(self, path: str, token: str | None = None, notes: Notes | None = None) -> None:
        self.path = path
        self.encoding = None
        self.tokenizer_error: InputError | None = None  # why a tokenizer beside it is not known
        remarks = notes or Notes()
        stored = open_named(path, remarks)

        # A config.json that cannot be read is an error only for what needs it.
        self._config_error: InputError | None = None
        self.config: JsonObject = {}  # the whole of it, of which roles have a part
        try:
            self.config = sibling_json(stored.path, "config.json")
        except InputError as error:
            self._config_error = error

        self.tensors = UnpackedTensors(stored, self.config)
        roles = Roles(self.tensors, self.config, token)
        self.roles = roles
        self.reasons = dict(roles.reasons)  # a role -> why this tensor, if it is a guess
        if self._config_error:
            remarks.count(lambda: f"{self._config_error}; it is ignored")
        if roles.adapter:
            remarks.add(
                f"{roles.adapter}; it is not applied: "
                "merge it into its base model first (merge_and_unload of PEFT)"
            )
        if roles.token.dtype in INTEGERS:
            remarks.add(f"{roles.token} holds integers, shown as float32")

    def check_config(self) -> None:
        """Raise InputError if there is a config.json that cannot be read."""
        if self._config_error:
            raise self._config_error

    def shape(self, name: str) -> MatrixShape | None:
        """Return the shape of a layer, or None if there is no such layer.

        The layers are `token`, `position`, `token_type` and `head`.
        """
        tensor = self._tensor(name)
        if tensor is None:
            return None
        rows, dim = tensor.shape
        if name == "position":
            rows -= self.roles.first_position
        return rows, dim

    def _tensor(self, name: str) -> Tensor | None:
        """Return the tensor of a layer; the output head of a tied model is the token matrix."""
        if name != "head":
            return self.roles.find(name)
        if self.roles.is_custom_tensor:
            raise InputError(
                Sentence(
                    "the output head is that of the model's own token matrix: leave out {tensor}"
                )
            )
        head = self.head
        if head.tensor is not None:
            return head.tensor
        if head.relation in ("same", "stated"):
            return self.roles.token
        reason = f": {head.reason}" if head.reason else ""
        hint = "audit asks transformers whether the head is tied" if self.config else ""
        raise self.tensors.file_error(f"it has no output head{reason}", hint)

    @property
    def origin(self) -> Origin:
        return Origin(path=self.path)

    def open(self, wanted: Wanted, notes: Notes) -> Layers:
        """Return the named layers.

        They give any rows, whichever IDs are announced; except those of an array that is unpacked
        anew for each reading, whose announced rows are read at once.
        """
        if "position" in wanted:
            self.check_config()  # it says which row is that of position 0

        tensors = {}
        stored = []  # the layers of the file, which count their rounded values
        layers = {}
        for name, ids in wanted.items():
            tensor = self._tensor(name)
            if tensor is None:
                raise self.tensors.file_error(f"it has no {name.replace('_', ' ')} matrix")
            layer = self.tensors.layer(tensor.name)
            stored.append(layer)
            if name == "position" and self.roles.first_position:
                layer = _layer_after(tensor, layer, self.roles.first_position)
            if ids is not None and tensor.binary.is_streamed:
                layer = _kept_rows(tensor, layer, ids)
            tensors[name] = tensor
            layers[name] = layer
        notes.count(partial(_rounded_values, stored))
        return Layers(layers, self._origin_of(tensors, layers))

    def _origin_of(self, tensors: Mapping[str, Tensor], layers: Mapping[str, Layer]) -> Origin:
        unopened = {*self.tensors}
        for tensor in tensors.values():
            unopened -= {tensor.name, *tensor.computed_from}
        return Origin(
            shapes={
                name: tensors[name].array_shape or layer.shape for name, layer in layers.items()
            },
            path=self.path,
            tensors={name: tensor.name for name, tensor in tensors.items()},
            dtypes={name: tensor.dtype for name, tensor in tensors.items()},
            sizes={name: tensor.size for name, tensor in tensors.items()},
            guesses=self._guesses_about(layers),
            first_position=self.roles.first_position if "position" in layers else 0,
            unopened=frozenset(unopened),
            has_adapter=bool(self.roles.adapter),
            is_custom_tensor=self.roles.is_custom_tensor,
            is_remote=any(tensor.binary.is_remote for tensor in tensors.values()),
            is_streamed=any(tensor.binary.is_streamed for tensor in tensors.values()),
        )

    def _guesses_about(self, layers: Mapping[str, Layer]) -> dict[str, str]:
        """Return what was guessed about these layers, and why."""
        # Other guesses have the name of their layer.
        layers_of_guess = {"encoding": {"token", "head"}, "first_position": {"position"}}
        guesses = {}
        for subject, reason in self.reasons.items():
            if layers_of_guess.get(subject, {subject}) & layers.keys():
                guesses[subject] = reason
        return guesses

    @cached_property
    def recipe(self) -> Recipe | None:  # type: ignore[override]
        """How token rows become the input of the first block; None without a `model_type`."""
        self.check_config()
        return None if self.roles.is_custom_tensor else recipe_of(self.roles)

    @property
    def input_tensors(self) -> list[str]:
        """The names of the tensors that token rows are scaled, added, normed or projected with."""
        tensors = filter(None, map(self.roles.find, ("position", "token_type")))
        names = [*self.roles.token.computed_from, *(tensor.name for tensor in tensors)]
        for step in self.recipe.steps if self.recipe else ():
            if isinstance(step, Norm | Project):
                names += filter(None, (step.weight, step.bias))
        return names

    @property
    def orphan_norm(self) -> str:  # type: ignore[override]
        """The name of a norm next to the token matrix that no file says how to apply, or empty."""
        module = self.roles.token.name.split(".")[:-2]
        for norm in NORMS:
            for weight in PARAMETER_NAMES["weight"]:
                name = ".".join([*module, norm, weight])
                if name in self.tensors:
                    return name
        return ""

    @property
    def positions(self) -> dict[str, str | int | float]:
        """What config.json or the metadata of a GGUF file says about positions."""
        keys = (
            "model_type",
            "position_embedding_type",
            "max_position_embeddings",
            "n_positions",
            "rope_theta",
        )
        values = self.roles.settings.values
        rope = values.get("rope_parameters")
        known = {**rope, **values} if isinstance(rope, dict) else values
        positions = {}
        for key in keys:
            value = known.get(key)
            if isinstance(value, str | int | float):
                positions[key] = value
        return positions

    @cached_property
    def head(self) -> Head:
        """The output head, and whether it is tied to the token matrix."""
        token = self.roles.token
        tensor = self.roles.find("head")
        if tensor is None:
            return self._head_without_tensor()
        if tensor.stored_at == token.stored_at:
            return Head("same", tensor)
        rows = equal_rows(token, tensor)
        return Head("equal" if rows else "other", tensor, rows)

    def _head_without_tensor(self) -> Head:
        """Return what config.json states, or what llama.cpp does without an output.weight."""
        misfit = self.roles.misfit_head
        if misfit:
            return Head("none", reason=misfit)
        if self.tensors.format == "GGUF":
            return self._head_of_gguf()
        is_tied = self.roles.config.get("tie_word_embeddings")
        if not isinstance(is_tied, bool):
            return Head("none")
        return Head(
            "stated" if is_tied else "none",
            reason=f"config.json states tie_word_embeddings {str(is_tied).lower()}",
        )

    def _head_of_gguf(self) -> Head:
        metadata = self.tensors.metadata
        architecture = str(metadata.get("general.architecture"))
        if re.search("bert|encoder|embedding", architecture):
            return Head("none", reason=f"{quoted(architecture)} is an encoder, which has none")
        is_causal = metadata.get(f"{architecture}.attention.causal", True)
        is_token_embd = self.roles.token.name.split(".")[0] == "token_embd"
        if is_token_embd and is_causal:
            return Head("same", reason="the file has no output.weight")
        return Head("none")


def _layer_after(tensor: Tensor, layer: Layer, first: int) -> Layer:
    """Return the rows of a layer after the first few, so that row 0 is that of position 0."""
    rows, dim = layer.shape
    described = replace(tensor, shape=(rows - first, dim))
    return computed_layer(described, lambda ids: layer.rows(ids + first), (layer,))


def _kept_rows(tensor: Tensor, layer: Layer, ids: np.ndarray) -> Layer:
    """Return the rows of a layer with these IDs, which are read once."""
    kept_ids = np.unique(ids)
    rows = layer.rows(kept_ids)
    described = replace(tensor, shape=layer.shape)
    return computed_layer(described, lambda ids: rows[np.searchsorted(kept_ids, ids)], (layer,))


def _rounded_values(layers: Iterable[Layer]) -> str:
    count = sum(layer.rounded_values for layer in layers)
    if not count:
        return ""
    return f"{counted(count, 'value')} rounded to float32, which does not hold all digits of them"
