"""The IDs of a model's special tokens, as its tokenizer and each file beside its weights give them.

config.json, generation_config.json and the metadata of a GGUF file give IDs. `audit` holds them
against the rows and against one another.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from embcli.binary import JsonObject
from embcli.encodings.encoding import sibling_json
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError

if TYPE_CHECKING:
    from embcli.files.checkpoint import Checkpoint

_ID_KEY = re.compile(r"(?:tokenizer\.ggml\.)?(\w+?)(?:_token_(?:ids?|index)|(?<=suppress)_tokens)")
_GGUF_ROLES = {"padding": "pad", "unknown": "unk", "seperator": "sep"}
_NOT_SET = -1  # how some configurations write that there is no such token


class SpecialId(NamedTuple):
    """What one file, or the tokenizer, says of one special token."""

    role: str  # "bos"
    file: str  # "config.json"; what describes the tokenizer
    ids: tuple[int, ...]  # none if a file that decides names no such token

    def __str__(self) -> str:
        ids = ", ".join(map(str, self.ids)) or "(none)"
        return f"{self.role} {ids} of {self.file}"


def special_ids(model: Checkpoint) -> tuple[SpecialId, ...]:
    """Return what the tokenizer and the files beside the weights say of special tokens.

    Raises InputError for a file that cannot be read, and for what is not an ID.
    """
    weights = model.tensors.path
    found = [*_given_ids("config.json", model.roles.config)]
    found += _given_ids("generation_config.json", sibling_json(weights, "generation_config.json"))
    if model.tensors.format == "GGUF":
        found += _given_ids(weights.name, model.tensors.metadata)
    encoding = model.encoding
    if encoding is not None:
        for role, token_id in encoding.special_ids.items():
            found.append(SpecialId(role, encoding.described_by, (token_id,)))
    if isinstance(encoding, HuggingFaceEncoding):
        added: JsonObject = {}
        with suppress(InputError):  # a vocabulary of words need not have the letter that is tried
            bos, eos = encoding.bos_eos
            added["post_processor_token_ids"] = [*bos, *eos]
        added["pad_token_id"] = encoding.padding.get("pad_id")
        found += _given_ids(encoding.path.name, added)
    return tuple(found)


def _given_ids(file: str, settings: JsonObject) -> Iterator[SpecialId]:
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
