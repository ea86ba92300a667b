"""The recipe of one model: the steps of its family with the numbers of its config.json and the tensors of its file."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from embcli.binary import shortened
from embcli.errors import InputError
from embcli.files.families import BLOCKS, FAMILIES, KEYS_OF_GGUF, OF_GGUF, Family, Inside
from embcli.files.tensors import Tensor, Tensors
from embcli.names import Part
from embcli.recipe import AddPosition, AddRow, AddType, Norm, Project, Recipe, Scale, Step, When
from embcli.words import counted

_LARGEST = 1e300  # of a number in config.json
_LARGEST_WHOLE = 1 << 53
_LARGEST_FLOAT32 = 3e38
_DIMENSIONS = (
    *("hidden_size", "d_model", "n_embd", "dim", "emb_dim"),
    *("embedding_size", "input_embedding_size", "word_embed_proj_dim"),
)
_THETAS = ("rope_theta", "rotary_emb_base", "global_rope_theta", "rope_local_base_freq", "local_rope_theta")
_WORD = re.compile(r"[\w.-]{1,40}", re.ASCII)
SUFFIXES = {"weight": ("weight", "gamma"), "bias": ("bias", "beta")}  # the first BERTs have the second names


@dataclass(frozen=True, eq=False)
class Settings:
    """What config.json says, read strictly: a value of the wrong type is refused; null is a missing value."""

    values: Mapping[str, Any]
    refused: Callable[[str], InputError]
    where: str = "config.json"

    def number(self, key: str, default: float, least: float = -_LARGEST) -> float:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LARGEST:
            above = f" of at least {least:g}" if least > -_LARGEST else ""
            raise self.wrong(key, f"a finite number{above}")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST_WHOLE:
            raise self.wrong(key, "a whole number from 0")
        return value

    def holds(self, when: When | None) -> bool:
        if when is None:
            return True
        value = self.values.get(when.key)
        if value is None:
            return when.default == when.equals
        if not isinstance(value, type(when.equals)):
            raise self.wrong(when.key, "true or false" if isinstance(when.equals, bool) else "a word")
        return bool(value == when.equals)

    def wrong(self, key: str, right: str) -> InputError:
        given = shortened(str(self.values[key]), 40)
        name = key if self.where == "config.json" else KEYS_OF_GGUF.get(key, key)
        return self.refused(f"{self.where} has {given} as {name}, which must be {right}")


def of_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of a GGUF file says, under the names of config.json; empty for another file."""
    architecture = metadata.get("general.architecture")
    if not isinstance(architecture, str):
        return {}
    stated = {key: metadata.get(f"{architecture}.{name}") for key, name in KEYS_OF_GGUF.items()}
    return {"model_type": OF_GGUF.get(architecture, architecture)} | {k: v for k, v in stated.items() if v is not None}


def family_of(settings: Settings, part: Part | None = None) -> Family | None:
    """Return the family of a `model_type`, or None; `part` chooses between the parts of an encoder-decoder."""
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    for family in FAMILIES:
        fits = model in family.models.split() and family.part in (None, part or "encoder")
        if fits and settings.holds(family.when):
            return family
    return None


def has_two_parts(model: object) -> bool:
    return any(family.reads and model in family.models.split() for family in FAMILIES)


def first_position(family: Family, settings: Settings) -> int:
    padding = padding_of(family, settings)
    return family.first if padding is None else padding + 1


def padding_of(family: Family, settings: Settings) -> int | None:
    """Return the ID of tokens that the positions of a family do not count; None if they count all tokens."""
    return settings.whole(family.after, 1) if isinstance(family.after, str) else family.after


def recipe_of(
    settings: Settings,
    family: Family | None,
    tensors: Tensors,
    dim: int,
    nearest: Callable[[str], Tensor | None],  # returns the tensor whose name ends like this
    roles: Collection[str],  # those of matrices that there are
    part: Part | None,
) -> Recipe | None:
    """Return how token rows become what the first block reads; None if nothing names the model's type."""
    model = settings.values.get("model_type")
    if not isinstance(model, str):
        return None
    if family is None or family.unknown:
        return Recipe(model, settings.where, tensors.array, dim, False, family.unknown if family else "")
    stated = {key: settings.whole(key, 0) for key in _DIMENSIONS if settings.values.get(key) is not None}
    if stated and dim not in stated.values():
        said = ", ".join(f"{key} {value:,}" for key, value in stated.items())
        raise tensors.refused(f"{settings.where} says {said}; rows of its token matrix have {counted(dim, 'column')}")
    quirks = {each.why: each.token for each in family.quirks if settings.holds(each.when)}
    ids = {why: settings.whole(token, -1) if isinstance(token, str) else token for why, token in quirks.items()}
    steps = tuple(_Found(settings, tensors, nearest, roles).steps(family, dim))
    return Recipe(
        model,
        settings.where,
        tensors.array,
        next((step.width for step in reversed(steps) if isinstance(step, Project)), dim),
        steps=steps,
        padding=padding_of(family, settings),
        blocks=blocks_in_words(family.inside if settings.holds(family.inside_when) else "", settings),
        part=part,
        quirks=tuple((token, why) for why, token in ids.items() if token >= 0),
    )


@dataclass(frozen=True, eq=False)
class _Found:
    """The numbers and tensors of one model, which complete the steps of its family."""

    settings: Settings
    tensors: Tensors
    nearest: Callable[[str], Tensor | None]
    roles: Collection[str]

    def steps(self, family: Family, width: int) -> Iterator[Step]:
        """Yield the steps of a family; raises InputError if a number has a wrong type, or a tensor is missing."""
        settings = self.settings
        for step in family.steps:
            if not isinstance(step, AddType) and not settings.holds(step.when):
                continue
            match step:
                case Scale(key=key, factor=factor, root=root):
                    factor = math.sqrt(width) if root else settings.number(key, factor) if key else factor
                    if abs(factor) > _LARGEST_FLOAT32:
                        raise settings.wrong(key, "a number that float32 holds")
                    if factor != 1:
                        yield replace(step, factor=factor)
                case AddPosition():
                    if "position" in self.roles:
                        yield step
                    elif family.waves:
                        yield replace(step, waves=family.waves, first=first_position(family, settings))
                    else:
                        raise self.missing("position matrix")
                case AddType():
                    if "token_type" in self.roles:
                        yield step
                    elif settings.whole("type_vocab_size", 0):
                        raise self.missing("token_type_embeddings")
                case AddRow(tensors=names):
                    yield replace(step, tensors=tuple(map(self.weight, names)))
                case Norm(names=names, key=key, epsilon=epsilon):
                    epsilon = settings.number(key, epsilon, least=0) if key else epsilon
                    weight, bias = self.weight(*names), self.find("bias", *names)
                    self.check_size(width, weight, bias)
                    yield replace(step, epsilon=epsilon, weight=weight, bias=bias)
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
        held = (each for each in step.beside if self.settings.holds(each.when))
        beside = tuple(replace(each, tensors=tuple(map(self.weight, each.tensors))) for each in held)
        width += sum(self.tensors[name].shape[-1] for each in beside for name in each.tensors)
        if len(tensor.shape) != 2 or tensor.shape[1] != width * (3 if step.neighbours else 1):
            raise self.tensors.refused(f"{tensor} does not project rows of {width:,} columns")
        self.check_size(tensor.shape[0], bias)
        return replace(step, weight=weight, bias=bias, beside=beside, width=tensor.shape[0])

    def find(self, kind: str, *modules: str) -> str:
        ends = (f"{module}.{end}" for module in modules for end in SUFFIXES[kind])
        return next((tensor.name for end in ends if (tensor := self.nearest(end)) is not None), "")

    def weight(self, *modules: str) -> str:
        name = self.find("weight", *modules)
        if not name:
            raise self.missing(modules[0])
        return name

    def check_size(self, size: int, *names: str) -> None:
        for name in filter(None, names):
            if self.tensors[name].shape != (size,):
                raise self.tensors.refused(f"{self.tensors[name]} does not fit rows of {size:,} columns")

    def missing(self, name: str) -> InputError:
        model = shortened(str(self.settings.values["model_type"]))
        return self.tensors.refused(f"{self.settings.where} says that it is a {model} model, and it has no {name}")


def blocks_in_words(inside: Inside, settings: Settings) -> str:
    """Return what blocks do with positions; of rotary ones the thetas and scalings that config.json names."""
    said = settings.values
    ropes = [each for key in ("rope_parameters", "rope_scaling") if isinstance(each := said.get(key), dict)]
    ropes += [each for rope in ropes for each in rope.values() if isinstance(each, dict)]  # by the kind of layers
    numbers: list[Any] = [rope.get(key) for rope in (said, *ropes) for key in _THETAS]
    thetas = [each for each in numbers if type(each) in (int, float) and 1 <= each < _LARGEST]
    kinds = [said.get("rope_type"), *(rope.get("rope_type", rope.get("type")) for rope in ropes)]
    scaled = [str(kind) for kind in kinds if kind not in (None, "default", "none") and _WORD.fullmatch(str(kind))]
    words = [BLOCKS[inside]]
    if inside == "rotary" and thetas:
        words.append(f"theta {' and '.join(dict.fromkeys(f'{theta:,.12g}' for theta in thetas))}")
    if inside == "rotary" and scaled:
        words.append(f"scaled: {' and '.join(dict.fromkeys(scaled))}")
    return ", ".join(words)
