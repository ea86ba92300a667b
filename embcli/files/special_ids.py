"""The IDs of a model's special tokens, as each file beside its weights gives them.

config.json and generation_config.json give IDs, as do the metadata of a GGUF file and what
tokenizer.json adds to texts; tokenizer_config.json and special_tokens_map.json give names, which
the encoding turns into IDs. `audit` holds them against the rows and against one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from embcli.binary import Binary
from embcli.encodings.encoding import Encoding, sibling_json
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint

_FILES_OF_NAMES = ("tokenizer_config.json", "special_tokens_map.json")
_ID_KEY = re.compile(r"(?:tokenizer\.ggml\.)?(\w+)_token_(?:ids?|index)")
_GGUF_ROLES = {"padding": "pad", "unknown": "unk", "seperator": "sep"}
# Special tokens that have no role of their own; the last are those around a text.
LISTS = ("additional_special_tokens", "extra_special_tokens", "post_processor")
_NOT_SET = -1  # how some configurations write that there is no such token


class SpecialId(NamedTuple):
    """What one file says of one special token."""

    role: str  # "bos"
    file: str  # "config.json"
    ids: tuple[int, ...]  # empty for a name that is no token
    name: str = ""  # empty if the file gives IDs

    def document(self) -> dict[str, Any]:
        return self._asdict() | {"ids": list(self.ids), "name": self.name or None}

    def __str__(self) -> str:
        if self.name:
            return f"{self.role} {self.name!r} of {self.file}"
        ids = ", ".join(map(str, self.ids))
        return f"{self.role} {ids} of {self.file}"


def special_ids(model: Checkpoint) -> tuple[SpecialId, ...]:
    """Return what the files beside the weights say of special tokens.

    Names are left out without an encoding. Raises InputError for a file that cannot be read, and
    for what is neither an ID nor a name.
    """
    weights = model.tensors.path
    generation_config = sibling_json(weights, "generation_config.json")
    found = [*_given_ids("config.json", model.roles.config)]
    found += _given_ids("generation_config.json", generation_config)
    if model.tensors.format == "GGUF":
        found += _given_ids(weights.name, model.tensors.metadata)
    if model.encoding is not None:
        for file in _FILES_OF_NAMES:
            found += _named_ids(file, sibling_json(weights, file), model.encoding)
    if isinstance(model.encoding, HuggingFaceEncoding):
        added: dict[str, Any] = {}
        with suppress(InputError):  # a vocabulary of words need not have the letter that is tried
            bos, eos = model.encoding.bos_eos
            added["post_processor_token_ids"] = [*bos, *eos]
        added["pad_token_id"] = model.encoding.padding.get("pad_id")
        found += _given_ids(model.encoding.path.name, added)
    return tuple(found)


def _given_ids(file: str, settings: Mapping[str, Any]) -> Iterator[SpecialId]:
    for key, value in settings.items():
        match = _ID_KEY.fullmatch(key)
        if match is None:
            continue
        values = value if isinstance(value, list) else [value]
        if not all(item is None or type(item) is int for item in values):
            raise InputError(f"{file}: {key} is {repr(value)[:60]}, which is no token ID")
        ids = tuple(item for item in values if item not in (None, _NOT_SET))
        if ids:
            role = _GGUF_ROLES.get(match[1], match[1])
            yield SpecialId(role, file, ids)


def _named_ids(file: str, settings: Mapping[str, Any], encoding: Encoding) -> Iterator[SpecialId]:
    for key, value in settings.items():
        if not key.endswith("_token") and key not in LISTS:
            continue
        for described in value if isinstance(value, list) else [value]:
            name = described.get("content") if isinstance(described, dict) else described
            if isinstance(name, str) and name:
                ids = _id_of_name(name, encoding)
                yield SpecialId(key.removesuffix("_token"), file, ids, name)


def _id_of_name(name: str, encoding: Encoding) -> tuple[int, ...]:
    """Return the ID of a special token by its name; empty if the name is not one token."""
    ids = encoding.encode(name, special=True)
    if len(ids) != 1 or encoding.token_bytes(int(ids[0])) != name.encode():
        return ()
    return (int(ids[0]),)


# The names of most special tokens in chat templates: <|im_start|>, <start_of_turn>, [INST].
_TEMPLATE_NAME = re.compile(r"<\|[\w ./-]{1,40}\|>|<(?:start|end)_of_\w{1,30}>|\[/?INST\]")


def unknown_template_names(weights: Path, encoding: Encoding) -> tuple[str, ...]:
    """Return the names of special tokens in the chat template that are not one token."""
    longest = 1 << 20  # bytes
    # It is a text, or a list of several with names of their own.
    config = sibling_json(weights, "tokenizer_config.json")
    template = str(config.get("chat_template"))
    own_file = weights.with_name("chat_template.jinja")
    if own_file.is_file():
        data = Binary(own_file).read(0, longest)
        template += data.decode("utf-8", "replace")
    names = set(_TEMPLATE_NAME.findall(template))
    return tuple(name for name in sorted(names) if not _id_of_name(name, encoding))


def added_size(weights: Path) -> int:
    """Return one more than the largest ID among added tokens; 0 if no file lists any."""
    ids = list(sibling_json(weights, "added_tokens.json").values())
    described = sibling_json(weights, "tokenizer_config.json").get("added_tokens_decoder")
    if isinstance(described, dict):
        ids += [int(key) for key in described if key.isdecimal()]
    return 1 + max((token_id for token_id in ids if type(token_id) is int), default=-1)
