"""The recipe of one model: the steps of its family with the numbers of its config.json and the tensors of its file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from embcli.binary import quoted
from embcli.errors import InputError
from embcli.files.families import (
    BLOCKS,
    LARGEST,
    BlockPositions,
    Family,
    Settings,
    family_of,
    first_position,
    padding_of,
)
from embcli.files.roles import Roles
from embcli.recipe import AddPosition, AddType, Norm, Project, Recipe, RecipeStep, Scale
from embcli.wording import counted

_LARGEST_FLOAT32 = 3e38
_DIMENSIONS = (
    *("hidden_size", "d_model", "n_embd", "dim", "emb_dim"),
    *("embedding_size", "input_embedding_size", "word_embed_proj_dim"),
)
_THETAS = (
    "rope_theta",
    "rotary_emb_base",
    "global_rope_theta",
    "rope_local_base_freq",
    "local_rope_theta",
)
_WORD = re.compile(r"[\w.-]{1,40}", re.ASCII)
SUFFIXES = {
    "weight": ("weight", "gamma"),
    "bias": ("bias", "beta"),
}  # the first BERTs have the second names


def recipe_of(roles: Roles, values: Callable[[str], np.ndarray]) -> Recipe | None:
    """Return how token rows become what the first block reads; None if nothing names the model's type."""
    settings, tensors, dim = roles.settings, roles.tensors, roles.token.shape[1]
    family = roles.family or family_of(settings)  # for a value of a wrong type, which this refuses
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    if family is None or family.unknown:
        return Recipe(model, settings.where, values, dim, False, family.unknown if family else "")
    stated = {
        key: settings.whole(key, 0) for key in _DIMENSIONS if settings.values.get(key) is not None
    }
    if stated and dim not in stated.values():
        said = ", ".join(f"{key} {value:,}" for key, value in stated.items())
        raise tensors.file_error(
            f"{settings.where} says {said}; rows of its token matrix have {counted(dim, 'column')}"
        )
    quirks = [(each.token, each.why) for each in family.quirks if settings.holds(each.when)]
    ids = (
        (settings.whole(token, -1) if isinstance(token, str) else token, why)
        for token, why in quirks
    )
    steps = tuple(_Found(roles).steps(family, dim))
    return Recipe(
        model,
        settings.where,
        values,
        next((step.width for step in reversed(steps) if isinstance(step, Project)), dim),
        steps=steps,
        padding=padding_of(family, settings),
        blocks=blocks_in_words(
            family.block_positions if settings.holds(family.block_positions_when) else "", settings
        ),
        part=roles.part if roles.has_two_parts else None,
        quirks=tuple(each for each in dict.fromkeys(ids) if each[0] >= 0),
    )


class _Found:
    """The numbers and tensors of one model, which complete the steps of its family."""

    def __init__(self, roles: Roles) -> None:
        self.roles, self.settings, self.tensors = roles, roles.settings, roles.tensors

    def steps(self, family: Family, width: int) -> Iterator[RecipeStep]:
        """Yield the steps of a family; raises InputError if a number has a wrong type, or a tensor is missing."""
        settings = self.settings
        for step in family.steps:
            if not isinstance(step, AddType) and not settings.holds(step.when):
                continue
            match step:
                case Scale(key=key, factor=factor, root=root):
                    factor = (
                        math.sqrt(width)
                        if root
                        else settings.number(key, factor)
                        if key
                        else factor
                    )
                    if abs(factor) > _LARGEST_FLOAT32:
                        raise settings.wrong(key, "a number that float32 holds")
                    if factor != 1:
                        yield step._replace(factor=factor)
                case AddPosition():
                    if self.roles.find("position"):
                        yield step
                    elif family.sinusoid_formula:
                        yield step._replace(
                            sinusoid_formula=family.sinusoid_formula,
                            position_offset=first_position(family, settings),
                        )
                    else:
                        raise self.missing("position matrix")
                case AddType():
                    if self.roles.find("token_type"):
                        yield step
                    elif settings.whole("type_vocab_size", 0):
                        raise self.missing("token_type_embeddings")
                case Norm(names=names, key=key, epsilon=epsilon):
                    epsilon = settings.number(key, epsilon, least=0) if key else epsilon
                    weight, bias = self.weight(*names), self.find("bias", *names)
                    self.check_size(width, weight, bias)
                    yield step._replace(epsilon=epsilon, weight=weight, bias=bias)
                case Project():
                    found = self.projection(step, width)
                    if found is not None:
                        yield found
                        width = found.width

    def projection(self, step: Project, width: int) -> Project | None:
        """Return a projection of rows with so many columns; None for an optional one that there is not."""
        weight, bias = self.find("weight", step.name), self.find("bias", step.name)
        if step.is_optional and (not weight or self.tensors[weight].shape == (width, width)):
            return None
        tensor = self.tensors[weight or self.weight(step.name)]
        if len(tensor.shape) != 2 or tensor.shape[1] != width:
            raise self.tensors.file_error(f"{tensor} does not project rows of {width:,} columns")
        self.check_size(tensor.shape[0], bias)
        return step._replace(weight=weight, bias=bias, width=tensor.shape[0])

    def find(self, kind: str, *modules: str) -> str:
        ends = (f"{module}.{end}" for module in modules for end in SUFFIXES[kind])
        return next(
            (tensor.name for end in ends if (tensor := self.roles.nearest(end)) is not None), ""
        )

    def weight(self, *modules: str) -> str:
        name = self.find("weight", *modules)
        if not name:
            raise self.missing(modules[0])
        return name

    def check_size(self, size: int, *names: str) -> None:
        for name in filter(None, names):
            if self.tensors[name].shape != (size,):
                raise self.tensors.file_error(
                    f"{self.tensors[name]} does not fit rows of {size:,} columns"
                )

    def missing(self, name: str) -> InputError:
        model = quoted(str(self.settings.values["model_type"]))
        return self.tensors.file_error(
            f"{self.settings.where} says that it is a {model} model, and it has no {name}"
        )


def blocks_in_words(block_positions: BlockPositions, settings: Settings) -> str:
    """Return what blocks do with positions; of rotary ones the thetas and scalings that config.json names."""
    said = settings.values
    ropes = [
        each
        for key in ("rope_parameters", "rope_scaling")
        if isinstance(each := said.get(key), dict)
    ]
    ropes += [
        each for rope in ropes for each in rope.values() if isinstance(each, dict)
    ]  # by the kind of layers
    numbers: list[Any] = [rope.get(key) for rope in (said, *ropes) for key in _THETAS]
    thetas = [each for each in numbers if type(each) in (int, float) and 1 <= each < LARGEST]
    kinds = [said.get("rope_type"), *(rope.get("rope_type", rope.get("type")) for rope in ropes)]
    scaled = [
        str(kind)
        for kind in kinds
        if kind not in (None, "default", "none") and _WORD.fullmatch(str(kind))
    ]
    words = [BLOCKS[block_positions]]
    if block_positions == "rotary" and thetas:
        words.append(f"theta {' and '.join(dict.fromkeys(f'{theta:,.12g}' for theta in thetas))}")
    if block_positions == "rotary" and scaled:
        words.append(f"scaled: {' and '.join(dict.fromkeys(scaled))}")
    return ", ".join(words)
