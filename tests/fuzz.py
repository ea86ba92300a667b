"""Damaged files of every format: whatever they contain, reading them ends in rows or in a sentence.

    python -m tests.fuzz 200000 [SEED]

mutates small files at random, opens them and reads rows of every tensor; a tokenizer.json turns a text into tokens, and
a config.json is asked for what it says. It fails on any error but InputError, on a file that takes more than a second,
on rows that are not those of the format's own library, and on a safetensors file that only embcli accepts.
"""

from __future__ import annotations

import io
import json
import random
import re
import struct
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
import safetensors.numpy
import torch
from gguf import GGMLQuantizationType, GGUFReader, quants
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.checkpoint import Checkpoint
from tests.files.made import npy_bytes, written, zipped

SLOWEST = 1.0  # seconds of processor time
EXTREMES = (
    0,
    1,
    2,
    7,
    8,
    255,
    2**16,
    2**31 - 1,
    2**31,
    2**32 - 1,
    2**32,
    2**53,
    2**62,
    2**63 - 1,
    2**63,
    2**64 - 1,
)
TEXT = "abc ab, \u00e9<|end|> \U0001f99c"
CONFIG = (
    b'{"model_type": "llama", "tie_word_embeddings": true, "rope_parameters": {"rope_theta": 10000.0}, '
    b'"max_position_embeddings": 4, "text_config": {"n_positions": 4, "position_embedding_type": "absolute"}}'
)
_NUMBER = re.compile(rb"-?[0-9]+")
_NAME = re.compile(rb"[A-Za-z_]{2,}")


def read(path: Path) -> None:
    """Read rows of every tensor, the words, and what a checkpoint makes of the file."""
    tensors = open_tensors(path)
    for name in list(tensors)[:20]:
        try:
            layer = tensors.layer(name)
            if layer.shape[1] <= 1 << 20:
                layer.rows(np.array([layer.shape[0] - 1, 0]))
        except InputError:
            continue
    own = tensors.own_words()
    if own is not None and own.vocabulary_size:
        own.token_bytes(own.vocabulary_size - 1)
    source = Checkpoint(str(path))
    source.shape("position"), source.head, source.positions


def compare_with_library(kind: str, path: Path) -> None:
    """Hold the rows of a damaged file that is accepted against those that its library reads, if that accepts it."""
    held: dict[str, Any] = {}
    try:
        if kind.startswith("npy"):
            held = {path.stem: np.load(path)}
        elif kind.startswith("npz"):
            held = dict(np.load(path))
        elif kind.startswith("safetensors"):
            held = safetensors.numpy.load_file(path)
        elif kind in ("pt", "pt pickle"):
            state = torch.load(path, weights_only=True)["model"]
            held = {f"model.{name}": weight.float().numpy() for name, weight in state.items()}
        elif kind.startswith("gguf"):
            tensors = GGUFReader(path).tensors
            held = {
                tensor.name: quants.dequantize(tensor.data, tensor.tensor_type)
                for tensor in tensors
            }
    except Exception:  # of any kind: a library has its own limits
        return
    found = open_tensors(path)
    for name, values in held.items():
        if (
            name in found
            and found[name].is_matrix
            and found[name].size < 1 << 20
            and values.dtype.kind in "fiu"
        ):
            try:
                with np.errstate(all="ignore"):
                    wanted = values.astype(np.float32)
                    rows = found.layer(name).rows(np.arange(len(values)))
            except InputError as error:  # numpy reads a dtype of arrays of one number, ('<f4', (1,)); embcli refuses it
                if not re.search(r" has \('.*\)\), not real numbers$", str(error)):
                    raise
                continue
            assert np.array_equal(rows, wanted, equal_nan=True), f"{kind}, {name}: {path}"


def read_tokenizer(path: Path) -> None:
    """Turn a text into tokens and back, in all the ways there are."""
    encoding = HuggingFaceEncoding(path, "m")
    ids = encoding.encode(TEXT)
    encoding.encode(TEXT, special=True), encoding.spans(TEXT), encoding.decode(ids)
    for token_id in (*range(12), encoding.vocabulary_size, 2**32 - 1, 2**32):
        encoding.token_bytes(token_id)


def read_config(path: Path) -> None:
    """Ask a checkpoint for all that the config.json beside it tells."""
    source = Checkpoint(str(path.with_name("part.safetensors")))
    str((source.roles.first_position, source.positions, source.head, source.recipe))


@dataclass(frozen=True)
class Seed:
    """A file that is whole: the part that is mutated, and what makes the file of it."""

    name: str
    part: bytes
    whole: Callable[[bytes], bytes] = bytes
    read: Callable[[Path], None] = read
    file: str = ""  # what it is called, if that matters


def seeds() -> list[Seed]:
    """Return small files of every format."""
    rng = np.random.default_rng(0)
    token, position = (
        rng.standard_normal((6, 32)).astype(np.float32),
        rng.standard_normal((4, 32)).astype(np.float32),
    )
    arrays = {"wte.weight": token, "wpe.weight": position, "bias": position[0]}
    data = safetensors.numpy.save(
        {**arrays, "half": token.astype(np.float16), "wide": token.astype(np.float64)}
    )
    length = 8 + int.from_bytes(data[:8], "little")
    text = b"".join(
        b"w%d %s\n" % (row, b" ".join(b"%.3f" % value for value in values))
        for row, values in enumerate(token)
    )
    binary = b"6 32\n" + b"".join(
        b"w%d " % row + values.tobytes() for row, values in enumerate(token)
    )
    plain, packed, column = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(plain, token)
    np.save(column, np.asfortranarray(token))
    torch.save({"model": {name: torch.from_numpy(array) for name, array in arrays.items()}}, packed)
    whole = zipfile.ZipFile(packed)
    archive = {name: whole.read(name) for name in whole.namelist()}
    pickle = next(name for name in archive if name.endswith("data.pkl"))
    index = json.dumps(
        {"weight_map": {"wte.weight": "part.safetensors", "wpe.weight": "part.safetensors"}}
    ).encode()
    gguf = gguf_bytes(arrays)
    return [
        Seed("safetensors", data),
        Seed(
            "safetensors header",
            data[8:length],
            lambda part: struct.pack("<Q", len(part)) + part + data[length:],
        ),
        Seed("index", index),
        Seed("gguf", gguf),
        Seed("gguf header", gguf[:700], lambda part: part + gguf[700:]),
        Seed("npy", plain.getvalue()),
        Seed("npy header", plain.getvalue()[10:128], lambda part: npy_bytes(part, token.tobytes())),
        Seed("npy in columns", column.getvalue()),
        Seed(
            "npz stored",
            plain.getvalue(),
            lambda part: zipped({"wte.npy": part, "b.npy": column.getvalue()}),
        ),
        Seed(
            "npz deflated",
            column.getvalue(),
            lambda part: zipped({"wte.npy": part}, zipfile.ZIP_DEFLATED),
        ),
        Seed("npz archive", zipped({"wte.npy": plain.getvalue()}, zipfile.ZIP_DEFLATED)),
        Seed("text", text),
        Seed("text with sizes", b"6 32\n" + text),
        Seed("binary", binary),
        Seed("pt", packed.getvalue()),
        Seed("pt pickle", archive[pickle], lambda part: zipped({**archive, pickle: part})),
        *(
            Seed(f"tokenizer {name}", part, read=read_tokenizer)
            for name, part in tokenizer_files().items()
        ),
        Seed("config", CONFIG, read=read_config, file="model/config.json"),
    ]


def gguf_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return a GGUF file of arrays, one of them quantised."""
    kind = GGMLQuantizationType.Q8_0
    with tempfile.TemporaryDirectory() as folder:
        quantised = quants.quantize(arrays["wte.weight"], kind), kind
        return written(Path(folder) / "m.gguf", {**arrays, "q.weight": quantised}).read_bytes()


def tokenizer_files() -> dict[str, bytes]:
    """Return a small tokenizer.json of each kind."""
    words = {
        word: number
        for number, word in enumerate(("a", "b", "c", "\u00c3", "\u0120", "ab", "\u0120a", "abc"))
    }
    bytewise = Tokenizer(models.BPE(words, [("a", "b"), ("\u0120", "a"), ("ab", "c")]))
    bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    bytewise.add_special_tokens([AddedToken("<|end|>", special=True)])
    bytewise.enable_truncation(5)
    bytewise.enable_padding(pad_id=1, pad_token="a", length=9)
    scores = [("<unk>", 0.0), ("<0xC3>", -1.0), ("\u2581", -2.0), ("\u2581ab", -3.5)]
    pieces = Tokenizer(models.Unigram(scores, 0, byte_fallback=True))
    pieces.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")]
    )
    pieces.decoder = decoders.Sequence(
        [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    )
    parts = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "##c": 3}, unk_token="[UNK]"))
    parts.normalizer, parts.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    parts.decoder = decoders.WordPiece()
    pattern = pre_tokenizers.Split(Regex(r"\p{L}+|\s+"), "isolated")
    whole = Tokenizer(models.WordLevel({"abc": 0, "<unk>": 1}, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Sequence(
        [pattern, pre_tokenizers.Digits(), pre_tokenizers.Metaspace()]
    )
    made = {"BPE": bytewise, "Unigram": pieces, "WordPiece": parts, "WordLevel": whole}
    return {name: each.to_str().encode() for name, each in made.items()}


def mutated_json(data: bytes, rng: random.Random) -> bytes:
    """Return a JSON document with a few of its values changed, moved or left out."""
    document = json.loads(data)
    for _ in range(rng.choice((1, 1, 2, 4))):
        places = list(places_in(document))
        if not places:
            break
        holder, key = rng.choice(places)
        kind = rng.randrange(4)
        if kind == 0:
            del holder[key]
        elif kind == 1:
            other, name = rng.choice(places)
            holder[key] = json.loads(
                json.dumps(other[name])
            )  # a copy, as a value may go into itself
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] += rng.choice((-1, 1, 8))
        else:
            odd = (
                None,
                True,
                -1,
                0.5,
                1e308,
                "",
                "a",
                "\udc00",
                [],
                {},
                [[]],
                json.loads("[" * 300 + "]" * 300),
            )
            holder[key] = rng.choice((*EXTREMES, *odd))
    return json.dumps(document).encode()


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document that holds a value: a list or an object, and where in it."""
    if isinstance(value, dict | list):
        for key in list(value) if isinstance(value, dict) else range(len(value)):
            yield value, key
            yield from places_in(value[key])


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return some bytes with a few things changed; of JSON sometimes the values."""
    if data[:2] == b'{"' and rng.random() < 0.5:
        return mutated_json(data, rng)
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(found) + 1)
        kind = rng.randrange(9)
        if kind == 0:
            del found[place:]
        elif kind == 1:
            del found[place : place + rng.choice((1, 2, 4, 8, 40))]
        elif kind == 2:
            found[place:place] = rng.randbytes(rng.choice((1, 2, 8, 40)))
        elif kind == 3:
            start = rng.randrange(len(found) + 1)
            found[place:place] = found[start : start + rng.choice((1, 4, 16, 100))] * rng.choice(
                (1, 1, 1, 50, 2000)
            )
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            found[place : place + size] = (rng.choice(EXTREMES) % (1 << 8 * size)).to_bytes(
                size, "little"
            )
        elif kind in (5, 6):
            numbers = list(_NUMBER.finditer(found))
            if numbers:
                one = rng.choice(numbers)
                value = rng.choice(
                    (*EXTREMES, -1, 10**30, int(one[0][:18]) + 1, int(one[0][:18]) - 1)
                )
                found[one.start() : one.end()] = str(value).encode()
        elif kind == 7:
            names = list(_NAME.finditer(found))
            if len(names) > 1:
                one, other = rng.sample(names, 2)
                found[one.start() : one.end()] = other[0]
        elif place < len(found):
            found[place] ^= 1 << rng.randrange(8)
    return bytes(found)


def fuzz(count: int, seed: int, folder: Path) -> dict[str, list[int]]:
    """Read `count` damaged files; return for each kind how many were accepted and how many refused."""
    rng, known = random.Random(seed), seeds()
    for part in (folder / "part.safetensors", folder / "model" / "part.safetensors"):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(known[0].part)
    done = {each.name: [0, 0] for each in known}
    for number in range(-len(known), count):
        each = known[number % len(known)]
        path = folder / (
            each.file or f"m{number % 97}"
        )  # torch may still map one that was accepted
        path.unlink(missing_ok=True)
        path.write_bytes(each.whole(mutated(each.part, rng) if number >= 0 else each.part))
        begun, accepted, lines = time.process_time(), True, 0
        try:
            each.read(path)
        except InputError as error:
            accepted, lines = False, str(error).count("\n")
        assert lines < 2
        assert number < 0 or time.process_time() - begun < SLOWEST, f"{each.name}: {path}"
        if number >= 0:
            done[each.name][not accepted] += 1
        if each.name.startswith("safetensors") and accepted:
            safetensors.safe_open(path, "np")  # raises what the library has against it
        if each.read is read and accepted:
            compare_with_library(each.name, path)
    return done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kept:
        warnings.simplefilter("error")
        for name, (accepted, refused) in fuzz(
            int(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]), Path(kept)
        ).items():
            print(f"{name:20} {accepted:8,} accepted {refused:8,} refused")
