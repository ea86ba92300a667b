"""Tokenizers in other files than a GGUF or a tokenizer.json split a text as their own programs do.

These are tiktoken's ranks, tekken.json, vocab.json with merges.txt, vocab.txt, and tokenizer.model.
"""

from __future__ import annotations

import json
import re
from base64 import b64encode
from pathlib import Path
from random import Random

import numpy as np
import pytest
import tiktoken
from sentencepiece import SentencePieceProcessor
from sentencepiece.sentencepiece_model_pb2 import ModelProto
from tokenizers import BertWordPieceTokenizer, Tokenizer, models

from embcli import encodings
from embcli.encodings.tiktoken import DEFINITIONS
from embcli.errors import InputError, Notes
from embcli.hub.local import OF_TOKENIZER, TOKENIZERS
from tests.cases import cases, data
from tests.files.made import numbered
from tests.test_vocabularies import (
    BYTE,
    BYTE_TOKENS,
    CONTROL,
    CUTS,
    MERGES,
    NORMAL,
    PIECE_KINDS,
    PIECES,
    SCORES,
    UNKNOWN,
    WORDS,
    assert_ids,
    bytes_level,
    character_map,
    merged_by_score,
    texts,
)

BYTES = [bytes([byte]) for byte in range(256)]
TOKENS = [*BYTES, b"ab", b" a", b"aa", b"aab", b"\n\n", "é".encode(), b" ab"]
RANKS = {token: rank for rank, token in enumerate(TOKENS)}
TEXTS = texts(200)

# --- tiktoken's ranks -----------------------------------------------------------------------------


def assert_same_as(oracle: tiktoken.Encoding, path: Path) -> None:
    """Hold the encoding of a file against tiktoken's, without and with special tokens."""
    encoding = encodings.get(str(path))
    for text in [*TEXTS, "a<s>b", "a<|endoftext|>"]:
        for allowed in (set(), oracle.special_tokens_set):
            ids = encoding.encode(text, allowed != set())
            expected = oracle.encode(text, allowed_special=allowed, disallowed_special=())
            assert ids.tolist() == expected, text
            assert encoding.decode(ids) == text.encode()

    assert encoding.vocabulary_size == oracle.n_vocab
    for token_id in range(5):
        assert encoding.token_bytes(token_id) == oracle.decode_single_token_bytes(token_id)


def test_tokens_by_rank_are_merged_as_tiktoken_merges_them(tmp_path):
    path = tmp_path / "cl100k_base.tiktoken"
    lines = [b"%b %d\n" % (b64encode(token), rank) for token, rank in RANKS.items()]
    path.write_bytes(b"".join(lines))
    known = DEFINITIONS["cl100k_base"]
    oracle = tiktoken.Encoding(
        "own",
        pat_str=known.pattern,
        mergeable_ranks=RANKS,
        special_tokens=known.special_tokens,
    )

    assert_same_as(oracle, path)


# --- tekken.json ----------------------------------------------------------------------------------


SPECIAL = [{"rank": 1, "token_str": "<s>", "is_control": True}]


def tekken(
    path: Path, tokens: list[bytes], special: list[dict[str, object]] = SPECIAL, **changed: object
) -> str:
    """Write a tekken.json with room for 2 special tokens; `changed` are keys of its config."""
    config = {"pattern": ".", "default_vocab_size": 258, "default_num_special_tokens": 2} | changed
    vocab = []
    for rank, token in enumerate(tokens):
        vocab.append({"rank": rank, "token_bytes": b64encode(token).decode()})
    document = json.dumps({"config": config, "vocab": vocab, "special_tokens": special})
    path.write_text(document.replace("Infinity", "1e999"))
    return str(path)


def test_the_ids_of_tekken_follow_its_special_tokens(tmp_path):
    path = tmp_path / "tekken.json"
    tekken(path, TOKENS, pattern=CUTS, default_vocab_size=263, default_num_special_tokens=3)
    oracle = tiktoken.Encoding(
        "own",
        pat_str=CUTS,
        mergeable_ranks={token: rank + 3 for rank, token in enumerate(TOKENS[:260])},
        special_tokens={"<SPECIAL_0>": 0, "<s>": 1, "<SPECIAL_2>": 2},
    )

    assert_same_as(oracle, path)


@cases
def test_a_hostile_tekken_is_refused_in_a_sentence(in_process, tmp_path, changed, word):
    path = tekken(tmp_path / "tekken.json", BYTES, **changed)

    words = ("tokenize", "a" * 40 + "!", "--encoding", path)
    assert word in in_process.refused(*words)
    assert word in in_process.refused(*words, "--merges")


def test_a_tekken_without_some_bytes_is_refused_in_a_sentence(process, tmp_path):
    path = tekken(tmp_path / "tekken.json", BYTES, default_vocab_size=100)

    # tiktoken panics, and writes a trace.
    error = process.refused("tokenize", "é", "--encoding", path, RUST_BACKTRACE="1")
    assert error.count("\n") == 1
    assert "cannot split" in error


def test_odd_special_tokens_of_a_tekken_get_names(tmp_path):
    nameless = {"rank": 0, "token_str": ""}
    surrogate = {"rank": 1, "token_str": "\ud800", "is_control": True}
    path = tekken(tmp_path / "tekken.json", [], [nameless, surrogate], default_vocab_size=2)
    encoding = encodings.get(path)

    assert encoding.definition.special_tokens == {"<SPECIAL_0>": 0, r"\ud800": 1}


# --- vocab.json with merges.txt, vocab.txt --------------------------------------------------------


def opened(path: str | Path) -> tuple[encodings.Encoding, list[str]]:
    """Return the encoding of a file, and what is noted of it."""
    notes = Notes()
    return encodings.get(path, notes), [*notes]


@pytest.mark.parametrize(
    ("name", "merges"), [("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe")]
)
def test_the_two_files_of_gpt2_are_one_encoding(tmp_path, name, merges):
    ids = numbered([*WORDS, "</s>"])
    path = tmp_path / name
    path.write_text(json.dumps(ids))
    path.with_name(merges).write_text("\n".join(["#version: 0.2", *MERGES, ""]))
    encoding, notes = opened(path)
    oracle = bytes_level(False, None)

    for text in [*TEXTS, "a</s>a"]:
        expected = oracle.encode(text).ids
        assert_ids(encoding, text, expected)
        # Nothing says which tokens are special.
        assert encoding.encode(text, special=True).tolist() == expected
    assert encoding.vocabulary_size == len(ids)
    assert encoding.token_bytes(len(ids)) is None
    assert notes == [f"no config.json beside {name} says more of it: it is read as GPT-2's"]


@cases
def test_two_files_that_are_no_encoding_are_refused(tmp_path, vocabulary, merges, word):
    (tmp_path / "vocab.json").write_text(vocabulary)
    (tmp_path / merges).write_text("#version: 0.2\n")

    with pytest.raises(InputError, match=word):
        encodings.get(tmp_path).encode("a")


def test_a_lone_list_of_tokens_is_berts_in_lower_case(tmp_path):
    listed = "[PAD] [UNK] [CLS] [SEP] ab ##b ##a a b ! ' A 日 1 ##1 ##é"
    words = listed.split()
    (tmp_path / "vocab.txt").write_text("\n".join(words) + "\n")
    encoding, notes = opened(f"{tmp_path}/vocab.txt")
    ids = numbered(words)
    oracle = BertWordPieceTokenizer(ids, lowercase=True)

    for text in TEXTS:
        expected = oracle.encode(text, add_special_tokens=False)
        assert encoding.encode(text).tolist() == expected.ids, text
    assert encoding.vocabulary_size == len(words)
    assert encoding.token_bytes(5) == b"##b"
    assert encoding.bos_eos == ((2,), (3,))
    told = "it is read as BERT's, in lower case"
    assert notes == [f"no config.json beside vocab.txt says more of it: {told}"]


def test_a_folder_says_which_file_it_has(tmp_path):
    for pattern in ("m.gguf", *reversed(TOKENIZERS)):
        name = pattern.replace("*", "own")
        (tmp_path / name).touch()
        assert OF_TOKENIZER.file_in(tmp_path).name == name


# --- tokenizer.model ------------------------------------------------------------------------------

UNIGRAM_MODEL = 1
PAIR_MODEL = 2
SCORED = [*zip(PIECES, SCORES, PIECE_KINDS, strict=True)]


def sentencepiece(
    folder: Path,
    kind: int,
    scored: list[tuple[str, float, int]],
    by_bytes: bool = True,
    **normalizer: bool | bytes,
) -> str:
    """Write a tokenizer.model of (piece, score, type); return the path."""
    model = ModelProto(normalizer_spec=normalizer)
    for word, score, piece_kind in scored:
        model.pieces.add(piece=word, score=score, type=piece_kind)
    model.trainer_spec.model_type = kind
    model.trainer_spec.byte_fallback = by_bytes
    path = folder / "tokenizer.model"
    path.write_bytes(model.SerializeToString())
    return str(path)


def spelled(text: str, joins: bool) -> str:
    """Return a text as SentencePiece spells it, with a space before it; `joins` drops others."""
    if joins:
        return "".join(f"▁{word}" for word in re.findall("[^ ]+", text))
    return re.sub("^(?=.)", "▁", text, flags=re.DOTALL).replace(" ", "▁")


@pytest.mark.parametrize("joins", [False, True])
def test_the_pieces_of_a_sentencepiece_model_are_merged_by_score(tmp_path, joins):
    path = sentencepiece(
        tmp_path,
        PAIR_MODEL,
        SCORED,
        remove_extra_whitespaces=joins,
        precompiled_charsmap=character_map({"A": "a", "e\u0301": "é"}),
    )
    encoding = encodings.get(path)

    for text in texts(200, "aaAbb!! e\u0301éx\n"):
        normal = text.replace("A", "a").replace("e\u0301", "é")
        expected = merged_by_score(spelled(normal, joins))
        assert encoding.encode(text).tolist() == expected, text

        uncovered = [*text]
        for start, end in encoding.spans(text).tolist():
            uncovered[start:end] = [""] * (end - start)
        dropped = " " if joins else ""
        assert "".join(uncovered).strip(dropped) == "", text


def test_a_sentencepiece_model_finds_named_tokens(tmp_path):
    encoding = encodings.get(sentencepiece(tmp_path, PAIR_MODEL, SCORED))

    ids = encoding.encode("a<tool>b", True)
    assert [PIECES[token_id] for token_id in ids] == ["▁a", "<tool>", "b"]
    assert encoding.token_bytes(len(PIECES)) is None
    assert encoding.token_bytes(-1) is None


@cases
def test_a_lone_sentencepiece_model_has_bos_if_it_merges_pairs(tmp_path, kind, first, around):
    ordered = sorted(SCORED, key=lambda piece: piece[0] != first)
    encoding, notes = opened(sentencepiece(tmp_path, kind, ordered))

    assert [*map(list, encoding.bos_eos)] == around
    told = "a model can shift its IDs"
    assert notes == [f"no config.json beside tokenizer.model says more of it: {told}"]


UNIGRAMS = [
    ("<unk>", 0.0, UNKNOWN),
    ("▁", -2.0, NORMAL),
    ("▁a", -1.5, NORMAL),
    ("a", -2.5, NORMAL),
    ("b", -2.25, NORMAL),
    ("ab", -3.0, NORMAL),
    *((token, 0.0, BYTE) for token in BYTE_TOKENS),
]


def test_a_unigram_model_may_spell_unknown_characters_by_their_bytes(tmp_path):
    encoding = encodings.get(sentencepiece(tmp_path, UNIGRAM_MODEL, UNIGRAMS))
    scores = [(word, score) for word, score, _ in UNIGRAMS]
    oracle = Tokenizer(models.Unigram(scores, unk_id=0, byte_fallback=True))

    for text in texts(200, "aabbéé 日\n"):
        joined = spelled(text, joins=True)
        ids = encoding.encode(text)
        assert ids.tolist() == oracle.encode(joined).ids, text
        assert encoding.decode(ids).decode() == joined[1:].replace("▁", " ")
        assert len(encoding.spans(text)) == len(ids)
    assert encoding.spans("a日").tolist()[-3:] == [[1, 2]] * 3


# Without tokens of bytes, unknown characters are one unknown token.
WITHOUT_BYTES = [
    *UNIGRAMS[:6],
    ("▁▁", -2.5, NORMAL),
    ("▁▁a", -2.6, NORMAL),
    ("</s>", 0.0, CONTROL),
]
WITH_BYTES = [*UNIGRAMS, *WITHOUT_BYTES[6:]]


@pytest.mark.parametrize("joins", [False, True])
@pytest.mark.parametrize("leads", [False, True])
@pytest.mark.parametrize("scored", [WITH_BYTES, WITHOUT_BYTES])
@pytest.mark.parametrize("kind", [PAIR_MODEL, UNIGRAM_MODEL])
def test_ids_decode_as_sentencepiece_decodes_them(tmp_path, kind, scored, leads, joins):
    spaces = {"add_dummy_prefix": leads, "remove_extra_whitespaces": joins}
    path = sentencepiece(tmp_path, kind, scored, scored is WITH_BYTES, **spaces)
    encoding = encodings.get(path)
    oracle = SentencePieceProcessor(model_file=path)
    words = [word for word, *_ in scored]
    # A byte is not one of these, and </s>, of which the package shows nothing, can come first.
    whole = [words.index(word) for word in words if not word.startswith(("<0x", "</s>"))]
    random = Random(0)

    all_ids = [oracle.encode(text) for text in texts(200, "aab   é日!")]
    for _ in range(200):
        all_ids.append(random.choices(whole, k=random.randrange(1, 7)))
    for ids in all_ids:
        expected = oracle.decode(ids).replace(" ⁇ ", "<unk>")
        end = [words.index("</s>")]
        assert encoding.decode(np.array(ids, np.uint32)).decode() == expected, ids
        assert encoding.decode(np.array(end + ids, np.uint32)).decode() == f"</s>{expected}", ids


def test_a_unigram_model_that_spells_by_bytes_has_all_of_them(tmp_path):
    path = sentencepiece(tmp_path, UNIGRAM_MODEL, UNIGRAMS[:-1])

    with pytest.raises(InputError, match="256 byte pieces"):
        encodings.get(path).encode("a")


# --- what is refused ------------------------------------------------------------------------------

DAMAGED = data(__name__)["damaged"]


def test_damaged_files_are_refused(in_process, tmp_path, monkeypatch, snapshot):
    monkeypatch.chdir(tmp_path)
    errors = ""
    for number, (name, content) in enumerate(DAMAGED, 1):
        path = Path(f"damaged-{number}") / name
        path.parent.mkdir()
        path.write_text(content, errors="surrogateescape")
        errors += f"{name}: {content!a}\n"
        errors += in_process.refused("tokenize", "a", "--encoding", str(path))

    snapshot("tokenize/errors-of-tokenizer-files.txt", errors)
