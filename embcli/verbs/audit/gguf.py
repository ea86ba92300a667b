"""Whether llama.cpp loads a GGUF file, and what it warns of.

The conditions for a vocabulary are those of llama.cpp's src/llama-vocab.cpp in October 2026;
data/llama_cpp.json says what each kind of tokenizer has. data/llama_cpp_models.json says which
keys and tensors llama.cpp expects of each architecture, as measured with that version.
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
from embcli.encodings.gguf.vocabulary import DEFAULT_IDS, GgufEncoding
from embcli.encodings.merging import unmade
from embcli.encodings.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.names import Fault
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
    known = load_facts("llama_cpp.json")["traits"]
    traits = known.get(tensors.metadata.get("tokenizer.ggml.model"))
    if isinstance(encoding, GgufEncoding):
        for text in _refusals(encoding, traits, tensors):
            yield _refusal(text)
        yield from _warnings(encoding, traits or [], tensors)
        yield from _check_tensors(encoding, tensors)
    elif traits:
        yield _refusal("it has no tokens (tokenizer.ggml.tokens)")


def _refusal(text: str) -> Finding:
    return Finding("alarm", "load", 1, f"llama.cpp refuses it: {text}")


def _warning(kind: Fault, problem: str, names: list[str]) -> Found:
    """Yield a finding about what has these names, or nothing if there is nothing."""
    if names:
        yield Finding("finding", kind, len(names), f"{problem}: {_listed(names)}")


def _refusals(encoding: GgufEncoding, traits: list[str] | None, tensors: Tensors) -> Iterator[str]:
    """Yield in words why llama.cpp does not load a file, or aborts."""
    pre_tokenizer = encoding.pre_tokenizer
    if encoding.model is None:
        yield "it does not name its tokenizer (tokenizer.ggml.model)"
    elif traits is None:
        yield f"its tokenizer {quoted(str(encoding.model))} was unknown in October 2026"
    elif "pre-tokenizer" in traits and pre_tokenizer and pre_tokenizer not in splittings():
        yield f"its pre-tokenizer {quoted(str(pre_tokenizer))} was unknown in October 2026"
    elif "merges" in traits and pre_tokenizer != "kimi-k2" and encoding.merges is None:
        yield "it has no merges (tokenizer.ggml.merges)"

    size = len(encoding.words)
    for name in ("token_type", "scores"):
        values = encoding.array(name)
        if values is not None and len(values) < size:
            yield f"tokenizer.ggml.{name} has fewer values than tokens"
    counts = Counter(filter(None, encoding.words))  # an empty token gets a name of its own
    repeated = [word for word, count in counts.items() if count > 1]
    if repeated:
        yield f"several IDs have the same token: {_listed(_spelled(repeated))}"
    for place in np.flatnonzero(encoding.stored_kinds == BYTE):
        if len(encoding.words[place]) < 3:
            yield f"its token {place} is typed BYTE, and names no byte"
            break
    try:
        _ = encoding.bos_eos
    except InputError:
        yield "each text gets a special token, and the file does not say which"


def _check_tensors(encoding: GgufEncoding, tensors: Tensors) -> Found:
    """Check that llama.cpp finds the keys and the tensors of the model's architecture."""
    header = encoding.header
    architecture = str(header.metadata.get("general.architecture"))
    facts = load_facts("llama_cpp_models.json")
    layouts = facts["architectures"].get(architecture)
    if layouts is None:
        yield _refusal(f"its architecture {quoted(architecture)} was unknown in October 2026")
        return

    # The numbers by keys without the architecture; None for other values.
    sizes: dict[str, Any] = {"tokens": len(encoding.words), "feed_forward_length": 0}
    for key, value in (header.metadata | header.arrays).items():
        sizes[key.removeprefix(f"{architecture}.")] = _size(value)
    for label, expected in facts["types"].items():
        key = label.replace("*", architecture)
        value = header.metadata.get(key)
        if value is not None and type(value).__name__ != expected:
            yield _refusal(f"{key} is {value!r:.60}, which is not of the type {expected}")
        elif key in header.arrays and len(header.arrays[key]) != sizes.get("block_count"):
            yield _refusal(f"{key} has {len(header.arrays[key])} values, not one for each block")
    heads = sizes.setdefault("attention.head_count", 0)
    sizes.setdefault("attention.head_count_kv", heads)
    dim = heads  # 0 without heads, None if they differ from block to block
    if heads:
        dim = (sizes.get("embedding_length") or 0) // heads
    sizes.setdefault("attention.key_length", dim)
    sizes.setdefault("attention.value_length", dim)

    for layout in layouts:
        if not any(map(sizes.get, layout["without"])):
            differences = [*_differences(layout, facts["tensors"], sizes, tensors)]
            if differences:
                yield _refusal(first_of(differences, 3))
            return
    yield not_checked(f"which keys and tensors llama.cpp needs of this {quoted(architecture)}")


def _size(value: Any) -> int | None:
    """Return a number, or that which an array has for all blocks; None for other values."""
    if isinstance(value, np.ndarray) and len({*value.tolist()}) == 1:
        value = value.tolist()[0]
    return value if type(value) is int else None


def _differences(
    layout: JsonObject, known: JsonObject, sizes: dict[str, Any], tensors: Tensors
) -> Iterator[str]:
    """Yield in words where a file differs from what llama.cpp expects.

    A layout names tensors that are `known`; a number there follows the name of a second kind.
    """
    for key in layout["keys"]:
        if key not in sizes:
            yield f"{key} is missing"
    for key, other in layout.get("equal", {}).items():
        expected = sizes.get(other)
        if key in sizes and expected not in (None, sizes[key]):
            yield f"{key} is {sizes[key]}, and not {expected} as {other}"
    expected = {}
    for block in range(min(sizes.get("block_count") or 0, len(tensors))):
        for label in layout["tensors"]:
            name = label.split()[0].replace("*", str(block))
            expected[name] = known[label]
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


def _warnings(encoding: GgufEncoding, traits: list[str], tensors: Tensors) -> Found:
    """Yield what llama.cpp warns of, or takes otherwise than it is meant."""
    words = _spelled(encoding.words)
    kinds = encoding.stored_kinds
    normal = [words[place] for place in np.flatnonzero(kinds == NORMAL)]
    if "pre-tokenizer" in traits and not encoding.pre_tokenizer:
        problem = "llama.cpp warns of worse output, as this is missing"
        yield from _warning("load", problem, ["tokenizer.ggml.pre"])
    if "merges" in traits:
        tokens = {_bare(word) for word in words}
        merges = _spelled(encoding.merges or [])
        lost = [merge for merge in merges if _bare(merge) not in tokens]
        yield from _warning("fit", "merges that make no token", lost)
        if "made" in traits and merges:
            lost = unmade(map(_bare, normal), [[*map(_bare, merge.split(" "))] for merge in merges])
            if len(lost) > _FEW * len(normal):
                yield from _warning("fit", "tokens that no merge makes of earlier ones", lost)
    if "bytes" in traits:
        names = [word for word in normal if _BYTE_NAME.fullmatch(word)]
        yield from _warning("fit", "bytes that are typed NORMAL, so written by name", names)
    if "names" in traits:
        unfound = np.flatnonzero(~np.isin(kinds, _FOUND_BY_NAME)).tolist()
        ids = {role: tensors.metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ENDS}
        if ids["eos"] is None:
            ids["llama.cpp's default eos"] = DEFAULT_IDS["eos"].get(str(encoding.model))
        roles = [f"{role} {token_id}" for role, token_id in ids.items() if token_id in unfound]
        yield from _warning("special-ids", "special tokens that are not typed CONTROL", roles)
        if not normal:
            text = "no token is typed NORMAL: llama.cpp finds them before it splits a text"
            yield Finding("finding", "fit", len(words), text)


def _bare(spelling: str) -> str:
    """Return a token, or a merge of one, without spaces, which are stored in several ways."""
    return spelling.replace(" ", "").replace("▁", "")


def _spelled(words: Sequence[bytes]) -> list[str]:
    return [word.decode("utf-8", "replace") for word in words]


def _listed(names: list[str]) -> str:
    return first_of([quoted(name) for name in names], 3)
