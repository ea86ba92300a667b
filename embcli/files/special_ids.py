"""The IDs of a model's special tokens, as each file beside its weights gives them.

config.json and generation_config.json give IDs; tokenizer_config.json and special_tokens_map.json
give names, which the encoding turns into IDs. The metadata of a GGUF file gives IDs. `audit` holds
them against the rows and against one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from embcli.binary import Binary
from embcli.encodings.encoding import Encoding, sibling_json
from embcli.errors import InputError

_ROLES = ("bos", "eos", "pad", "unk", "decoder_start")
_FILES_OF_NAMES = ("tokenizer_config.json", "special_tokens_map.json")
_GGUF_KEYS = {
    "bos": "tokenizer.ggml.bos_token_id",
    "eos": "tokenizer.ggml.eos_token_id",
    "pad": "tokenizer.ggml.padding_token_id",
    "unk": "tokenizer.ggml.unknown_token_id",
}
_NOT_SET = -1  # how some configurations write that there is no such token


class SpecialId(NamedTuple):
    """What one file says of one special token."""

    role: str  # "bos"
    file: str  # "config.json"
    ids: tuple[int, ...]  # empty for a name that is no token
    name: str = ""  # empty if the file gives IDs

    def document(self) -> dict[str, Any]:
        name = self.name or None
        return {"role": self.role, "file": self.file, "ids": list(self.ids), "name": name}

    def __str__(self) -> str:
        if self.name:
            return f"{self.role} {self.name!r} of {self.file}"
        ids = ", ".join(map(str, self.ids))
        return f"{self.role} {ids} of {self.file}"


def special_ids(
    weights: Path,
    config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    encoding: Encoding | None,
) -> list[SpecialId]:
    """Return what the files beside the weights say of special tokens.

    `config` is config.json's part for the text model, and `metadata` that of a GGUF file. Names are
    left out without an encoding. Raises InputError for a file that cannot be read, and for what is
    neither an ID nor a name.
    """
    found = [*_given_ids("config.json", config)]
    found += _given_ids("generation_config.json", sibling_json(weights, "generation_config.json"))
    for role, key in _GGUF_KEYS.items():
        if type(metadata.get(key)) is int:
            found.append(SpecialId(role, weights.name, (metadata[key],)))
    if encoding is None:
        return found
    for file in _FILES_OF_NAMES:
        found += _named_ids(file, sibling_json(weights, file), encoding)
    return found


def _given_ids(file: str, settings: Mapping[str, Any]) -> Iterator[SpecialId]:
    for role in _ROLES:
        key = f"{role}_token_id"
        value = settings.get(key)
        values = value if isinstance(value, list) else [value]
        if not all(item is None or type(item) is int for item in values):
            raise InputError(f"{file}: {key} is {str(value)[:60]}, which is no token ID")
        ids = tuple(item for item in values if item not in (None, _NOT_SET))
        if ids:
            yield SpecialId(role, file, ids)


def _named_ids(file: str, settings: Mapping[str, Any], encoding: Encoding) -> Iterator[SpecialId]:
    for role in _ROLES:
        value = settings.get(f"{role}_token")
        name = value.get("content") if isinstance(value, dict) else value
        if isinstance(name, str) and name:
            yield SpecialId(role, file, id_of_name(name, encoding), name)


def id_of_name(name: str, encoding: Encoding) -> tuple[int, ...]:
    """Return the ID of a special token by its name; empty if the name is not one token."""
    ids = encoding.encode(name, special=True)
    if len(ids) != 1 or encoding.token_bytes(int(ids[0])) != name.encode():
        return ()
    return (int(ids[0]),)


def differing_roles(found: list[SpecialId]) -> list[tuple[SpecialId, SpecialId]]:
    """Return pairs of files that give different IDs to the same special token.

    A list agrees with an ID that it contains. A name that is no token is not compared.
    """
    pairs = []
    for role in _ROLES:
        said = [special for special in found if special.role == role and special.ids]
        for special in said[1:]:
            if not set(special.ids) & set(said[0].ids):
                pairs.append((said[0], special))
    return pairs


# The names of most special tokens in chat templates: <|im_start|>, <start_of_turn>, [INST].
_TEMPLATE_NAME = re.compile(r"<\|[\w ./-]{1,40}\|>|<(?:start|end)_of_\w{1,30}>|\[/?INST\]")


def unknown_template_names(weights: Path, encoding: Encoding) -> list[str]:
    """Return the names of special tokens in the chat template that are not one token."""
    names: set[str] = set()
    for template in _chat_templates(weights):
        names.update(_TEMPLATE_NAME.findall(template))
    return [name for name in sorted(names) if not id_of_name(name, encoding)]


def _chat_templates(weights: Path) -> Iterator[str]:
    """Yield the chat templates beside the weights: one, or several by name."""
    longest = 1 << 20  # bytes
    own_file = weights.with_name("chat_template.jinja")
    if own_file.is_file():
        yield Binary(own_file).read(0, longest).decode("utf-8", "replace")
    templates = sibling_json(weights, "tokenizer_config.json").get("chat_template")
    if isinstance(templates, str):
        yield templates
    for template in templates if isinstance(templates, list) else ():
        if isinstance(template, dict) and isinstance(template.get("template"), str):
            yield template["template"]


def added_size(weights: Path) -> int:
    """Return one more than the largest ID among added tokens; 0 if no file lists any."""
    ids = list(sibling_json(weights, "added_tokens.json").values())
    described = sibling_json(weights, "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(described, dict):
        ids += [int(key) for key in described if key.isdecimal()]
    return 1 + max((token_id for token_id in ids if type(token_id) is int), default=-1)
