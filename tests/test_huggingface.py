"""A tokenizer.json as an encoding: what `tokenizers` makes of a text; for GPT-2's, what tiktoken makes of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
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
from embcli.encodings import tiktoken as packaged
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.merging import bytes_of
from embcli.errors import InputError
from embcli.text import Sequences
from embcli.tokens import tokenize
from embcli.verbs.tokenize import Tokenization
from tests.readers import from_ndjson
from tests.runners import InProcess
from tests.test_encodings import TEXTS

SENTENCES = [
    "Every effort moves you",
    "The effort that moves every one of you",
    "É is a letter, 日本 a land",
] * 3
PLAIN = "Every effort, é🤖 日本語  moves\nyou"


def byte_level() -> Tokenizer:
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made.train_from_iterator(
        SENTENCES,
        trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<|end|>"]),
    )
    return made


def pieces() -> Tokenizer:
    """Return a tokenizer as Llama's: a space in front, spaces as U+2581, bytes for what it does not know."""
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
    every_byte = [f"<0x{byte:02X}>" for byte in range(256)]
    special = ["<unk>", "<s>", *every_byte]
    made.train_from_iterator(
        ["effort moves you every"],
        trainers.UnigramTrainer(vocab_size=300, special_tokens=special, unk_token="<unk>"),
    )
    document = json.loads(made.to_str())
    document["model"]["byte_fallback"] = True
    document["added_tokens"] = document["added_tokens"][:2]
    return Tokenizer.from_str(json.dumps(document))


def metaspace() -> Tokenizer:
    made = Tokenizer(models.BPE(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    made.train_from_iterator(
        SENTENCES, trainers.BpeTrainer(vocab_size=90, special_tokens=["<unk>", "<s>"])
    )
    return made


def byte_fallback() -> Tokenizer:
    """Return a tokenizer as Llama 2's: merges of characters, bytes for those that it does not know."""
    words = [
        "<unk>",
        *(f"<0x{byte:02X}>" for byte in range(256)),
        *"▁abmoé",
        "▁a",
        "▁ab",
        "mo",
        "mom",
    ]
    pairs = [("▁", "a"), ("▁a", "b"), ("m", "o"), ("mo", "m")]
    ids = {word: place for place, word in enumerate(words)}
    made = Tokenizer(models.BPE(ids, pairs, unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    made.normalizer, made.decoder = pieces().normalizer, pieces().decoder
    return made


def word_pieces() -> Tokenizer:
    made = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    made.normalizer = normalizers.BertNormalizer()
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    made.train_from_iterator(
        SENTENCES, trainers.WordPieceTrainer(vocab_size=60, special_tokens=["[UNK]", "[CLS]"])
    )
    return made


@cache
def gpt2() -> Tokenizer:
    """Return GPT-2's vocabulary as a tokenizer.json has it: two parts that join into each token, lowest rank first."""
    ours = packaged.TiktokenEncoding("gpt2")
    character = {
        byte: each
        for each in pre_tokenizers.ByteLevel.alphabet()
        for byte in bytes_of(each.encode()) or ()
    }
    ranks = {ours.token_bytes(rank) or b"": rank for rank in range(50256)}

    def parts(token: bytes, below: int) -> tuple[bytes, bytes]:
        """Join bytes by the ranks below that of the token, as long as it takes to leave two parts."""
        found = [token[place : place + 1] for place in range(len(token))]
        while len(found) > 2:
            joined = [ranks.get(one + other, below) for one, other in pairwise(found)]
            place = joined.index(min(joined))
            found[place : place + 2] = [found[place] + found[place + 1]]
        return found[0], found[1]

    def spelled(token: bytes) -> str:
        return "".join(character[byte] for byte in token)

    merges = [
        tuple(map(spelled, parts(token, rank))) for token, rank in ranks.items() if len(token) > 1
    ]
    made = Tokenizer(models.BPE({spelled(token): rank for token, rank in ranks.items()}, merges))
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


MADE: dict[str, Callable[[], Tokenizer]] = {
    made.__name__: made
    for made in (byte_level, pieces, metaspace, byte_fallback, word_pieces, gpt2)
}
LOSSLESS = ("byte_level", "pieces", "byte_fallback", "gpt2")
WITHOUT_MARK = st.text(
    st.characters(exclude_categories=["Cs"], exclude_characters="▁"), max_size=40
)  # as pieces have it for a space


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    folder = tmp_path_factory.mktemp("tokenizers")

    @cache
    def save(name: str) -> Path:
        path = folder / name / "tokenizer.json"
        path.parent.mkdir()
        MADE[name]().save(str(path))
        return path

    return save


def opened(path: Path) -> HuggingFaceEncoding:
    found = encodings.get(str(path))
    assert isinstance(found, HuggingFaceEncoding)
    return found


def spans(
    text: str, encoding: encodings.Encoding, special: bool = False
) -> list[tuple[bytes, int, int, bool]]:
    tokens = tokenize(Sequences(texts=(text,)), encoding, special)
    result = Tokenization(tokens)
    return [
        (token or b"", start, end, joined)
        for token, (start, end), joined in zip(
            tokens.bytes_of(tokens.ids), result.spans.tolist(), result.joined.tolist(), strict=True
        )
    ]


@pytest.mark.parametrize("name", MADE)
def test_ids_are_those_of_the_library(name: str, saved: Callable[[str], Path]) -> None:
    theirs = Tokenizer.from_file(str(saved(name)))
    ours = opened(saved(name))
    for text in (*TEXTS, PLAIN, "<s>you <|end|>[CLS]"):
        theirs.encode_special_tokens = True
        assert ours.encode(text).tolist() == theirs.encode(text, add_special_tokens=False).ids
        theirs.encode_special_tokens = False
        assert (
            ours.encode(text, special=True).tolist()
            == theirs.encode(text, add_special_tokens=False).ids
        )
    vocabulary = theirs.get_vocab()
    assert ours.vocabulary_size == max(vocabulary.values()) + 1
    known = {
        token_id
        for token_id in range(-2, ours.vocabulary_size + 3)
        if ours.token_bytes(token_id) is not None
    }
    assert known == {*vocabulary.values()}
    assert not any(
        "▁".encode() in ours.token_bytes(token_id) for token_id in known if name != "gpt2"
    )
    assert ours.token_bytes(2**32) is None


@pytest.mark.parametrize(
    ("name", "prefixed"),
    [("byte_level", False), ("byte_level", True), ("pieces", False), ("metaspace", False)],
)
def test_a_first_blank_is_kept_where_the_library_keeps_it(
    tmp_path: Path, name: str, prefixed: bool, saved: Callable[[str], Path]
) -> None:
    """ByteLevel adds a space before a text and keeps it, the others remove theirs."""
    theirs = Tokenizer.from_file(str(saved(name)))
    if prefixed:
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    theirs.save(str(tmp_path / "tokenizer.json"))
    ours = opened(tmp_path / "tokenizer.json")
    for text in ("you", " you", "  moves you"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert ours.decode(np.array(ids)) == theirs.decode(ids).encode()
        assert ours.decode(np.array(ids[1:])) == theirs.decode(ids[1:]).encode()


@given(
    text=st.one_of(st.text(max_size=60), st.text("aé🤖 日\n'", max_size=40)), special=st.booleans()
)
@example(text="hi<|endoftext|>🤖", special=True)
@example(text="hi<|endoftext|>🤖", special=False)
def test_gpt2_as_a_file_is_gpt2(text: str, special: bool, saved: Callable[[str], Path]) -> None:
    ours, theirs = opened(saved("gpt2")), encodings.get("gpt2")
    assert ours.vocabulary_size == theirs.vocabulary_size
    assert ours.encode(text, special).tolist() == theirs.encode(text, special).tolist()
    assert spans(text, ours, special) == spans(text, theirs, special)


@pytest.mark.parametrize("name", LOSSLESS)
@given(text=WITHOUT_MARK)
@example(text=PLAIN)
@example(text=" two  spaces ")
def test_spans_cover_the_text_and_hold_what_tokens_stand_for(
    name: str, text: str, saved: Callable[[str], Path]
) -> None:
    before, ours = 0, opened(saved(name))
    assert ours.decode(ours.encode(text)) == text.encode()
    for token, start, end, joined in spans(text, ours):
        assert start in (before, before - 1)
        assert token.removeprefix(b" ") in text[start:end].encode()
        assert joined == (token[0] & 0xC0 == 0x80)
        before = end
    assert before == len(text)


def test_spans_of_words_are_those_of_the_text_and_not_of_its_plain_letters(
    saved: Callable[[str], Path],
) -> None:
    found = spans("  Évery  éffort 🤖", opened(saved("word_pieces")))
    assert found == [(b"every", 2, 7, False), (b"effort", 9, 15, False), (b"[UNK]", 16, 17, False)]
    parts = spans("everyone", opened(saved("word_pieces")))
    assert b"".join(token for token, *_ in parts) == b"everyone"
    assert not any(token.startswith(b"##") for token, *_ in parts)
    ours = opened(saved("word_pieces"))
    assert ours.decode(ours.encode("Every éffort moves YOU")) == b"every effort moves you"


@pytest.mark.parametrize("single", ["[CLS] $A [SEP] [SEP]", "$A [SEP]", "[CLS] $A", "$A"])
def test_special_adds_what_the_tokenizer_adds(
    in_process: InProcess, tmp_path: Path, saved: Callable[[str], Path], single: str
) -> None:
    theirs, path = Tokenizer.from_file(str(saved("word_pieces"))), str(tmp_path / "tokenizer.json")
    theirs.add_special_tokens(["[SEP]"])
    names = [(name, theirs.token_to_id(name)) for name in ("[CLS]", "[SEP]")]
    theirs.post_processor = processors.TemplateProcessing(single=single, special_tokens=names)
    theirs.save(path)
    ran = in_process.ok(
        "tokenize", "Every [SEP] effort", "--special", "--encoding", path, "-f", "json"
    )
    rows = json.loads(ran.out)["tokens"]
    assert [row["id"] for row in rows] == theirs.encode("Every [SEP] effort").ids
    assert [row["position"] for row in rows] == [*range(len(rows))]
    before, after = (part.split() for part in single.split("$A"))
    assert [(row["token"], row["start"], row["end"]) for row in rows][: len(before)] == [
        ("[CLS]", 0, 0)
    ] * len(before)
    plain = in_process("tokenize", "Every effort", "--encoding", path, "-f", "ids")
    assert plain.out.split() == [
        b"%d" % each for each in theirs.encode("Every effort", add_special_tokens=False).ids
    ]
    assert ("the model reads" in plain.err) == (single != "$A")
    assert not after or f"{' '.join(after)} after a text; --special adds them" in plain.err


def test_a_tokenizer_is_taken_as_it_is_without_truncation_padding_and_chance(
    tmp_path: Path,
) -> None:
    made = byte_level()
    whole = made.encode(PLAIN * 9).ids
    made.enable_truncation(3)
    made.enable_padding(length=500)
    document = json.loads(made.to_str())
    document["model"]["dropout"] = 0.9
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(document))
    assert opened(path).encode(PLAIN * 9).tolist() == whole


def test_it_is_named_by_its_path_its_folder_or_its_model(
    saved: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = saved("byte_level")
    snapshot = tmp_path / "models--org--name" / "snapshots" / "0123456"
    snapshot.mkdir(parents=True)
    (snapshot / "tokenizer.json").symlink_to(path)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    for name in (str(path), str(path.parent), "org/name@0123456", "name@0123456"):
        assert encodings.get(name).encode(PLAIN).tolist() == opened(path).encode(PLAIN).tolist()
    with pytest.raises(InputError, match=r"has no tokenizer\.json"):
        encodings.get(str(tmp_path))


def wordpiece(folder: Path, words: list[str], rows: np.ndarray) -> str:
    """Make a model of WordPiece in a folder, and return the folder."""
    folder.mkdir()
    made = Tokenizer(
        models.WordPiece({word: place for place, word in enumerate(words)}, unk_token="[UNK]")
    )
    made.save(str(folder / "tokenizer.json"))
    save_file({"word_embeddings.weight": rows}, folder / "model.safetensors")
    return str(folder)


def test_a_word_and_the_same_letters_within_a_word_are_two_tokens(
    in_process: InProcess, tmp_path: Path
) -> None:
    rows, words = (
        np.random.default_rng(0).standard_normal((4, 3), np.float32),
        ["[UNK]", "gas", "##gas", "x"],
    )
    base = wordpiece(tmp_path / "base", words, rows)
    tuned = wordpiece(
        tmp_path / "tuned", ["[UNK]", "##gas", "gas", "y", "x"], rows[[0, 2, 1, 1, 3]]
    )
    found = from_ndjson(in_process("diff", base, tuned, "-f", "ndjson").out)
    assert [(row["token"], row["state"]) for row in found] == [
        *((token, "equal") for token in words),
        ("y", "added"),
    ]
    lines = from_ndjson(in_process("weights", "--from", base, "-f", "ndjson").out)
    assert [row["token"] for row in lines] == words


def test_a_vocabulary_without_cls_and_sep_adds_nothing_around_a_text(tmp_path: Path) -> None:
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "hello", "wor", "##ld", "[MASK]"])
    )
    model = seeded(encoding=str(tmp_path / "vocab.txt"), dim=2)
    assert model.tokenize("Hello world[MASK]", special=True).ids.tolist() == [2, 3, 4, 5]


def test_names_of_tiktoken_come_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("gpt2", "gpt-4"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokenizer.json").write_text("{}")
        assert encodings.get(name).name in names.ENCODINGS


WORDS_WITHOUT_UNKNOWN = (
    b'{"version":"1.0","model":{"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##",'
    b'"max_input_chars_per_word":9,"vocab":{"a":0}}}'
)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not a tokenizer.json"),
        (b"{}", "it is not a tokenizer.json"),
        (b"[1]", "it is not a tokenizer.json"),
        (b"\xff\xfe", "it is not a tokenizer.json"),
        (b"[" * 10**6, "it is not a tokenizer.json"),
        (
            b'{"version":"1.0","model":{"type":"BPE","vocab":{"a":-1},"merges":[]}}',
            "it is not a tokenizer.json",
        ),
        (
            b'{"version":"9","model":{"type":"BPE","vocab":{},"merges":[]}}',
            "it is not a tokenizer.json",
        ),
        (WORDS_WITHOUT_UNKNOWN, "it cannot split this text of 2 characters"),
    ],
)
def test_what_is_no_tokenizer_is_named(
    in_process: InProcess, tmp_path: Path, content: bytes, reason: str
) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    message = in_process.refused("tokenize", "hi", "--encoding", str(path))
    assert f"cannot read {str(path)!r}: {reason}" in message


def test_a_pattern_that_never_ends_is_an_error_of_one_line(
    in_process: InProcess, tmp_path: Path
) -> None:
    made = Tokenizer(models.WordLevel({"a": 0}, "a"))
    made.pre_tokenizer = pre_tokenizers.Split(Regex("(a|aa|a)+$"), "isolated")
    made.save(str(tmp_path / "tokenizer.json"))
    told = in_process.refused(
        "tokenize", "a" * 36 + "!", "--encoding", str(tmp_path / "tokenizer.json")
    )
    assert (
        "it cannot split this text of 37 characters (Onig: Regex search error: retry-limit" in told
    )


def test_a_file_longer_than_any_is_not_read(in_process: InProcess, tmp_path: Path) -> None:
    with open(tmp_path / "tokenizer.json", "wb") as file:
        file.truncate(1 << 40)
    assert "it is too long" in in_process.refused("tokenize", "hi", "--encoding", str(tmp_path))


def test_tokens_that_gemma_adds_are_spelled_as_pieces_and_special_ones_are_not(
    tmp_path: Path,
) -> None:
    made = pieces()
    made.add_tokens([AddedToken("▁▁▁", normalized=False)])
    made.add_special_tokens([AddedToken("<▁>", normalized=False)])
    made.save(str(tmp_path / "tokenizer.json"))
    ours = opened(tmp_path / "tokenizer.json")
    added, special = (made.token_to_id(token) for token in ("▁▁▁", "<▁>"))
    assert (ours.token_bytes(added), ours.token_bytes(special)) == (b"   ", "<▁>".encode())


def test_without_the_package_the_cure_is_told(
    in_process: InProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tokenizer beside weights is left then, and this is said."""
    byte_level().save(str(tmp_path / "tokenizer.json"))
    save_file({"wte.weight": np.ones((9, 3), np.float32)}, tmp_path / "model.safetensors")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    told = in_process.refused("tokenize", "hi", "--encoding", str(tmp_path / "tokenizer.json"))
    assert told.endswith("pip install 'embcli[models]'\n")
    assert told.count("\n") == 1
    shown = in_process("weights", "--from", str(tmp_path), "--rows", "0:2", "-f", "csv")
    assert (shown.status, shown.out.count(b"\n")) == (0, 3)
    assert "pip install 'embcli[models]'" in shown.err


@pytest.fixture
def model(
    tmp_path: Path, saved: Callable[[str], Path]
) -> tuple[Path, np.ndarray, HuggingFaceEncoding]:
    """Return a model with a tokenizer of its own, two rows of padding, and GPT-2's V as bait for a guess."""
    ours = opened(saved("gpt2"))
    token = np.random.default_rng(5).standard_normal((50259, 3), np.float32)
    save_file({"wte.weight": token}, tmp_path / "model.safetensors")
    (tmp_path / "tokenizer.json").symlink_to(saved("gpt2"))
    return tmp_path, token, ours


def test_the_tokenizer_beside_the_weights_is_theirs_and_no_guess(
    in_process: InProcess, model: tuple[Path, np.ndarray, HuggingFaceEncoding]
) -> None:
    folder, token, ours = model
    done = in_process("lookup", PLAIN, "--from", str(folder), "--show", "token", "-f", "json")
    document = json.loads(done.out)
    assert document["run"]["encoding"] == str(folder / "tokenizer.json")
    assert "encoding" not in document["run"]["guesses"]
    ids = [row["id"] for row in document["tokens"]]
    assert ids == ours.encode(PLAIN).tolist()
    assert np.array_equal(np.array(document["matrices"]["token"], np.float32), token[ids])
    named = in_process.ok(
        "weights", "--from", str(folder), "--rows", "50256:", "--encoding", "gpt2", "-f", "json"
    ).out
    rows = json.loads(
        in_process.ok("weights", "--from", str(folder), "--rows", "50256:", "-f", "json").out
    )["rows"]
    assert [row["token"] for row in rows] == ["<|endoftext|>", None, None]
    assert json.loads(named)["run"]["encoding"] == "gpt2"


def test_tokenizers_is_imported_for_such_an_encoding_alone(saved: Callable[[str], Path]) -> None:
    program = "import sys\nfrom embcli.__main__ import main\nmain()\nsys.exit('tokenizers' in sys.modules)"
    for name, imported in (("gpt2", 0), (str(saved("byte_level")), 1)):
        run: list[Any] = [sys.executable, "-c", program, "tokenize", "hi", "--encoding", name]
        assert (
            subprocess.run(run, input=b"", capture_output=True, timeout=60, check=False).returncode
            == imported
        )


def test_threads_share_a_tokenizer(saved: Callable[[str], Path]) -> None:
    """With and without special tokens, which the package sets for a whole tokenizer; standard error stays open."""
    ours = opened(saved("gpt2"))
    cases = [
        (f"{'<|endoftext|>' * (place % 3)}text {place}", bool(place % 2)) for place in range(400)
    ]
    alone = [ours.encode(*case).tolist() for case in cases]
    standard_error = os.fstat(2)
    with ThreadPoolExecutor(8) as pool:
        together = [ids.tolist() for ids in pool.map(lambda case: ours.encode(*case), cases)]
    assert together == alone
    assert (os.fstat(2).st_dev, os.fstat(2).st_ino) == (
        standard_error.st_dev,
        standard_error.st_ino,
    )
