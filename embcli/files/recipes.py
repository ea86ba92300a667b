"""The recipe of one model: the steps of its family, completed with its own numbers and tensors.

`Checkpoint` makes a recipe once. The numbers come from config.json or from the metadata of a GGUF
file, the tensors from the roles of the file; both are checked here, before any row is computed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Any

from embcli.binary import JsonObject, objects_in, quoted
from embcli.errors import InputError
from embcli.files.families import (
    BLOCKS,
    Family,
    Settings,
    family_of,
    first_position,
    padding_of,
)
from embcli.files.roles import Roles
from embcli.files.tensors import Tensor
from embcli.recipe import AddPosition, AddType, Norm, Project, Recipe, RecipeStep, Scale
from embcli.wording import counted

# The names of a module's parameters; the first BERTs have gamma and beta.
PARAMETER_NAMES = {"weight": ("weight", "gamma"), "bias": ("bias", "beta")}


def recipe_of(roles: Roles) -> Recipe | None:
    """Return how token rows become the input of the first block; None without a `model_type`.

    Raises InputError if config.json contradicts the tensors.
    """
    settings = roles.settings
    values = roles.tensors.array
    dim = roles.token.shape[1]
    family = family_of(settings)
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    if family is None or family.unknown:
        reason = family.unknown if family else ""
        return Recipe(model, settings.where, values, dim, is_known=False, unknown=reason)

    wrong = wrong_dimension(roles)
    if wrong:
        raise roles.tensors.file_error(wrong)
    completion = _Completion(roles, family)
    steps = tuple(completion.steps())
    return Recipe(
        model,
        settings.where,
        values,
        completion.width,
        steps=steps,
        padding=padding_of(family, settings),
        blocks=_blocks_in_words(family, settings),
        part=roles.part,
        remark=family.remark,
    )


def wrong_dimension(roles: Roles) -> str:
    """Return in words that no dimension of config.json is that of the token matrix, or nothing."""
    keys = (
        "hidden_size",
        "d_model",
        "n_embd",
        "dim",
        "emb_dim",
        "embedding_size",
        "input_embedding_size",
        "word_embed_proj_dim",
    )
    settings = roles.settings
    stated = {}
    for key in keys:
        if settings.values.get(key) is not None:
            stated[key] = settings.whole(key, 0)
    dim = roles.token.shape[1]
    if not stated or dim in stated.values():
        return ""
    sizes = ", ".join(f"{key} {value:,}" for key, value in stated.items())
    columns = counted(dim, "column")
    return f"{settings.where} says {sizes}; rows of its token matrix have {columns}"


def learned_positions(roles: Roles) -> Tensor | None:
    """Return the position matrix whose rows are added to those of tokens, if it is a learned one.

    Only a family that adds rows of such a matrix has one; else it belongs to a vision tower.
    """
    family = roles.family
    if family is None or family.sinusoid_formula or AddPosition not in map(type, family.steps):
        return None
    return roles.find("position")


class _Completion:
    """The steps of a family, completed with the numbers and tensors of one model.

    It lives while a recipe is made. Its methods raise InputError if a number has a wrong type, if
    a tensor is missing, or if a tensor does not fit the rows.
    """

    def __init__(self, roles: Roles, family: Family) -> None:
        self.roles = roles
        self.family = family
        self.settings = roles.settings
        self.tensors = roles.tensors
        _, self.width = roles.token.shape  # the columns of the rows after the steps so far

    def steps(self) -> Iterator[RecipeStep]:
        """Yield the steps that change token rows."""
        for step in self.family.steps:
            if isinstance(step, AddType) or self.settings.holds(step.when):
                completed = self.complete(step)
                if completed is not None:
                    yield completed

    def complete(self, step: RecipeStep) -> RecipeStep | None:
        """Return a step that is applied to the rows so far; None if it changes nothing."""
        match step:
            case Scale():
                return self.scale(step)
            case AddPosition():
                return self.position(step)
            case AddType():
                return self.token_type(step)
            case Norm():
                return self.norm(step)
            case Project():
                return self.projection(step)

    def scale(self, step: Scale) -> Scale | None:
        factor = step.factor
        if step.root:
            factor = math.sqrt(self.width)
        elif step.key:
            factor = self.settings.number(step.key, step.factor)
        return None if factor == 1 else step._replace(factor=factor)

    def position(self, step: AddPosition) -> AddPosition:
        if self.roles.find("position"):
            return step
        if not self.family.sinusoid_formula:
            raise self.missing_error(f"position matrix of {self.width:,} columns")
        return step._replace(
            sinusoid_formula=self.family.sinusoid_formula,
            position_offset=first_position(self.family, self.settings),
            padding_id=self.settings.whole("pad_token_id", 1),
        )

    def token_type(self, step: AddType) -> AddType | None:
        if self.roles.find("token_type"):
            return step
        if self.settings.whole("type_vocab_size", 0):
            raise self.missing_error("token_type_embeddings")
        return None

    def norm(self, step: Norm) -> Norm:
        epsilon = step.epsilon
        if step.key:
            epsilon = self.settings.number(step.key, step.epsilon)
        weight = self.find("weight", *step.names)
        if not weight:
            raise self.missing_error(step.names[0])
        bias = self.find("bias", *step.names)
        if step.has_bias and not bias:
            raise self.missing_error(f"{step.names[0]}.bias")
        self.check_size(weight)
        self.check_size(bias)
        return step._replace(epsilon=epsilon, weight=weight, bias=bias)

    def projection(self, step: Project) -> Project | None:
        """Return a projection; None if it is optional, and missing or from D to D columns."""
        width = self.width
        weight = self.find("weight", step.name)
        bias = self.find("bias", step.name)
        if step.is_optional and (not weight or self.tensors[weight].shape == (width, width)):
            return None
        if not weight:
            raise self.missing_error(step.name)
        tensor = self.tensors[weight]
        if len(tensor.shape) != 2 or tensor.shape[1] != width:
            raise self.tensors.file_error(f"{tensor} does not project rows of {width:,} columns")
        self.width = tensor.shape[0]
        self.check_size(bias)
        return step._replace(weight=weight, bias=bias, width=self.width)

    def find(self, parameter: str, *modules: str) -> str:
        """Return the name of a parameter of the first module that has it; empty without one."""
        for module in modules:
            for parameter_name in PARAMETER_NAMES[parameter]:
                tensor = self.roles.nearest(f"{module}.{parameter_name}")
                if tensor is not None:
                    return tensor.name
        return ""

    def check_size(self, name: str) -> None:
        """Raise InputError if there is such a tensor, and it is not a vector of a row's size."""
        if name and self.tensors[name].shape != (self.width,):
            tensor = self.tensors[name]
            raise self.tensors.file_error(f"{tensor} does not fit rows of {self.width:,} columns")

    def missing_error(self, name: str) -> InputError:
        model = quoted(str(self.settings.values["model_type"]))
        return self.tensors.file_error(
            f"{self.settings.where} says that it is a {model} model, and it has no {name}"
        )


def _blocks_in_words(family: Family, settings: Settings) -> str:
    """Return what blocks do with positions; rotary ones with the bases and scalings stated."""
    words = [BLOCKS[family.block_positions]]
    if family.block_positions == "rotary":
        words += _rotary_in_words(settings.values)
    return ", ".join(words)


# The keys of the base of the rotation's frequencies; some models have several.
_THETAS = (
    "rope_theta",
    "rotary_emb_base",
    "global_rope_theta",
    "rope_local_base_freq",
    "local_rope_theta",
)


def _rotary_in_words(values: JsonObject) -> Iterator[str]:
    """Yield the bases of the rotation, and how it is changed for longer texts, each once.

    Settings of single kinds of layers are inside of those of all layers.
    """
    settings = objects_in([values.get("rope_parameters"), values.get("rope_scaling")])
    of_layer_kinds = objects_in([value for setting in settings for value in setting.values()])
    thetas: dict[str, None] = {}
    scalings: dict[str, None] = {}
    for setting in [values, *settings, *of_layer_kinds]:
        for key in _THETAS:
            theta: Any = setting.get(key)
            if type(theta) in (int, float) and 1 <= theta < 1e300:
                thetas[f"{theta:,.12g}"] = None
        scaling = str(setting.get("rope_type") or setting.get("type") or "none")
        if scaling not in ("default", "none") and re.fullmatch(r"[\w.-]{1,40}", scaling, re.ASCII):
            scalings[scaling] = None
    if thetas:
        yield f"theta {' and '.join(thetas)}"
    if scalings:
        yield f"scaled: {' and '.join(scalings)}"
