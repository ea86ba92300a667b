"""Which tensors of a model are its token and position matrix, token types and output head, and why.

Tensors are found by the last parts of their names, so any prefix may precede them, and must have a fitting shape.
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
from embcli.files import families
from embcli.files.families import NAMES, SHIFTED, SUFFIXES, Family, Settings
from embcli.files.tensors import Tensor, Tensors
from embcli.names import ModelPart
from embcli.recipe import AddPosition, AddType, Project
from embcli.wording import Sentence

# Models that read texts inside of others, as config.json calls them, and the beginning of their tensors' names.
_MIXED = {
    "text_encoder": "text_encoder",
    "semantic_config": "semantic",
}  # of MusicGen and Bark, others read sound
_TEXT_MODELS = ("text_config", "llm_config", "thinker_config", *_MIXED)
_MOST_LISTED = 8  # candidates in a message
COMPARED = 1 << 26  # bytes of two matrices that are compared at most


class Roles:
    """The tensors of a model by their roles, and what its config.json says about the part that reads tokens.

    `said` is a config.json, and `chosen` names a token matrix; an InputError says that this is unknown.
    """

    def __init__(
        self, tensors: Tensors, said: Mapping[str, Any], chosen: str | None = None
    ) -> None:
        text_model = next(
            (name for key, name in _MIXED.items() if isinstance(said.get(key), dict)), ""
        )
        half = None if text_model else _half(said, tensors)
        config = dict(said)
        keys = (*_TEXT_MODELS, *filter(None, (half,)))
        while inner := [each for key in keys if isinstance(each := config.pop(key, None), dict)]:
            config = {**config, **inner[0]}
        self.config: Mapping[str, Any] = (
            config  # with the part about the text model; empty if there is none
        )
        settings = Settings(config, tensors.file_error) if config else None
        # The same, or what the metadata of a GGUF file says under its names, read strictly.
        self.settings = settings or Settings(
            families.of_gguf(tensors.metadata), tensors.file_error, "its metadata"
        )
        self.family: Family | None = None
        with suppress(InputError):  # for a value of a wrong type, which the recipe refuses
            self.family = families.family_of(self.settings, half)
        reads = self.family.reads if self.family and not text_model else ()
        self.part: ModelPart | None = half or (
            reads[0] if reads else None
        )  # of a model with two that read tokens
        is_one = self.family is not None and not reads
        self.has_two_parts = (
            said.get("model_type") == "encoder-decoder" if half else not is_one
        )  # as far as is known
        self.reasons: dict[str, str] = {}  # a role -> why this tensor, if it is a guess
        self.tensors = tensors
        begin = half or text_model  # of the names of the only model in the file that reads tokens
        names = [name for name in tensors if begin in _parts(name)] or list(tensors)
        self._dotted = {name: ".".join(["", *_parts(name)]) for name in names}
        known = self._named("token", lambda tensor: tensor.is_matrix)
        self.known = (
            known if chosen is not None else []
        )  # with a token matrix' name, if the user named another tensor
        self.token = self._token(known, chosen)
        self._others: dict[str, Tensor | InputError | None] = {}  # an error if several could be it
        self.first_position = 0  # the row of the position matrix that position 0 picks
        for role in ("position", "token_type", "head"):
            try:
                self._others[role] = tensor = self._other(role)
                if tensor is not None and role == "position":
                    self.first_position = self._first_position(tensor)
            except InputError as error:
                self._others[role] = error

    def find(self, role: str) -> Tensor | None:
        """Return the tensor of a role, or None; raises InputError if several tensors could be it."""
        found = self.token if role == "token" else self._others[role]
        if isinstance(found, InputError):
            raise found
        return found

    @property
    def is_custom_tensor(self) -> bool:
        """Whether the user named another tensor in place of a token matrix that is known by its name."""
        return bool(self.known) and self.token not in self.known

    def nearest(self, end: str) -> Tensor | None:
        """Return the tensor whose name ends like this; of several, the one nearest to the token matrix."""
        found = self._of_part(self._ending(end))
        return max(
            found,
            key=lambda each: (self._shared_parts(each), -each.name.count("."), each.name),
            default=None,
        )

    def _ending(self, end: str) -> list[Tensor]:
        ends = (f".{end}", *(f".{end}.{suffix}" for suffix in SUFFIXES))
        return [
            self.tensors[name] for name, dotted in self._dotted.items() if dotted.endswith(ends)
        ]

    def _of_part(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors that belong to the part; all of them if none does."""
        return [tensor for tensor in tensors if self.part in _parts(tensor.name)] or tensors

    def _named(self, role: str, fits: Callable[[Tensor], bool]) -> list[Tensor]:
        """Return the tensors with the first known name of a role that any fitting tensor has."""
        for known in NAMES[role]:
            fitting = [tensor for tensor in self._ending(known) if fits(tensor)]
            if fitting:
                return fitting if role == "head" else self._of_part(fitting)
        return []

    def _shared_parts(self, tensor: Tensor) -> int:
        pairs = zip(_parts(tensor.name), _parts(self.token.name), strict=False)
        return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))

    def _token(self, known: list[Tensor], chosen: str | None) -> Tensor:
        tensors = self.tensors
        if chosen is not None:
            if chosen not in tensors:
                raise _undecided(tensors, f"it has no tensor {quoted(chosen)}")
            if not tensors[chosen].is_matrix:
                raise tensors.file_error(
                    Sentence("{tensor} {chosen} is not a matrix", chosen=tensors[chosen])
                )
            return tensors[chosen]
        if known:
            return self._one_of_equal("token", known)
        matrices = [tensor for tensor in tensors.values() if tensor.is_matrix]
        if len(matrices) != 1:
            family = self.family
            why = f" of a {self.settings.values['model_type']} model" if family else ""
            why += f": {family.unknown}" if family and family.unknown else ""
            raise _undecided(tensors, f"no tensor has the name of a token matrix{why}")
        if not isinstance(tensors.own_words(), OwnWords):  # word vectors are no guess
            self.reasons["token"] = f"{quoted(matrices[0].name)} is the only two-dimensional tensor"
        return matrices[0]

    def _other(self, role: str) -> Tensor | None:
        """Return the tensor of a role; of several the nearest to the token matrix, an error if these are not equal."""
        (rows, dim), projection = self.token.shape, None
        for step in self.family.steps if self.family and role != "head" else ():
            if isinstance(step, Project):  # a model may project token rows before it adds others
                projection = self.nearest(f"{step.name}.weight")
            elif isinstance(step, AddPosition if role == "position" else AddType):
                dim = projection.shape[0] if projection else dim
                break

        def fits(tensor: Tensor) -> bool:
            if role == "head":  # its columns differ from the token matrix' in RemBERT
                return (
                    tensor.is_matrix
                    and 2 * tensor.shape[0] > rows
                    and (
                        tensor.shape[1] == dim
                        or self.settings.values.get("model_type") == "rembert"
                    )
                )
            return tensor.is_matrix and tensor.shape[1] == dim

        fitting = self._named(role, fits)
        most = max(map(self._shared_parts, fitting), default=0)
        near = [tensor for tensor in fitting if self._shared_parts(tensor) == most]
        encoders = [tensor for tensor in near if "encoder" in _parts(tensor.name)]
        if (
            len(near) == 2
            and len(encoders) == 1
            and any("decoder" in _parts(tensor.name) for tensor in near)
        ):
            self.reasons[role] = (
                f"{quoted(encoders[0].name)} is the encoder's; the decoder has another"
            )
            near = encoders
        return self._one_of_equal(role, near) if near else None

    def _one_of_equal(self, role: str, candidates: list[Tensor]) -> Tensor:
        """Return the first of several tensors; raises InputError unless all are one tensor, or equal."""
        first, *others = sorted(
            candidates, key=lambda tensor: (tensor.name.count("."), tensor.name)
        )
        for other in others:
            if other.place != first.place and not equal_rows(first, other):
                reason = f"several tensors could be the {role.replace('_', ' ')} matrix"
                raise _undecided(self.tensors, reason, candidates, can_choose=role == "token")
        if others:
            self.reasons[role] = f"{quoted(first.name)} is one of {len(candidates)} equal tensors"
        return first

    def _first_position(self, position: Tensor) -> int:
        rows = position.shape[0]
        if isinstance(self.settings.values.get("model_type"), str):
            first = families.first_position(self.family, self.settings) if self.family else 0
            return first if first < rows else 0
        for pattern, modulo, reason in SHIFTED:
            if rows > 2 and modulo in (None, rows % 64) and re.search(pattern, position.name):
                why = f"{quoted(position.name)} {reason.format(rows=rows)}"
                self.reasons["first_position"] = f"position 0 is row 2: {why}"
                return 2
        return 0


def _half(said: Mapping[str, Any], tensors: Tensors) -> ModelPart | None:
    """Return the part that config.json describes for tokens, where a model is put together from two models."""
    if said.get("model_type") == "encoder-decoder":
        return "encoder"
    if families.has_two_parts(said.get("model_type")):
        parts = {part for name in tensors for part in _parts(name)}
        alone = (said.get("is_decoder"), said.get("is_encoder_decoder")) == (True, False)
        return (
            "decoder"
            if alone or ("decoder" in parts and not parts & {"encoder", "shared"})
            else None
        )
    return "decoder" if isinstance(said.get("decoder"), dict) else None  # the encoder sees or hears


def _undecided(
    tensors: Tensors, reason: str, candidates: Iterable[Tensor] = (), can_choose: bool = True
) -> InputError:
    """Return the error that lists the candidates, or all matrices."""
    matrices = (tensor for tensor in tensors.values() if tensor.is_matrix)
    listed = [*candidates] or sorted(matrices, key=lambda tensor: -max(tensor.shape))
    if not listed:
        return tensors.file_error("it has no two-dimensional tensor, so no weight matrix")
    more = f"; and {len(listed) - _MOST_LISTED:,} more" if len(listed) > _MOST_LISTED else ""
    hint = f"{'; '.join(map(str, listed[:_MOST_LISTED]))}{more}"
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
    one, other = first.matrix(first), second.matrix(second)
    spread = np.linspace(0, rows - 1, count).astype(np.int64)
    for ids in np.array_split(spread, count * dim // (1 << 20) + 1):
        if one.stored(ids).tobytes() != other.stored(ids).tobytes():
            return 0
    return count
