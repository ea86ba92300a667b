"""Damaged files of every format: whatever they contain, reading them ends in rows or in a sentence.

    python -m tests.fuzz 200000 [SEED]

mutates small files at random, opens them and reads rows of every tensor; a tokenizer.json turns a
text into tokens, and a config.json is asked for what it says. It fails on any error but InputError,
on a file that takes more than a second, on rows that are not those of the format's own library, and
on a safetensors file that only embcli accepts.
"""

from __future__ import annotations

import copy
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

from embcli import encodings
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.checkpoint import Checkpoint
from tests.files.made import npy_bytes, written, zipped
from tests.readers import as_npy
from tests.test_huggingface import MADE

SLOWEST = 1.0  # seconds of processor time
EXTREMES = (
    *(0, 1, 2, 7, 8, 255, 2**16),
    *(2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53),
    *(2**62, 2**63 - 1, 2**63, 2**64 - 1),
)
TEXT = "abc ab, \u00e9<|end|> \U0001f99c"
CONFIG = (
    b'{"model_type": "llama", "tie_word_embeddings": true, "max_position_embeddings": 4, '
    b'"rope_parameters": {"rope_theta": 10000.0}, '
    b'"text_config": {"n_positions": 4, "position_embedding_type": "absolute"}}'
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
    for told in (source.shape("position"), source.head, source.positions):
        str(told)


def by_library(kind: str, path: Path) -> dict[str, np.ndarray]:
    """Return the arrays that a format's own library reads; none for a format without one."""
    if kind.startswith("npy"):
        return {path.stem: np.load(path)}
    if kind.startswith("npz"):
        return dict(np.load(path))
    if kind.startswith("safetensors"):
        return safetensors.numpy.load_file(path)
    if kind.startswith("pt"):
        state = torch.load(path, weights_only=True)["model"]
        return {f"model.{name}": weight.float().numpy() for name, weight in state.items()}
    if kind.startswith("gguf"):
        tensors = GGUFReader(path).tensors
        return {
            tensor.name: quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors
        }
    return {}


def compare_with_library(kind: str, path: Path) -> None:
    """Hold the rows of an accepted file against those that its library reads, if it accepts it."""
    try:
        arrays = by_library(kind, path)
    except Exception:  # It may be of any kind: a library has its own limits.
        return
    tensors = open_tensors(path)
    for name, values in arrays.items():
        if name in tensors and values.dtype.kind in "fiu":
            tensor = tensors[name]
            if tensor.is_matrix and tensor.size < 1 << 20:
                compare_rows(tensors, name, values, f"{kind}, {name}: {path}")


def compare_rows(tensors: Any, name: str, values: np.ndarray, what: str) -> None:
    """Hold the rows of a tensor against the values that its library reads."""
    with np.errstate(all="ignore"):
        try:
            rows = tensors.layer(name).rows(np.arange(len(values)))
        except InputError as error:
            # numpy reads a dtype of arrays of one number, ('<f4', (1,)), which embcli refuses.
            if not re.search(r" has void\d+, not real numbers$", str(error)):
                raise
            return
        assert np.array_equal(rows, values.astype(np.float32), equal_nan=True), what


def read_tokenizer(path: Path) -> None:
    """Turn a text into tokens and back, in all the ways there are."""
    encoding = encodings.get(path)
    ids = encoding.encode(TEXT)
    encoding.encode(TEXT, special=True)
    encoding.spans(TEXT)
    encoding.decode(ids)
    for token_id in (*range(12), encoding.vocabulary_size, 2**32 - 1, 2**32):
        encoding.token_bytes(token_id)


def read_config(path: Path) -> None:
    """Ask a checkpoint for all that the config.json beside it tells."""
    source = Checkpoint(str(path.with_name("part.safetensors")))
    for told in (source.roles.first_position, source.positions, source.head, source.recipe):
        str(told)


@dataclass(frozen=True)
class Seed:
    """A file that is whole: the part that is mutated, and what makes the file of it."""

    name: str
    part: bytes
    whole: Callable[[bytes], bytes] = bytes
    read: Callable[[Path], None] = read
    file: str = ""  # what it is called, if that matters


def arrays() -> dict[str, np.ndarray]:
    """Return the tensors of a small model."""
    rng = np.random.default_rng(0)
    token = rng.standard_normal((6, 32)).astype(np.float32)
    position = rng.standard_normal((4, 32)).astype(np.float32)
    return {"wte.weight": token, "wpe.weight": position, "bias": position[0]}


def seeds() -> list[Seed]:
    """Return small files of every format."""
    return [
        *of_safetensors(),
        *of_gguf(),
        *of_numpy(),
        *of_vectors(),
        *of_torch(),
        *of_tokenizers(),
        Seed("config", CONFIG, read=read_config, file="model/config.json"),
    ]


def of_safetensors() -> list[Seed]:
    token = arrays()["wte.weight"]
    more = {"half": token.astype(np.float16), "wide": token.astype(np.float64)}
    data = safetensors.numpy.save(arrays() | more)
    end = 8 + int.from_bytes(data[:8], "little")

    def with_header(part: bytes) -> bytes:
        return struct.pack("<Q", len(part)) + part + data[end:]

    places = {"wte.weight": "part.safetensors", "wpe.weight": "part.safetensors"}
    index = json.dumps({"weight_map": places}).encode()
    return [
        Seed("safetensors", data),
        Seed("safetensors header", data[8:end], with_header),
        Seed("index", index),
    ]


def of_gguf() -> list[Seed]:
    data = gguf_bytes(arrays())
    return [
        Seed("gguf", data),
        Seed("gguf header", data[:700], lambda part: part + data[700:]),
    ]


def of_numpy() -> list[Seed]:
    token = arrays()["wte.weight"]
    plain = as_npy(token)
    column = as_npy(np.asfortranarray(token))

    def with_header(part: bytes) -> bytes:
        return npy_bytes(part, token.tobytes())

    def stored(part: bytes) -> bytes:
        return zipped({"wte.npy": part, "b.npy": column})

    def deflated(part: bytes) -> bytes:
        return zipped({"wte.npy": part}, zipfile.ZIP_DEFLATED)

    return [
        Seed("npy", plain),
        Seed("npy header", plain[10:128], with_header),
        Seed("npy in columns", column),
        Seed("npz stored", plain, stored),
        Seed("npz deflated", column, deflated),
        Seed("npz archive", deflated(plain)),
    ]


def of_vectors() -> list[Seed]:
    text = b""
    for row, values in enumerate(arrays()["wte.weight"]):
        numbers = b" ".join(b"%.3f" % value for value in values)
        text += b"w%d %s\n" % (row, numbers)
    return [
        Seed("text", text),
        Seed("text with sizes", b"6 32\n" + text),
    ]


def of_torch() -> list[Seed]:
    file = io.BytesIO()
    state = {name: torch.from_numpy(array) for name, array in arrays().items()}
    torch.save({"model": state}, file)
    archive = zipfile.ZipFile(file)
    members = {name: archive.read(name) for name in archive.namelist()}
    (pickle,) = (name for name in members if name.endswith("data.pkl"))
    return [
        Seed("pt", file.getvalue()),
        Seed("pt pickle", members[pickle], lambda part: zipped({**members, pickle: part})),
    ]


def gguf_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return a GGUF file of arrays, one of them quantised."""
    kind = GGMLQuantizationType.Q8_0
    quantised = quants.quantize(arrays["wte.weight"], kind)
    with tempfile.TemporaryDirectory() as folder:
        file = written(Path(folder) / "m.gguf", {**arrays, "q.weight": (quantised, kind)})
        return file.read_bytes()


def of_tokenizers() -> list[Seed]:
    names = ("byte_level", "pieces", "byte_fallback", "word_pieces")
    return [
        Seed(f"tokenizer {name}", MADE[name]().to_str().encode(), read=read_tokenizer)
        for name in names
    ]


# --- mutations ------------------------------------------------------------------------------------

ODD = (
    *(None, True, -1, 0.5, 1e308, "", "a", "\udc00"),
    *([], {}, [[]], json.loads("[" * 300 + "]" * 300)),
)


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
            holder[key] = copy.deepcopy(other[name])  # A value may go into itself.
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] += rng.choice((-1, 1, 8))
        else:
            holder[key] = rng.choice((*EXTREMES, *ODD))
    return json.dumps(document).encode()


def places_in(value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a document that holds a value: a list or an object, and where in it."""
    if isinstance(value, dict):
        keys = list(value)
    elif isinstance(value, list):
        keys = list(range(len(value)))
    else:
        return
    for key in keys:
        yield value, key
        yield from places_in(value[key])


def cut_off(data: bytearray, place: int, rng: random.Random) -> None:
    del data[place:]


def cut_out(data: bytearray, place: int, rng: random.Random) -> None:
    del data[place : place + rng.choice((1, 2, 4, 8, 40))]


def insert_bytes(data: bytearray, place: int, rng: random.Random) -> None:
    data[place:place] = rng.randbytes(rng.choice((1, 2, 8, 40)))


def insert_copies(data: bytearray, place: int, rng: random.Random) -> None:
    start = rng.randrange(len(data) + 1)
    part = data[start : start + rng.choice((1, 4, 16, 100))]
    data[place:place] = part * rng.choice((1, 1, 1, 50, 2000))


def write_extreme(data: bytearray, place: int, rng: random.Random) -> None:
    size = rng.choice((1, 2, 4, 8))
    value = rng.choice(EXTREMES) % (1 << 8 * size)
    data[place : place + size] = value.to_bytes(size, "little")


def change_number(data: bytearray, place: int, rng: random.Random) -> None:
    """Change a number that is written in digits."""
    numbers = list(_NUMBER.finditer(data))
    if numbers:
        number = rng.choice(numbers)
        value = int(number[0][:18])
        changed = rng.choice((*EXTREMES, -1, 10**30, value + 1, value - 1))
        data[number.start() : number.end()] = str(changed).encode()


def repeat_name(data: bytearray, place: int, rng: random.Random) -> None:
    """Put a name in the place of another one."""
    names = list(_NAME.finditer(data))
    if len(names) > 1:
        name, other = rng.sample(names, 2)
        data[name.start() : name.end()] = other[0]


def flip_bit(data: bytearray, place: int, rng: random.Random) -> None:
    if place < len(data):
        data[place] ^= 1 << rng.randrange(8)


MUTATIONS = (
    cut_off,
    cut_out,
    insert_bytes,
    insert_copies,
    write_extreme,
    change_number,
    change_number,
    repeat_name,
    flip_bit,
)


def mutated(data: bytes, rng: random.Random) -> bytes:
    """Return some bytes with a few things changed; of JSON sometimes the values."""
    if data[:2] == b'{"' and rng.random() < 0.5:
        return mutated_json(data, rng)
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        place = rng.randrange(len(changed) + 1)
        mutate = rng.choice(MUTATIONS)
        mutate(changed, place, rng)
    return bytes(changed)


# --- reading --------------------------------------------------------------------------------------


def is_accepted(seed: Seed, path: Path) -> bool:
    """Read a file, and compare it with what its library reads; return whether it was accepted."""
    message = None
    try:
        seed.read(path)
    except InputError as error:
        message = str(error)
    if message is not None:
        assert message.count("\n") < 2
        return False
    if seed.name.startswith("safetensors"):
        safetensors.safe_open(path, "np")  # It raises what the library has against the file.
    if seed.read is read:
        compare_with_library(seed.name, path)
    return True


def fuzz(count: int, seed: int, folder: Path) -> dict[str, list[int]]:
    """Read `count` damaged files; return how many of each kind were accepted and refused."""
    rng = random.Random(seed)
    known = seeds()
    for part in (folder / "part.safetensors", folder / "model" / "part.safetensors"):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(known[0].part)

    for whole in known:  # The first reading of a kind loads packages, so it is not timed.
        path = folder / (whole.file or "whole")
        path.write_bytes(whole.whole(whole.part))
        is_accepted(whole, path)

    done = {kind.name: [0, 0] for kind in known}
    for number in range(count):
        kind = known[number % len(known)]
        # torch may still map a file that was accepted.
        path = folder / (kind.file or f"m{number % 97}")
        path.unlink(missing_ok=True)
        path.write_bytes(kind.whole(mutated(kind.part, rng)))
        start = time.process_time()
        accepted = is_accepted(kind, path)
        assert time.process_time() - start < SLOWEST, f"{kind.name}: {path}"
        done[kind.name][0 if accepted else 1] += 1
    return done


def main() -> None:
    """Read as many damaged files as the command line says, and print what became of each kind."""
    warnings.simplefilter("error")
    count = int(sys.argv[1])
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    with tempfile.TemporaryDirectory() as folder:
        done = fuzz(count, seed, Path(folder))
    for name, (accepted, refused) in done.items():
        print(f"{name:20} {accepted:8,} accepted {refused:8,} refused")


if __name__ == "__main__":
    main()
