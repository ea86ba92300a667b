"""Whether llama.cpp loads a GGUF file, and what it warns of.

The conditions for a vocabulary are those of llama.cpp's src/llama-vocab.cpp in October 2026;
data/llama_cpp.json says what each kind of tokenizer has. data/llama_cpp_models.json says which
values llama.cpp takes, and which keys and tensors it expects of each architecture, as measured with
that version.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
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
from embcli.files.tensors import Tensor, Tensors
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, not_checked
from embcli.wording import first_of, load_facts

# The types of the tokens that are found before a text is split.
_FOUND_BY_NAME = (UNKNOWN, CONTROL, USER_DEFINED)
_ENDS = ("bos", "eos", "eot", "eom")  # special tokens that begin or end a text
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")
_FEW = 0.001  # of the tokens, in which a healthy vocabulary can be odd
_LEAST_SCORED = 20  # normal tokens; fewer can be an example


def check_gguf(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that llama.cpp loads a GGUF file, and takes its vocabulary as it is meant."""
    tensors = checkpoint.tensors
    encoding = tensors.own_words()
    facts = load_facts("llama_cpp.json")
    traits = facts["traits"].get(tensors.metadata.get("tokenizer.ggml.model"), ["any", "unknown"])
    if isinstance(encoding, GgufEncoding):
        for problem, names in _problems(encoding):
            known = facts["problems"][problem]
            if names and known["trait"] in traits:
                text = known["text"].format(first_of(map(quoted, names), 3))
                yield Finding(known["level"], known["kind"], text, len(names))
        yield from _check_model(encoding, tensors)
    elif traits and "tokenizer.ggml.model" in tensors.metadata:
        yield _refusal("it has no tokens (tokenizer.ggml.tokens)")


def _refusal(text: str, reaction: str = "refuses it") -> Finding:
    return Finding("alarm", "load", f"llama.cpp {reaction}: {text}")


# --- the vocabulary -------------------------------------------------------------------------------

_Problems = Iterator[tuple[str, list[str]]]  # of data/llama_cpp.json, and what has them


def _problems(encoding: GgufEncoding) -> _Problems:
    """Yield the problems of the tokens, their merges, the pre-tokenizer and the types."""
    yield "another model", [str(encoding.model)]
    pre_tokenizer = encoding.pre_tokenizer
    if not pre_tokenizer:
        yield "no pre-tokenizer", ["tokenizer.ggml.pre"]
    elif pre_tokenizer not in splittings():
        yield "another pre-tokenizer", [str(pre_tokenizer)]
    if encoding.merges is None and pre_tokenizer != "kimi-k2":
        yield "no merges", ["tokenizer.ggml.merges"]

    words = _spelled(encoding.words)
    counts = Counter(filter(None, words))  # An empty token gets a name of its own.
    yield "equal tokens", [word for word, count in counts.items() if count > 1]
    tokens = {_bare(word) for word in words}
    merges = _spelled(encoding.merges or [])
    yield "lost merges", [merge for merge in merges if _bare(merge) not in tokens]
    normal = _typed(encoding, NORMAL)
    pairs = [[*map(_bare, merge.split(" "))] for merge in merges]
    lost = unmade(map(_bare, normal), pairs)
    if pairs and len(lost) > _FEW * len(normal):
        yield "lost tokens", lost
    yield from _problems_of_types(encoding)


def _problems_of_types(encoding: GgufEncoding) -> _Problems:
    """Yield the problems of the types of tokens, and of special tokens."""
    for name in ("tokenizer.ggml.token_type", "tokenizer.ggml.scores"):
        if len(encoding.header.arrays.get(name, encoding.words)) < len(encoding.words):
            yield "fewer values", [name]
    normal = _typed(encoding, NORMAL)
    if not normal:
        yield "all found", _spelled(encoding.words)
    scores = np.unique(np.asarray(encoding.array("scores")))  # special tokens can have another
    if len(scores) <= 2 and len(normal) >= _LEAST_SCORED:
        yield "equal scores", normal
    yield "normal bytes", [word for word in normal if _BYTE_NAME.fullmatch(word)]
    yield "no bytes", [word for word in _typed(encoding, BYTE) if len(word.encode()) < 3]
    try:
        _ = encoding.bos_eos
    except InputError:
        yield "unknown ends", ["bos or eos"]
    metadata = encoding.header.metadata
    ids = {role: metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ENDS}
    if ids["eos"] is None:
        ids["llama.cpp's default eos"] = DEFAULT_IDS["eos"].get(str(encoding.model))
    unfound = np.flatnonzero(~np.isin(encoding.stored_kinds, _FOUND_BY_NAME)).tolist()
    yield "unfound ends", [f"{role} {each}" for role, each in ids.items() if each in unfound]


def _typed(encoding: GgufEncoding, kind: int) -> list[str]:
    places = np.flatnonzero(encoding.stored_kinds == kind)
    return _spelled([encoding.words[place] for place in places])


def _bare(spelling: str) -> str:
    """Return a token, or a merge of one, without spaces, which are stored in several ways."""
    return spelling.replace(" ", "").replace("▁", "")


def _spelled(words: list[bytes]) -> list[str]:
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
            yield from _check_value(header, key, rule, sizes)
        elif len(header.arrays.get(key, ())) not in (0, sizes.get("block_count")):
            yield _refusal(f"{key} has {len(header.arrays[key])} values, not one for each block")
    for layout in layouts:
        if not any(map(sizes.get, layout["without"])):
            expected = _expected(layout, facts["tensors"], sizes, tensors)
            differences = _differences(layout, expected, sizes, tensors)
            text = first_of(differences, 3)
            if text:
                yield _refusal(text)
            return
    yield not_checked(f"which keys and tensors llama.cpp needs of this {quoted(architecture)}")


def _sizes(header: GgufHeader, architecture: str, tokens: int) -> JsonObject:
    """Return the numbers by keys without the architecture; None for other values."""
    sizes: JsonObject = {"tokens": tokens, "feed_forward_length": 0, "attention.head_count": 0}
    for key, value in (header.metadata | header.arrays).items():
        sizes[key.removeprefix(f"{architecture}.")] = _size(value)
    heads = sizes["attention.head_count"]
    sizes.setdefault("attention.head_count_kv", heads)
    dim = (sizes.get("embedding_length") or 0) // heads if heads else heads
    sizes.setdefault("attention.key_length", dim)
    sizes.setdefault("attention.value_length", dim)
    return sizes


def _size(value: Any) -> int | None:
    """Return a number, or that which an array has for all blocks; None for other values."""
    if isinstance(value, np.ndarray) and len({*value.tolist()}) == 1:
        value = value.tolist()[0]
    return value if type(value) is int else None


def _check_value(header: GgufHeader, key: str, rule: JsonObject, sizes: JsonObject) -> Found:
    """Check that llama.cpp takes a value, and can compute with it."""
    value = header.metadata[key]
    text = f"{key} is {value!r:.60}, which"
    if header.types[key] != rule["type"]:
        yield _refusal(f"{text} is not of the type {rule['type']}")
        return
    if value not in rule.get("among", [value]):
        yield _refusal(f"{text} was unknown in October 2026")
    whole = sizes.get(rule.get("divides", ""))
    if not value >= rule.get("least", value) or (whole and whole % (value or 1)):
        # It aborts then, or computes no numbers.
        must_be = rule.get("must_be", "a number")
        yield _refusal(f"{text} must be {must_be}", "fails at each text")


def _expected(
    layout: JsonObject, known: JsonObject, sizes: JsonObject, tensors: Tensors
) -> JsonObject:
    """Return what is known of the tensors of a layout, by their names in the file.

    A number after the name of a kind there makes it a second kind.
    """
    expected = {}
    for block in range(min(sizes.get("block_count") or 0, len(tensors))):
        for label in layout["tensors"]:
            name = label.split()[0].replace("*", str(block))
            expected[name] = known[label]
    return expected


def _differences(
    layout: JsonObject, expected: JsonObject, sizes: JsonObject, tensors: Tensors
) -> Iterator[str]:
    """Yield in words where a file differs from what llama.cpp expects."""
    for key in layout["keys"]:
        if key not in sizes:
            yield f"{key} is missing"
    for key, other in layout.get("equal", {}).items():
        size = sizes.get(other)
        if key in sizes and size not in (None, sizes[key]):
            yield f"{key} is {sizes[key]}, and not {size} as {other}"
    for name, row in expected.items():
        if name not in tensors and row["unless"] not in tensors:
            yield f"{name} is missing"
    for name, tensor in tensors.items():
        if name not in expected or tensor.unreadable:
            yield f"{tensor} is not expected"
        else:
            yield from _other_sizes(tensor, expected[name]["shape"], sizes)


def _other_sizes(tensor: Tensor, shape: list[Any], sizes: JsonObject) -> Iterator[str]:
    """Yield in words the sizes of a tensor that are not a sum of products of a file's numbers."""
    # A dimension that only the tensor has is held against the empty product, 1.
    for terms, stored in zip_longest(shape, reversed(tensor.shape), fillvalue=[[]]):  # type: ignore[var-annotated]
        with suppress(KeyError, TypeError):  # for a size that the file does not say
            size = sum(prod(sizes[factor] for factor in factors) for factors in terms)
            if size != stored:
                yield f"{tensor} has {stored:,} where its keys say {size:,}"
