"""Whether llama.cpp loads the vocabulary of a GGUF file, and what it warns of.

The conditions are those of llama.cpp's src/llama-vocab.cpp in October 2026, and the rows that it
expects of the matrices of tokens; data/llama_cpp.json says what each kind of tokenizer has. Other
tensors and keys of the file are not looked at.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from embcli.binary import quoted
from embcli.encodings.encoding import load_facts
from embcli.encodings.gguf.vocabulary import GgufEncoding
from embcli.encodings.sentencepiece import CONTROL, NORMAL, UNKNOWN, USER_DEFINED
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.files.checkpoint import Checkpoint
from embcli.files.tensors import Tensors
from embcli.names import Fault
from embcli.verbs.audit.files import ModelFiles
from embcli.verbs.audit.finding import Finding, first_names

# The types of the tokens that are found before a text is split.
_FOUND_BY_NAME = (UNKNOWN, CONTROL, USER_DEFINED)
_ENDS = ("bos", "eos", "eot", "eom")  # special tokens that begin or end a text
_BYTE_NAME = re.compile("<0x[0-9A-F]{2}>")


def check_vocabulary(checkpoint: Checkpoint, files: ModelFiles) -> Iterator[Finding]:
    """Check that llama.cpp loads the vocabulary of a GGUF file, and takes it as it is meant."""
    tensors = checkpoint.tensors
    encoding = tensors.own_words()
    traits = load_facts("llama_cpp.json").get(tensors.metadata.get("tokenizer.ggml.model"))
    if isinstance(encoding, GgufEncoding):
        for text in _refusals(encoding, traits, tensors):
            yield _refusal(text)
        yield from _warnings(encoding, traits or [], tensors)
    elif traits:
        yield _refusal("it has no tokens (tokenizer.ggml.tokens)")


def _refusal(text: str) -> Finding:
    return Finding("alarm", "load", 1, f"llama.cpp refuses it: {text}")


def _warning(kind: Fault, problem: str, names: list[str]) -> Iterator[Finding]:
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
    for name in ("token_embd.weight", "output.weight"):
        if name in tensors and tensors[name].shape[0] != size:
            yield f"{name} has {tensors[name].shape[0]:,} rows for {size:,} tokens"
    for name in ("token_type", "scores"):
        values = encoding.array(name)
        if values is not None and len(values) < size:
            yield f"tokenizer.ggml.{name} has fewer values than tokens"
    counts = Counter(filter(None, encoding.words))  # an empty token gets a name of its own
    repeated = [word for word, count in counts.items() if count > 1]
    if repeated:
        yield f"several IDs have the same token: {_listed(_spelled(repeated))}"
    try:
        _ = encoding.bos_eos
    except InputError:
        yield "each text gets a special token, and the file does not say which"


def _warnings(encoding: GgufEncoding, traits: list[str], tensors: Tensors) -> Iterator[Finding]:
    """Yield what llama.cpp warns of, or takes otherwise than it is meant."""
    words = _spelled(encoding.words)
    kinds = encoding.stored_kinds
    if "pre-tokenizer" in traits and not encoding.pre_tokenizer:
        problem = "llama.cpp warns of worse output, as this is missing"
        yield from _warning("load", problem, ["tokenizer.ggml.pre"])
    if "merges" in traits:
        tokens = {_bare(word) for word in words}
        merges = _spelled(encoding.merges or [])
        lost = [merge for merge in merges if _bare(merge) not in tokens]
        yield from _warning("fit", "merges that make no token", lost)
    if "bytes" in traits:
        normal = [words[place] for place in np.flatnonzero(kinds == NORMAL)]
        names = [word for word in normal if _BYTE_NAME.fullmatch(word)]
        yield from _warning("fit", "bytes that are typed NORMAL, so written by name", names)
    if "names" in traits:
        unfound = np.flatnonzero(~np.isin(kinds, _FOUND_BY_NAME)).tolist()
        ids = {role: tensors.metadata.get(f"tokenizer.ggml.{role}_token_id") for role in _ENDS}
        roles = [f"{role} {token_id}" for role, token_id in ids.items() if token_id in unfound]
        yield from _warning("special-ids", "special tokens that are not typed CONTROL", roles)


def _bare(spelling: str) -> str:
    """Return a token, or a merge of one, without spaces, which are stored in several ways."""
    return spelling.replace(" ", "").replace("▁", "")


def _spelled(words: Sequence[bytes]) -> list[str]:
    return [word.decode("utf-8", "replace") for word in words]


def _listed(names: list[str]) -> str:
    return first_names([quoted(name) for name in names], 3)
