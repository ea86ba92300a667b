"""A tokenizer.json as an encoding: `tokenizers` is its oracle, and tiktoken that of GPT-2's."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from safetensors.numpy import save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from embcli import encodings, names, seeded
from embcli.encodings import huggingface
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.merging import bytes_of
from embcli.errors import InputError
from embcli.text import Sequences, encode_sequences
from embcli.verbs.tokenize import Tokenization
from tests.cases import cases
from tests.files.made import matrix, numbered
from tests.readers import from_ndjson
from tests.test_encodings import TEXTS

SENTENCES = [
    "Every effort moves you",
    "The effort that moves every one of you",
    "É is a letter, 日本 a land",
] * 3
PLAIN = "Every effort, é🤖 日本語  moves\nyou"
EVERY_BYTE = [f"<0x{byte:02X}>" for byte in range(256)]

# --- tokenizers of each kind ----------------------------------------------------------------------


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=["<|end|>"],
    )
    made.train_from_iterator(SENTENCES, trainer)
    return made


def pieces() -> Tokenizer:
    """Return a tokenizer like Llama's.

    It puts a space in front, writes spaces as U+2581, and spells unknown characters by bytes.
    """
    made = Tokenizer(models.Unigram())
    made.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    made.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    trainer = trainers.UnigramTrainer(
        vocab_size=300, special_tokens=["<unk>", "<s>", *EVERY_BYTE], unk_token="<unk>"
    )
    made.train_from_iterator(["effort moves you every"], trainer)
    document = json.loads(made.to_str())
    document["model"]["byte_fallback"] = True
    document["added_tokens"] = document["added_tokens"][:2]
    return Tokenizer.from_str(json.dumps(document))


def metaspace() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>", "<s>"])
    made.train_from_iterator(SENTENCES, trainer)
    return made


def byte_fallback() -> Tokenizer:
    """Return a tokenizer like Llama 2's: merges of characters, and bytes for unknown ones."""
    words = ["<unk>", *EVERY_BYTE, *"▁abmoé", "▁a", "▁ab", "mo", "mom"]
    merges = [("▁", "a"), ("▁a", "b"), ("m", "o"), ("mo", "m")]
    made = Tokenizer(
        models.BPE(numbered(words), merges, unk_token="<unk>", byte_fallback=True, fuse_unk=True)
    )
    like = pieces()
    made.normalizer = like.normalizer
    made.decoder = like.decoder
    return made


def word_pieces() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    trainer = trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]", "[CLS]"])
    made.train_from_iterator(SENTENCES, trainer)
    return made


def suffixed() -> Tokenizer:
    """Return a tokenizer like the first GPT's: the last part of a word has a suffix."""
    made = Tokenizer(models.BPE(unk_token="<unk>", end_of_word_suffix="</w>"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.BPEDecoder("</w>")
    trainer = trainers.BpeTrainer(
        vocab_size=120, special_tokens=["<unk>"], end_of_word_suffix="</w>"
    )
    made.train_from_iterator(SENTENCES, trainer)
    return made


@cache
def gpt2(size: int | None = None) -> Tokenizer:
    """Return GPT-2's vocabulary as a tokenizer.json has it: two tokens of one are a merge.

    With a size it has only the first tokens.
    """
    ranks = dict(islice(encodings.get("gpt2").tiktoken._mergeable_ranks.items(), size))
    vocabulary = {}
    merges = []
    for token, rank in ranks.items():
        vocabulary[spelled(token)] = rank
        for place in range(1, len(token)):
            parts = (token[:place], token[place:])
            if ranks.keys() >= {*parts}:
                merges.append(tuple(map(spelled, parts)))
    made = Tokenizer(models.BPE(vocabulary, merges))
    pattern = Regex(r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+")
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(pattern, "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens([AddedToken("<|endoftext|>", special=True)])
    return made


def spelled(token: bytes) -> str:
    """Spell bytes as a tokenizer.json does, a character for each."""
    return token.decode("latin-1").translate(CHARACTERS)


# The character that spells each byte.
CHARACTERS = {}
for _character in pre_tokenizers.ByteLevel.alphabet():
    for _byte in bytes_of(_character.encode()) or ():
        CHARACTERS[_byte] = _character

MADE: dict[str, Callable[[], Tokenizer]] = {
    "byte_level": byte_level,
    "pieces": pieces,
    "metaspace": metaspace,
    "byte_fallback": byte_fallback,
    "word_pieces": word_pieces,
    "suffixed": suffixed,
    "gpt2": gpt2,
}
Saved = Callable[[str], Path]
LOSSLESS = ("byte_level", "pieces", "byte_fallback", "gpt2")


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Saved:
    """Return a function that saves the tokenizer of a name once, and returns its path."""
    return saver(tmp_path_factory.getbasetemp() / "saved")


@cache
def saver(folder: Path) -> Saved:
    """Return what saves tokenizers into a folder; all files of tests have the same."""

    @cache
    def save(name: str) -> Path:
        path = folder / name / "tokenizer.json"
        path.parent.mkdir(parents=True)
        MADE[name]().save(str(path))
        return path

    return save


def opened(path: Path) -> HuggingFaceEncoding:
    found = encodings.get(str(path))
    assert isinstance(found, HuggingFaceEncoding)
    return found


def loaded(path: Path) -> Tokenizer:
    return Tokenizer.from_file(str(path))


Span = tuple[bytes, int, int, bool]


def spans(text: str, encoding: encodings.Encoding, special: bool = False) -> list[Span]:
    """Return the bytes of each token, its start and end, and if it begins within a character."""
    tokens = encode_sequences(Sequences(texts=(text,)), encoding, special)
    result = Tokenization(tokens)
    starts, ends = result.spans.T.tolist()
    known = [token or b"" for token in tokens.bytes_of(tokens.ids)]
    return [*zip(known, starts, ends, result.joined.tolist(), strict=True)]


# --- IDs, bytes and spans -------------------------------------------------------------------------


@pytest.mark.parametrize("name", MADE)
def test_ids_are_those_of_the_library(name, saved):
    theirs = loaded(saved(name))
    ours = opened(saved(name))
    for text in (*TEXTS, PLAIN, "<s>you <|end|>[CLS]"):
        theirs.encode_special_tokens = True
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids
        theirs.encode_special_tokens = False
        ids = ours.encode(text, special=True).tolist()
        assert ids == theirs.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("name", MADE)
def test_tokens_are_those_of_the_library_and_spaces_are_spaces(name, saved):
    ours = opened(saved(name))
    known = set(loaded(saved(name)).get_vocab().values())
    assert ours.vocabulary_size == max(known) + 1
    for token_id in range(-2, ours.vocabulary_size + 3):
        token = ours.token_bytes(token_id)
        assert (token is not None) == (token_id in known)
        if token is not None and name != "gpt2":
            assert "▁".encode() not in token
    assert ours.token_bytes(2**32) is None


ANY_TEXT = st.one_of(st.text(max_size=60), st.text("aé🤖 日\n'", max_size=40))


@given(text=ANY_TEXT, special=st.booleans())
@example(text="hi<|endoftext|>🤖", special=True)
@example(text="hi<|endoftext|>🤖", special=False)
def test_gpt2_as_a_file_is_gpt2(text, special, saved):
    ours = opened(saved("gpt2"))
    theirs = encodings.get("gpt2")
    assert ours.vocabulary_size == theirs.vocabulary_size
    assert ours.encode(text, special).tolist() == theirs.encode(text, special).tolist()
    assert spans(text, ours, special) == spans(text, theirs, special)


# Pieces have U+2581 for a space, so a text that has both is not kept.
WITHOUT_MARK = st.characters(exclude_categories=["Cs"], exclude_characters="▁")


@pytest.mark.parametrize("name", LOSSLESS)
@given(text=st.text(WITHOUT_MARK, max_size=40))
@example(text=PLAIN)
@example(text=" two  spaces ")
def test_spans_cover_the_text_and_hold_what_tokens_stand_for(name, text, saved):
    ours = opened(saved(name))
    assert ours.decode(ours.encode(text)) == text.encode()
    before = 0
    for token, start, end, joined in spans(text, ours):
        assert start in (before, before - 1)
        assert token.removeprefix(b" ") in text[start:end].encode()
        assert joined == (token[0] & 0xC0 == 0x80)
        before = end
    assert before == len(text)


def test_spans_of_words_are_those_of_the_text_and_not_of_its_plain_letters(
    saved,
):
    assert spans("  Évery  éffort 🤖", opened(saved("word_pieces"))) == [
        (b"every", 2, 7, False),
        (b"effort", 9, 15, False),
        (b"[UNK]", 16, 17, False),
    ]


@cases
@given(text=st.text("aeffortEveryoné日 \u0301!", max_size=30))
@example(text="everyone effort")
def test_parts_of_words_keep_their_marks_and_decode_without_them(name, text, saved):
    ours = opened(saved(name))
    theirs = loaded(saved(name))
    encoded = theirs.encode(text)
    tokens = [token.decode() for token, *_ in spans(text, ours)]
    assert tokens == encoded.tokens
    assert [(start, end) for _, start, end, _ in spans(text, ours)] == encoded.offsets
    assert ours.decode(ours.encode(text)).decode() == theirs.decode(encoded.ids, False)


@cases
def test_a_part_of_a_word_is_shown_as_one_on_every_page_and_in_every_format(
    in_process, tmp_path, format
):
    rows = matrix(3, 3, 0)
    model = word_model(tmp_path / "model", ["[UNK]", "gas", "##es"], rows)
    lists = [
        ("tokenize", "gases", "--encoding", model),
        ("lookup", "gases", "--from", model, "--show", "token"),
        ("neighbors", "gas", "--from", model),
    ]
    for words in lists:
        shown = in_process.ok(*words, "-f", format).text
        assert {*re.findall(r"(?:##)?\bes\b", shown)} == {"##es"}, words


# --- special tokens -------------------------------------------------------------------------------


@cases
def test_special_adds_what_the_tokenizer_adds(in_process, tmp_path, saved, template, told):
    theirs = loaded(saved("word_pieces"))
    theirs.add_special_tokens(["[SEP]"])
    around = [(name, theirs.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    theirs.post_processor = processors.TemplateProcessing(single=template, special_tokens=around)
    theirs.save(str(tmp_path / "tokenizer.json"))
    words = ("--encoding", str(tmp_path), "-f")

    special = in_process.ok("tokenize", "Every [SEP] effort", "--special", *words, "ndjson")
    rows = from_ndjson(special.out)
    expected = theirs.encode("Every [SEP] effort")
    assert [row["id"] for row in rows] == expected.ids
    assert rows[0]["end"] == expected.offsets[0][1]

    plain = in_process("tokenize", "Every effort", *words, "ids")
    ids = theirs.encode("Every effort", add_special_tokens=False).ids
    assert plain.text.split() == [*map(str, ids)]
    assert plain.err.removeprefix("embcli: for its model, this tokenizer puts ").rstrip() == told


def test_a_vocabulary_without_cls_and_sep_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nhello\n")
    with pytest.raises(InputError, match=r"vocab\.txt"):
        seeded(encoding=str(tmp_path / "vocab.txt"), dim=2)


def test_tokens_that_gemma_adds_are_spelled_as_pieces_and_special_ones_are_not(
    tmp_path,
):
    made = pieces()
    made.add_tokens([AddedToken("▁▁▁", normalized=False)])
    made.add_special_tokens([AddedToken("<▁>", normalized=False)])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = opened(tmp_path / "tokenizer.json")
    assert ours.token_bytes(made.token_to_id("▁▁▁")) == b"   "
    assert ours.token_bytes(made.token_to_id("<▁>")) == "<▁>".encode()


# --- which file, and what a file is not asked for -------------------------------------------------


def test_a_tokenizer_is_taken_as_it_is_without_truncation_padding_and_chance(
    tmp_path,
):
    made = byte_level()
    whole = made.encode(PLAIN * 9).ids
    made.enable_truncation(3)
    made.enable_padding(length=500)
    document = json.loads(made.to_str())
    document["model"]["dropout"] = 0.9
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    assert opened(path).encode(PLAIN * 9).tolist() == whole


def test_names_of_tiktoken_come_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "gpt-4"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
        assert encodings.get(name).name in names.ENCODINGS


def bpe(version: str, vocabulary: dict[str, int]) -> bytes:
    model = {"type": "BPE", "vocab": vocabulary, "merges": []}
    return json.dumps({"version": version, "model": model}).encode()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{}",
        b"[1]",
        b"\xff\xfe",
        b"[" * 10**6,
        bpe("1.0", {"a": -1}),
        bpe("9", {}),
    ],
)
def test_what_is_no_tokenizer_is_named(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"it is not a tokenizer\.json"):
        opened(path).encode("hi")


def test_a_word_that_a_vocabulary_without_unknown_lacks_is_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(
        '{"version":"1.0","model":{"type":"WordPiece","unk_token":"?","vocab":{"a":0},'
        '"continuing_subword_prefix":"##","max_input_chars_per_word":9}}'
    )
    with pytest.raises(InputError, match="cannot split this text of 2 characters"):
        opened(path).encode("hi")


def test_a_pattern_that_never_ends_is_an_error_of_one_line(in_process, tmp_path):
    made = Tokenizer(models.WordLevel({"a": 0}, "a"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(a|aa|a)+$"), "isolated")
    made.save(str(tmp_path / "tokenizer.json"))
    refused = in_process.refused("tokenize", "a" * 36 + "!", "--encoding", str(tmp_path))
    assert "cannot split this text of 37 characters (Onig: Regex search error" in refused


def test_a_file_longer_than_any_is_not_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(InputError, match="it is too long"):
        opened(path).encode("hi")


# --- beside weights -------------------------------------------------------------------------------


def word_model(folder: Path, words: list[str], rows: np.ndarray) -> str:
    """Make a model with a tokenizer of whole words and parts in a folder, and return the folder."""
    folder.mkdir()
    tokenizer = Tokenizer(models.WordPiece(numbered(words), unk_token="[UNK]"))
    tokenizer.save(str(folder / "tokenizer.json"))
    save_file({"word_embeddings.weight": rows}, folder / "model.safetensors")
    return str(folder)


PADDED = 50259  # two rows of padding follow those of GPT-2


@pytest.fixture
def model(tmp_path: Path, saved: Saved) -> str:
    """Return the folder of a model with a tokenizer of its own, whose size suggests GPT-2."""
    save_file({"wte.weight": np.ones((PADDED, 3), np.float32)}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").symlink_to(saved("gpt2"))
    return str(tmp_path)


def test_the_tokenizer_beside_the_weights_is_theirs_and_no_guess(in_process, model):
    document = json.loads(in_process("lookup", PLAIN, "--from", model, "-f", "json").out)
    assert document["run"]["encoding"] == f"{model}/tokenizer.json"
    assert "encoding" not in document["run"]["guesses"]

    ids = [row["id"] for row in document["tokens"]]
    assert ids == encodings.get("gpt2").encode(PLAIN).tolist()


# --- the package ----------------------------------------------------------------------------------


def test_without_the_package_the_cure_is_told_and_a_tokenizer_beside_weights_is_left(
    in_process, tmp_path, saved, monkeypatch
):
    (tmp_path / "tokenizer.json").symlink_to(saved("byte_level"))
    save_file({"wte.weight": np.ones((9, 3), np.float32)}, tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    cure = "pip install 'embcli[models]'"

    assert cure in in_process.refused("tokenize", "hi", "--encoding", str(tmp_path))
    shown = in_process("weights", "--from", str(tmp_path), "--rows", "0:2", "-f", "csv")
    assert shown.status == 0
    assert shown.out.count(b"\n") == 3
    assert cure in shown.err


def test_tokens_of_bytes_need_byte_fallback(tmp_path):
    made = byte_fallback()
    made.model.byte_fallback = False
    path = str(tmp_path / "tokenizer.json")
    made.save(path)
    (fault,) = encodings.get(path).faults
    assert fault == "tokenizer.json has tokens of bytes, but byte_fallback is false"


def test_threads_share_a_tokenizer(saved):
    """Some of them ask for special tokens, which the package sets for a whole tokenizer."""
    ours = opened(saved("gpt2"))
    cases = []
    for number in range(400):
        text = "<|endoftext|>" * (number % 3) + f"text {number}"
        cases.append((text, number % 2 == 1))

    def encode(case: tuple[str, bool]) -> list[int]:
        return ours.encode(*case).tolist()

    alone = [*map(encode, cases)]
    before = os.fstat(2)
    with ThreadPoolExecutor(8) as pool:
        assert [*pool.map(encode, cases)] == alone
    assert os.path.samestat(os.fstat(2), before)


def test_a_text_that_would_not_fit_into_memory_is_refused(saved, monkeypatch):
    monkeypatch.setattr(huggingface, "memory_of_machine", lambda: 150_000)
    encoding = opened(saved("gpt2"))
    assert len(encoding.encode("a" * 1000)) > 0
    with pytest.raises(InputError, match="give it in parts"):
        encoding.encode("a" * 1001)
