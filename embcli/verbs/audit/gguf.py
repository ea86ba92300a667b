"""Whether llama.cpp loads a GGUF file, and what it warns of.

The conditions for a vocabulary are those of llama.cpp's src/llama-vocab.cpp in October 2026;
data/llama_cpp.json says what each kind of tokenizer has. data/llama_cpp_models.json says which
values llama.cpp takes, and which keys and tensors it expects of each architecture, as measured with
that version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from math import prod
from typing import Any

import numpy as np

from embcli.binary import JsonObject, quoted
from embcli.encodings.gguf.header import GgufHeader
from embcli.encodings.gguf.vocabulary import DEFAULT_IDS, GgufEncoding
from embcli.encodings.merging import unmade
from embcli.encodings.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, not_checked
from embcli.wording import first_of, load_facts

# The types of the tokens that are found before a text is split.
_FOUND_BY_NAME = (UNKNOWN, CONTROL, USER_DEFINED)
_ENDS = ("bos", "eos", "eot", "eom")  # special tokens that begin or end a text
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")
_FEW = 0.001  # of the tokens, in which a healthy vocabulary can be odd


def check_gguf(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that llama.cpp loads a GGUF file, and takes its vocabulary as it is meant."""
    tensors = checkpoint.tensors
    encoding = tensors.own_words()
    facts = load_facts("llama_cpp.json")
    traits = facts["traits"].get(tensors.metadata.get("tokenizer.ggml.model"), ["any", "unknown"])
    if isinstance(encoding, GgufEncoding):
        vocabulary = _Vocabulary(encoding)
        for rule in facts["rules"]:
            names = getattr(vocabulary, rule["name"])() if rule["trait"] in traits else []
            if names:
                text = rule["text"].format(first_of(map(quoted, names), 3))
                yield Finding(rule["level"], rule["kind"], len(names), text)
        yield from _check_model(encoding, tensors)
    elif traits:
        yield _refusal("it has no tokens (tokenizer.ggml.tokens)")


def _refusal(text: str) -> Finding:
    return Finding("alarm", "load", 1, f"llama.cpp refuses it: {text}")


# --- the vocabulary -------------------------------------------------------------------------------


class _Vocabulary:
    """The vocabulary of a file; each rule of data/llama_cpp.json is a method.

    It returns the names of what breaks the rule.
    """

    def __init__(self, encoding: GgufEncoding) -> None:
        self.encoding = encoding
        self.header = encoding.header
        self.words = _spelled(encoding.words)
        self.merges = _spelled(encoding.merges or [])

    def typed(self, kind: int) -> list[str]:
        ids = np.flatnonzero(self.encoding.stored_kinds == kind)
        return [self.words[token_id] for token_id in ids]

    def known_model(self) -> list[str]:
        return [str(self.encoding.model)]

    def known_pre_tokenizer(self) -> list[str]:
        name = self.encoding.pre_tokenizer
        return [str(name)] if name and name not in splittings() else []

    def merges_there(self) -> list[str]:
        are_there = self.encoding.merges is not None or self.encoding.pre_tokenizer == "kimi-k2"
        return [] if are_there else ["tokenizer.ggml.merges"]

    def long_arrays(self) -> list[str]:
        names = ("tokenizer.ggml.token_type", "tokenizer.ggml.scores")
        size = len(self.words)
        return [name for name in names if len(self.header.arrays.get(name, self.words)) < size]

    def different_tokens(self) -> list[str]:
        counts = Counter(filter(None, self.words))  # An empty token gets a name of its own.
        return [word for word, count in counts.items() if count > 1]

    def named_bytes(self) -> list[str]:
        return [word for word in self.typed(BYTE) if len(word.encode()) < 3]

    def known_ends(self) -> list[str]:
        try:
            _ = self.encoding.bos_eos
        except InputError:
            return ["bos or eos"]
        return []

    def pre_tokenizer_there(self) -> list[str]:
        return [] if self.encoding.pre_tokenizer else ["tokenizer.ggml.pre"]

    def merges_of_tokens(self) -> list[str]:
        tokens = {_bare(word) for word in self.words}
        return [merge for merge in self.merges if _bare(merge) not in tokens]

    def tokens_of_merges(self) -> list[str]:
        normal = self.typed(NORMAL)
        pairs = [[*map(_bare, merge.split(" "))] for merge in self.merges]
        lost = unmade(map(_bare, normal), pairs)
        return lost if pairs and len(lost) > _FEW * len(normal) else []

    def typed_bytes(self) -> list[str]:
        return [word for word in self.typed(NORMAL) if _BYTE_NAME.fullmatch(word)]

    def found_ends(self) -> list[str]:
        unfound = ~np.isin(self.encoding.stored_kinds, _FOUND_BY_NAME)
        ids = {role: self.header.metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ENDS}
        if ids["eos"] is None:
            ids["llama.cpp's default eos"] = DEFAULT_IDS["eos"].get(str(self.encoding.model))
        places = np.flatnonzero(unfound).tolist()
        return [f"{role} {token_id}" for role, token_id in ids.items() if token_id in places]

    def normal_tokens(self) -> list[str]:
        return [] if self.typed(NORMAL) else self.words


def _bare(spelling: str) -> str:
    """Return a token, or a merge of one, without spaces, which are stored in several ways."""
    return spelling.replace(" ", "").replace("▁", "")


def _spelled(words: Sequence[bytes]) -> list[str]:
    return [word.decode("utf-8", "replace") for word in words]


# --- the model ------------------------------------------------------------------------------------


def _check_model(encoding: GgufEncoding, tensors: Tensors) -> Found:
    """Check that llama.cpp finds the keys and the tensors of the model's architecture."""
    header = encoding.header
    architecture = str(header.metadata.get("general.architecture"))
    facts = load_facts("llama_cpp_models.json")
    layouts = facts["architectures"].get(architecture)
    if layouts is None:
        yield _refusal(f"its architecture {quoted(architecture)} was unknown in October 2026")
        return

    sizes = _sizes(header, architecture, len(encoding.words))
    for label, rule in facts["values"].items():
        key = label.replace("*", architecture)
        if key in header.metadata:
            yield from _check_value(key, header.metadata[key], rule, sizes)
        elif len(header.arrays.get(key, ())) not in (0, sizes.get("block_count")):
            yield _refusal(f"{key} has {len(header.arrays[key])} values, not one for each block")
    for layout in layouts:
        if not any(map(sizes.get, layout["without"])):
            differences = [*_wrong_keys(layout, sizes)]
            differences += _wrong_tensors(
                _expected(layout, facts["tensors"], sizes, tensors), sizes, tensors
            )
            if differences:
                yield _refusal(first_of(differences, 3))
            return
    yield not_checked(f"which keys and tensors llama.cpp needs of this {quoted(architecture)}")


# The numbers by keys without the architecture; None for other values.
_Sizes = dict[str, Any]


def _sizes(header: GgufHeader, architecture: str, tokens: int) -> _Sizes:
    sizes: _Sizes = {"tokens": tokens, "feed_forward_length": 0}
    for key, value in (header.metadata | header.arrays).items():
        sizes[key.removeprefix(f"{architecture}.")] = _size(value)
    heads = sizes.setdefault("attention.head_count", 0)
    sizes.setdefault("attention.head_count_kv", heads)
    dim = heads  # 0 without heads, None if they differ from block to block
    if heads:
        dim = (sizes.get("embedding_length") or 0) // heads
    sizes.setdefault("attention.key_length", dim)
    sizes.setdefault("attention.value_length", dim)
    return sizes


def _size(value: Any) -> int | None:
    """Return a number, or that which an array has for all blocks; None for other values."""
    if isinstance(value, np.ndarray) and len({*value.tolist()}) == 1:
        value = value.tolist()[0]
    return value if type(value) is int else None


def _check_value(key: str, value: Any, rule: JsonObject, sizes: _Sizes) -> Found:
    """Check that llama.cpp takes a value, and can compute with it."""
    text = f"{key} is {value!r:.60}, which"
    if type(value).__name__ != rule["type"]:
        yield _refusal(f"{text} is not of the type {rule['type']}")
        return
    if value not in rule.get("among", [value]):
        yield _refusal(f"{text} was unknown in October 2026")
    is_usable = value >= rule.get("least", value)
    if value and "divides" in rule:
        is_usable = (sizes.get(rule["divides"]) or 0) % value == 0
    if not is_usable:
        text = f"llama.cpp loads it, and fails at each text: {text} must be {rule['must_be']}"
        yield Finding("alarm", "load", 1, text)


def _wrong_keys(layout: JsonObject, sizes: _Sizes) -> Iterator[str]:
    """Yield in words the keys that llama.cpp needs otherwise."""
    for key in layout["keys"]:
        if key not in sizes:
            yield f"{key} is missing"
    for key, other in layout.get("equal", {}).items():
        expected = sizes.get(other)
        if key in sizes and expected not in (None, sizes[key]):
            yield f"{key} is {sizes[key]}, and not {expected} as {other}"


def _expected(layout: JsonObject, known: JsonObject, sizes: _Sizes, tensors: Tensors) -> JsonObject:
    """Return what is `known` of the tensors that a layout names, by their names in the file.

    A number there follows the name of a second kind.
    """
    expected = {}
    for block in range(min(sizes.get("block_count") or 0, len(tensors))):
        for label in layout["tensors"]:
            name = label.split()[0].replace("*", str(block))
            expected[name] = known[label]
    return expected


def _wrong_tensors(expected: JsonObject, sizes: _Sizes, tensors: Tensors) -> Iterator[str]:
    """Yield in words the tensors that llama.cpp expects otherwise."""
    for name, row in expected.items():
        if name not in tensors and row["unless"] not in tensors:
            yield f"{name} is missing"
    for name, tensor in tensors.items():
        if name not in expected or tensor.unreadable:
            yield f"{tensor} is not expected"
            continue
        shape = expected[name]["shape"]
        for terms, stored in zip(shape, reversed(tensor.shape), strict=False):
            with suppress(KeyError, TypeError):  # for a size that the file does not say
                size = sum(prod(sizes[factor] for factor in factors) for factors in terms)
                if size != stored:
                    yield f"{tensor} has {stored:,} where its keys say {size:,}"
