"""The files that the cases of real checkpoints read."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import safetensors.numpy
from gguf import GGUFWriter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

from embcli.files.safetensors import header
from tests.files.made import closed

DIM = 4096


def normal(path: Path, rows: int) -> None:
    """Write a matrix of normal numbers in bfloat16, (rows, 4096).

    Its first number differs with the length of the name.
    """
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(header({"wte": ("bfloat16", (rows, DIM))}, {}))
        for start in range(0, rows, 1000):
            count = min(1000, rows - start)
            bits = random.standard_normal((count, DIM), np.float32).view(np.uint32) >> 16
            bits[0, 0] ^= len(path.stem) & 1
            file.write(bits.astype(np.uint16).tobytes())


def small(path: Path) -> None:
    """Write a checkpoint of 2 MB with rows as long as those of the large one."""
    tensors = {"model.embed_tokens.weight": np.zeros((256, DIM), np.float16)}
    safetensors.numpy.save_file(tensors, path)


def matrix(rows: int = 50257) -> np.ndarray:
    """Return a token matrix of GPT-2's V and the default D, (V, D) float32."""
    return np.random.default_rng(0).standard_normal((rows, 256), np.float32)


def saved(folder: Path, tokens: int = 0) -> None:
    """Write a model as a folder, with a tokenizer.json of so many tokens."""
    folder.mkdir()
    tensors = {"wte.weight": matrix(tokens or 50257), "wpe.weight": matrix(1024)}
    safetensors.numpy.save_file(tensors, folder / "model.safetensors")
    if tokens:
        tokenizer(tokens).save(str(folder / "tokenizer.json"))


def tokenizer(tokens: int) -> Tokenizer:
    """Return a byte-level tokenizer of so many tokens, each made of one before it and a letter."""
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    pairs = [(first, letter) for first in letters for letter in letters]
    pairs += [(first + second, letter) for first, second in pairs for letter in letters[:2]]
    pairs = pairs[: tokens - len(letters)]
    words = [*letters, *map("".join, pairs)]
    ids = {word: number for number, word in enumerate(words)}
    made = Tokenizer(models.BPE(ids, pairs))
    made.pre_tokenizer = pre_tokenizers.ByteLevel()
    made.decoder = decoders.ByteLevel()
    return made


def gguf(path: Path) -> None:
    """Write an f16 GGUF file."""
    writer = GGUFWriter(path, "llama")
    writer.add_tensor("token_embd.weight", matrix().astype(np.float16))
    writer.add_tensor("position_embd.weight", matrix(1024))
    closed(writer)


def numpy_file(path: Path) -> None:
    """Write the token matrix as a .npy file."""
    np.save(path, matrix())
