"""Whether other files in a model's folder say the same: another set of weights, or a vocabulary."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from embcli.binary import quoted
from embcli.encodings.encoding import Rules, sibling_json
from embcli.encodings.huggingface import READERS, HuggingFaceEncoding, read_tokenizer
from embcli.encodings.kinds import is_plain_class
from embcli.encodings.sentencepiece import SentencePieceEncoding
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, Found, of_names

# How files of weights are named that people load in place of one another.
_WEIGHTS = re.compile(r".*\.safetensors|(pytorch_model|consolidated).*\.(bin|pth)")

# The files beside a tokenizer.json that have the IDs of tokens.
_VOCABULARIES = (
    *("tokenizer.model", "vocab.txt", "vocab.json"),
    *("added_tokens.json", "tokenizer_config.json"),
)


def check_weights(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Say which file is read if the folder has other weights."""
    tensors = checkpoint.tensors
    if tensors.binary.is_remote or tensors.format not in ("safetensors", "PyTorch"):
        return
    found = {path.name for path in tensors.path.parent.iterdir() if _WEIGHTS.fullmatch(path.name)}
    others = sorted(found - {Path(name).name for name in tensors.files})
    text = f"{tensors.path.name} is read; other weights beside it:"
    yield from of_names("remark", "fit", others, text)


def check_vocabularies(checkpoint: Checkpoint, files: ModelFiles) -> Found:
    """Check that other files of the tokenizer say what tokenizer.json says.

    transformers reads tokenizer.json first, and other programs the others.
    """
    encoding = files.encoding
    if not isinstance(encoding, HuggingFaceEncoding) or encoding.path.name != "tokenizer.json":
        return
    ids = encoding.tokenizer.get_vocab()
    merges = encoding.rules.get("merges")
    for name in _VOCABULARIES:
        path = encoding.path.with_name(name)
        rules = _rules_of(path, ids)
        vocabulary = rules.get("vocab", {})
        others = [quoted(token) for token in vocabulary if ids.get(token) != vocabulary[token]]
        if vocabulary and path.name in READERS:  # It has all tokens that are not added.
            lost = sorted({*encoding.rules.get("vocab", {})} - vocabulary.keys())
            others += map(quoted, lost)
        if rules.get("merges", merges) != merges:
            others.append("the merges (merges.txt)")
        text = f"{name} and tokenizer.json, which is read, differ in"
        yield from of_names("finding", "fit", others, text)

    with suppress(InputError):  # check_tokenizer says that it splits no text.
        for fault in _contradicted(encoding):
            yield Finding("finding", "fit", fault)


def _contradicted(encoding: HuggingFaceEncoding) -> Iterator[str]:
    """Yield in words what tokenizer_config.json states, and the tokenizer does not do.

    A class that was not asked may do it.
    """
    lowers = _lowers(encoding.tokenizer)
    if lowers != _lowers(read_tokenizer(encoding.path)):
        yield f"only one of {encoding.described_by} and tokenizer.json makes texts lower case"
    ids = encoding.special_ids
    before, after = encoding.bos_eos
    does = {
        "do_lower_case": lowers,
        "add_bos_token": ids.get("bos") in before,
        "add_eos_token": ids.get("eos") in after,
    }
    stated = {}
    if encoding.described_by != encoding.path.name or is_plain_class(encoding.path):
        stated = sibling_json(encoding.path, "tokenizer_config.json")
    for key, value in does.items():
        if stated.get(key, value) not in (None, value):
            yield f"{key} of tokenizer_config.json is not what the tokenizer does"

    if len({*before}) < len(before):
        yield f"{encoding.described_by} puts a token twice before a text"
    around = {ids.get("cls"), ids.get("sep")} - {None}
    if around and around.isdisjoint(before + after):
        yield "the tokenizer has the tokens cls or sep, and puts neither around a text"


def _lowers(tokenizer: Any) -> bool:
    normalizer = tokenizer.normalizer
    return normalizer is not None and "a" in normalizer.normalize_str("A")


def _rules_of(path: Path, ids: Container[str]) -> Rules:
    """Return the IDs of the tokens of a vocabulary, `vocab`, and its merges if it has some.

    Converters of a tokenizer.model give reserved tokens other names, so only known ones count.
    """
    # There need not be one, and of the kind that its name says.
    with suppress(Exception):
        if path.name == "added_tokens.json":
            return {"vocab": sibling_json(path, path.name)}
        if path.name == "tokenizer_config.json":
            listed = sibling_json(path, path.name)["added_tokens_decoder"].items()
            return {"vocab": {str(token["content"]): int(place) for place, token in listed}}
        if path.name in READERS:
            return HuggingFaceEncoding(path, path.name, lambda: READERS[path.name](path)).rules
        names = SentencePieceEncoding(path, path.name).names
        return {"vocab": {name: place for place, name in enumerate(names) if name in ids}}
    return {}
