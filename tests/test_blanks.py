"""Tokenizers made at random, with added tokens of blanks: `tokenizers` says what they decode to."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers

from embcli import encodings
from embcli.encodings.huggingface import HuggingFaceEncoding
from tests.files.made import numbered

CHARACTERS = [*"ab<0xA>é日 ", "▁"]
BLANKS = ["  ", "▁▁", "▁", " ▁", "   ", "<▁>", "▁a", "\t", "b ", " <b>"]
SCHEMES = ["always", "first", "never"]
KINDS = ["metaspace", "fallback", "byte_level"]


def vocabulary_of(chance: random.Random, kind: str) -> list[str]:
    """Return the characters of a vocabulary, some of them left out, and tokens of bytes."""
    letters = pre_tokenizers.ByteLevel.alphabet() if kind == "byte_level" else [*"ab<0xA>é▁"]
    letters.sort()
    if kind != "byte_level":
        letters = [letter for letter in letters if chance.random() < 0.9]
    some_bytes = [f"<0x{byte:02X}>" for byte in (*b"\n ab", *"日é".encode())]
    return ["<unk>", *letters, *some_bytes]


def merges_of(chance: random.Random, words: list[str]) -> list[tuple[str, str]]:
    """Add tokens that join two others to a vocabulary, and return the two of each."""
    merges = []
    for _ in range(chance.randrange(12)):
        parts = [word for word in words[1:] if not word.startswith("<0x")]
        left = chance.choice(parts)
        right = chance.choice(parts)
        if left + right not in words:
            words.append(left + right)
            merges.append((left, right))
    return merges


def made(chance: random.Random) -> Tokenizer:
    kind = chance.choice(KINDS)
    words = vocabulary_of(chance, kind)
    merges = merges_of(chance, words)
    falls_back = chance.random() < 0.5
    if chance.random() < 0.5:
        fuses = chance.random() < 0.5
        options = {"unk_token": "<unk>", "byte_fallback": falls_back, "fuse_unk": fuses}
        tokenizer = Tokenizer(models.BPE(numbered(words), merges, **options))
    else:
        scored = [(word, -chance.random() * 10) for word in words]
        tokenizer = Tokenizer(models.Unigram(scored, unk_id=0, byte_fallback=falls_back))

    if kind == "metaspace":
        scheme = chance.choice(SCHEMES)
        splits = chance.random() < 0.5
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, splits)
        tokenizer.decoder = decoders.Metaspace("▁", scheme, splits)
    elif kind == "fallback":
        steps: list[normalizers.Normalizer] = [normalizers.Replace(" ", "▁")]
        last = []
        if chance.random() < 0.7:
            steps.insert(0, normalizers.Prepend("▁"))
            last.append(decoders.Strip(" ", 1, 0))
        tokenizer.normalizer = normalizers.Sequence(steps)
        first = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]
        tokenizer.decoder = decoders.Sequence([*first, *last])
    else:
        adds_space = chance.random() < 0.5
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=adds_space)
        tokenizer.decoder = decoders.ByteLevel()

    for content in chance.sample(BLANKS, chance.randrange(4)):
        is_special = chance.random() < 0.5
        is_normalized = chance.random() < 0.5
        tokenizer.add_tokens([AddedToken(content, special=is_special, normalized=is_normalized)])
    return tokenizer


def text_of(chance: random.Random) -> str:
    characters = [*CHARACTERS, "\n", "\t", "<0x0A>", "  "]
    return "".join(chance.choices(characters, k=chance.randrange(12)))


def check(ours: HuggingFaceEncoding, chance: random.Random) -> None:
    # Two added tokens can match the same normalized text: which of them does depends on the object.
    tokenizer = ours.tokenizer
    text = text_of(chance)
    special = chance.random() < 0.5
    tokenizer.encode_special_tokens = not special
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, special).tolist() == ids, text

    known = sorted(tokenizer.get_vocab(with_added_tokens=True).values())
    drawn = chance.choices(known, k=chance.randrange(6))
    for some in (ids, drawn):
        decoded = tokenizer.decode(some, skip_special_tokens=False)
        if "\ufffd" not in decoded:
            assert ours.decode(np.array(some, np.int64)) == decoded.encode(), (text, some)

    if not isinstance(tokenizer.model, models.BPE):
        return
    derived: list[int] = []
    for derivation in ours.derivations(text, special):
        derived += derivation.ids
    assert derived == ids, text


@pytest.mark.parametrize("seed", range(60))
def test_texts_and_ids_decode_as_in_the_library(tmp_path, seed):
    chance = random.Random(seed)
    path = tmp_path / "tokenizer.json"
    made(chance).save(str(path))
    ours = encodings.get(str(path))
    assert isinstance(ours, HuggingFaceEncoding)
    for _ in range(8):
        check(ours, chance)


def with_pieces(folder: Path, model: models.BPE, *special: str) -> encodings.Encoding:
    """Return the encoding of a model whose pieces begin with a space."""
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens([*special])
    path = str(folder / "tokenizer.json")
    tokenizer.save(path)
    return encodings.get(path)


def test_a_piece_that_is_spelled_like_a_byte_is_text_without_byte_fallback(tmp_path):
    ours = with_pieces(tmp_path, models.BPE({"<0x0A>": 0, "▁": 1}, [], unk_token="▁"))
    assert ours.token_bytes(0) == b"<0x0A>"
    assert ours.decode(np.array([0])) == b"<0x0A>"


def test_the_merges_of_a_word_with_an_unknown_character_are_shown(tmp_path):
    ids = {"<unk>": 0, "▁": 1, "a": 2, "b": 3, "ab": 4}
    ours = with_pieces(tmp_path, models.BPE(ids, [("a", "b")], unk_token="<unk>"), "<unk>")
    (derivation,) = ours.derivations("xab")
    assert derivation.symbols == (b" ", b"<unk>", b"a", b"b")
    assert [step.token for step in derivation.steps] == [b"ab"]
    assert derivation.ids == (1, 0, 4)
