"""The roles of a model's tensors: which is the token matrix, the position matrix, the output head.

Tensors are found by the last parts of their names, so any prefix may precede them, and must have
a fitting shape. `Checkpoint` makes the roles of a file once, from its tensors and its config.json.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import takewhile

import numpy as np

from embcli.binary import JsonObject, quoted
from embcli.encodings.encoding import OwnWords, sibling_json
from embcli.errors import InputError
from embcli.files.families import (
    NAMES,
    SHIFTED_POSITIONS,
    SUFFIXES,
    TOKEN_NAMES,
    first_position,
)
from embcli.files.parts import part_in_words
from embcli.files.tensors import Tensor, Tensors
from embcli.files.text_model import name_parts, text_model_of
from embcli.hub.local import PART_WITH_INDEX
from embcli.recipe import AddPosition, AddType, Project
from embcli.wording import Sentence, first_of

COMPARED = 1 << 26  # the most bytes of two matrices that are compared
_COMPARED_REMOTE = 8  # the most rows over the network, where each is a request


class AdapterError(InputError):
    """A file beside an adapter_config.json has the tensors of an adapter, and no token matrix."""


class Roles:
    """The tensors of a model by their roles, and the settings of the part that reads tokens.

    All roles are assigned when it is made; then it does not change. InputError is raised at once if
    the token matrix is unknown; the error of another role is kept until `find` asks for that role.

    `whole_config` is a config.json, empty if there is none. `chosen` names a tensor that the user
    wants as the token matrix.
    """

    def __init__(
        self, tensors: Tensors, whole_config: JsonObject, chosen: str | None = None
    ) -> None:
        self.tensors = tensors
        text_model = text_model_of(tensors, whole_config)
        self.config = text_model.config
        self.settings = text_model.settings
        self.family = text_model.family
        self.part = text_model.part
        names = [name for name in tensors if text_model.name_part in name_parts(name)]
        self._dotted_names = {}
        for name in names or tensors:
            self._dotted_names[name] = f".{'.'.join(name_parts(name))}"

        self.adapter = _adapter_in_words(tensors)
        self.reasons: dict[str, str] = {}  # a role -> why this tensor, if it is a guess
        model_type = self.settings.values.get("model_type")
        own = [[name] for name, types in TOKEN_NAMES.items() if model_type in types.split()]
        named = self._named("token", lambda tensor: tensor.is_matrix, own)
        is_tied = self.settings.values.get("tie_word_embeddings") is True
        if not named and is_tied:  # save_model of safetensors keeps one name of a tied matrix
            named = self._named("head", lambda tensor: tensor.is_matrix)
        self.token = self._token_matrix(named) if chosen is None else self._chosen_matrix(chosen)
        # Whether the user chose another tensor than a token matrix that is known by its name.
        self.is_custom_tensor = chosen is not None and named != [] and self.token not in named
        self.first_position = 0  # the row of the position matrix that position 0 picks
        self._found: dict[str, Tensor | InputError | None] = {"token": self.token}
        for role in ("position", "token_type", "head"):
            try:
                tensor = self._other_matrix(role)
                if tensor is not None and role == "position":
                    self.first_position = self._first_position(tensor)
                self._found[role] = tensor
            except InputError as error:
                self._found[role] = error

    def find(self, role: str) -> Tensor | None:
        """Return the tensor of a role, or None; raises InputError if several could be it."""
        found = self._found[role]
        if isinstance(found, InputError):
            raise found
        return found

    def nearest(self, end: str) -> Tensor | None:
        """Return the tensor whose name ends so; of several, the nearest to the token matrix."""

        def closeness(tensor: Tensor) -> tuple[int, int, str]:
            return self._shared_parts(tensor), -tensor.name.count("."), tensor.name

        candidates = self._of_part(self._without_others(self._with_end(end)))
        return max(candidates, key=closeness, default=None)

    def _named(
        self, role: str, fits: Callable[[Tensor], bool], own: Iterable[Iterable[str]] = ()
    ) -> list[Tensor]:
        """Return the tensors with the first names of a role that any fitting tensor has.

        Names of the model's own type come before all others.
        """
        for names in (*own, *NAMES[role]):
            fitting = [tensor for tensor in self._with_end(*names) if fits(tensor)]
            if fitting:
                return fitting if role == "head" else self._of_part(fitting)
        return []

    def _with_end(self, *names: str) -> list[Tensor]:
        """Return the tensors with one of these names, after any prefix."""
        ends = tuple(f".{name}{suffix}" for name in names for suffix in SUFFIXES)
        names_by_dotted = self._dotted_names.items()
        return [self.tensors[name] for name, dotted in names_by_dotted if dotted.endswith(ends)]

    def _of_part(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors that belong to the part; all of them if none does."""
        return [tensor for tensor in tensors if self.part in name_parts(tensor.name)] or tensors

    def _without_others(self, tensors: list[Tensor]) -> list[Tensor]:
        """Return the tensors except those of the other part, and of a model that reads images."""
        own_parts = [self.part] if self.part else name_parts(self.token.name)
        other_part = None
        if "decoder" in own_parts:
            other_part = "encoder"
        elif "encoder" in own_parts:
            other_part = "decoder"

        found = []
        for tensor in tensors:
            parts = name_parts(tensor.name)
            is_visual = any(part.startswith(("vision", "visual")) for part in parts)
            if other_part not in parts and not is_visual:
                found.append(tensor)
        return found

    def _shared_parts(self, tensor: Tensor) -> int:
        """Return how many parts at the beginning of its name the token matrix shares."""
        pairs = zip(name_parts(tensor.name), name_parts(self.token.name), strict=False)
        return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))

    def _chosen_matrix(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise _undecided_error(self.tensors, f"it has no tensor {quoted(name)}")
        tensor = self.tensors[name]
        tensor.check_readable()
        if not tensor.is_matrix:
            raise self.tensors.file_error(
                Sentence("{tensor} {chosen} is not a matrix", chosen=tensor)
            )
        return tensor

    def _token_matrix(self, named: list[Tensor]) -> Tensor:
        tensors = self.tensors
        part = part_in_words(tensors.path, named)
        if part:
            raise tensors.file_error(part)
        if named:
            return self._read_by_encoder(self._one_of_equal("token", named))

        stated = sibling_json(tensors.path, "adapter_config.json")
        if self.adapter or "peft_type" in stated:
            base = stated.get("base_model_name_or_path", "the one that it was trained on")
            adapter = self.adapter or "it is an adapter"
            error = tensors.file_error(
                f"{adapter}, and no tensor has the name of a token matrix",
                f"Name its base model ({base!s:.80}), or the two merged: merge_and_unload of PEFT",
            )
            if not stated:
                raise error
            raise AdapterError(error.message, error.hint)
        for empty in self._named("token", lambda tensor: 0 in tensor.shape):
            raise tensors.file_error(
                f"{empty} is empty",
                "With ZeRO-3 of DeepSpeed, gather the parts before saving: zero_to_fp32.py",
            )
        by_place = {tensor.stored_at: tensor for tensor in tensors.values() if tensor.is_matrix}
        matrices = list(by_place.values())
        is_numbered = PART_WITH_INDEX.fullmatch(tensors.path.name)
        if len(matrices) != 1 or matrices[0].unreadable or is_numbered:
            reason = "no tensor has the name of a token matrix"
            if self.family:
                reason += f" of a {self.settings.values['model_type']} model"
                if self.family.unknown:
                    reason += f": {self.family.unknown}"
            raise _undecided_error(tensors, reason)
        tensor = matrices[0]
        # The only tensor is no guess, nor is the only matrix of word vectors.
        if len(tensors) > 1 and not isinstance(tensors.own_words(), OwnWords):
            self.reasons["token"] = f"{quoted(tensor.name)} is the only matrix"
        return tensor

    def _read_by_encoder(self, token: Tensor) -> Tensor:
        """Return the encoder's token matrix where it differs from the one that both parts share.

        transformers reads each from the file, whatever config.json says of ties.
        """
        if self.part == "decoder" or name_parts(token.name)[-2:-1] != ["shared"]:
            return token
        for tensor in self._with_end("encoder.embed_tokens"):
            if tensor.shape == token.shape and not equal_rows(token, tensor):
                self.reasons["token"] = (
                    f"{quoted(tensor.name)} is the encoder's; {quoted(token.name)} differs"
                )
                return tensor
        return token

    @property
    def misfit_head(self) -> str:
        """In words, that the only matrix named as the output head has other columns, or nothing."""
        dim = self.token.shape[1]
        if self._found["head"] is None:
            for tensor in self._with_end("lm_head"):
                if tensor.is_matrix and tensor.shape[1] != dim:
                    return f"{tensor} is not (V, {dim:,}), as an output head is"
        return ""

    def _other_matrix(self, role: str) -> Tensor | None:
        """Return the tensor of another role; of several, the nearest to the token matrix.

        Raises InputError if several are as near and not equal.
        """
        if role == "head":
            fitting = self._named(role, self._fits_head)
        else:
            dim = self._dim_of_sum(AddPosition if role == "position" else AddType)
            fitting = self._named(role, lambda tensor: tensor.is_matrix and tensor.shape[1] == dim)
            fitting = self._without_others(fitting)
        if not fitting:
            return None

        most_shared_parts = max(self._shared_parts(tensor) for tensor in fitting)
        nearest = [tensor for tensor in fitting if self._shared_parts(tensor) == most_shared_parts]
        encoders = [tensor for tensor in nearest if "encoder" in name_parts(tensor.name)]
        decoders = [tensor for tensor in nearest if "decoder" in name_parts(tensor.name)]
        if len(nearest) == 2 and len(encoders) == 1 and decoders:
            nearest = encoders
            self.reasons[role] = (
                f"{quoted(encoders[0].name)} is the encoder's; the decoder has another"
            )
        return self._one_of_equal(role, nearest)

    def _fits_head(self, tensor: Tensor) -> bool:
        if tensor.unreadable:
            return True  # its packed shape says nothing, and it must not pass for no head
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
        for tensor in candidates:
            tensor.check_readable()
        by_name = sorted(candidates, key=lambda tensor: (tensor.name.count("."), tensor.name))
        first = by_name[0]
        rows = first.shape[0]
        compared = rows
        for other in by_name[1:]:
            if other.stored_at == first.stored_at:
                continue
            compared = min(compared, equal_rows(first, other))
            if not compared:
                reason = f"several tensors could be the {role.replace('_', ' ')} matrix"
                can_choose = role == "token"
                raise _undecided_error(self.tensors, reason, candidates, can_choose=can_choose)
        if len(candidates) > 1:
            reason = f"{quoted(first.name)} is one of {len(candidates)} equal tensors"
            if compared < rows:
                reason += f", by {compared:,} of their {rows:,} rows"
            self.reasons[role] = reason
        return first

    def _first_position(self, position: Tensor) -> int:
        """Return the row of position 0: from the family, or guessed without a config.json."""
        rows = position.shape[0]
        if isinstance(self.settings.values.get("model_type"), str):
            row = first_position(self.family, self.settings) if self.family else 0
            return row if row < rows else 0

        for shifted in SHIFTED_POSITIONS:
            has_rows = rows > 2 and shifted["rows_modulo_64"] in (None, rows % 64)
            if has_rows and re.search(shifted["name"], position.name):
                reason = f"{quoted(position.name)} {shifted['reason'].format(rows=rows)}"
                self.reasons["first_position"] = f"position 0 is row 2: {reason}"
                return 2
        return 0


# The module that a tensor of an adapter changes, in its name.
_CHANGED = re.compile(r"(\w+)\.(?:token_adapter\.)?(?:lora|trainable_tokens)_")


def _adapter_in_words(names: Iterable[str]) -> str:
    """Return what an adapter of PEFT changes; empty for another file."""
    listed = "\n".join(names)
    base_layers = ""
    if ".base_layer." in listed and not listed.startswith("base_model.model."):
        base_layers = "it has base layers of PEFT, whose adapter was not merged"
    modules = sorted({*_CHANGED.findall(listed)})
    if not modules:
        return base_layers
    return f"{base_layers or 'it is an adapter'}, which changes {first_of(modules, 12)}"


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

    hint = first_of(map(str, listed), 8, "; ")
    if not can_choose:
        return tensors.file_error(reason, hint)
    return tensors.file_error(Sentence("{reason}; choose one with {tensor}", reason=reason), hint)


def equal_rows(first: Tensor, second: Tensor, all_rows: bool = False) -> int:
    """Return how many rows of two matrices were compared and are equal; 0 if any differs.

    Of large matrices, some rows are compared unless all are wanted.
    """
    if first.shape != second.shape or first.dtype != second.dtype:
        return 0
    rows, dim = first.shape
    count = min(rows, max(COMPARED // (8 * dim), 2))
    if all_rows:
        count = rows
    elif first.binary.is_remote or second.binary.is_remote:
        count = min(count, _COMPARED_REMOTE)
    first_layer = first.matrix(first)
    second_layer = second.matrix(second)
    spread_ids = np.linspace(0, rows - 1, count).astype(np.int64)
    for ids in np.array_split(spread_ids, count * dim // (1 << 20) + 1):
        if first_layer.stored(ids).tobytes() != second_layer.stored(ids).tobytes():
            return 0
    return count
