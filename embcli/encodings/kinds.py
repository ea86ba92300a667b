"""Which kind a tokenizer's file is, by its content, and what the files beside it say of it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

from embcli.binary import Binary, is_text
from embcli.encodings.encoding import sibling_json
from embcli.names import Strings
from embcli.wording import in_data

Described = Literal[  # transformers reads them by a class, which other files name
    "tokenizer.json",
    "vocab.json",
    "vocab.txt",
    "SentencePiece",
    "tokenizer_config.json",  # of a class that needs no other file
]
Kind = Literal["GGUF", "tekken.json", "ranks"] | Described
DESCRIBED: Strings = get_args(Described)
# The classes that leave a tokenizer.json as it is.
_PLAIN_CLASSES = ("PreTrainedTokenizerFast", "TokenizersBackend")


# Patterns of the first bytes, of which the first that fits decides; the first key of a JSON object
# tells what it is.
_STARTS: dict[Kind, bytes] = {
    "GGUF": b"GGUF",
    "vocab.json": rb'\s*\{\s*"(?:[^"\\]|\\.)*"\s*:\s*[0-9]',
    "tekken.json": rb'\s*\{\s*"(?:config|vocab|special_tokens|multimodal|audio)"',
    "tokenizer.json": rb"\s*\{",
    "ranks": rb"[A-Za-z0-9+/]+=* [0-9]+\s",
    # A field with a piece, whose first field is the text of the piece.
    "SentencePiece": rb"\n[\x80-\xff]*[\0-\x7f]\n",
}
# What a file without such a start is meant to be: damaged, unless it is a list of words.
SUFFIXES: dict[str, Kind] = {
    ".gguf": "GGUF",
    ".json": "tokenizer.json",
    ".model": "SentencePiece",
    ".spm": "SentencePiece",
    ".tiktoken": "ranks",
    ".txt": "vocab.txt",
}


def kind_of(path: Path) -> Kind:
    """Return what a file is; raises InputError for one that cannot be read."""
    if path.name == "tokenizer_config.json":
        return "tokenizer_config.json"
    longest_start = 1 << 12  # bytes
    start = Binary(path).read(0, longest_start)
    for kind, pattern in _STARTS.items():
        if re.match(pattern, start, re.DOTALL):
            return kind
    words: Kind = "vocab.txt" if is_text(start) else "SentencePiece"
    return SUFFIXES.get(path.suffix, words)


def is_described(path: Path) -> bool:
    """Return whether a file beside a tokenizer can say more of it."""
    return any(path.with_name(name).is_file() for name in ("config.json", "tokenizer_config.json"))


class NamedSpecial(NamedTuple):
    """A token that a file beside a tokenizer names."""

    role: str  # "bos"; empty for an added token without a role
    name: str


def named_specials(path: Path) -> Iterator[NamedSpecial]:
    """Yield the special tokens, and added ones, that the files beside a tokenizer name.

    The last name of a role is the one that transformers takes. It reads only tokenizer_config.json
    if that lists the added tokens.
    """
    files = ["tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
    if "added_tokens_decoder" in sibling_json(path, files[0]):
        del files[1:]
    for file in files:
        for key, value in sibling_json(path, file).items():
            role = key.removesuffix("_token") if key.endswith("_token") else ""
            if role or key.endswith("_special_tokens"):
                for name in _contents(value):
                    yield NamedSpecial(role, name)
            elif key == "added_tokens_decoder" and isinstance(value, dict):
                for name in _contents([*value.values()]):
                    yield NamedSpecial("", name)
            elif file == "added_tokens.json":
                yield NamedSpecial("", key)


def added_ids(path: Path) -> dict[str, int]:
    """Return the IDs of the added tokens that a tokenizer_config.json beside a tokenizer lists."""
    described = sibling_json(path, "tokenizer_config.json").get("added_tokens_decoder")
    ids = {}
    for key, value in described.items() if isinstance(described, dict) else ():
        for name in _contents(value):
            if key.isdecimal():
                ids[name] = int(key)
    return ids


def _contents(value: Any) -> Iterator[str]:
    """Yield the names of a token, or of several, which can be described by objects."""
    for described in value if isinstance(value, list) else [value]:
        match described:
            case str(name) | {"content": str(name)} if name:
                yield in_data(name)


def is_plain_class(path: Path) -> bool:
    """Return whether the class that a file beside a tokenizer.json names leaves it as it is."""
    return sibling_json(path, "tokenizer_config.json").get("tokenizer_class") in _PLAIN_CLASSES
