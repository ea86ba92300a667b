"""Vocabularies in other files: tiktoken's and Mistral's ranks, GPT-2's two files, BERT's list of tokens."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from pathlib import Path

import pytest
import tiktoken
from tokenizers import BertWordPieceTokenizer, Tokenizer, models

from embcli import encodings
from embcli.encodings.huggingface import HuggingFaceEncoding
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.errors import InputError
from embcli.hub import TOKENIZERS, tokenizer_file
from tests.runners import InProcess, Process
from tests.test_vocabularies import (
    CUTS,
    MERGES,
    PIECE_KINDS,
    PIECES,
    SCORES,
    WORDS,
    bytes_level,
    ids_of,
    merged,
    texts,
    trie,
)

RANKS = {bytes([byte]): byte for byte in range(256)}
RANKS |= {
    word: 256 + place
    for place, word in enumerate([b"ab", b" a", b"aa", b"aab", b"\n\n", "é".encode(), b" ab"])
}
TEXTS = texts(200)


def listed(path: Path, first: int = 0) -> Path:
    lines = [b"%b %d\n" % (b64encode(word), rank + first) for word, rank in RANKS.items()]
    path.write_bytes(b"".join(lines))
    return path


def same_as(oracle: tiktoken.Encoding, path: Path, special: bool = False) -> None:
    encoding = encodings.get(str(path))
    for text in TEXTS:
        ids = encoding.encode(text, special)
        wanted = oracle.encode(
            text, allowed_special="all" if special else set(), disallowed_special=()
        )
        assert ids.tolist() == wanted, text
        assert encoding.decode(ids) == text.encode()
    assert encoding.vocabulary_size == oracle.n_vocab
    assert [encoding.token_bytes(each) for each in range(5)] == [
        oracle.decode_single_token_bytes(each) for each in range(5)
    ]


def test_tokens_by_rank_are_merged_as_tiktoken_merges_them(
    in_process: InProcess, tmp_path: Path
) -> None:
    path, known = listed(tmp_path / "cl100k_base.tiktoken"), DEFINITIONS["cl100k_base"]
    special = known.special_tokens
    oracle = tiktoken.Encoding(
        "own", pat_str=known.pattern, mergeable_ranks=RANKS, special_tokens=special
    )
    same_as(oracle, path)
    same_as(oracle, path, True)
    assert encodings.get(str(path)).encode("<|endoftext|>", True).tolist() == [100257]
    other = str(listed(tmp_path / "own.tiktoken"))
    assert "nothing else tells how it splits a text" in in_process.refused(
        "tokenize", "a", "--encoding", other
    )


def tekken(path: Path, **changed: object) -> str:
    """Write a tekken.json of all bytes."""
    config = {"pattern": ".", "default_vocab_size": 258, "default_num_special_tokens": 2} | changed
    vocab = [
        {"rank": byte, "token_bytes": b64encode(bytes([byte])).decode()} for byte in range(256)
    ]
    path.write_text(json.dumps({"config": config, "vocab": vocab}).replace("Infinity", "1e999"))
    return str(path)


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"pattern": "("}, "cannot split this text of 41 characters: Parsing error"),
        ({"pattern": "(a|aa|a)+$(?!b)"}, "Max limit for backtracking count exceeded"),
        ({"default_vocab_size": float("inf")}, "it is not a tekken.json"),
        ({"default_num_special_tokens": -1}, "a rank that no vocabulary has"),
    ],
)
def test_a_hostile_tekken_is_refused_in_a_sentence(
    in_process: InProcess, tmp_path: Path, changed: dict[str, object], told: str
) -> None:
    path = tekken(tmp_path / "tekken.json", **changed)
    for merges in ((), ("--merges",)):
        assert told in in_process.refused("tokenize", "a" * 40 + "!", *merges, "--encoding", path)


def test_a_tekken_without_some_bytes_is_refused_in_a_sentence(
    process: Process, tmp_path: Path
) -> None:
    path = tekken(tmp_path / "tekken.json", default_vocab_size=100)
    told = process.refused(
        "tokenize", "é", "--encoding", path, RUST_BACKTRACE="1"
    )  # tiktoken panics, and writes a trace
    assert told.count("\n") == 1
    assert "it cannot split this text of 1 characters" in told


def test_the_ids_of_tekken_follow_its_special_tokens(tmp_path: Path) -> None:
    config = {"pattern": CUTS, "default_vocab_size": 263, "default_num_special_tokens": 3}
    vocab = [
        {"rank": rank, "token_bytes": b64encode(word).decode()} for word, rank in RANKS.items()
    ]
    special = [{"rank": 1, "token_str": "<s>", "is_control": True}]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": vocab, "special_tokens": special}))
    kept = {word: rank + 3 for word, rank in RANKS.items() if rank < 260}
    names = {"<SPECIAL_0>": 0, "<s>": 1, "<SPECIAL_2>": 2}
    for special_too in (False, True):
        oracle = tiktoken.Encoding("own", pat_str=CUTS, mergeable_ranks=kept, special_tokens=names)
        same_as(oracle, path, special_too)
    assert encodings.get(str(path)).encode("a<s>b", True).tolist() == [
        ord("a") + 3,
        1,
        ord("b") + 3,
    ]


@pytest.mark.parametrize("count", [2, 4_000_000])
def test_a_tekken_with_odd_special_tokens_is_read_or_refused(tmp_path: Path, count: int) -> None:
    config = {"pattern": CUTS, "default_vocab_size": count, "default_num_special_tokens": count}
    special = [{"rank": 0, "token_str": ""}, {"rank": 1, "token_str": "\ud800", "is_control": True}]
    path = tmp_path / "tekken.json"
    path.write_text(json.dumps({"config": config, "vocab": [], "special_tokens": special}))
    if count == 2:
        encoding = encodings.get(str(path))
        assert encoding.definition.special_tokens == {"<SPECIAL_0>": 0, "<SPECIAL_1>": 1}
        assert encoding.vocabulary_size == 2
        return
    with pytest.raises(InputError, match="it promises 4,000,000 special tokens"):
        encodings.get(str(path)).encode("a")


def test_the_two_files_of_gpt2_are_one_encoding(in_process: InProcess, tmp_path: Path) -> None:
    (tmp_path / "vocab.json").write_text(
        json.dumps({word: place for place, word in enumerate(WORDS)})
    )
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]))
    told = in_process.refused("tokenize", "a", "--encoding", str(tmp_path / "vocab.json"))
    assert "names a tokenizer that embcli knows, so it cannot split a text" in told
    (tmp_path / "tokenizer_config.json").write_text('{"tokenizer_class": "GPT2TokenizerFast"}')
    encoding, oracle = encodings.get(f"{tmp_path}/./vocab.json"), bytes_level(False, None)
    for text in TEXTS:
        ids = encoding.encode(text)
        assert ids.tolist() == oracle.encode(text).ids, text
        assert encoding.decode(ids) == text.encode()
    assert encoding.token_bytes(len(WORDS)) is None
    for wrong in ('{"a": "b"}', '{"a": 9999999999}'):
        (tmp_path / "vocab.json").write_text(wrong)
        with pytest.raises(InputError, match=r"it is not a vocab.json with a merges.txt \("):
            HuggingFaceEncoding(tmp_path / "vocab.json", "own").encode("a")


@pytest.mark.parametrize("lowers", [True, False])
def test_a_list_of_tokens_is_berts(tmp_path: Path, lowers: bool) -> None:
    words = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "ab",
        "##b",
        "##a",
        "a",
        "b",
        "!",
        "'",
        "A",
        "日",
        "1",
        "##1",
        "##é",
    ]
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowers}))
    encoding = encodings.get(f"{tmp_path}/vocab.txt")
    oracle = BertWordPieceTokenizer(
        {word: place for place, word in enumerate(words)}, lowercase=lowers
    )
    for text in TEXTS:
        assert (
            encoding.encode(text).tolist() == oracle.encode(text, add_special_tokens=False).ids
        ), text
    assert (encoding.vocabulary_size, encoding.token_bytes(5), encoding.entry(5)) == (
        16,
        b"b",
        b"##b",
    )
    assert encoding.bos_eos == ((2,), (3,))


def test_a_folder_says_which_file_it_has(tmp_path: Path) -> None:
    for name in ("m.gguf", *reversed(TOKENIZERS)):
        (tmp_path / name.replace("*", "own")).touch()
        assert tokenizer_file(tmp_path).name == name.replace("*", "own")


def message(*fields: tuple[int, int | float | bytes]) -> bytes:
    """Return a message of a protocol buffer; numbers of a field are below 128."""
    data = b""
    for number, value in fields:
        kind = 2 if isinstance(value, bytes) else 5 if isinstance(value, float) else 0
        key = number << 3 | kind
        data += bytes([key & 0x7F | 0x80, key >> 7])
        if isinstance(value, bytes):
            length = len(value)
            data += bytes([length & 0x7F | 0x80, length >> 7 & 0x7F | 0x80, length >> 14]) + value
        else:
            data += struct.pack("<f", value) if isinstance(value, float) else bytes([value])
    return data


def sentencepiece(
    path: Path,
    kind: int,
    scored: list[tuple[str, float, int]],
    *normalizer: tuple[int, int | bytes],
    by_bytes: bool = False,
) -> str:
    pieces = [
        (1, message((1, word.encode()), (2, score), (3, each))) for word, score, each in scored
    ]
    trainer = message((3, kind), (35, int(by_bytes)))
    path.write_bytes(message(*pieces, (2, trainer), (3, message(*normalizer))))
    return str(path)


@pytest.mark.parametrize("joins", [False, True])
def test_the_pieces_of_a_sentencepiece_model_are_merged_by_score(
    tmp_path: Path, joins: bool
) -> None:
    scored = list(zip(PIECES, SCORES, PIECE_KINDS, strict=True))
    path = sentencepiece(
        *(
            tmp_path / "tokenizer.model",
            2,
            scored,
            (4, int(joins)),
            (2, trie({"A": "a", "e\u0301": "é"})),
        ),
        by_bytes=True,
    )
    encoding, scores = encodings.get(path), dict(zip(PIECES, SCORES, strict=True))

    def lowness(left: str, right: str) -> float | None:
        return -scores[left + right] if left + right in scores else None

    for text in texts(200, "aaAbb!! e\u0301éx\n"):
        normal = text.replace("A", "a").replace("e\u0301", "é")
        words = normal.split(" ") if not joins else [word for word in normal.split(" ") if word]
        spelled = "▁" + "▁".join(words) if normal and words else ""
        parts = merged(list(spelled), lowness)
        assert encoding.encode(text).tolist() == [
            each for part in parts for each in ids_of(part, PIECES)
        ], text
        spans = encoding.spans(text)
        within = {place for start, end in spans.tolist() for place in range(start, end)}
        assert {text[place] for place in {*range(len(text))} - within} <= (
            {" "} if joins else {*""}
        ), text
    assert encoding.encode("a<tool>b", True).tolist() == [
        PIECES.index(each) for each in ("▁a", "<tool>", "b")
    ]
    assert encoding.decode(encoding.encode("ab a")) == b"ab a"
    assert encoding.token_bytes(len(PIECES)) is encoding.token_bytes(-1) is None


@pytest.mark.parametrize(
    ("kind", "config", "around"),
    [
        (2, {}, ((1,), ())),  # as transformers' LlamaTokenizer, unless told otherwise
        (2, {"add_bos_token": False, "add_eos_token": True}, ((), (2,))),
        (1, {}, ((), ())),
        (1, {"tokenizer_class": "T5TokenizerFast"}, ((), (2,))),
    ],
)
def test_a_sentencepiece_model_gets_bos_and_eos_as_its_config_says(
    in_process: InProcess,
    tmp_path: Path,
    kind: int,
    config: dict[str, object],
    around: tuple[tuple[int, ...], ...],
) -> None:
    scored = list(zip(PIECES, SCORES, PIECE_KINDS, strict=True))
    path = sentencepiece(tmp_path / "tokenizer.model", kind, scored, by_bytes=True)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    before, after = around
    ids = in_process.ok(
        "tokenize", "ab a", "--special", "--encoding", path, "-f", "ids"
    ).out.split()
    plain = in_process("tokenize", "ab a", "--encoding", path, "-f", "ids")
    assert [*map(int, ids)] == [*before, *map(int, plain.out.split()), *after]
    assert ("--special adds them" in plain.err) == any(around)


def test_bos_and_eos_of_a_sentencepiece_model_can_have_the_id_0(tmp_path: Path) -> None:
    (tmp_path / "tokenizer_config.json").write_text(
        '{"add_bos_token": true, "add_eos_token": true}'
    )
    scored = list(zip(PIECES, SCORES, PIECE_KINDS, strict=True))
    for name, ids in (("<s>", ((0,), (2,))), ("</s>", ((2,), (0,)))):
        ordered = sorted(scored, key=lambda each: each[0] != name)
        path = sentencepiece(tmp_path / f"{len(name)}.model", 2, ordered, by_bytes=True)
        assert encodings.get(path).bos_eos == ids


def test_a_unigram_model_may_spell_unknown_characters_by_their_bytes(tmp_path: Path) -> None:
    words = [
        ("<unk>", 0.0, 2),
        ("▁", -2.0, 1),
        ("▁a", -1.5, 1),
        ("a", -2.5, 1),
        ("b", -2.25, 1),
        ("ab", -3.0, 1),
    ]
    words += [(f"<0x{byte:02X}>", 0.0, 6) for byte in range(256)]
    path = sentencepiece(tmp_path / "tokenizer.model", 1, words, by_bytes=True)
    encoding = encodings.get(path)
    oracle = Tokenizer(
        models.Unigram([(word, score) for word, score, _ in words], unk_id=0, byte_fallback=True)
    )
    for text in texts(200, "aabbéé 日\n"):
        spelled = "".join(f"▁{word}" for word in text.split(" ") if word)
        ids = encoding.encode(text)
        assert ids.tolist() == oracle.encode(spelled).ids, text
        assert encoding.decode(ids).decode() == spelled[1:].replace("▁", " ")
        spans = encoding.spans(text)
        assert len(spans) == len(ids)
    of_bytes = encoding.spans("a日")
    assert of_bytes.tolist()[-3:] == [[1, 2]] * 3
    fewer = encodings.get(sentencepiece(tmp_path / "fewer.model", 1, words[:-1], by_bytes=True))
    with pytest.raises(InputError, match="there are not 256 byte pieces"):
        fewer.encode("a")


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("gpt2.tiktoken", "YQ==", "not a file of tokens and ranks"),
        ("gpt2.tiktoken", "YQ== x", "not a file of tokens and ranks"),
        ("gpt2.tiktoken", "YQ== -1", "a rank that no vocabulary has"),
        ("tekken.json", "{}", "it is not a tekken.json"),
        ("tekken.json", "[]", "is not an object"),
        ("vocab.json", '{"a": 1}', "nor config.json|or config.json"),
        ("vocab.txt", "\udcff", "it is not a vocab.txt"),
        ("tokenizer.model", "x", "it is not a SentencePiece model"),
        *(
            ("tokenizer.model", each, "it is not a SentencePiece model")
            for each in ("", "\x0a\x7fa", "\x0b\x01a")
        ),
        ("tokenizer.model", "\x0a\x03\x0a\x01a", "it has no unknown token"),
        ("tokenizer.model", "\x0a\x03\x0a\x01a\x12\x02\x18\x04", "a kind of SentencePiece model"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, name: str, content: str, told: str) -> None:
    (tmp_path / name).write_text(content, errors="surrogateescape")
    with pytest.raises(InputError, match=told):
        encodings.get(str(tmp_path / name)).encode("a")
