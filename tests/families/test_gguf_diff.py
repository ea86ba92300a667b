"""`diff` of a GGUF file and its folder: rows that llama.cpp's own quantiser made are equal.

With one row, one special ID or one type changed they are not.
"""

from __future__ import annotations

import ctypes
import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, GGUFWriter
from safetensors.numpy import save_file

import embcli
from embcli.encodings.splitting import splittings
from embcli.verbs.diff import Diff
from embcli.wording import load_facts
from tests.cases import data
from tests.families.ggufs import GPT2, TOKEN, Fault, Vocabulary
from tests.families.llama_cpp import library
from tests.files.made import numbered

ROWS = len(GPT2.tokens)
DIM = 256
TEMPLATE = "{{ messages }}"
KINDS = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]
KINDS += ["Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS"]


def random_rows(name: str) -> np.ndarray:
    """Return rows of a distribution; those of trained models are between the first two."""
    random = np.random.default_rng(5)
    rows = random.standard_normal((ROWS, DIM)) * 0.02
    if name == "heavy tails":
        rows = random.standard_t(2, (ROWS, DIM)) * 0.02
    elif name == "uniform":
        rows = random.uniform(-1, 1, (ROWS, DIM))
    elif name == "rows of all sizes":
        rows *= 10.0 ** random.uniform(-7, 2, (ROWS, 1))
    rows[7] = 0
    return rows.astype(np.float32)


def quantised(rows: np.ndarray, kind: GGMLQuantizationType) -> np.ndarray:
    """Return rows as llama.cpp stores them, (n, bytes) uint8."""
    values, size = GGML_QUANT_SIZES[kind]
    blocks = np.zeros((len(rows), DIM // values * size), np.uint8)
    quantise = library().ggml_quantize_chunk
    quantise.argtypes = [
        ctypes.c_int,
        *[ctypes.c_void_p] * 2,
        *[ctypes.c_int64] * 3,
        ctypes.c_void_p,
    ]
    quantise(kind, rows.ctypes.data, blocks.ctypes.data, 0, *rows.shape, None)
    return blocks


def write_folder(folder: Path, rows: np.ndarray) -> None:
    folder.mkdir()
    save_file({"model.embed_tokens.weight": rows}, folder / "model.safetensors")
    config = {"model_type": "llama", "bos_token_id": 0, "eos_token_id": 2, "rope_theta": 500000}
    (folder / "config.json").write_text(json.dumps(config))
    added = []
    for token_id in range(3):
        token = {"id": token_id, "content": GPT2.tokens[token_id], "special": True}
        added.append(
            token | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        )
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    vocabulary = numbered(GPT2.tokens)
    tokenizer = {
        "added_tokens": added,
        "pre_tokenizer": byte_level | {"use_regex": True},
        "decoder": byte_level | {"use_regex": True},
        "model": {"type": "BPE", "vocab": vocabulary, "merges": GPT2.keys["merges"]},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def write_gguf(path: Path, rows: np.ndarray, kind: str, vocabulary: Vocabulary = GPT2) -> Path:
    writer = GGUFWriter(path, "llama")
    writer.add_rope_freq_base(vocabulary.keys.get("rope_theta", 500000))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_chat_template(vocabulary.keys.get("template", TEMPLATE))
    writer.add_token_list(vocabulary.tokens)
    writer.add_token_types(vocabulary.kinds)
    writer.add_token_merges(vocabulary.keys["merges"])
    writer.add_bos_token_id(vocabulary.keys["bos_token_id"])
    writer.add_eos_token_id(vocabulary.keys["eos_token_id"])
    writer.add_add_bos_token(vocabulary.keys.get("add_bos_token", False))
    number = GGMLQuantizationType[kind]
    stored = rows if kind == "F32" else quantised(rows, number)
    writer.add_tensor(TOKEN, stored, raw_dtype=number)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def compared(folder: Path, gguf: Path) -> Diff:
    one_way = embcli.open(folder).diff(embcli.open(gguf), text="the thin man")
    other_way = embcli.open(gguf).diff(embcli.open(folder))
    assert isinstance(one_way, Diff)
    assert one_way.status == other_way.status
    return one_way


DISTRIBUTIONS = ["normal", "heavy tails", "uniform", "rows of all sizes"]


@pytest.mark.parametrize(("kind", "distribution"), list(product(KINDS, DISTRIBUTIONS)))
def test_a_gguf_equals_its_folder(kind, distribution, tmp_path):
    rows = random_rows(distribution)
    write_folder(tmp_path / "model", rows)
    gguf = write_gguf(tmp_path / "model.gguf", rows, kind)

    found = compared(tmp_path / "model", gguf)

    assert found.status == 0, found
    assert found.counts["equal"] == ROWS
    assert found.rules == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_that_changed_is_found(kind, tmp_path):
    rows = random_rows("normal")
    write_folder(tmp_path / "model", rows)
    changed = rows.copy()
    changed[50] = rows[51]
    gguf = write_gguf(tmp_path / "model.gguf", changed, kind)

    found = compared(tmp_path / "model", gguf)

    assert found.status == 1
    assert found.changed.tolist() == [50]


FAULTS = {name: Fault("gpt2", **fault) for name, fault in data(__name__).items()}


@pytest.mark.parametrize("name", FAULTS)
def test_a_tokenizer_that_changed_is_found(name, tmp_path):
    rows = random_rows("normal")
    write_folder(tmp_path / "model", rows)
    words = FAULTS[name].word
    gguf = write_gguf(tmp_path / "model.gguf", rows, "Q8_0", FAULTS[name].vocabulary())

    found = embcli.open(tmp_path / "model").diff(embcli.open(gguf), text="the thin man")

    assert found.status == 1
    assert found.counts["equal"] == ROWS
    assert words in " ".join(found.rules)
    assert words in " ".join(str(found).split())


def test_the_sample_text_tells_pre_tokenizers_apart():
    sample = load_facts("llama_cpp.json")["sample"]
    names = ["gpt-2", "llama-bpe", "qwen2", "gpt-4o", "deepseek-v3", "falcon", "starcoder"]
    assert len({tuple(splittings()[name].pieces(sample)) for name in names}) == len(names)
