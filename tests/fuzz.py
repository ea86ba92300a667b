"""Damaged files of every format, by the thousand: whatever they hold, reading them ends in rows or in a sentence.

    python -m tests.fuzz 200000 [SEED]

mutates small files at random, opens them and reads rows of every tensor; a tokenizer.json turns a text into tokens, and
a config.json is asked for what it tells. Pickles are grown by a grammar. It fails on any error but InputError, on a
file that takes more than a second, on more than 200 MB above the start, and where a safetensors file is accepted that
the safetensors library refuses.
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
from gguf import GGMLQuantizationType, GGUFReader, GGUFWriter, quants
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.errors import InputError
from embcli.files import open_tensors
from embcli.files.checkpoint import Checkpoint

SLOWEST = 1.0  # seconds of processor time
LARGEST = 200  # MB above the start
EXTREMES = (0, 1, 2, 7, 8, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64 - 1)
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
        own.words[own.vocabulary_size - 1], own.words.find_all({b"a"})
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
            held = {tensor.name: quants.dequantize(tensor.data, tensor.tensor_type) for tensor in tensors}
    except Exception:  # of any kind: a library has its own limits
        return
    found = open_tensors(path)
    for name, values in held.items():
        if name in found and found[name].is_matrix and found[name].size < 1 << 20 and values.dtype.kind in "fiu":
            with np.errstate(all="ignore"):
                wanted = values.astype(np.float32)
                rows = found.layer(name).rows(np.arange(len(values)))
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
    str((source.first_position, source.positions, source.head, source.recipe))


@dataclass(frozen=True)
class Seed:
    """A file that is whole: the part that is mutated, and what makes the file of it."""

    name: str
    part: bytes
    whole: Callable[[bytes], bytes] = bytes
    read: Callable[[Path], None] = read
    file: str = ""  # what it is called, if that matters
    grown: Callable[[random.Random], bytes] | None = None  # what makes another part, if it is not mutated


def seeds() -> list[Seed]:
    """Return small files of every format."""
    rng = np.random.default_rng(0)
    token, position = rng.standard_normal((6, 32)).astype(np.float32), rng.standard_normal((4, 32)).astype(np.float32)
    arrays = {"wte.weight": token, "wpe.weight": position, "bias": position[0]}
    data = safetensors.numpy.save({**arrays, "half": token.astype(np.float16), "wide": token.astype(np.float64)})
    length = 8 + int.from_bytes(data[:8], "little")
    text = b"".join(
        b"w%d %s\n" % (row, b" ".join(b"%.3f" % value for value in values)) for row, values in enumerate(token)
    )
    binary = b"6 32\n" + b"".join(b"w%d " % row + values.tobytes() for row, values in enumerate(token))
    plain, packed, column = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(plain, token)
    np.save(column, np.asfortranarray(token))
    torch.save({"model": {name: torch.from_numpy(array) for name, array in arrays.items()}}, packed)
    archive = {info: packed_member(packed, info) for info in zipfile.ZipFile(packed).namelist()}
    pickle = next(name for name in archive if name.endswith("data.pkl"))
    index = json.dumps({"weight_map": {"wte.weight": "part.safetensors", "wpe.weight": "part.safetensors"}}).encode()
    gguf = gguf_bytes(arrays)
    return [
        Seed("safetensors", data),
        Seed("safetensors header", data[8:length], lambda part: struct.pack("<Q", len(part)) + part + data[length:]),
        Seed("index", index),
        Seed("gguf", gguf),
        Seed("gguf header", gguf[:700], lambda part: part + gguf[700:]),
        Seed("npy", plain.getvalue()),
        Seed("npy header", plain.getvalue()[10:128], lambda part: npy_of(part, token)),
        Seed("npy in columns", column.getvalue()),
        Seed("npz stored", plain.getvalue(), lambda part: zipped({"wte.npy": part, "b.npy": column.getvalue()})),
        Seed("npz deflated", column.getvalue(), lambda part: zipped({"wte.npy": part}, zipfile.ZIP_DEFLATED)),
        Seed("npz archive", zipped({"wte.npy": plain.getvalue()}, zipfile.ZIP_DEFLATED)),
        Seed("text", text),
        Seed("text with sizes", b"6 32\n" + text),
        Seed("binary", binary),
        Seed("pt", packed.getvalue()),
        Seed("pt pickle", archive[pickle], lambda part: zipped({**archive, pickle: part})),
        Seed("pt grown", archive[pickle], lambda part: zipped({**archive, pickle: part}), grown=grown_pickle),
        *(Seed(f"tokenizer {name}", part, read=read_tokenizer) for name, part in tokenizer_files().items()),
        Seed("config", CONFIG, read=read_config, file="model/config.json"),
    ]


def packed_member(packed: io.BytesIO, name: str) -> bytes:
    """Return a member of an archive."""
    return zipfile.ZipFile(packed).read(name)


def npy_of(header: bytes, array: np.ndarray) -> bytes:
    """Return a .npy file with a header of its own."""
    return b"\x93NUMPY\1\0" + struct.pack("<H", min(len(header), 65535)) + header + array.tobytes()


def zipped(members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> bytes:
    """Return an archive of some members, whose checksums are right."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def gguf_bytes(arrays: dict[str, np.ndarray]) -> bytes:
    """Return a GGUF file of arrays, one of them quantised."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gguf"
        writer = GGUFWriter(path, "llama")
        writer.add_context_length(4)
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([b"a", b"b", b"c"])
        writer.add_token_scores([1.0, 2.0, 3.0])
        writer.add_token_types([1, 3, 4])
        for name, array in arrays.items():
            writer.add_tensor(name, array)
        kind = GGMLQuantizationType.Q8_0
        writer.add_tensor("q.weight", quants.quantize(arrays["wte.weight"], kind), raw_dtype=kind)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path.read_bytes()


def tokenizer_files() -> dict[str, bytes]:
    """Return a small tokenizer.json of each kind."""
    words = {word: number for number, word in enumerate(("a", "b", "c", "\u00c3", "\u0120", "ab", "\u0120a", "abc"))}
    bytewise = Tokenizer(models.BPE(words, [("a", "b"), ("\u0120", "a"), ("ab", "c")]))
    bytewise.pre_tokenizer, bytewise.decoder = pre_tokenizers.ByteLevel(), decoders.ByteLevel()
    bytewise.add_special_tokens([AddedToken("<|end|>", special=True)])
    bytewise.enable_truncation(5)
    bytewise.enable_padding(pad_id=1, pad_token="a", length=9)
    scores = [("<unk>", 0.0), ("<0xC3>", -1.0), ("\u2581", -2.0), ("\u2581ab", -3.5)]
    pieces = Tokenizer(models.Unigram(scores, 0, byte_fallback=True))
    pieces.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    pieces.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    parts = Tokenizer(models.WordPiece({"[UNK]": 0, "a": 1, "##b": 2, "##c": 3}, unk_token="[UNK]"))
    parts.normalizer, parts.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    parts.decoder = decoders.WordPiece()
    pattern = pre_tokenizers.Split(Regex(r"\p{L}+|\s+"), "isolated")
    whole = Tokenizer(models.WordLevel({"abc": 0, "<unk>": 1}, unk_token="<unk>"))
    whole.pre_tokenizer = pre_tokenizers.Sequence([pattern, pre_tokenizers.Digits(), pre_tokenizers.Metaspace()])
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
            holder[key] = json.loads(json.dumps(other[name]))  # a copy, as a value may go into itself
        elif kind == 2 and isinstance(holder[key], int | float):
            holder[key] += rng.choice((-1, 1, 8))
        else:
            odd = (None, True, -1, 0.5, 1e308, "", "a", "\udc00", [], {}, [[]], json.loads("[" * 300 + "]" * 300))
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
            found[place:place] = found[start : start + rng.choice((1, 4, 16, 100))] * rng.choice((1, 1, 1, 50, 2000))
        elif kind == 4:
            size = rng.choice((1, 2, 4, 8))
            found[place : place + size] = (rng.choice(EXTREMES) % (1 << 8 * size)).to_bytes(size, "little")
        elif kind in (5, 6):
            numbers = list(_NUMBER.finditer(found))
            if numbers:
                one = rng.choice(numbers)
                value = rng.choice((*EXTREMES, -1, 10**30, int(one[0][:18]) + 1, int(one[0][:18]) - 1))
                found[one.start() : one.end()] = str(value).encode()
        elif kind == 7:
            names = list(_NAME.finditer(found))
            if len(names) > 1:
                one, other = rng.sample(names, 2)
                found[one.start() : one.end()] = other[0]
        elif place < len(found):
            found[place] ^= 1 << rng.randrange(8)
    return bytes(found)


NAMES = (
    *("collections OrderedDict", "torch._utils _rebuild_tensor_v2", "torch._utils _rebuild_tensor_v3", "torch Size"),
    *("torch._utils _rebuild_parameter", "torch._utils _rebuild_parameter_with_state", "torch.nn.parameter Parameter"),
    *("torch._utils _rebuild_sparse_tensor", "torch._utils _rebuild_meta_tensor_no_storage", "torch FloatStorage"),
    *("torch._tensor _rebuild_from_type_v2", "torch._utils _rebuild_nested_tensor", "torch bfloat16", "torch Tensor"),
    *("torch._utils _rebuild_qtensor", "torch.storage UntypedStorage", "torch.serialization _get_layout"),
    *("__builtin__ bytearray", "builtins set", "_codecs encode", "collections Counter", "torch LongStorage"),
)
FORBIDDEN = ("os system", "torch.storage _load_from_bytes", "builtins eval", "torch.hub load", "x" * 5000 + " y", " ")


def grown_pickle(rng: random.Random) -> bytes:
    """Return a pickle of a state_dict with values in values, as torch.save writes it or with an error."""
    values = b"X\x01\0\0\0a".join(grown_value(rng, rng.choice((1, 1, 2, 4))) for _ in range(rng.choice((1, 1, 2))))
    body = bytearray(b"\x80\2}(X\x0a\0\0\0wte.weight" + grown_tensor(rng) + b"X\x01\0\0\0b" + values + b"u")
    if rng.random() < 0.1:
        place = rng.randrange(2, len(body) + 1)
        body[place:place] = rng.choice((*b"(.0)]}lt\x85\x86\x87RQb\x81csueaNh\x8a\x8b\x93\x95\x8f\x91",)).to_bytes(
            1, "little"
        )
    if rng.random() < 0.02:  # deep or long
        deep = rng.choice((50, 97, 98, 99, 100, 3000, 30_000))
        body[2:2] = b"]" * deep
        body += rng.choice((b"a", b"a", b"\x85", b"s", b"e", b"b", b"R")) * deep
    return bytes(body) + b"."


def grown_value(rng: random.Random, depth: int) -> bytes:
    """Return opcodes that push one value."""
    kind = rng.randrange(12 if depth else 5)
    deeper = [grown_value(rng, depth - 1) for _ in range(rng.choice((0, 1, 1, 2, 3)))] if depth else []
    if kind < 3:
        return grown_tensor(rng) if kind else grown_atom(rng)
    if kind == 3:
        return grown_atom(rng) + b"q" + bytes([rng.randrange(4)])
    if kind == 4:
        return b"h" + bytes([rng.randrange(4)]) if rng.random() < 0.3 else grown_atom(rng)
    if kind == 5:
        return b"(" + b"".join(deeper) + b"t"
    if kind == 6:
        return b"]q" + bytes([rng.randrange(4)]) + b"(" + b"".join(deeper) + b"e"
    if kind < 10:
        keys = [grown_atom(rng) if rng.random() < 0.9 else grown_value(rng, depth - 1) for _ in deeper]
        return b"}(" + b"".join(map(bytes.__add__, keys, deeper)) + b"u"
    if kind == 10:
        return b"c" + rng.choice(NAMES).replace(" ", "\n").encode() + b"\n(" + b"".join(deeper) + b"tR"
    return grown_value(rng, depth - 1) + b"".join(deeper[:1]) + rng.choice((b"b", b"b", b"R", b"\x81", b"Q", b"a"))


def grown_atom(rng: random.Random) -> bytes:
    """Return opcodes that push a number, a text, a constant or a name."""
    kind = rng.randrange(8)
    if kind < 3:
        text = rng.choice((b"wte.weight", b"wpe.weight", b"a", b"", b"\xed\xa0\x80", b"x" * 300, b"model", b"\x1b[2J"))
        return b"X" + struct.pack("<I", len(text)) + text
    if kind < 5:
        return grown_number(rng)
    if kind < 7:
        return rng.choice((b"N", b"\x88", b"\x89", b")", b"]", b"}", b"G" + struct.pack(">d", rng.random()), b"U\x01a"))
    name = rng.choice(NAMES if rng.random() < 0.95 else FORBIDDEN)
    return b"c" + name.replace(" ", "\n", 1).encode() + b"\n"


def grown_number(rng: random.Random) -> bytes:
    """Return opcodes that push a whole number, mostly a small one."""
    number = rng.choice((0, 1, 2, 3, 4, 6, 32) if rng.random() < 0.9 else (*EXTREMES, -1, 2**100))
    data = number.to_bytes(17, "little", signed=True)
    return b"\x8a\x11" + data if number > 255 or number < 0 else b"K" + bytes([number])


def grown_tensor(rng: random.Random) -> bytes:
    """Return opcodes that push a tensor, most often one of the file; its storage, shape and strides may be anything."""
    key, size, rows = rng.choice(((b"0", 192, 6), (b"0", 192, 6), (b"1", 128, 4)))
    kind, odd = "Float", rng.random()
    if odd < 0.1:
        kind = rng.choice(("Half", "Double", "Long", "Bool", "ComplexFloat", "QInt8", "storage.Untyped"))
    elif odd < 0.2:
        key, size = rng.choice((b"0", b"3", b"../0", b"\xed\xa0\x80")), rng.choice((32, *EXTREMES))
    module, _, name = f"torch.{kind}Storage".rpartition(".")
    storage = b"(X\7\0\0\0storagec" + f"{module}\n{name}\n".encode() + b"X" + struct.pack("<I", len(key)) + key
    storage += b"X\3\0\0\0cpu\x8a\x09" + size.to_bytes(9, "little", signed=True) + b"tQ"
    first, shape, strides = b"K\0", b"K" + bytes([rows]) + b"K\x20\x86", b"K\x20K\1\x86"
    if odd > 0.7:
        numbers = (grown_number(rng) for _ in range(rng.choice((0, 1, 2, 2, 2, 3, 70))))
        first, shape, strides = grown_number(rng), b"(" + b"".join(numbers) + b"t", rng.choice((strides, shape))
    end, function = b"\x89ccollections\nOrderedDict\n)R", b"2"
    if kind == "storage.Untyped" or odd > 0.95:
        end, function = end + b"ctorch\n" + rng.choice((b"uint16", b"float32", b"float8_e5m2", b"bits8")) + b"\n", b"3"
    return b"ctorch._utils\n_rebuild_tensor_v" + function + b"\n(" + storage + first + shape + strides + end + b"tR"


def outcome(path: Path, read: Callable[[Path], None]) -> tuple[bool, float]:
    """Return whether a file is accepted, and how many seconds of processor time that took."""
    begun = time.process_time()
    try:
        read(path)
    except InputError as error:
        if str(error).count("\n") > 1:
            raise AssertionError("an error of more than two lines") from error
        return False, time.process_time() - begun
    return True, time.process_time() - begun


def peak() -> int:
    """Return the most memory that this process has had, in MB."""
    found = re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())
    return int(found[1]) // 1024 if found else 0


def fuzz(count: int, seed: int, folder: Path, said: Callable[[str], object] = print) -> dict[str, list[int]]:
    """Read `count` damaged files; return for each kind how many were accepted and how many refused."""
    rng = random.Random(seed)
    known = seeds()
    for part in (folder / "part.safetensors", folder / "model" / "part.safetensors"):
        part.parent.mkdir(exist_ok=True)
        part.write_bytes(known[0].part)
    done = {each.name: [0, 0] for each in known}
    for each in known:  # whole, and whatever is loaded on the way
        path = folder / (each.file or "m")
        path.write_bytes(each.whole(each.part))
        each.read(path)
    start = peak()
    for number in range(count):
        each = known[number % len(known)]
        path = folder / (each.file or f"m{number % 97}")  # torch may still map one that was accepted
        path.unlink(missing_ok=True)
        path.write_bytes(each.whole(each.grown(rng) if each.grown else mutated(each.part, rng)))
        try:
            accepted, seconds = outcome(path, each.read)
            if seconds > SLOWEST:  # it, or a machine that had other things to do
                accepted, seconds = outcome(path, each.read)
        except BaseException:
            said(f"file {number} of seed {seed}, {each.name}: kept as {path}")
            raise
        assert seconds < SLOWEST, f"file {number} of seed {seed}, {each.name}: {path}"
        done[each.name][not accepted] += 1
        if each.name.startswith("safetensors") and accepted:
            safetensors.safe_open(path, "np")  # raises what the library has against it
        if each.read is read and accepted:
            compare_with_library(each.name, path)
    assert peak() - start < LARGEST, f"{peak() - start} MB more than at the start"
    return done


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as kept:
        warnings.simplefilter("error")
        begun, before = time.perf_counter(), peak()
        for name, (accepted, refused) in fuzz(int(sys.argv[1]), int((sys.argv[2:] or ["0"])[0]), Path(kept)).items():
            print(f"{name:20} {accepted:8,} accepted {refused:8,} refused")
        print(f"{time.perf_counter() - begun:.0f} s, at most {peak()} MB ({before} MB at the start)")
