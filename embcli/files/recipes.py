"""The recipe of one model: the steps of its family with the numbers of its config.json and the tensors of its file."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from embcli.binary import shortened
from embcli.errors import InputError
from embcli.files.families import DEFAULTS, FAMILIES, KEYS_OF_GGUF, OF_GGUF, Family
from embcli.files.tensors import Tensor
from embcli.names import DEFAULT_HEADS, MOST_HEADS, Part
from embcli.recipe import AddPosition, AddRow, AddType, Norm, Project, Scale, Step, When
from embcli.words import counted

_LARGEST = 1e300  # of a number in config.json
_LARGEST_WHOLE = 1 << 53
_LARGEST_FLOAT32 = 3e38
_DIMENSIONS = (
    *("hidden_size", "d_model", "n_embd", "dim", "emb_dim"),
    *("embedding_size", "input_embedding_size", "word_embed_proj_dim"),
)
SUFFIXES = {"weight": ("weight", "gamma"), "bias": ("bias", "beta")}  # the first BERTs have the second names


class Settings:
    """What config.json says, read strictly: a value of the wrong type is refused; null is a missing value."""

    def __init__(
        self, values: Mapping[str, Any], refused: Callable[[str], InputError], where: str = "config.json"
    ) -> None:
        model = values.get("model_type")
        self.values: dict[str, Any] = {**(DEFAULTS.get(model, {}) if isinstance(model, str) else {}), **values}
        self.refused, self.where = refused, where

    def with_values(self, values: Mapping[str, Any]) -> Settings:
        """Return these settings with other values."""
        return Settings({**self.values, **values}, self.refused, self.where)

    def number(self, key: str, default: float, least: float = -_LARGEST) -> float:
        """Return a finite number."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _LARGEST:
            above = f" of at least {least:g}" if least > -_LARGEST else ""
            raise self.wrong(key, f"a finite number{above}")
        return float(value)

    def whole(self, key: str, default: int) -> int:
        """Return a whole number from 0."""
        value = self.values.get(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _LARGEST_WHOLE:
            raise self.wrong(key, "a whole number from 0")
        return value

    def holds(self, when: When | None) -> bool:
        """Say whether a condition holds."""
        if when is None:
            return True
        value = self.values.get(when.key)
        if value is None:
            return when.default == when.equals
        if not isinstance(value, type(when.equals)):
            raise self.wrong(when.key, "true or false" if isinstance(when.equals, bool) else "a word")
        return bool(value == when.equals)

    def wrong(self, key: str, right: str) -> InputError:
        """Return the error for a value of the wrong type."""
        given = shortened(str(self.values[key]), 40)
        name = key if self.where == "config.json" else KEYS_OF_GGUF.get(key, key)
        return self.refused(f"{self.where} has {given} as {name}, which must be {right}")


def of_gguf(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the metadata of a GGUF file says, under the names of config.json; empty for another file.

    >>> of_gguf({"general.architecture": "gemma3", "gemma3.embedding_length": 640})
    {'model_type': 'gemma3_text', 'hidden_size': 640}
    """
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


def first_position(family: Family, settings: Settings) -> int:
    """Return the row of position 0 in the position matrix of a family."""
    padding = padding_of(family, settings)
    return family.first if padding is None else padding + 1


def biases_of(family: Family, settings: Settings) -> tuple[tuple[str, float], ...]:
    """Return the options of the positions that the blocks of a family add to scores, and their values."""
    if family.inside == "alibi":
        key = next((key for key in ("n_head", "n_heads", "num_attention_heads") if settings.values.get(key)), "n_head")
        heads = settings.whole(key, DEFAULT_HEADS)
        if not 0 < heads <= MOST_HEADS:
            raise settings.wrong(key, f"from 1 to {MOST_HEADS:,}")
        attention = settings.values.get("attn_config")  # MPT
        biases = settings.with_values(attention) if isinstance(attention, dict) else settings
        return (("heads", heads), ("steepest", biases.number("alibi_bias_max", 8, least=0)))
    if "t5" in family.models.split():
        buckets = settings.whole("relative_attention_num_buckets", 32)
        return (("buckets", buckets), ("furthest", settings.whole("relative_attention_max_distance", 128)))
    return ()


def quirks_of(family: Family, settings: Settings) -> tuple[tuple[int, str], ...]:
    """Return the IDs that a family treats in a way of its own, and which."""
    here = [(each, each.token) for each in family.quirks if settings.holds(each.when)]
    ids = [(each, settings.whole(token, -1) if isinstance(token, str) else token) for each, token in here]
    return tuple((token, each.why) for each, token in ids if token >= 0)


def padding_of(family: Family, settings: Settings) -> int | None:
    """Return the ID of tokens that the positions of a family do not count; None if they count all tokens."""
    return settings.whole(family.after, 1) if isinstance(family.after, str) else family.after


def steps_of(family: Family, settings: Settings, dim: int, find: Finder, types: bool) -> Iterator[Step]:
    """Yield the steps of a family with their numbers and tensors; `types` says whether there are token types.

    Raises InputError if a number has a wrong type, or a tensor is missing.
    """
    for step in family.steps:
        if not isinstance(step, AddType | Project) and not settings.holds(step.when):
            continue
        match step:
            case Scale(key=key, factor=factor, root=root):
                factor = math.sqrt(dim) if root else settings.number(key, factor) if key else factor
                if abs(factor) > _LARGEST_FLOAT32:
                    raise settings.wrong(key, "a number that float32 holds")
                if factor != 1:
                    yield replace(step, factor=factor)
            case AddPosition():
                yield step
            case AddType():
                if types:
                    yield step
                elif settings.whole("type_vocab_size", 0):
                    raise find.missing("token_type_embeddings")
            case AddRow(tensors=names):
                yield replace(step, tensors=tuple(map(find.weight, names)))
            case Norm(names=names, key=key, epsilon=epsilon):
                epsilon = settings.number(key, epsilon, least=0) if key else epsilon
                yield replace(step, epsilon=epsilon, weight=find.weight(*names), bias=find("bias", *names))
            case Project(name=name) if not step.is_optional or find("weight", name):
                beside = tuple(map(find.weight, step.beside))
                yield replace(step, weight=find.weight(name), bias=find("bias", name), beside=beside)


class Finder:
    """Finds the tensors of steps by the names of their modules; of several, the one nearest to the token matrix."""

    def __init__(self, search: Callable[[str], Tensor | None], settings: Settings) -> None:
        self._search, self._settings = search, settings

    def __call__(self, kind: str, *modules: str) -> str:
        """Return the name of a tensor of the first of these modules that there is; empty if there is none."""
        ends = (f"{module}.{end}" for module in modules for end in SUFFIXES[kind])
        return next((tensor.name for end in ends if (tensor := self._search(end)) is not None), "")

    def weight(self, *modules: str) -> str:
        """Return the name of the weight of the first of these modules; raises InputError if there is none."""
        name = self("weight", *modules)
        if not name:
            raise self.missing(modules[0])
        return name

    def missing(self, name: str) -> InputError:
        """Return the error for a tensor that a model of this type must have."""
        model = shortened(str(self._settings.values["model_type"]))
        return self._settings.refused(f"{self._settings.where} says that it is a {model} model, and it has no {name}")


def check_dimension(settings: Settings, dim: int) -> None:
    """Raise InputError if config.json names dimensions, and D is none of them."""
    stated = {key: settings.whole(key, 0) for key in _DIMENSIONS if settings.values.get(key) is not None}
    if stated and dim not in stated.values():
        listed = ", ".join(f"{key} {value:,}" for key, value in stated.items())
        raise settings.refused(
            f"{settings.where} says {listed}; rows of its token matrix have {counted(dim, 'column')}"
        )
