"""What config.json says about the model that reads tokens, which can be a part of a larger one.

A model of images or sound contains a text model, and an encoder-decoder has two parts, whose
settings can lie several levels deep in config.json. `Roles` looks for the tensors of this part.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from typing import NamedTuple

from embcli.binary import JsonObject, objects_in
from embcli.errors import InputError
from embcli.files.families import Family, Settings, family_of, has_two_parts, settings_of_gguf
from embcli.files.tensors import Tensors
from embcli.names import ModelPart


class TextModel(NamedTuple):
    """The model, or the part of a model, that reads tokens."""

    config: JsonObject  # its part of config.json; empty without a config.json
    settings: Settings  # the settings of `config`, or of the metadata of a GGUF file
    family: Family | None  # None if it is unknown, or if a setting has a wrong type
    part: ModelPart | None  # the part whose tensors are wanted; None for a model that is whole
    name_part: str  # a part that the names of all its tensors have, if any name has it


def text_model_of(tensors: Tensors, whole_config: JsonObject) -> TextModel:
    """Return the model that reads tokens; `whole_config` is a config.json, or empty."""
    described_part = _described_part(whole_config, tensors)
    config = _text_config(whole_config, described_part)
    # Without a config.json, the metadata of a GGUF file has settings.
    settings = Settings(settings_of_gguf(tensors.metadata), tensors.file_error, "its metadata")
    if config:
        settings = Settings(config, tensors.file_error)
    family = None
    with suppress(InputError):  # the recipe raises it again
        family = family_of(settings)

    part = described_part
    if part is None and family is not None and family.has_two_parts:
        part = "encoder"
    return TextModel(config, settings, family, part, described_part or "")


def _described_part(config: JsonObject, tensors: Tensors) -> ModelPart | None:
    """Return the part that config.json describes for tokens; None for a model that is whole."""
    model_type = config.get("model_type")
    if model_type == "encoder-decoder":
        return "encoder"
    if has_two_parts(model_type):
        is_decoder = (config.get("is_decoder"), config.get("is_encoder_decoder")) == (True, False)
        return "decoder" if is_decoder or _has_only_decoder(tensors) else None
    # The encoder of such a model reads images or sound.
    return "decoder" if isinstance(config.get("decoder"), dict) else None


def _has_only_decoder(names: Iterable[str]) -> bool:
    """Return whether names of tensors have the part "decoder", and none the other parts."""
    parts = set()
    for name in names:
        parts.update(name_parts(name))
    return "decoder" in parts and not parts & {"encoder", "shared"}


def _text_config(whole_config: JsonObject, part: ModelPart | None) -> JsonObject:
    """Return config.json, in which the text model's settings replace those of the whole model."""
    keys = ["text_config", "llm_config", "thinker_config"]
    if part:
        keys.append(part)
    config = dict(whole_config)
    while True:
        text_configs = objects_in([config.pop(key, None) for key in keys])
        if not text_configs:
            return config
        config |= text_configs[0]


def name_parts(name: str) -> list[str]:
    """Return the parts of a tensor's name, which dots, slashes or colons separate."""
    return name.replace("/", ".").replace(":", ".").split(".")
