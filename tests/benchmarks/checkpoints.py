"""Real checkpoints against kept layers: the files that the cases of `--from` read, and what happens within a process.

    python -m tests.benchmarks.checkpoints

tells how long the header of a GGUF file of 262,144 tokens takes to read, and how much longer a lookup takes with a
large tokenizer.json beside the weights than without one, against what `tokenizers` takes to load it.
"""

from __future__ import annotations

import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import safetensors.numpy
from gguf import GGUFWriter
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

TEXT = "Every effort moves you"
LARGE = 100 * 10**9  # bytes
LARGE_DIM, TENSORS = 4096, 800


def large(path: Path) -> None:
    """Write a checkpoint of 100 GB in 800 tensors that takes no room: a sparse file, whose numbers are zero."""
    rows = LARGE // TENSORS // (2 * LARGE_DIM)
    names = ["model.embed_tokens.weight", *(f"model.layers.{number}.weight" for number in range(1, TENSORS))]
    size = 2 * LARGE_DIM * rows
    described = {
        name: {"dtype": "BF16", "shape": [rows, LARGE_DIM], "data_offsets": [place * size, (place + 1) * size]}
        for place, name in enumerate(names)
    }
    header = json.dumps(described).encode()
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        file.truncate(file.tell() + size * TENSORS)


def small(path: Path) -> None:
    """Write a checkpoint of 2 MB with rows as long as those of the large one."""
    safetensors.numpy.save_file({"model.embed_tokens.weight": np.zeros((256, LARGE_DIM), np.float16)}, path)


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
    words, merges = dict.fromkeys(letters), []
    for first in list(words):
        for letter in letters:
            words[first + letter] = None
            merges.append((first, letter))
    for first in [word for word in words if len(word) == 2]:
        for letter in letters[: max(tokens - len(words), 0)]:
            words[first + letter] = None
            merges.append((first, letter))
    kept = {word: number for number, word in enumerate(list(words)[:tokens])}
    made = Tokenizer(models.BPE(kept, [pair for pair in merges if "".join(pair) in kept]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    return made


def gguf(path: Path, tokens: int = 0) -> None:
    """Write an f16 GGUF file; with so many tokens and their scores, where a number is given."""
    writer = GGUFWriter(path, "llama")
    if tokens:
        words = [str(number).encode() for number in range(tokens)]
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list(words)
        writer.add_token_scores([0.0] * tokens)
        writer.add_token_types([1] * tokens)
        writer.add_token_merges([f"{number} {number}" for number in range(tokens)])
    writer.add_tensor("token_embd.weight", matrix(1024 if tokens else 50257).astype(np.float16))
    writer.add_tensor("position_embd.weight", matrix(1024))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def numpy_file(path: Path) -> None:
    """Write the token matrix as a .npy file."""
    np.save(path, matrix())


def seconds(action: Callable[[], object], runs: int = 7) -> float:
    """Return the median time that something takes."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        action()
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def lookup(model: Path) -> None:
    """Look a text up in a model, in a process of its own."""
    words = ["lookup", TEXT, "--from", str(model)]
    subprocess.run([sys.executable, "-m", "embcli", *words], stdout=subprocess.DEVNULL, env=os.environ, check=True)


def main() -> None:
    """Measure and print both."""
    from embcli.files import open_tensors

    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        gguf(path / "m.gguf", 262_144)
        print(f"header of a GGUF file of 262,144 tokens: {seconds(lambda: open_tensors(path / 'm.gguf')):.3f} s")
        saved(path / "with", 65_536)
        saved(path / "without")
        alone = seconds(lambda: Tokenizer.from_file(str(path / "with" / "tokenizer.json")))
        differences = []
        for _ in range(9):
            both = [seconds(partial(lookup, path / each), runs=1) for each in ("with", "without")]
            differences.append(both[0] - both[1])
        added = statistics.median(differences)
        print(f"a tokenizer.json of 65,536 tokens: adds {added:.3f} s, loads in {alone:.3f} s, {added / alone:.2f}")


if __name__ == "__main__":
    main()
