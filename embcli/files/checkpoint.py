"""A real model's file as a source of weights: which tensors are its token and position matrix, output head and so on.

Tensors are found by the last parts of their names, so any prefix may precede them, and must have a fitting shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from embcli.binary import Binary, shortened
from embcli.encodings import Encoding
from embcli.encodings.own import OwnWords
from embcli.errors import InputError
from embcli.files import names, open_tensors, recipes
from embcli.files.families import Family
from embcli.files.recipes import Settings
from embcli.files.tensors import Tensor, Tensors
from embcli.hub import located
from embcli.layer import Layer, Layers, Origin
from embcli.names import Part
from embcli.notes import Notes
from embcli.recipe import AddPosition, AddType, Project, Recipe
from embcli.strict_json import read_object

# Models that read texts inside of others, as config.json calls them, and the beginning of their tensors' names.
_MIXED = {"text_encoder": "text_encoder", "semantic_config": "semantic"}  # of MusicGen and Bark, others read sound
_TEXT_MODELS = ("text_config", "llm_config", "thinker_config", *_MIXED)
_LAYER_OF_GUESS = {"encoding": "token", "first_position": "position"}  # others are about the layer of their name

_MOST_LISTED = 8  # candidates in a message
_COMPARED = 1 << 26  # bytes of two matrices that are compared at most
_CONFIG_LONGEST = 1 << 24  # bytes
_ABOUT_POSITIONS = ("model_type", "position_embedding_type", "max_position_embeddings", "n_positions", "rope_theta")


@dataclass(frozen=True)
class Head:
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
        """Return these rows, (n,) int64 -> (n, D) float32."""
        return self._layer.rows(ids + self._first)


class Checkpoint:
    """A source of weights: the tensors of a real model by their roles.

    `path` is a file, a folder, or a model of the local Hugging Face cache; `token` names a token matrix that is not
    found by name. Raises InputError for a file that cannot be read, and if the token matrix is unknown.
    """

    encoding: Encoding | None = None  # of the token rows

    def __init__(self, path: str, token: str | None = None, notes: Notes | None = None) -> None:
        self.notes = Notes() if notes is None else notes
        self.tensors = open_tensors(located(path), self.notes)
        self.path = path
        self.reasons: dict[str, str] = {}  # a role -> why this tensor, if it is a guess
        self._chosen = token
        self._tensors: dict[str, Tensor | None] = {}
        self._open: dict[str, Layer] = {}  # as they are in the file
        self._file_config, self._config_error = self._read_config()
        self.notes.count(self._rounded)
        self.notes.count(lambda: f"{self._config_error}; it is ignored" if self._config_error else "")
        self._shape = _shape(self._token())

    def with_encoding(self, encoding: Encoding | None, reason: str = "") -> Checkpoint:
        """Return this checkpoint with the encoding of its token rows; `reason` says why, if it is a guess."""
        other = copy(self)
        other.encoding = encoding
        other.reasons = {**self.reasons, **({"encoding": reason} if reason else {})}
        return other

    @property
    def origin(self) -> Origin:
        """Where the numbers come from; that of open layers says more."""
        return Origin(path=self.path)

    def _origin(self, layers: Mapping[str, Layer]) -> Origin:
        opened = {name: self._tensor(name) for name in layers}
        return Origin(
            shapes={name: layer.shape for name, layer in layers.items()},
            path=self.path,
            tensors={name: tensor.name for name, tensor in opened.items()},
            dtypes={name: tensor.dtype for name, tensor in opened.items()},
            sizes={name: tensor.size for name, tensor in opened.items()},
            guesses={about: why for about, why in self.reasons.items() if _LAYER_OF_GUESS.get(about, about) in opened},
            first_position=self.first_position if "position" in opened else 0,
            is_other=self.is_other,
        )

    @cached_property
    def is_other(self) -> bool:
        """Whether the user named another tensor in place of a token matrix that is known by its name."""
        known = self._fitting("token") if self._chosen else []
        return bool(known) and self._tensor("token") not in known

    def without_other(self) -> Checkpoint:
        """Return this checkpoint with its own token matrix, if the user named another tensor in place of it."""
        if not self.is_other:
            return self
        return Checkpoint(self.path, notes=self.notes).with_encoding(self.encoding)

    @property
    def has_tokens(self) -> bool:
        """Whether the rows of the `token` layer can stand for tokens: those of another tensor if it has as many."""
        known = self._fitting("token") if self.is_other else []
        return not known or self._tensor("token").shape[0] in [each.shape[0] for each in known]

    def resized(self, context_length: int) -> Checkpoint:
        """Return this checkpoint, whose position layer has the length that it has."""
        return self

    def _rounded(self) -> str:
        """Return the remark on the values read so far that float32 does not hold exactly."""
        count = sum(layer.rounded_values for layer in tuple(self._open.values()))
        return f"{count:,} values were rounded to float32, which does not hold them exactly" if count else ""

    def shape(self, name: str) -> tuple[int, int] | None:
        """Return the shape of the `token`, `position`, `token_type` or `head` layer; None if there is no such layer."""
        if name == "token":
            return self._shape
        tensor = self.find(name)
        if tensor is None:
            return None
        rows, dim = _shape(tensor)
        return rows - (self.first_position if name == "position" else 0), dim

    def open(self, wanted: Mapping[str, np.ndarray | None]) -> Layers:
        """Return the named layers; any IDs may be asked of them, whichever are announced."""
        layers = {name: self._opened(name) for name in wanted}
        return Layers(layers, self._origin(layers))

    def _opened(self, name: str) -> Layer:
        if name == "position":  # config.json says which row is that of position 0
            self._check_config()
        if name not in self._open:
            tensor = self._tensor(name)
            self._open[name] = self.tensors.layer(tensor.name)
        layer = self._open[name]
        return ShiftedLayer(layer, self.first_position) if name == "position" and self.first_position else layer

    def find(self, name: str) -> Tensor | None:
        """Return the tensor of a layer, or None; raises InputError if several tensors are candidates."""
        if name not in self._tensors:
            is_chosen = name == "token" and self._chosen is not None
            self._tensors[name] = self._by_choice(self._chosen or "") if is_chosen else self._by_name(name)
        return self._tensors[name]

    def _read_config(self) -> tuple[dict[str, Any], InputError | None]:
        """Return the config.json beside the weights, empty if there is none, and why it cannot be read."""
        path = self.tensors.path.parent / "config.json"
        try:
            return (read_object(Binary(path), _CONFIG_LONGEST) if path.is_file() else {}), None
        except InputError as error:
            return {}, error

    def _check_config(self) -> None:
        """Raise the InputError of a config.json that cannot be read; what is only about token rows does not need it."""
        if self._config_error is not None:
            raise self._config_error

    @cached_property
    def _config_part(self) -> Part | None:
        """The part that the tokens' half of config.json is about, where a model is put together from two models."""
        if self._file_config.get("model_type") == "encoder-decoder":
            return "encoder"
        if self._text_model:
            return None
        said = self._file_config
        alone = (said.get("is_decoder"), said.get("is_encoder_decoder")) == (True, False)  # the decoder of two parts
        if alone and recipes.has_two_parts(said.get("model_type")):
            return "decoder"
        return "decoder" if isinstance(said.get("decoder"), dict) else None  # the encoder sees or hears

    @property
    def _text_model(self) -> str:
        """The beginning of the names of the only tensors that read texts, if other models in the file do not."""
        names = (name for key, name in _MIXED.items() if isinstance(self._file_config.get(key), dict))
        return next(names, "")

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config.json beside the weights, with the part about the text model; empty if there is none."""
        config = dict(self._file_config)
        keys = (*_TEXT_MODELS, *((self._config_part,) if self._config_part else ()))
        while parts := [each for key in keys if isinstance(each := config.pop(key, None), dict)]:
            config = {**config, **parts[0]}
        return config

    @cached_property
    def settings(self) -> Settings:
        """The config.json, or what the metadata of a GGUF file says under its names, read strictly."""
        if self.config:
            return Settings(self.config, self.tensors.refused)
        return Settings(recipes.of_gguf(self.tensors.metadata), self.tensors.refused, "its metadata")

    @cached_property
    def family(self) -> Family | None:
        """The family of the model, by config.json; None if it is not known."""
        return recipes.family_of(self.settings, self._config_part)

    @property
    def part(self) -> Part | None:
        """The encoder or the decoder where both read tokens."""
        reads = self.family.reads if self.family and not self._text_model else ()
        return self._config_part or (reads[0] if reads else None)

    @property
    def _has_two_parts(self) -> bool:
        """Whether an encoder and a decoder read tokens, as far as is known."""
        if self._config_part is not None:
            return self._file_config.get("model_type") == "encoder-decoder"
        return self.family is None or (bool(self.family.reads) and not self._text_model)

    @cached_property
    def recipe(self) -> Recipe | None:
        """How token rows become what the first block reads; None without a config.json that names the model's type.

        Raises InputError if config.json cannot be read, or does not fit the tensors.
        """
        self._check_config()
        if self.is_other:
            return None
        roles = [role for role in ("position", "token_type") if self.find(role) is not None]
        part = self.part if self._has_two_parts else None
        return recipes.recipe_of(
            self.settings, self.family, self.tensors, self._shape[1], self._module_tensor, roles, part
        )

    @property
    def unapplied(self) -> str:
        """The name of a norm beside the token matrix, if nothing says how the model applies it; otherwise empty."""
        module = _parts(self._tensor("token").name)[:-2]
        beside = (".".join([*module, norm, end]) for norm in names.NORMS for end in recipes.SUFFIXES["weight"])
        return next((name for name in beside if name in self.tensors), "")

    def _module_tensor(self, end: str) -> Tensor | None:
        """Return the tensor whose name ends like this; of several, the one nearest to the token matrix."""
        named, near = self._of_part(self._ending(end)), self._tensor("token").name
        best = max(named, key=lambda name: (_shared_parts(name, near), -name.count("."), name), default=None)
        return None if best is None else self.tensors[best]

    def _ending(self, end: str) -> list[str]:
        """Return the names of tensors that end with these parts."""
        parts = end.split(".")
        return [name for name, own in self._by_last_part.get(parts[-1], ()) if own[-len(parts) :] == parts]

    def _of_part(self, named: list[str]) -> list[str]:
        """Return the names that belong to the chosen part; all of them if none does."""
        return [name for name in named if self.part in _parts(name)] or named

    @cached_property
    def positions(self) -> dict[str, str | int | float]:
        """What config.json or the metadata of a GGUF file says about positions."""
        metadata = self.tensors.metadata
        architecture = metadata.get("general.architecture")
        rope = self.config.get("rope_parameters")
        known = {
            "model_type": architecture,
            "max_position_embeddings": metadata.get(f"{architecture}.context_length"),
            "rope_theta": metadata.get(f"{architecture}.rope.freq_base"),
            **(rope if isinstance(rope, dict) else {}),
            **self.config,
        }
        return {key: known[key] for key in _ABOUT_POSITIONS if isinstance(known.get(key), str | int | float)}

    @cached_property
    def first_position(self) -> int:
        """The row of the position matrix that position 0 picks."""
        tensor, model = self.find("position"), self.settings.values.get("model_type")
        if tensor is None:
            return 0
        rows = tensor.shape[0]
        if isinstance(model, str):
            first = recipes.first_position(self.family, self.settings) if self.family else 0
            return first if first < rows else 0
        shifted = names.shifted_positions(tensor.name, rows)
        if shifted is None or shifted.first_row >= rows:
            return 0
        reason = f"{shortened(tensor.name)} {shifted.reason.format(rows=rows)}"
        self.reasons["first_position"] = f"position 0 is row {shifted.first_row}: {reason}"
        return shifted.first_row

    @cached_property
    def head(self) -> Head:
        """The output head, and whether it is tied to the token matrix."""
        token, tensor = self._tensor("token"), self.find("head")
        tied = self.config.get("tie_word_embeddings")
        if tensor is None:
            if isinstance(tied, bool):
                reason = "config.json says so" if tied else "config.json says that it is a separate matrix"
                return Head(None, "same" if tied else "none", reason=reason)
            reason = self._reason_to_assume_tied()
            return Head(None, "same" if reason else "none", reason=reason)
        if tensor.place == token.place:
            return Head(tensor, "same")
        rows = _equal_rows(self.tensors, token, tensor)
        return Head(tensor, "equal", rows) if rows else Head(tensor, "other")

    def _reason_to_assume_tied(self) -> str:
        """Return why a model whose file has no output head uses the token matrix; empty if nothing says so.

        Hugging Face's config.json omits `tie_word_embeddings` if it is true, its default; llama.cpp uses token_embd if
        a causal model has no output.weight.
        """
        metadata, classes = self.tensors.metadata, self.config.get("architectures")
        causal = metadata.get(f"{metadata.get('general.architecture')}.attention.causal", True)
        if self.tensors.format == "GGUF" and causal and _parts(self._tensor("token").name)[0] == "token_embd":
            return "the file has no output.weight"
        with_head = [each for each in classes if names.CAUSAL.search(str(each))] if isinstance(classes, list) else []
        return f"config.json names {shortened(str(with_head[0]))} and no head of its own" if with_head else ""

    def _tensor(self, name: str) -> Tensor:
        tensor = self.find(name)
        if tensor is None:
            raise self.tensors.refused(f"it has no {name.replace('_', ' ')} matrix")
        return tensor

    def _by_choice(self, name: str) -> Tensor:
        """Return the tensor that the user names."""
        if name not in self.tensors:
            raise self._undecided(f"it has no tensor {shortened(name)}")
        if not self.tensors[name].is_matrix:
            raise self.tensors.refused(f"tensor {self.tensors[name]} is not a matrix", parameters=("tensor",))
        return self.tensors[name]

    def _token(self) -> Tensor:
        """Return the token matrix by name, or the only matrix."""
        tensor = self.find("token")
        if tensor is not None:
            return tensor
        matrices = list(self._matrices())
        if len(matrices) != 1:
            why = f" of a {self.settings.values['model_type']} model: {self.family.unknown}" if self.family else ""
            raise self._undecided(f"no tensor has the name of a token matrix{why}")
        self._tensors["token"] = matrices[0]
        if not isinstance(self.tensors.own_words(), OwnWords):  # word vectors are no guess
            self.reasons["token"] = f"{shortened(matrices[0].name)} is the only two-dimensional tensor"
        return matrices[0]

    def _by_name(self, role: str) -> Tensor | None:
        """Return the tensor with the first known name of a role; of several, the one nearest to the token matrix."""
        fitting = self._fitting(role)
        if role != "token" and len(fitting) > 1:
            near = self._tensor("token").name
            shared = [_shared_parts(tensor.name, near) for tensor in fitting]
            fitting = [tensor for tensor, parts in zip(fitting, shared, strict=True) if parts == max(shared)]
            fitting = self._encoders(role, fitting)
        return self._one_of_equal(role, fitting) if fitting else None

    def _fitting(self, role: str) -> list[Tensor]:
        """Return the tensors with the first known name of a role that any tensor of a fitting shape has."""
        for known in names.NAMES[role]:
            named = (self.tensors[name] for name in self._ending(known))
            if fitting := [tensor for tensor in named if self._fits(role, tensor)]:
                if len(fitting) == 1 or role == "head":
                    return fitting
                own = self._of_part([tensor.name for tensor in fitting])
                return [tensor for tensor in fitting if tensor.name in own]
        return []

    def _encoders(self, role: str, fitting: list[Tensor]) -> list[Tensor]:
        """Return the encoder's of two tensors, if the other is the decoder's; otherwise all of them."""
        own = [tensor for tensor in fitting if "encoder" in _parts(tensor.name)]
        if len(fitting) != 2 or len(own) != 1 or not any("decoder" in _parts(tensor.name) for tensor in fitting):
            return fitting
        self.reasons[role] = f"{shortened(own[0].name)} is the encoder's; the decoder has another"
        return own

    @cached_property
    def _by_last_part(self) -> dict[str, list[tuple[str, list[str]]]]:
        """The tensors' names and their parts without a suffix, by the last of these parts."""
        ends: dict[str, list[tuple[str, list[str]]]] = {}
        model = self._config_part or self._text_model  # of several in the file
        every = [(name, _parts(name)) for name in self.tensors]
        for name, parts in [each for each in every if model in each[1]] or every:
            ends.setdefault(parts[-1], []).append((name, parts))
            if len(parts) > 1 and parts[-1] in names.SUFFIXES:
                ends.setdefault(parts[-2], []).append((name, parts[:-1]))
        return ends

    def _one_of_equal(self, role: str, candidates: list[Tensor]) -> Tensor:
        """Return the first of several tensors; raises InputError unless all are one tensor, or equal."""
        first, *others = sorted(candidates, key=lambda tensor: (tensor.name.count("."), tensor.name))
        for other in others:
            if other.place != first.place and not _equal_rows(self.tensors, first, other):
                raise self._undecided(f"several tensors could be the {role.replace('_', ' ')} matrix", candidates, role)
        if others:
            self.reasons[role] = f"{shortened(first.name)} is one of {len(candidates)} equal tensors"
        return first

    def _fits(self, role: str, tensor: Tensor) -> bool:
        """Return whether a tensor has a shape that its role allows."""
        if not tensor.is_matrix or role == "token":
            return tensor.is_matrix
        rows, dim = tensor.shape
        projected = self._projected.get(role)
        if projected is not None:
            return dim == projected.shape[0]
        return dim == self._shape[1] and (role != "head" or 2 * rows > self._shape[0])

    @cached_property
    def _projected(self) -> dict[str, Tensor | None]:
        """The tensor that projects token rows before the rows of another role are added, by this role."""
        projections: dict[str, Tensor | None] = {}
        last = None
        for step in self.family.steps if self.family else ():
            if isinstance(step, Project):
                last = self._module_tensor(f"{step.name}.weight")
            elif isinstance(step, AddPosition | AddType):
                projections["position" if isinstance(step, AddPosition) else "token_type"] = last
        return projections

    def _matrices(self) -> Iterator[Tensor]:
        return (tensor for tensor in self.tensors.values() if tensor.is_matrix)

    def _undecided(self, reason: str, candidates: list[Tensor] | None = None, role: str = "token") -> InputError:
        """Return the error that lists the candidates, or all matrices."""
        listed = candidates or sorted(self._matrices(), key=lambda tensor: -max(tensor.shape))
        if not listed:
            return self.tensors.refused("it has no two-dimensional tensor, so no weight matrix")
        shown = "; ".join(map(str, listed[:_MOST_LISTED]))
        more = f"; and {len(listed) - _MOST_LISTED:,} more" if len(listed) > _MOST_LISTED else ""
        if role != "token":
            return self.tensors.refused(reason, f"{shown}{more}")
        return self.tensors.refused(f"{reason}; choose one with tensor", f"{shown}{more}", parameters=("tensor",))


def _shape(tensor: Tensor) -> tuple[int, int]:
    rows, dim = tensor.shape
    return rows, dim


def _parts(name: str) -> list[str]:
    return name.replace("/", ".").replace(":", ".").split(".")


def _shared_parts(name: str, other: str) -> int:
    """Return how many first parts two names share."""
    pairs = list(zip(_parts(name), _parts(other), strict=False))
    return next((count for count, (part, same) in enumerate(pairs) if part != same), len(pairs))


def _equal_rows(tensors: Tensors, first: Tensor, second: Tensor) -> int:
    """Return how many rows of two matrices were compared and are equal; 0 if any differs.

    Of large matrices, rows spread over the whole matrix are compared.
    """
    if first.shape != second.shape or first.dtype != second.dtype:
        return 0
    rows, dim = first.shape
    count = min(rows, max(_COMPARED // (8 * dim), 2))
    ids = np.unique(np.linspace(0, rows - 1, count).astype(np.int64))
    one, other = tensors.layer(first.name), tensors.layer(second.name)
    step = max((1 << 20) // dim, 1)
    for start in range(0, len(ids), step):
        part = ids[start : start + step]
        if one.stored(part).tobytes() != other.stored(part).tobytes():
            return 0
    return len(ids)
