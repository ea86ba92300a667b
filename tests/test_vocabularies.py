"""A GGUF's own vocabulary splits a text as the rules of its type say: against `tokenizers`, and against slow loops."""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from embcli import encodings
from embcli.encodings.merging import bytes_of
from embcli.encodings.pieces import Unigrams
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from tests.files.made import closed
from tests.runners import InProcess

NORMAL, UNKNOWN, CONTROL, ADDED, BYTE = 1, 2, 3, 4, 6
CHARACTERS = {
    byte: each
    for each in pre_tokenizers.ByteLevel.alphabet()
    for byte in bytes_of(each.encode()) or ()
}
CUTS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
TEXTS = [
    "",
    " ",
    "  a",
    "a ",
    "ab  ab\n\n b",
    "it's 12345 années",
    "\t\r\n x",
    "日本 語\u3000é!?",
    "a\u0301b\0c",
    "🎉🎉 x",
]


def texts(count: int, letters: str = "aabbc  \n'sé1日!", seed: int = 0) -> list[str]:
    random = Random(seed)
    return [
        *TEXTS,
        *("".join(random.choices(letters, k=random.randrange(1, 40))) for _ in range(count)),
    ]


def written(
    path: Path,
    model: str,
    words: list[str],
    *,
    kinds: list[int] | None = None,
    rows: int = 0,
    **rest: object,
) -> str:
    """Write a vocabulary, and a row for each token; `rest` are other keys of the tokenizer: scores, merges, pre ..."""
    writer = GGUFWriter(path, "llama")
    writer.add_embedding_length(2)
    writer.add_tokenizer_model(model)
    writer.add_token_list(words)
    writer.add_token_types(kinds or [NORMAL] * len(words))
    for name, value in rest.items():
        key = "general.name" if name == "name" else f"tokenizer.ggml.{name}"
        if isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, int):
            writer.add_uint32(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        else:
            writer.add_array(key, value)
    writer.add_tensor(
        "token_embd.weight", np.arange(2.0 * (rows or len(words)), dtype=np.float32).reshape(-1, 2)
    )
    return str(closed(writer))


def merged(parts: list[str], value: Callable[[str, str], float | None]) -> list[str]:
    """Join two neighbours with the least value, the first such pair, until none has one: as slow as it is obvious."""
    while True:
        values = [(value(*pair), place) for place, pair in enumerate(pairwise(parts))]
        known = [each for each in values if each[0] is not None]
        if not known:
            return parts
        place = min(known)[1]
        parts = [*parts[:place], parts[place] + parts[place + 1], *parts[place + 2 :]]


def ids_of(part: str, words: list[str]) -> list[int]:
    """Return the ID of a token, or of its bytes."""
    return (
        [words.index(part)]
        if part in words
        else [words.index(f"<0x{byte:02X}>") for byte in part.encode()]
    )


# --- byte-pair encoding -----------------------------------------------------------------------------------------------

PAIRS = [
    ("a", "a"),
    ("b", "a"),
    ("aa", "b"),
    ("Ġ", "a"),
    ("a", "b"),
    ("'", "s"),
    ("Ġ", "Ġ"),
    ("Ġa", "b"),
    ("ab", "ab"),
]
PAIRS += [("Ã", "©"), ("1", "2"), ("12", "3"), ("b", "c"), ("Ċ", "Ċ"), ("a", "bc")]
MERGES = [" ".join(pair) for pair in PAIRS]
WORDS = [
    *CHARACTERS.values(),
    *dict.fromkeys("".join(pair) for pair in PAIRS),
    "cab",
    "<|end|>",
    "<eos>",
]
KINDS = [NORMAL] * (len(WORDS) - 2) + [ADDED, CONTROL]


def bytes_level(ignore_merges: bool, pattern: str | None) -> Tokenizer:
    tokenizer = Tokenizer(
        models.BPE({word: at for at, word in enumerate(WORDS)}, PAIRS, ignore_merges=ignore_merges)
    )
    level = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)
    cuts = [pre_tokenizers.Split(Regex(pattern), "isolated")] if pattern else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*cuts, level])
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize(
    ("pre", "ignores", "pattern"), [("gpt-2", False, None), ("llama-bpe", True, CUTS)]
)
def test_pairs_of_bytes_are_merged_as_tokenizers_merges_them(
    tmp_path: Path, pre: str, ignores: bool, pattern: str | None
) -> None:
    stray = [
        "é",
        " a",
    ]  # these are not spelled by the characters of bytes, so no text has them; the first merge counts
    merges, kinds = [*MERGES, "x", MERGES[0]], [*KINDS, NORMAL, NORMAL]
    path = written(
        tmp_path / "m.gguf", "gpt2", [*WORDS, *stray], kinds=kinds, merges=merges, pre=pre
    )
    encoding = encodings.get(path)
    oracle = bytes_level(ignores, pattern)
    for text in [*texts(300), "cab", "a\ncab"]:  # no merges lead to this token
        ids = encoding.encode(text)
        assert ids.tolist() == oracle.encode(text).ids, text
        assert encoding.decode(ids) == text.encode()
        assert [*map(tuple, encoding.spans(text).tolist())] == oracle.encode(text).offsets, text
    long = "ab" * 3000 + "aab" * 500  # by a heap
    assert encoding.encode(long).tolist() == oracle.encode(long).ids
    assert len(encoding.encode("a" * 40_000)) == 20_000


def test_escaped_spaces_are_merged_within_lines(tmp_path: Path) -> None:
    pairs = [("▁", "▁"), ("a", "▁"), ("a▁", "b"), ("▁", "b"), ("b", "b"), ("▁▁", "b")]
    singles = [*"ab▁!", "\n", "\n\n", *("".join(pair) for pair in pairs)]
    words = [*singles, *(f"<0x{byte:02X}>" for byte in range(256))]
    path = written(
        tmp_path / "m.gguf",
        "gemma4",
        words,
        merges=[" ".join(pair) for pair in pairs],
        bos_token_id=0,
    )
    encoding = encodings.get(path)
    ranks = {pair: rank for rank, pair in enumerate(pairs)}
    for text in texts(300, "aab   bc\n"):
        ids: list[int] = []
        for line in re.findall("[^\n]+|\n+", text.replace(" ", "▁")):
            is_kept = line in words and not line.strip("\n")
            for part in [line] if is_kept else merged(list(line), lambda *pair: ranks.get(pair)):
                ids += ids_of(part, words)
        assert encoding.encode(text).tolist() == ids, text
        assert encoding.decode(encoding.encode(text)) == text.encode()


def test_each_rule_keeps_the_whole_text() -> None:
    everything = (
        "'S't 12345678 ٣٤ Ab aB Éé  \n\r\n\t\x0b\xa0\u3000你好々カナ한กัह\u093f。、…!?"
        "<sentinel:7>IMGIMGABZ\U000e0001\0"
    )
    random = Random(1)
    for name, splitting in splittings().items():
        for _ in range(20):
            text = "".join(random.choices(everything, k=60))
            assert "".join(splitting.pieces(text)) == text, name
            assert all(splitting.pieces(text))


@pytest.mark.parametrize(
    ("name", "text", "pieces"),
    [
        ("gpt-2", "it's  12345!", ["it", "'s", " ", " 12345", "!"]),
        ("starcoder", "a 123", ["a", " ", "1", "2", "3"]),
        ("llama-bpe", "it'S 12345\n\n x", ["it", "'S", " ", "123", "45", "\n\n", " x"]),
        ("qwen2", "x123", ["x", "1", "2", "3"]),
        ("qwen35", "e\u0301a", ["e\u0301a"]),
        ("tekken", "camelCase XMLHttp", ["camel", "Case", " XMLHttp"]),
        ("gpt-4o", "don't CAMELcase", ["don't", " CAMELcase"]),
        ("tiny_aya", "a1234567", ["a", "1", "234", "567"]),
        ("tiny_aya", "a  123", ["a", " ", " ", "123"]),
        ("superbpe", "1234567", ["1", "234", "567"]),
        ("deepseek-v3", "abc一二12345", ["abc", "一二", "123", "45"]),
        ("deepseek-llm", "Ab一二 x123", ["Ab", "一二", " x", "123"]),
        ("falcon", "12345 a.b", ["123", "45", " a", ".", "b"]),
        ("bloom", "a b,c", ["a", " b", ",", "c"]),
        ("kimi-k2", "ab漢字cd", ["ab", "漢字", "cd"]),
        ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
        ("default", "1234", ["123", "4"]),
    ],
)
def test_a_pre_tokenizer_splits_as_its_name_says(name: str, text: str, pieces: list[str]) -> None:
    assert list(splittings()[name].pieces(text)) == pieces


# --- SentencePiece and WordPiece --------------------------------------------------------------------------------------

PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    *"▁abcé!",
    "▁a",
    "ab",
    "▁ab",
    "aa",
    "▁▁",
]
PIECES += ["ba", "bab", "!▁", "<tool>"]
SCORES = [0.0] * 259 + [
    -float(each) for each in (60, 61, 62, 63, 64, 65, 3, 2, 5, 2, 1, 7, 4, 6, 0)
]
PIECE_KINDS = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * (len(PIECES) - 260), ADDED]


def pieces(path: Path, **rest: object) -> str:
    return written(path, "llama", PIECES, kinds=PIECE_KINDS, scores=SCORES, **rest)


@pytest.mark.parametrize("leads", [True, False])
def test_pieces_are_merged_by_their_scores(tmp_path: Path, leads: bool) -> None:
    encoding = encodings.get(pieces(tmp_path / "m.gguf", add_space_prefix=leads))
    scores = dict(zip(PIECES, SCORES, strict=True))

    def lowness(left: str, right: str) -> float | None:
        return -scores[left + right] if left + right in scores else None

    for text in texts(300, "aaabb!!  éx\n"):
        parts = merged([*("▁" if leads and text else ""), *text.replace(" ", "▁")], lowness)
        ids = [token_id for part in parts for token_id in ids_of(part, PIECES)]
        assert encoding.encode(text).tolist() == ids, text
        assert encoding.decode(encoding.encode(text)) == text.encode()
        spans = encoding.spans(text)
        assert len(spans) == len(ids)
        assert (np.diff(spans[:, 0]) >= 0).all()
        assert not text or (spans[-1, 1] == len(text) and spans[0, 0] == 0)
        steps = [step for derivation in encoding.derivations(text) for step in derivation.steps]
        assert [step.score for step in steps] == [SCORES[step.token_id or 0] for step in steps], (
            text
        )


def test_unknown_characters_without_tokens_for_their_bytes_are_one_unknown_token(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path / "m.gguf", "llama", ["<unk>", "a", "b", "ab"], scores=[0.0, -2.0, -3.0, -1.0]
    )
    encoding = encodings.get(path)
    assert encoding.encode("日本ab語b").tolist() == [0, 3, 0, 2]
    spans = encoding.spans("日本ab語b")
    assert spans.tolist() == [[0, 2], [2, 4], [4, 5], [5, 6]]


def test_named_tokens_are_found_before_a_text_is_split(
    in_process: InProcess, tmp_path: Path
) -> None:
    path = pieces(tmp_path / "m.gguf", add_bos_token=True, add_eos_token=True)
    plain = in_process("tokenize", "a<s>b<tool>a", "--encoding", path, "-f", "json")
    assert "the model reads <s> before and </s> after a text; --special adds them" in plain.err
    assert (
        "the model reads"
        not in in_process("neighbors", "a", "--encoding", path, "--vocab", str(len(PIECES))).err
    )
    rows = json.loads(plain.out)["tokens"]
    assert [row["token"] for row in rows][:2] == [" a", "<"]
    assert [row["token"] for row in rows][-2:] == ["<tool>", " a"]
    special = in_process("tokenize", "a<s>b<tool>a", "--special", "--encoding", path, "-f", "json")
    found = [(row["token"], row["start"], row["end"]) for row in json.loads(special.out)["tokens"]]
    assert found[:4] == [("<s>", 0, 0), (" a", 0, 1), ("<s>", 1, 4), (" ", 4, 4)]
    assert found[4:] == [("b", 4, 5), ("<tool>", 5, 11), (" a", 11, 12), ("</s>", 12, 12)]
    ids = [row["id"] for row in json.loads(special.out)["tokens"]]
    assert in_process("decode", *map(str, ids), "--encoding", path).out == b"<s>a<s>b<tool>a</s>"
    looked = in_process("lookup", "a", "--special", "--from", path, "-f", "json")
    assert [row["token"] for row in json.loads(looked.out)["tokens"]] == ["<s>", " a", "</s>"]
    near = in_process("neighbors", "a", "--special", "--from", path, "--top", "1", "-f", "json")
    assert near.status == 0
    assert "reads" not in near.err


def test_named_tokens_are_found_the_longest_first_and_some_by_their_names_alone(
    tmp_path: Path,
) -> None:
    words = [
        "<unk>",
        "<s>",
        "</s>",
        "<t>",
        "<t>x",
        "▁",
        "a",
        "<|channel|>",
        "<fim_prefix>",
        "<",
        "|",
        ">",
    ]
    kinds = [UNKNOWN, CONTROL, NORMAL, ADDED, ADDED, *[NORMAL] * 7]
    encoding = encodings.get(
        written(tmp_path / "m.gguf", "llama", words, kinds=kinds, add_space_prefix=False)
    )
    assert encoding.encode("a<t>xa<t>").tolist() == [6, 4, 6, 3]
    assert encoding.encode("a</s><|channel|><fim_prefix>", True).tolist() == [
        6,
        2,
        7,
        8,
    ]  # as llama.cpp takes them
    assert encoding.encode("a<|channel|>").tolist() == [6, 7]
    with pytest.raises(
        InputError, match=r"cannot split this text of 3 characters: .* surrogates not allowed"
    ):
        encoding.encode("a\ud800b")
    strips = written(
        tmp_path / "p.gguf", "llama", words, kinds=kinds, add_space_prefix=False, name="Phi-3 mini"
    )
    assert encodings.get(strips).encode("a<t> \n a").tolist() == [6, 3, 6]
    masks = {"kinds": [*kinds, ADDED], "add_space_prefix": False, "name": "A Modern-BERT"}
    strips = written(tmp_path / "q.gguf", "llama", [*words, "[MASK]"], **masks)
    assert encodings.get(strips).encode("a \n[MASK] a<t>a [MASK]").tolist() == [
        6,
        12,
        5,
        6,
        3,
        6,
        12,
    ]
    for number, rule in enumerate(
        (["<|return|>", "<|call|>"], ["<|flush|>", "<|calls|>"], ["<|return|>"])
    ):
        more = [*words, "<|end|>", *rule, "<|tool_response>"]
        encoding = encodings.get(
            written(tmp_path / f"{number}.gguf", "llama", more, add_space_prefix=False)
        )
        assert (12 in encoding.encode("a<|end|>a")) == (len(rule) == 2), (
            "no special token beside these"
        )
        assert 2 not in encoding.encode("a</s>", True)


def test_words_are_the_longest_pieces_as_tokenizers_finds_them(tmp_path: Path) -> None:
    words = ["[UNK]", "[CLS]", "[SEP]", "ab", "##b", "##a", "a", "b", "!", "'", "it", "##s"]
    words += ["日", "e", "##e", "1", "##1"]
    stored = [
        word[2:] if word.startswith("##") else word if word[0] == "[" else f"▁{word}"
        for word in words
    ]
    kinds = [CONTROL if word[0] == "[" else NORMAL for word in words]
    rest = {"unknown_token_id": 0, "bos_token_id": 1, "seperator_token_id": 2}
    encoding = encodings.get(written(tmp_path / "m.gguf", "bert", stored, kinds=kinds, **rest))
    oracle = Tokenizer(
        models.WordPiece({word: at for at, word in enumerate(words)}, unk_token="[UNK]")
    )
    oracle.normalizer, oracle.pre_tokenizer = (
        normalizers.BertNormalizer(),
        pre_tokenizers.BertPreTokenizer(),
    )
    for text in texts(300, "aAbBé! '日s1e\t\u0301\u200b"):
        wanted = oracle.encode(text)
        assert encoding.encode(text).tolist() == wanted.ids, text
        spans = encoding.spans(text)
        known = [place for place, token_id in enumerate(wanted.ids) if token_id]
        assert [tuple(spans[place]) for place in known] == [
            wanted.offsets[place] for place in known
        ], text
    assert encoding.bos_eos == ((1,), (2,))
    assert encoding.decode(encoding.encode("ab 日")) == "ab 日".encode()


def trie(replacements: dict[str, str]) -> bytes:
    """Return a map of characters as SentencePiece compiles it; each node has 256 units of its own."""
    texts, places = b"", {}
    for key, text in replacements.items():
        places[key.encode()] = len(texts)
        texts += text.encode() + b"\0"
    nodes = sorted({key[:end] for key in places for end in range(len(key) + 1)}, key=len)
    bases = {node: 256 * (place + 1) for place, node in enumerate(nodes)}
    units = np.zeros(256 * (len(nodes) + 2), np.uint32)
    units[0] = bases[b""] << 10
    for node in nodes[1:]:
        at = bases[node[:-1]] ^ node[-1]
        units[at] = node[-1] | (node in places) << 8 | (bases[node] ^ at) << 10
        if node in places:
            units[bases[node]] = places[node] | 1 << 31
    return struct.pack("<I", units.nbytes) + units.tobytes() + texts


REPLACED = {
    "\t": " ",
    "ﬁ": "fi",
    "A": "a",
    "\u200b": "",
    "a\u0301": "á",
    "e\u0301\u0301": "é",
    "…": "...",
}


def test_characters_are_replaced_the_longest_sequence_first() -> None:
    unigrams = Unigrams({"▁": (0, 0.0)}, 1, 0.0, trie(REPLACED), joins=False, leads=False)
    for text in texts(300, "aAe\u0301\u0301ﬁ\t…\u200bx日"):
        normal, place = "", 0
        while place < len(text):
            key = max(
                (key for key in [*REPLACED, text[place]] if text.startswith(key, place)), key=len
            )
            normal, place = normal + REPLACED.get(key, key), place + len(key)
        assert "".join(unigrams.pieces(text)) == normal.replace(" ", "▁"), text
        origins = unigrams.origins(text)
        assert len(origins) == len(normal)
        assert all(start <= end for start, end in origins)


def test_a_damaged_map_of_characters_ends_in_a_sentence(tmp_path: Path) -> None:
    whole, random = trie(REPLACED), Random(3)
    used = [place for place in range(4, len(whole)) if whole[place]]
    for number in range(25):
        data = bytearray(whole)
        for place in random.sample(used, 2):
            data[place] = random.randrange(256)
        path = written(
            tmp_path / f"{number}.gguf", "t5", ["a", "b", "c"], precompiled_charsmap=bytes(data)
        )
        with suppress(InputError):
            encoding = encodings.get(path)
            assert {*encoding.encode("aA\te\u0301\u0301ﬁ…\u200b日 x")} <= {
                *range(encoding.vocabulary_size)
            }


def test_a_token_of_an_undefined_type_is_normal_and_one_without_text_has_no_name(
    tmp_path: Path,
) -> None:
    words: list[Any] = ["<unk>", "a", "b", "ab", b"c\xff"]
    rest = {"scores": [0.0, -1.0, -2.0, -3.0, 0.0], "unknown_token_id": 0}
    known = [
        encodings.get(
            written(
                tmp_path / f"{kind}.gguf",
                "llama",
                words,
                kinds=[UNKNOWN, *[kind] * 3, ADDED],
                **rest,
            )
        )
        for kind in (0, NORMAL)
    ]
    assert [[name.name for name in each.named] for each in known] == [["<unk>"], ["<unk>"]]


@pytest.mark.parametrize(("joins", "space"), [(False, "▁ -2"), (True, "▁ -2"), (True, "")])
def test_the_best_sum_of_scores_is_found_as_tokenizers_finds_it(
    tmp_path: Path, joins: bool, space: str
) -> None:
    listed = f"<pad> 0 </s> 0 <unk> 0 {space} ▁a -1.5 a -2.7 b -2.25 ab -3 ▁ab -4 ba -3.5 bab -4.75"
    listed += " aa -3.3 ▁b -4.5 f -6"
    listed += " fi -7 é -9"
    scored = [
        (word, float(score))
        for word, score in zip(listed.split()[::2], listed.split()[1::2], strict=True)
    ]
    words, scores = [word for word, _ in scored], [score for _, score in scored]
    rest = {"scores": scores, "add_space_prefix": True, "remove_extra_whitespaces": joins}
    rest |= (
        {"unknown_token_id": 2, "precompiled_charsmap": trie({"ﬁ": "fi"})}
        if joins
        else {"unknown_token_id": 2}
    )
    kinds = [CONTROL, CONTROL, UNKNOWN, *[NORMAL] * (len(words) - 3)]
    encoding = encodings.get(written(tmp_path / "m.gguf", "t5", words, kinds=kinds, **rest))
    oracle = Tokenizer(models.Unigram(scored, unk_id=2, byte_fallback=False))
    for text in texts(300, "aabbfé 日x" + "ﬁ" * joins):
        if joins:
            spelled = "".join(f"▁{word}" for word in text.replace("ﬁ", "fi").split(" ") if word)
        else:
            blanks = len(text) - len(text.lstrip(" "))
            spelled = (
                "▁" * blanks + ("▁" if text.strip(" ") else "") + text.lstrip(" ").replace(" ", "▁")
            )
        wanted = oracle.encode(spelled)
        ids = encoding.encode(text).tolist()
        assert ids == wanted.ids, text
        spans = encoding.spans(text)
        assert len(spans) == len(ids)
        assert (np.diff(spans[:, 0]) >= 0).all()
        assert not ids or spans[:, 1].max() == len(text.rstrip(" ") if joins else text)
    assert encoding.bos_eos == ((), (1,))


def test_the_bos_and_eos_that_a_file_does_not_name_are_those_of_llama_cpp(tmp_path: Path) -> None:
    rest = {
        "kinds": KINDS,
        "merges": MERGES,
        "pre": "gpt-2",
        "add_bos_token": True,
        "add_eos_token": True,
    }
    assert encodings.get(written(tmp_path / "m.gguf", "gpt2", WORDS, **rest)).bos_eos == (
        (11,),
        (11,),
    )


def test_a_run_of_100_000_letters_takes_linear_time(tmp_path: Path) -> None:
    run = "a" * 100_000
    bpe = written(tmp_path / "bpe.gguf", "gpt2", WORDS, kinds=KINDS, merges=MERGES, pre="gpt-2")
    assert encodings.get(bpe).encode(run).tolist() == bytes_level(False, None).encode(run).ids
    by_scores = [PIECES.index("▁"), *[PIECES.index("aa")] * 50_000]
    assert encodings.get(pieces(tmp_path / "spm.gguf")).encode(run).tolist() == by_scores
    scored = {"<unk>": 0.0, "▁": -9.0, "▁a": -3.0, "a": -3.0, "aa": -4.0, "aaa": -5.5}
    rest = {"scores": [*scored.values()], "unknown_token_id": 0, "add_space_prefix": True}
    sums = encodings.get(written(tmp_path / "ugm.gguf", "t5", [*scored], **rest))
    oracle = Tokenizer(models.Unigram([*scored.items()], unk_id=0, byte_fallback=False))
    wanted = oracle.encode(f"▁{run}")
    assert sums.encode(run).tolist() == wanted.ids
    spans = sums.spans(run)
    assert np.diff(spans).ravel().tolist() == [
        len(token.removeprefix("▁")) for token in wanted.tokens
    ]
    longest = written(tmp_path / "wpm.gguf", "bert", ["[UNK]", "▁a", "a", "aa"], unknown_token_id=0)
    assert encodings.get(longest).encode(run).tolist() == [1, *[3] * 49_999, 2]


# --- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "rest", "told"),
    [
        (
            "gpt2",
            {},
            "cannot split a text: it does not name its pre-tokenizer; give --ids or --encoding",
        ),
        ("gpt2", {"pre": "gpt2"}, "its pre-tokenizer 'gpt2' is unknown; give --ids or --encoding"),
        ("gpt2", {"pre": "gpt-2"}, "it has no merges"),
        ("bert", {}, "it says that a text gets its unknown token, but not which one this is"),
        (
            "rwkv",
            {},
            "cannot split a text: its tokenizer 'rwkv' is unknown; give --ids or --encoding",
        ),
        ("plamo2", {}, "its tokenizer 'plamo2' is unknown"),
        ("llama", {"scores": [float("nan")] * 3}, "its tokenizer.ggml.scores are not all finite"),
        ("llama", {"scores": [1.0]}, "not numbers, one for each token"),
        ("t5", {"precompiled_charsmap": b"\1\2\3"}, "its map of characters is damaged"),
    ],
)
def test_what_cannot_split_a_text_is_refused_by_its_name(
    in_process: InProcess, tmp_path: Path, model: str, rest: dict[str, object], told: str
) -> None:
    path = written(tmp_path / "m.gguf", model, ["a", "b", "c"], **rest)
    assert told in in_process.refused("lookup", "a", "--from", path)
    assert told in in_process.refused("tokenize", "a", "--encoding", path)
    assert [
        row["token"]
        for row in json.loads(in_process.ok("weights", "--from", path, "-f", "json").out)["rows"]
    ] == [*"abc"]
