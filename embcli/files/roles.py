"""The roles of a model's tensors: which is the token matrix, the position matrix, the output head.

Tensors are found by the last parts of their names, so any prefix may precede them, and must have
a fitting shape. `Checkpoint` makes the roles of a file once, from its tensors and its config.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import Any

import numpy as np

from embcli.binary import quoted
from embcli.encodings.encoding import OwnWords
from embcli.errors import InputError
from embcli.files.families import (
    NAMES,
    SHIFTED_POSITIONS,
    SUFFIXES,
    Family,
    Settings,
    family_of,
    first_position,
    has_two_parts,
    settings_of_gguf,
)
from embcli.files.tensors import Tensor, Tensors
from embcli.names import ModelPart
from embcli.recipe import AddPosition, AddType, Project
from embcli.wording import Sentence

# Models that contain a text model beside models of sound: MusicGen and Bark. A key of config.json
# that has the text model's settings, and the part of the tensors' names that marks the text model.
_TEXT_MODELS_BESIDE_SOUND = {"text_encoder": "text_encoder", "semantic_config": "semantic"}
COMPARED = 1 << 26  # the most bytes of two matrices that are compared


class Roles:
    """The tensors of a model by their roles, and the settings of the part that reads tokens.

    All roles are assigned when it is made; then it does not change. InputError is raised at once if
    the token matrix is unknown; the error of another role is kept until `find` asks for that role.

    `whole_config` is a config.json, empty if there is none. `chosen` names a tensor that the user
    wants as the token matrix.
    """

    def __init__(
        self, tensors: Tensors, whole_config: Mapping[str, Any], chosen: str | None = None
    ) -> None:
        self.tensors = tensors
        text_model = _text_model_beside_sound(whole_config)
        described_part = None if text_model else _described_part(whole_config, tensors)

        # The part of config.json about the model that reads tokens; empty without a config.json.
        self.config = _text_config(whole_config, described_part)
        self.settings = _settings(self.config, tensors)
        self.family: Family | None = None
        with suppress(InputError):  # for a value of a wrong type; the recipe raises it again
            self.family = family_of(self.settings, described_part)

        reading_parts: tuple[ModelPart, ...] = ()
        if self.family and not text_model:
            reading_parts = self.family.reading_parts
        # The part of the model whose tensors are wanted; None for a model without such parts.
        self.part = described_part
        if described_part is None and reading_parts:
            self.part = reading_parts[0]
        # Whether two parts read tokens; true as well for an unknown family.
        self.has_two_parts = self.family is None or len(reading_parts) > 0
        if described_part:
            self.has_two_parts = whole_config.get("model_type") == "encoder-decoder"

        name_part = described_part or text_model
        names = [name for name in tensors if name_part in _parts(name)] or list(tensors)
        self._dotted_names = {name: f".{'.'.join(_parts(name))}" for name in names}

        self.reasons: dict[str, str] = {}  # a role -> why this tensor, if it is a guess
        named = self._named("token", lambda tensor: tensor.is_matrix)
        # The tensors with the name of a token matrix, if the user chose a tensor.
        self.known = named if chosen is not None else []
        self.token = self._token_matrix(named, chosen)
        self.first_position = 0  # the row of the position matrix that position 0 picks
        self._others: dict[str, Tensor | InputError | None] = {}
        for role in ("position", "token_type", "head"):
            try:
                tensor = self._other_matrix(role)
                if tensor is not None and role == "position":
                    self.first_position = self._first_position(tensor)
                self._others[role] = tensor
            except InputError as error:
                self._others[role] = error

    def find(self, role: str) -> Tensor | None:
        """Return the tensor of a role, or None; raises InputError if several could be it."""
        found = self.token if role == "token" else self._others[role]
        if isinstance(found, InputError):
            raise found
        return found

    @property
    def is_custom_tensor(self) -> bool:
        """Whether the user chose another tensor than a token matrix that is known by its name."""
        return bool(self.known) and self.token not in self.known

    def nearest(self, end: str) -> Tensor | None:
        """Return the tensor whose name ends so; of several, the nearest to the token matrix."""

        def closeness(tensor: Tensor) -> tuple[int, int, str]:
            return self._shared_parts(tensor), -tensor.name.count("."), tensor.name

        return max(self._of_part(self._with_end(end)), key=closeness, default=None)

    def _named(self, role: str, fits: Callable[[Tensor], bool]) -> list[Tensor]:
        """Return the tensors with the first known name of a role that any fitting tensor has."""
        for name in NAMES[role]:
            fitting = [tensor for tensor in self._with_end(name) if fits(tensor)]
            if fitting:
                return fitting if role == "head" else self._of_part(fitting)
        return []

    def _with_end(self, end: str) -> list[Tensor]:
        ends = (f".{end}", *(f".{end}.{suffix}" for suffix in SUFFIXES))
        names = [name for name, dotted in self._dotted_names.items() if dotted.endswith(ends)]
        return [self.tensors[name] for name in names]

    def _of_part(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors that belong to the part; all of them if none does."""
        return [tensor for tensor in tensors if self.part in _parts(tensor.name)] or tensors

    def _shared_parts(self, tensor: Tensor) -> int:
        """Return how many parts at the beginning of its name the token matrix shares."""
        pairs = zip(_parts(tensor.name), _parts(self.token.name), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    def _token_matrix(self, named: list[Tensor], chosen: str | None) -> Tensor:
        tensors = self.tensors
        if chosen is not None:
            if chosen not in tensors:
                raise _undecided_error(tensors, f"it has no tensor {quoted(chosen)}")
            tensor = tensors[chosen]
            if not tensor.is_matrix:
                no_matrix = Sentence("{tensor} {chosen} is not a matrix", chosen=tensor)
                raise tensors.file_error(no_matrix)
            return tensor
        if named:
            return self._one_of_equal("token", named)

        matrices = [tensor for tensor in tensors.values() if tensor.is_matrix]
        if len(matrices) != 1:
            reason = "no tensor has the name of a token matrix"
            if self.family:
                reason += f" of a {self.settings.values['model_type']} model"
                if self.family.unknown:
                    reason += f": {self.family.unknown}"
            raise _undecided_error(tensors, reason)
        tensor = matrices[0]
        # The only matrix of word vectors is no guess.
        if not isinstance(tensors.own_words(), OwnWords):
            self.reasons["token"] = f"{quoted(tensor.name)} is the only two-dimensional tensor"
        return tensor

    def _other_matrix(self, role: str) -> Tensor | None:
        """Return the tensor of another role; of several, the nearest to the token matrix.

        Raises InputError if several are as near and not equal.
        """
        if role == "head":
            fitting = self._named(role, self._fits_head)
        else:
            dim = self._dim_of_sum(AddPosition if role == "position" else AddType)
            fitting = self._named(role, lambda tensor: tensor.is_matrix and tensor.shape[1] == dim)
        if not fitting:
            return None

        most_shared_parts = max(self._shared_parts(tensor) for tensor in fitting)
        nearest = [tensor for tensor in fitting if self._shared_parts(tensor) == most_shared_parts]
        encoders = [tensor for tensor in nearest if "encoder" in _parts(tensor.name)]
        decoders = [tensor for tensor in nearest if "decoder" in _parts(tensor.name)]
        if len(nearest) == 2 and len(encoders) == 1 and decoders:
            encoder = encoders[0]
            name = quoted(encoder.name)
            self.reasons[role] = f"{name} is the encoder's; the decoder has another"
            nearest = [encoder]
        return self._one_of_equal(role, nearest)

    def _fits_head(self, tensor: Tensor) -> bool:
        if not tensor.is_matrix:
            return False
        rows, dim = self.token.shape
        # In RemBERT, the head has more columns than the token matrix.
        has_columns = tensor.shape[1] == dim or self.settings.values.get("model_type") == "rembert"
        return has_columns and 2 * tensor.shape[0] > rows

    def _dim_of_sum(self, step_type: type[AddPosition | AddType]) -> int:
        """Return the columns of the rows that a step adds to; a projection can precede the step."""
        dim = self.token.shape[1]
        projection = None
        for step in self.family.steps if self.family else ():
            if isinstance(step, Project):
                projection = self.nearest(f"{step.name}.weight")
            elif isinstance(step, step_type):
                return projection.shape[0] if projection else dim
        return dim

    def _one_of_equal(self, role: str, candidates: list[Tensor]) -> Tensor:
        """Return the first of several tensors; raises InputError unless all have equal rows."""
        by_name = sorted(candidates, key=lambda tensor: (tensor.name.count("."), tensor.name))
        first = by_name[0]
        for other in by_name[1:]:
            if other.place != first.place and not equal_rows(first, other):
                reason = f"several tensors could be the {role.replace('_', ' ')} matrix"
                can_choose = role == "token"
                raise _undecided_error(self.tensors, reason, candidates, can_choose=can_choose)
        if len(candidates) > 1:
            self.reasons[role] = f"{quoted(first.name)} is one of {len(candidates)} equal tensors"
        return first

    def _first_position(self, position: Tensor) -> int:
        """Return the row of position 0: from the family, or guessed without a config.json."""
        rows = position.shape[0]
        if isinstance(self.settings.values.get("model_type"), str):
            row = first_position(self.family, self.settings) if self.family else 0
            return row if row < rows else 0

        for shifted in SHIFTED_POSITIONS:
            has_rows = rows > 2 and shifted.rows_modulo_64 in (None, rows % 64)
            if has_rows and re.search(shifted.name, position.name):
                reason = f"{quoted(position.name)} {shifted.reason.format(rows=rows)}"
                self.reasons["first_position"] = f"position 0 is row 2: {reason}"
                return 2
        return 0


def _text_model_beside_sound(config: Mapping[str, Any]) -> str:
    """Return the part of the names of a text model's tensors; empty for most models."""
    for key, name_part in _TEXT_MODELS_BESIDE_SOUND.items():
        if isinstance(config.get(key), dict):
            return name_part
    return ""


def _described_part(config: Mapping[str, Any], tensors: Tensors) -> ModelPart | None:
    """Return the part that config.json describes for tokens; None for a model that is one whole."""
    model_type = config.get("model_type")
    if model_type == "encoder-decoder":
        return "encoder"

    if has_two_parts(model_type):
        if (config.get("is_decoder"), config.get("is_encoder_decoder")) == (True, False):
            return "decoder"
        parts: set[str] = set()
        for name in tensors:
            parts.update(_parts(name))
        has_decoder_only = "decoder" in parts and not parts & {"encoder", "shared"}
        return "decoder" if has_decoder_only else None

    # The encoder of such a model reads images or sound.
    return "decoder" if isinstance(config.get("decoder"), dict) else None


def _text_config(whole_config: Mapping[str, Any], part: ModelPart | None) -> dict[str, Any]:
    """Return config.json with the settings of its text model, which can lie several levels deep."""
    keys = ["text_config", "llm_config", "thinker_config", *_TEXT_MODELS_BESIDE_SOUND]
    if part:
        keys.append(part)
    config = dict(whole_config)
    while True:
        values = [config.pop(key, None) for key in keys]
        text_configs = [value for value in values if isinstance(value, dict)]
        if not text_configs:
            return config
        config |= text_configs[0]


def _settings(config: Mapping[str, Any], tensors: Tensors) -> Settings:
    """Return the settings of config.json; without one, those of the metadata of a GGUF file."""
    if config:
        return Settings(config, tensors.file_error)
    return Settings(settings_of_gguf(tensors.metadata), tensors.file_error, "its metadata")


def _undecided_error(
    tensors: Tensors, reason: str, candidates: Iterable[Tensor] = (), can_choose: bool = True
) -> InputError:
    """Return the error that lists the candidates, or all matrices, the largest first."""
    listed = list(candidates)
    if not listed:
        matrices = [tensor for tensor in tensors.values() if tensor.is_matrix]
        listed = sorted(matrices, key=lambda tensor: -max(tensor.shape))
    if not listed:
        return tensors.file_error("it has no two-dimensional tensor, so no weight matrix")

    most_listed = 8
    hint = "; ".join(str(tensor) for tensor in listed[:most_listed])
    if len(listed) > most_listed:
        hint += f"; and {len(listed) - most_listed:,} more"
    if not can_choose:
        return tensors.file_error(reason, hint)
    return tensors.file_error(Sentence("{reason}; choose one with {tensor}", reason=reason), hint)


def _parts(name: str) -> list[str]:
    return name.replace("/", ".").replace(":", ".").split(".")


def equal_rows(first: Tensor, second: Tensor) -> int:
    """Return how many rows of two matrices were compared and are equal; 0 if any differs."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return 0
    rows, dim = first.shape
    count = min(rows, max(COMPARED // (8 * dim), 2))
    first_layer = first.matrix(first)
    second_layer = second.matrix(second)
    spread_ids = np.linspace(0, rows - 1, count).astype(np.int64)
    for ids in np.array_split(spread_ids, count * dim // (1 << 20) + 1):
        if first_layer.stored(ids).tobytes() != second_layer.stored(ids).tobytes():
            return 0
    return count
