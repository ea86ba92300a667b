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
from tests.cases import data

DIM = 32
HIDDEN = 64
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LETTERS = sorted(pre_tokenizers.ByteLevel.alphabet())
_DATA = data(__name__)

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
NAME_OF_A_BYTE = ["<0", "<0x", "<0x0", "<0x0A", "<0x0A>"]  # as merges make it

HEALTHY = {
    "gpt2": GPT2,
    "gpt2, words": Vocabulary(
        [*GPT2.tokens, "the", "them"],
        [*GPT2.kinds, NORMAL, NORMAL],
        GPT2.keys | {"merges": ["t h", "h e", "i n", "a n", "th e", "the m"]},
    ),
    "gpt2, tied": replace(GPT2, is_tied=True),
    "gpt2, a name of a byte": replace(
        GPT2,
        tokens=[*GPT2.tokens, *NAME_OF_A_BYTE],
        kinds=[*GPT2.kinds, *[NORMAL] * len(NAME_OF_A_BYTE)],
        keys=GPT2.keys
        | {"merges": [*GPT2.keys["merges"], "< 0", "<0 x", "<0x 0", "<0x0 A", "<0x0A >"]},
    ),
    "gpt2, a user-defined bos": replace(
        GPT2, kinds=[CONTROL, USER_DEFINED, *GPT2.kinds[2:]], keys=GPT2.keys | {"bos_token_id": 1}
    ),
    "gemma4": GEMMA4,
    "llama": LLAMA,
    "llama, scores": replace(LLAMA, keys=LLAMA.keys | {"scores": [0.5] * 264}),
    "bert": of_words(),
    "t5": of_pieces("t5", ["<pad>", "</s>", "<unk>"], "▁the"),
    "rwkv": Vocabulary(
        ["<s>", *[f"\\x{byte:02x}" for byte in range(1, 256)], "\\n\\n"],
        [CONTROL] + [NORMAL] * 256,
        {"model": "rwkv", "eos_token_id": 0, "eot_token_id": 256},
    ),
    "plamo2": of_pieces("plamo2", ["<|plamo:unk|>", "<|plamo:bos|>", "<|plamo:eos|>"], "the"),
}
for _name, _vocabulary in _DATA["vocabularies"].items():
    HEALTHY[_name] = Vocabulary(**_vocabulary)
for _name, (_base, _keys) in _DATA["other keys"].items():  # of a vocabulary above
    HEALTHY[_name] = replace(HEALTHY[_base], keys=HEALTHY[_base].keys | _keys)


@dataclass(frozen=True)
class Fault:
    """A healthy vocabulary with one change."""

    base: str
    keys: Keys = field(default_factory=dict)
    cause: str = ""  # what llama.cpp's log has; empty if it loads the file silently
    word: str = ""  # what an audit's sentence has
    tokens: dict[str, str] = field(default_factory=dict)  # by ID, as kinds are
    kinds: dict[str, int] = field(default_factory=dict)
    rows: dict[str, int | None] = field(
        default_factory=dict
    )  # more rows of a tensor; None: it is missing
    text: str = ""  # what is split otherwise than in the healthy file

    def vocabulary(self) -> Vocabulary:
        healthy = HEALTHY[self.base]
        tokens = [self.tokens.get(str(place), token) for place, token in enumerate(healthy.tokens)]
        kinds = [self.kinds.get(str(place), kind) for place, kind in enumerate(healthy.kinds)]
        return Vocabulary(tokens, kinds, healthy.keys | self.keys)


TOKEN = "token_embd.weight"
HEAD = "output.weight"


def _faults(group: str) -> dict[str, Fault]:
    return {name: Fault(**fault) for name, fault in _DATA[group].items()}


REFUSED = _faults("refused")  # llama.cpp does not load these, or aborts.
WARNED = _faults("warned")  # llama.cpp loads these and warns.
WARNED["all normal"] = Fault(
    "gpt2", {"token_type": [NORMAL] * 263}, "was not control-type", "'bos 0', 'eos 2'"
)
# llama.cpp loads these as silently as the healthy ones, and splits a text otherwise.
SILENT = _faults("silent")
SILENT["normal bytes"] = Fault(
    "llama",
    word=r"'<0x02>', \.\.\.$",
    kinds={str(token_id): NORMAL for token_id in range(3, 259)},
)
SILENT["all user-defined"] = Fault(
    "gpt2",
    {"token_type": [CONTROL] * 3 + [USER_DEFINED] * 260},
    word="is typed NORMAL",
    text="hé",
)
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
            add = writer.add_int32 if value < 0 else writer.add_uint32
            add(key, value)
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
        values = np.ones(shape)
        if len(shape) == 2:  # Columns of trained matrices have means of their own.
            values = random.normal(0, 0.1, shape) + random.normal(0, 0.1, shape[1])
        writer.add_tensor(name, values.astype(np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
