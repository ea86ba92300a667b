"""Complete models of one layer as GGUF files: one of each kind of vocabulary, and one fault each.

What a file is named after, llama.cpp's log or its IDs show; `test_gguf` reads them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from gguf import GGUFWriter
from tokenizers import pre_tokenizers

from embcli.encodings.sentencepiece import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED

DIM = 32
HIDDEN = 64
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
TEMPLATE = "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}"

Keys = dict[str, Any]  # after `tokenizer.ggml.`, unless they have dots; None is no such key


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a file with their types, and the other keys of its tokenizer."""

    tokens: list[str]
    kinds: list[int]
    keys: Keys = field(default_factory=dict)
    is_tied: bool = False  # whether the file has no output head


def of_letters(model: str, pre: str | None, **keys: Any) -> Vocabulary:
    """Return a vocabulary like GPT-2's."""
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", *LETTERS, "th", "he", "in", "an"]
    kinds = [CONTROL] * 3 + [NORMAL] * (len(tokens) - 3)
    merges = ["t h", "h e", "i n", "a n"]
    given = {"model": model, "pre": pre, "merges": merges, "bos_token_id": 0, "eos_token_id": 2}
    return Vocabulary(tokens, kinds, given | keys)


def of_pieces(model: str, special: list[str], *words: str, **keys: Any) -> Vocabulary:
    """Return a vocabulary of pieces, with a token for each byte; the first special is unknown."""
    tokens = [*special, *BYTES, *words]
    kinds = [UNKNOWN] + [CONTROL] * (len(special) - 1) + [BYTE] * 256 + [NORMAL] * len(words)
    return Vocabulary(tokens, kinds, {"model": model} | keys)


def of_words() -> Vocabulary:
    """Return a vocabulary like BERT's, with its IDs."""
    unused = [f"[unused{number}]" for number in range(99)]
    tokens = ["[PAD]", *unused, "[UNK]", "[CLS]", "[SEP]", "[MASK]", "▁the", "▁cat", "s"]
    kinds = [CONTROL, *[UNUSED] * 99, *[CONTROL] * 4, *[NORMAL] * 3]
    return Vocabulary(tokens, kinds, {"model": "bert"})


LLAMA = of_pieces("llama", ["<unk>", "<s>", "</s>"], "▁", "t", "h", "e", "▁the")
GEMMA4 = of_pieces(
    *("gemma4", ["<unk>", "<bos>", "<eos>"], "▁", "  ", "t", "h", "e", "th"),
    merges=["▁ ▁", "t h"],
    bos_token_id=1,
    eos_token_id=2,
)
GEMMA4.kinds[GEMMA4.tokens.index("  ")] = USER_DEFINED
GPT2 = of_letters("gpt2", "gpt-2")

HEALTHY = {
    "gpt2": GPT2,
    "gpt2, tied": replace(GPT2, is_tied=True),
    "gpt2, a name of a byte": replace(
        GPT2, tokens=[*GPT2.tokens, "<0x0A>"], kinds=[*GPT2.kinds, NORMAL]
    ),
    "gpt2, a user-defined bos": replace(
        GPT2, kinds=[CONTROL, USER_DEFINED, *GPT2.kinds[2:]], keys=GPT2.keys | {"bos_token_id": 1}
    ),
    "gpt2, a letter": Vocabulary(
        ["<s>", "t", "h", "th", "", ""],
        [CONTROL, NORMAL, NORMAL, NORMAL, UNUSED, UNUSED],
        {"model": "gpt2", "pre": "gpt-2", "merges": ["t h"]},
    ),
    "gpt2, llama-bpe": of_letters("gpt2", "llama-bpe"),
    "gpt2, qwen2": of_letters("gpt2", "qwen2"),
    "gpt2, default": of_letters("gpt2", "default"),
    "gpt2, kimi-k2": of_letters("gpt2", "kimi-k2", merges=None),
    "gpt2, a template": of_letters("gpt2", "gpt-2", **{"tokenizer.chat_template": TEMPLATE}),
    "gpt2, [INST]": of_letters("gpt2", "gpt-2", **{"tokenizer.chat_template": "[INST] {{ m }}"}),
    "hybriddna": of_letters("hybriddna", "gpt-2"),
    "whitespace": of_letters("whitespace", "whitespace"),
    "gemma4": GEMMA4,
    "llama": LLAMA,
    "llama, scores": replace(LLAMA, keys=LLAMA.keys | {"scores": [0.5] * 264}),
    "llama, a pre": replace(LLAMA, keys=LLAMA.keys | {"pre": "mine", "bos_token_id": 0}),
    "llama, merges": replace(LLAMA, keys=LLAMA.keys | {"merges": ["x y"]}),
    "bert": of_words(),
    "t5": of_pieces("t5", ["<pad>", "</s>", "<unk>"], "▁the"),
    "rwkv": Vocabulary(
        ["<s>", *[f"\\x{byte:02x}" for byte in range(1, 256)], "\\n\\n"],
        [CONTROL] + [NORMAL] * 256,
        {"model": "rwkv", "eos_token_id": 0, "eot_token_id": 256},
    ),
    "plamo2": of_pieces("plamo2", ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>"], "the"),
    "none": Vocabulary([], [], {"model": "none", "llama.vocab_size": 40}),
}


@dataclass(frozen=True)
class Fault:
    """A healthy vocabulary with one change."""

    base: str
    keys: Keys = field(default_factory=dict)
    cause: str = ""  # what llama.cpp's log has; empty if it loads the file silently
    word: str = ""  # what an audit's sentence has
    tokens: dict[int, str] = field(default_factory=dict)
    kinds: dict[int, int] = field(default_factory=dict)
    rows: dict[str, int | None] = field(
        default_factory=dict
    )  # more rows of a tensor; None: it is missing
    text: str = ""  # what is split otherwise than in the healthy file

    def vocabulary(self) -> Vocabulary:
        healthy = HEALTHY[self.base]
        tokens = [self.tokens.get(place, token) for place, token in enumerate(healthy.tokens)]
        kinds = [self.kinds.get(place, kind) for place, kind in enumerate(healthy.kinds)]
        return Vocabulary(tokens, kinds, healthy.keys | self.keys)


NO_MERGES = "cannot find tokenizer merges"
NO_PRE = "missing pre-tokenizer type"
UNKNOWN_PRE = "unknown pre-tokenizer type: 'mine'"
SHAPE = "has wrong shape"
NOT_FOUND = "not found"
NO_ROPE: Keys = {"llama.rope.dimension_count": None}
NO_KEY = "key not found in model"
REPEATED = "id_to_token.size() == token_to_id.size()"
BAD_ID = "bad special token: 'tokenizer.ggml."
OVERRIDDEN = "was not control-type"
TOKEN = "token_embd.weight"
HEAD = "output.weight"

# llama.cpp does not load these, or aborts.
REFUSED = {
    "no model": Fault("gpt2", {"model": None}, "key not found", "does not name its tokenizer"),
    "another model": Fault("llama", {"model": "mine"}, "unknown tokenizer", "'mine' was unknown"),
    "no tokens": Fault("gpt2", {"tokens": None}, "cannot find tokenizer vocab", "no tokens"),
    "no merges": Fault("gpt2", {"merges": None}, NO_MERGES, "no merges"),
    "no merges, whitespace": Fault("whitespace", {"merges": None}, NO_MERGES, "no merges"),
    "no merges, hybriddna": Fault("hybriddna", {"merges": None}, NO_MERGES, "no merges"),
    "no merges, gemma4": Fault("gemma4", {"merges": None}, NO_MERGES, "no merges"),
    "merges of numbers": Fault("gpt2", {"merges": [1, 2]}, "invalid gguf type", "no merges"),
    "another pre": Fault("gpt2", {"pre": "mine"}, UNKNOWN_PRE, "'mine' was unknown"),
    "another pre, whitespace": Fault("whitespace", {"pre": "mine"}, UNKNOWN_PRE, "'mine'"),
    "another pre, hybriddna": Fault("hybriddna", {"pre": "mine"}, UNKNOWN_PRE, "'mine'"),
    "more rows": Fault("gpt2", {}, SHAPE, f"{TOKEN}. .* has 267 where", rows={TOKEN: 4, HEAD: 4}),
    "a row more": Fault("bert", {}, SHAPE, f"{TOKEN}. .* has 108 where", rows={TOKEN: 1, HEAD: 1}),
    "fewer rows": Fault(
        "llama", {}, SHAPE, f"{TOKEN}. .* has 263 where", rows={TOKEN: -1, HEAD: -1}
    ),
    "a head with more rows": Fault("t5", {}, SHAPE, f"{HEAD}. .* has 262 where", rows={HEAD: 2}),
    "a head with fewer rows": Fault("t5", {}, SHAPE, f"{HEAD}. .* has 259 where", rows={HEAD: -1}),
    "no norm": Fault(
        "gpt2", {}, NOT_FOUND, "output_norm.*missing", rows={"output_norm.weight": None}
    ),
    "no keys": Fault(
        "llama", {}, NOT_FOUND, "0.attn_k.*missing", rows={"blk.0.attn_k.weight": None}
    ),
    "no second block": Fault("gpt2", {"llama.block_count": 2}, NOT_FOUND, "blk.1.*missing"),
    "a tensor more": Fault("gpt2", {}, "number of tensors", "foo.*expected", rows={"foo": 3}),
    "a row more in a block": Fault("gpt2", {}, SHAPE, "65 where", rows={"blk.0.ffn_up.weight": 1}),
    "another dimension": Fault(
        "gpt2", NO_ROPE | {"llama.embedding_length": 64}, SHAPE, "32 where .* 64"
    ),
    "three heads": Fault("gpt2", NO_ROPE | {"llama.attention.head_count": 3}, SHAPE, "32 where"),
    "no context": Fault(
        "gpt2", {"llama.context_length": None}, NO_KEY, "context_length is missing"
    ),
    "no blocks": Fault("gpt2", {"llama.block_count": None}, NO_KEY, "block_count is missing"),
    "no epsilon": Fault(
        "gpt2", {"llama.attention.layer_norm_rms_epsilon": None}, NO_KEY, "epsilon is missing"
    ),
    "another class": Fault("gpt2", {"general.architecture": "mine"}, "unknown model", "'mine'"),
    "equal tokens": Fault("gpt2", {}, REPEATED, "same token: 'th'", tokens={-1: "th", 262: "th"}),
    "equal tokens, llama": Fault("llama", {}, REPEATED, "'▁the'", tokens={260: "▁the"}),
    "equal tokens, bert": Fault("bert", {}, REPEATED, "'▁the'", tokens={105: "▁the"}),
    "equal tokens, t5": Fault("t5", {}, REPEATED, "'</s>'", tokens={0: "</s>"}),
    "equal tokens, rwkv": Fault("rwkv", {}, REPEATED, "'<s>'", tokens={9: "<s>"}),
    "fewer types": Fault("gpt2", {"token_type": [1] * 9}, "toktypes (9 < 263)", "has fewer values"),
    "fewer scores": Fault("llama", {"scores": [0.5] * 9}, "scores (9 < 264)", "has fewer values"),
    "no bos": Fault("t5", {"add_bos_token": True}, "special_bos_id !=", "does not say which"),
    "no bos, gpt2": Fault(
        "gpt2, a letter", {"add_bos_token": True}, "token_bos() !=", "does not say which"
    ),
    "no bos, gemma4": Fault("gemma4", {"bos_token_id": None}, "token_bos() !=", "say which"),
}

# llama.cpp loads these and warns.
WARNED = {
    "no pre": Fault("gpt2", {"pre": None}, NO_PRE, "tokenizer.ggml.pre"),
    "an empty pre": Fault("gpt2", {"pre": ""}, NO_PRE, "tokenizer.ggml.pre"),
    "no pre, whitespace": Fault("whitespace", {"pre": None}, NO_PRE, "tokenizer.ggml.pre"),
    "no pre, hybriddna": Fault("hybriddna", {"pre": None}, NO_PRE, "tokenizer.ggml.pre"),
    "bos beyond": Fault("gpt2", {"bos_token_id": 263}, f"{BAD_ID}bos_token_id", "263 has no row"),
    "eos beyond": Fault("gpt2", {"eos_token_id": 999}, f"{BAD_ID}eos_token_id", "999 has no row"),
    "eot beyond": Fault("llama", {"eot_token_id": 264}, f"{BAD_ID}eot_token_id", "264 has no row"),
    "eos is -1": Fault("t5", {"eos_token_id": 2**32 - 1}, BAD_ID, "4294967295 has no row"),
    "pad beyond": Fault("bert", {"padding_token_id": 107}, BAD_ID, "107 has no row"),
    "all normal": Fault("gpt2", {"token_type": [1] * 263}, OVERRIDDEN, "'bos 0', 'eos 2'"),
    "a normal eos": Fault("gpt2", {}, OVERRIDDEN, "'eos 2'", kinds={2: NORMAL}),
    "a normal eos, llama": Fault(
        "llama", {"eos_token_id": 2}, OVERRIDDEN, "'eos 2'", kinds={2: NORMAL}
    ),
}

# llama.cpp loads these as silently as the healthy ones, and splits a text otherwise.
SILENT = {
    "no types": Fault("gpt2", {"token_type": None}, word="'bos 0'", text="<|im_start|>"),
    "eos is a letter": Fault("gpt2", {"eos_token_id": 50}, word="'eos 50'"),
    "eos is a piece": Fault("llama", {"eos_token_id": 263}, word="'eos 263'"),
    "eot is a word": Fault("gpt2", {"eot_token_id": 259}, word="'eot 259'"),
    "eom is a word": Fault("gpt2", {"eom_token_id": 260}, word="'eom 260'"),
    "a normal bos": Fault(
        "gpt2, qwen2", {"bos_token_id": 1}, word="'bos 1'", kinds={1: NORMAL}, text="<|im_start|>"
    ),
    "an unused bos": Fault(
        "gpt2", {"bos_token_id": 1}, word="'bos 1'", kinds={1: UNUSED}, text="<|im_start|>"
    ),
    "a normal bos, llama": Fault(
        "llama", {"bos_token_id": 1}, word="'bos 1'", kinds={1: NORMAL}, text="<s>"
    ),
    "normal bytes": Fault(
        "llama", word=r"'<0x02>', \.\.\.$", kinds=dict.fromkeys(range(3, 259), NORMAL)
    ),
    "a normal byte, gemma4": Fault(
        "gemma4", word="NORMAL, so written .*'<0x0A>'$", kinds={13: NORMAL}
    ),
    "a normal byte, t5": Fault("t5", word="NORMAL, so written .*'<0x0A>'$", kinds={13: NORMAL}),
    "a lost merge": Fault("gpt2", {"merges": ["t h", "x y"]}, word="no token: 'x y'$"),
    "a lost token": Fault("gpt2", word="no token: 't h'$", tokens={259: "ht"}, text="th"),
    "a lost merge, gemma4": Fault("gemma4", {"merges": ["t h", "h e"]}, word="token: 'h e'$"),
    "a lost merge, whitespace": Fault("whitespace", {"merges": ["t h", "t t"]}, word="'t t'$"),
    "another name in the template": Fault(
        *("gpt2", {"tokenizer.chat_template": "<|start_header_id|>{{ m }}<|im_end|>"}),
        word="'<|start_header_id|>'$",
    ),
    "a normal name in the template": Fault(
        *("gpt2", {"tokenizer.chat_template": TEMPLATE}),
        word="template .*'<|im_start|>'$",
        kinds={1: NORMAL},
        text="<|im_start|>",
    ),
}
FAULTS = REFUSED | WARNED | SILENT


def write(
    path: Path, vocabulary: Vocabulary, rows: Mapping[str, int | None] = MappingProxyType({})
) -> Path:
    """Write a model of the class llama; `rows` are added to tensors, and None leaves one out."""
    keys = {
        "llama.embedding_length": DIM,
        "llama.block_count": 1,
        "llama.context_length": 64,
        "llama.feed_forward_length": HIDDEN,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.rope.dimension_count": DIM // 2,
        "tokens": vocabulary.tokens or None,
        "token_type": vocabulary.kinds or None,
    } | vocabulary.keys
    writer = GGUFWriter(path, str(keys.pop("general.architecture", "llama")))
    for name, value in keys.items():
        key = name if "." in name else f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif value is not None:
            writer.add_array(key, value)

    size = len(vocabulary.tokens) or vocabulary.keys["llama.vocab_size"]
    random = np.random.default_rng(1)
    shapes: dict[str, tuple[int, ...]] = {
        TOKEN: (size, DIM),
        "blk.0.ffn_down.weight": (DIM, HIDDEN),
    }
    if not vocabulary.is_tied:
        shapes[HEAD] = (size, DIM)
    for name in ("attn_q", "attn_k", "attn_v", "attn_output"):
        shapes[f"blk.0.{name}.weight"] = (DIM, DIM)
    for name in ("ffn_gate", "ffn_up"):
        shapes[f"blk.0.{name}.weight"] = (HIDDEN, DIM)
    for name in ("output_norm.weight", "blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"):
        shapes[name] = (DIM,)
    for name, more in rows.items():
        first, *others = shapes.pop(name, (0, DIM))
        if more is not None:
            shapes[name] = (first + more, *others)
    for name, shape in shapes.items():
        values = random.normal(0, 0.1, shape) if len(shape) == 2 else np.ones(shape)
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
