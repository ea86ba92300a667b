"""A GGUF's own vocabulary splits a text by the rules of its type.

`tokenizers` and slow loops say what these rules make of a text.
"""

from __future__ import annotations

import json
import math
import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from gguf import GGUFWriter
from sentencepiece import SentencePieceNormalizer
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

import embcli
from embcli import encodings
from embcli.encodings import Encoding
from embcli.encodings.splitting import splittings
from embcli.errors import InputError
from embcli.verbs.audit.measure import unused
from tests.cases import cases, data
from tests.files.made import closed, numbered

# The types of tokens in a GGUF.
NORMAL = 1
UNKNOWN = 2
CONTROL = 3
ADDED = 4
UNUSED = 5
BYTE = 6

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
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
RUN = "a" * 40_000  # Whatever splits it in linear time takes a fraction of a second.


def texts(count: int, letters: str = "aabbc  \n'sé1日!", seed: int = 0) -> list[str]:
    """Return TEXTS, and this number of random texts of these letters."""
    random = Random(seed)
    made = [*TEXTS]
    for _ in range(count):
        length = random.randrange(1, 40)
        made.append("".join(random.choices(letters, k=length)))
    return made


def written(
    path: Path,
    model: str,
    words: list[Any],
    *,
    kinds: list[int] | None = None,
    rows: int = 0,
    **rest: object,
) -> str:
    """Write a vocabulary and a row for each token; return the path.

    `rest` are other keys of the tokenizer: scores, merges, pre ...; `name` is that of the model.
    """
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
    count = rows or len(words)
    values = np.arange(2 * count, dtype=np.float32)
    writer.add_tensor("token_embd.weight", values.reshape(count, 2))
    return str(closed(writer))


def encoding_of(folder: Path, model: str, words: list[Any], **rest: Any) -> Encoding:
    """Write a vocabulary into a folder, and return its encoding."""
    return encodings.get(written(folder / "m.gguf", model, words, **rest))


def merged(parts: list[str], value: Callable[[str, str], float]) -> list[str]:
    """Join the two neighbours of the least value, the first such pair, until all are infinite.

    This is as slow as it is obvious.
    """
    while len(parts) > 1:
        values = [value(left, right) for left, right in pairwise(parts)]
        least = min(values)
        if least == math.inf:
            break
        place = values.index(least)
        joined = parts[place] + parts[place + 1]
        parts = [*parts[:place], joined, *parts[place + 2 :]]
    return parts


def ids_of(parts: list[str], words: list[str]) -> list[int]:
    """Return the ID of each part, or those of its bytes if it is not a token."""
    ids = []
    for part in parts:
        if part in words:
            ids.append(words.index(part))
        else:
            ids += [words.index(BYTE_TOKENS[byte]) for byte in part.encode()]
    return ids


def assert_ids(encoding: Encoding, text: str, expected: list[int]) -> None:
    """Hold the IDs of a text against others, and what they decode to against the text."""
    ids = encoding.encode(text)

    assert ids.tolist() == expected, text
    assert encoding.decode(ids) == text.encode()


def assert_spans_advance(encoding: Encoding, text: str, end: int) -> None:
    """Check that there is a span for each token, in order, and that the last one ends there."""
    spans = encoding.spans(text)
    starts = spans[:, 0]

    assert len(spans) == len(encoding.encode(text))
    assert (np.diff(starts) >= 0).all()
    assert spans[:, 1].max(initial=0) == end


# --- byte-pair encoding ---------------------------------------------------------------------------

MERGES = [
    "a a",
    "b a",
    "aa b",
    "Ġ a",
    "a b",
    "' s",
    "Ġ Ġ",
    "Ġa b",
    "ab ab",
    "Ã ©",
    "1 2",
    "12 3",
    "b c",
    "Ċ Ċ",
    "a bc",
]
PAIRS = [tuple(merge.split()) for merge in MERGES]
MERGED = [merge.replace(" ", "") for merge in MERGES]
WORDS = [
    *sorted(pre_tokenizers.ByteLevel.alphabet()),
    *dict.fromkeys(MERGED),
    "cab",  # No merges lead to this token.
    "<|end|>",
    "<eos>",
]
KINDS = [NORMAL] * (len(WORDS) - 2) + [ADDED, CONTROL]
GPT2 = {"kinds": KINDS, "merges": MERGES, "pre": "gpt-2"}


def bytes_level(ignore_merges: bool, pattern: str | None) -> Tokenizer:
    """Return the vocabulary as a tokenizer of bytes that cuts as GPT-2 does, or by a pattern."""
    ids = numbered(WORDS)
    tokenizer = Tokenizer(models.BPE(ids, PAIRS, ignore_merges=ignore_merges))
    steps = [pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=pattern is None)]
    if pattern:
        steps.insert(0, pre_tokenizers.Split(Regex(pattern), "isolated"))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(steps)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def test_a_piece_that_is_looked_up_whole_has_symbols_and_no_steps(tmp_path):
    rest = {"pre": "llama-bpe", "merges": ["a b"], "add_bos_token": False}
    encoding = encoding_of(tmp_path, "gpt2", ["a", "b", "c", "ab", "abc"], **rest)
    (whole,) = encoding.derivations("abc")
    assert (whole.symbols, whole.steps, whole.ids) == ((b"a", b"b", b"c"), (), (4,))
    (merged_piece,) = encoding.derivations("abb")
    assert [step.token for step in merged_piece.steps] == [b"ab"]
    assert merged_piece.ids == (3, 1)


@pytest.mark.parametrize(
    ("pre", "ignores", "pattern"), [("gpt-2", False, None), ("llama-bpe", True, CUTS)]
)
def test_pairs_of_bytes_are_merged_as_tokenizers_merges_them(tmp_path, pre, ignores, pattern):
    words = [*WORDS, "é", " a"]  # These two are not spelled as bytes are, so no text has them.
    kinds = [*KINDS, NORMAL, NORMAL]
    merges = [*MERGES, "x", MERGES[0]]  # One is malformed; of two equal ones the first counts.
    encoding = encoding_of(tmp_path, "gpt2", words, kinds=kinds, merges=merges, pre=pre)
    oracle = bytes_level(ignores, pattern)

    for text in [*texts(150), "cab", "a\ncab", RUN]:
        expected = oracle.encode(text)
        spans = encoding.spans(text)
        assert_ids(encoding, text, expected.ids)
        assert [*map(tuple, spans.tolist())] == expected.offsets, text


def test_escaped_spaces_are_merged_within_lines(tmp_path):
    merges = ["▁ ▁", "a ▁", "a▁ b", "▁ b", "b b", "▁▁ b"]
    joined = [merge.replace(" ", "") for merge in merges]
    words = [*"ab▁!", "\n", "\n\n", *joined, *BYTE_TOKENS]
    encoding = encoding_of(tmp_path, "gemma4", words, merges=merges, bos_token_id=0)
    ranks = {merge: rank for rank, merge in enumerate(merges)}

    def rank(left: str, right: str) -> float:
        return ranks.get(f"{left} {right}", math.inf)

    for text in texts(150, "aab   bc\n"):
        parts = []
        for line in re.findall("[^\n]+|\n+", text.replace(" ", "▁")):
            is_token_of_line_ends = line in ("\n", "\n\n")
            parts += [line] if is_token_of_line_ends else merged([*line], rank)
        assert_ids(encoding, text, ids_of(parts, words))


def test_each_rule_keeps_the_whole_text():
    letters = (
        "'S't 12345678 ٣٤ Ab aB Éé  \n\r\n\t\x0b\xa0\u3000你好々カナ한กัह\u093f。、…!?"
        "<sentinel:7>IMGIMGABZ\U000e0001\0"
    )
    random = Random(1)

    for name, splitting in splittings().items():
        for _ in range(20):
            text = "".join(random.choices(letters, k=60))
            pieces = [*splitting.pieces(text)]
            assert "".join(pieces) == text, name
            assert all(pieces)


@cases
def test_a_pre_tokenizer_splits_as_its_name_says(name, text, pieces):
    assert "|".join(splittings()[name].pieces(text)) == pieces


def test_the_bos_and_eos_that_a_file_does_not_name_are_those_of_llama_cpp(tmp_path):
    asked = {"add_bos_token": True, "add_eos_token": True}
    encoding = encoding_of(tmp_path, "gpt2", WORDS, **GPT2, **asked)

    assert encoding.bos_eos == ((11,), (11,))


# --- SentencePiece --------------------------------------------------------------------------------

LOWNESS = data(__name__)["lowness"]  # the scores with the other sign
PIECES = ["<unk>", "<s>", "</s>", *BYTE_TOKENS, *LOWNESS]
SCORES = [0.0] * 259 + [-lowness for lowness in LOWNESS.values()]
PIECE_KINDS = [UNKNOWN, CONTROL, CONTROL, *[BYTE] * 256, *[NORMAL] * 14, ADDED]


def pieces(path: Path, **rest: object) -> str:
    """Write the vocabulary of SentencePiece; return the path."""
    return written(path, "llama", PIECES, kinds=PIECE_KINDS, scores=SCORES, **rest)


def merged_by_score(spelled: str) -> list[int]:
    """Return the IDs of a text of PIECES, in which `▁` stands for a space."""

    def lowness(left: str, right: str) -> float:
        return LOWNESS.get(left + right, math.inf)

    return ids_of(merged([*spelled], lowness), PIECES)


@cases
def test_pieces_are_merged_by_their_scores(tmp_path, leads):
    path = pieces(tmp_path / "m.gguf", add_space_prefix=leads)
    encoding = encodings.get(path)
    (query,) = embcli.seeded(encoding=path, dim=1).neighbors(" a", plus=[" a"]).queries
    assert {*query.all_ids} == {PIECES.index("▁a")}

    for text in texts(150, "aaabb!!  éx\n"):
        spelled = text.replace(" ", "▁")
        if leads and text:
            spelled = f"▁{spelled}"

        assert_ids(encoding, text, merged_by_score(spelled))
        assert_spans_advance(encoding, text, len(text))
        assert not text or encoding.spans(text)[0, 0] == 0
        for derivation in encoding.derivations(text):
            for step in derivation.steps:
                assert step.score == SCORES[step.token_id or 0], text


def test_unknown_characters_without_tokens_for_their_bytes_are_one_unknown_token(
    tmp_path,
):
    words = ["<unk>", "a", "b", "ab"]
    encoding = encoding_of(tmp_path, "llama", words, scores=[0.0, -2.0, -3.0, -1.0])

    assert encoding.encode("日本ab語b").tolist() == [0, 3, 0, 2]
    assert encoding.spans("日本ab語b").tolist() == [[0, 2], [2, 4], [4, 5], [5, 6]]


# --- named tokens ---------------------------------------------------------------------------------


@pytest.fixture
def with_bos_and_eos(tmp_path: Path) -> str:
    return pieces(tmp_path / "m.gguf", add_bos_token=True, add_eos_token=True)


def test_special_tokens_are_found_where_they_are_asked_for(in_process, with_bos_and_eos, snapshot):
    encoding = ("--encoding", with_bos_and_eos)
    words = ("tokenize", "a<s>b<tool>a", "--special", *encoding)

    snapshot("tokenize/special-tokens.ndjson", in_process.ok(*words, "-f", "ndjson").text)
    ids = in_process.ok(*words, "-f", "ids").text
    assert in_process.ok("decode", ids, *encoding).out == b"<s>a<s>b<tool>a</s>"


def test_a_note_names_what_special_adds_where_a_text_is_split(
    in_process, with_bos_and_eos, snapshot
):
    encoding = ("--encoding", with_bos_and_eos)
    ran = in_process("tokenize", "a", *encoding)
    snapshot("tokenize/note-on-what-special-adds.txt", ran.err)

    near = in_process("neighbors", "a", *encoding, "--vocab", str(len(PIECES)))
    assert "this tokenizer puts" not in near.err
    near = in_process("neighbors", "a", "--special", "--from", with_bos_and_eos, "--top", "1")
    assert near.status == 0
    assert "reads" not in near.err


NAMED = {
    "<unk>": UNKNOWN,
    "<s>": CONTROL,
    "</s>": NORMAL,
    "<t>": ADDED,
    "<t>x": ADDED,
    "▁": NORMAL,
    "a": NORMAL,
    "<|channel|>": NORMAL,
    "<fim_prefix>": NORMAL,
    "<": NORMAL,
    "|": NORMAL,
    ">": NORMAL,
    "[MASK]": ADDED,
}


def with_named(folder: Path, name: str) -> Encoding:
    """Return the encoding of a model of this name with NAMED."""
    kinds = [*NAMED.values()]
    return encoding_of(folder, "llama", [*NAMED], kinds=kinds, add_space_prefix=False, name=name)


@cases
def test_named_tokens_are_found_the_longest_first(tmp_path, name, text, special, ids):
    assert with_named(tmp_path, name).encode(text, special).tolist() == ids


@cases
def test_a_lone_surrogate_is_refused(tmp_path, model):
    with pytest.raises(InputError, match="surrogates"):
        encoding_of(tmp_path, model, [*"abc"]).encode("a\ud800b")


@pytest.mark.parametrize("kind", [0, NORMAL])
def test_a_token_of_an_undefined_type_is_normal_and_one_without_text_has_no_name(tmp_path, kind):
    words = ["<unk>", "a", "b", "ab", b"c\xff"]
    kinds = [UNKNOWN, kind, kind, kind, ADDED]
    scores = [0.0, -1.0, -2.0, -3.0, 0.0]
    rest = {"kinds": kinds, "scores": scores, "unknown_token_id": 0}

    (named,) = encoding_of(tmp_path, "llama", words, **rest).named
    assert named.name == "<unk>"


# --- WordPiece ------------------------------------------------------------------------------------


def test_words_are_the_longest_pieces_as_tokenizers_finds_them(tmp_path):
    special = ["[UNK]", "[CLS]", "[SEP]"]
    first = ["ab", "a", "b", "!", "'", "it", "日", "e", "1"]
    following = ["b", "a", "s", "e", "1"]
    stored = [*special, *(f"▁{word}" for word in first), *following]
    encoding = encoding_of(
        tmp_path,
        "bert",
        stored,
        kinds=[CONTROL] * 3 + [NORMAL] * 14,
        unknown_token_id=0,
        bos_token_id=1,
        seperator_token_id=2,  # The format spells it so.
    )

    words = [*special, *first, *(f"##{word}" for word in following)]
    ids = numbered(words)
    oracle = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    oracle.normalizer = normalizers.BertNormalizer()
    oracle.pre_tokenizer = pre_tokenizers.BertPreTokenizer()

    for text in texts(150, "aAbBé! '日s1e\t\u0301\u200b"):
        expected = oracle.encode(text)
        spans = encoding.spans(text)
        assert encoding.encode(text).tolist() == expected.ids, text
        for token_id, span, offsets in zip(expected.ids, spans, expected.offsets, strict=True):
            if token_id != 0:
                assert tuple(span) == offsets, text

    assert encoding.bos_eos == ((1,), (2,))
    tokens = [encoding.token_bytes(token_id) for token_id in range(len(words))]
    assert tokens == [word.encode() for word in words]
    oracle.decoder = decoders.WordPiece(cleanup=False)
    random = Random(0)
    for _ in range(100):
        some_ids = random.choices(range(len(words)), k=random.randrange(6))
        decoded = oracle.decode(some_ids, skip_special_tokens=False)
        assert encoding.decode(np.array(some_ids, np.uint32)).decode() == decoded


def stored_now(word: str, kind: int) -> str:
    """Return how llama.cpp's converter stores a token of WordPiece."""
    if kind == CONTROL:
        return word
    return word[2:] if word.startswith("##") else f"▁{word}"


def stored_once(word: str, kind: int) -> str:
    """Return how its older versions did."""
    return word if word.startswith("[") and word.endswith("]") else stored_now(word, kind)


@pytest.mark.parametrize("stored", [stored_now, stored_once])
def test_word_pieces_are_those_of_the_vocabulary_that_was_converted(tmp_path, stored):
    words = ["[UNK]", "[unused0]", "th", "##th", "[PAD4]", "[", "##]", "<tool>", "[PAD8]", "[PAD9]"]
    kinds = [CONTROL, *[NORMAL] * 3, UNUSED, NORMAL, NORMAL, ADDED, UNUSED, UNUSED]
    spelled = [*map(stored, words, kinds)]
    encoding = encoding_of(tmp_path, "bert", spelled, kinds=kinds, unknown_token_id=0)

    tokens: list[bytes | None] = [word.encode() for word in words]
    tokens[4] = tokens[8] = tokens[9] = None
    assert [encoding.token_bytes(token_id) for token_id in range(len(words))] == tokens
    assert encoding.vocabulary_size == 8


@cases
def test_a_row_without_a_token_has_only_an_invented_name(tmp_path, model):
    words = ["<unk>", "[PAD1]", "[PAD2]", "a", "[PAD4]", "[PAD]"]
    kinds = [UNKNOWN, UNUSED, NORMAL, NORMAL, UNUSED, UNUSED]
    names = [b"<unk>", None, b"[PAD2]", b"a", None, b"[PAD]"]
    encoding = encoding_of(tmp_path, model, words, kinds=kinds)
    assert [encoding.token_bytes(token_id) for token_id in range(6)] == names
    assert encoding.vocabulary_size == 6
    assert [*encoding.faults] == []

    padded = encoding_of(tmp_path, model, words[:5], kinds=kinds[:5])
    assert padded.vocabulary_size == 4
    assert unused(padded, 6) == {1: "gap", 4: "padding", 5: "padding"}
    assert [*padded.faults] == []


# --- unigrams -------------------------------------------------------------------------------------


def character_map(replacements: dict[str, str]) -> bytes:
    """Return a map of characters as SentencePiece compiles it."""
    normalizer = SentencePieceNormalizer(norm_map=[*replacements.items()])
    # The map is the only field of this message; its number and its length take three bytes.
    return normalizer.serialized_normalizer_spec()[3:]


# --- a run of 40,000 letters takes linear time ---------------------------------------------------


@pytest.fixture
def _in_linear_time() -> Iterator[None]:
    """Allow a test less time than anything quadratic takes."""
    start = time.process_time()
    yield
    assert time.process_time() - start < 3


@pytest.mark.usefixtures("_in_linear_time")
def test_pieces_take_linear_time(tmp_path):
    encoding = encodings.get(pieces(tmp_path / "m.gguf"))

    assert_ids(encoding, RUN, [PIECES.index("▁"), *[PIECES.index("aa")] * 20_000])


@pytest.mark.usefixtures("_in_linear_time")
def test_word_pieces_take_linear_time(tmp_path):
    words = ["[UNK]", "▁a", "a", "aa"]
    encoding = encoding_of(tmp_path, "bert", words, unknown_token_id=0)

    assert encoding.encode(RUN).tolist() == [1, *[3] * 19_999, 2]


# --- what is refused ------------------------------------------------------------------------------

UNUSABLE: list[tuple[str, dict[str, object]]] = [
    ("gpt2", {}),
    ("gpt2", {"pre": "gpt2"}),
    ("gpt2", {"pre": "gpt-2"}),
    ("bert", {}),
    ("rwkv", {}),
    ("plamo2", {}),
    ("t5", {}),
    ("llama", {"scores": [math.nan] * 3}),
    ("llama", {"scores": [1.0]}),
]


def test_what_cannot_split_a_text_is_refused_by_its_name_and_has_rows(
    in_process, tmp_path, monkeypatch, snapshot
):
    monkeypatch.chdir(tmp_path)
    errors = ""
    for number, (model, rest) in enumerate(UNUSABLE):
        path = written(Path(f"{model}-{number}.gguf"), model, [*"abc"], **rest)
        error = in_process.refused("tokenize", "a", "--encoding", path)
        errors += f"{model} {rest}\n{error}"
        assert in_process.refused("lookup", "a", "--from", path) == error
        rows = json.loads(in_process.ok("weights", "--from", path, "-f", "json").out)["rows"]
        tokens = ["##a", "##b", "##c"] if model == "bert" else [*"abc"]
        assert [row["token"] for row in rows] == tokens

    snapshot("tokenize/errors-of-a-gguf.txt", errors)
