"""Encodings: built from the packaged files, they say and do what the installed tiktoken's do."""

from __future__ import annotations

import gzip
import hashlib
from binascii import a2b_base64
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import example, given, strategies as st
from tiktoken import model
from tiktoken_ext import openai_public

import embcli
from embcli import encodings, names
from embcli.encodings import tiktoken as packaged
from embcli.encodings.kinds import SUFFIXES
from embcli.errors import InputError
from embcli.hub.local import TOKENIZERS, WEIGHTS
from tests.cases import cases

NAMES = list(openai_public.ENCODING_CONSTRUCTORS)
DATA = Path(embcli.__file__).parent / "data"
TEXTS = (
    "",
    " ",
    "Every effort moves you",
    "I'll we'RE it'S don't THEY'VE",
    "  two  spaces\tand\r\n\r\nline ends   \n",
    "1234567890 3.14159 ½ Ⅷ ٣",
    "naïve café Zürich ǅ ß ŉ",
    "日本語のテキスト 한국어 中文字符 ไทย हिन्दी العربية עברית",
    "🤖👩‍💻🇨🇭👍🏽 e\u0301\u0302",
    "<|endoftext|> <|fim_prefix|><|start|>user<|message|>hi<|end|> <|endofprompt|>",
    "\x00\x1b[2J\x7f\x85\xa0\u2028\u202e\ufeff\ufffd\U0010ffff",
    "def f(x):\n    return x/2  # https://example.org/a?b=c\n",
)

Definition = dict[str, Any]  # what tiktoken.Encoding is made of


@cache
def unpacked(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """Read the packaged file of that name, and hold it against the hash, as tiktoken's loader."""
    name = url.rsplit("/", 1)[1]
    data = gzip.decompress((DATA / f"{name}.gz").read_bytes())
    assert hashlib.sha256(data).hexdigest() == expected_hash

    ranks = {}
    for line in data.splitlines():
        token, rank = line.split()
        ranks[a2b_base64(token)] = int(rank)
    return ranks


def ranks_of_gpt2(**_: object) -> dict[bytes, int]:
    """Return r50k_base's ranks, which are those of gpt2; tiktoken reads gpt2's from other files."""
    return openai_public.r50k_base()["mergeable_ranks"]


@pytest.fixture(scope="module")
def theirs() -> dict[str, Definition]:
    """Return tiktoken's own definitions."""
    constructors = openai_public.ENCODING_CONSTRUCTORS
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", unpacked)
        patch.setattr(openai_public, "data_gym_to_mergeable_bpe_ranks", ranks_of_gpt2)
        return {name: construct() for name, construct in constructors.items()}


@pytest.fixture(scope="module")
def built(theirs: dict[str, Definition]) -> dict[str, tiktoken.Encoding]:
    return {name: tiktoken.Encoding(**definition) for name, definition in theirs.items()}


# --- tiktoken's encodings -------------------------------------------------------------------------


def test_every_encoding_of_tiktoken_is_there():
    assert [*packaged.DEFINITIONS] == NAMES
    assert [*names.ENCODINGS] == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_a_definition_is_that_of_tiktoken(name, theirs, built):
    ours = encodings.get(name)

    assert ours.definition.pattern == theirs[name]["pat_str"]
    assert ours.definition.special_tokens == theirs[name]["special_tokens"]
    assert ours.vocabulary_size == built[name].n_vocab
    assert ours.vocabulary_size == built[name].max_token_value + 1


@pytest.mark.parametrize("name", NAMES)
def test_each_id_has_the_bytes_of_its_token(name, theirs):
    expected = {rank: token for token, rank in theirs[name]["mergeable_ranks"].items()}
    # Of two names for one ID, the one that tells more is shown: the first.
    for token, token_id in reversed(theirs[name]["special_tokens"].items()):
        expected[token_id] = token.encode()

    ours = encodings.get(name)
    for token_id in range(-2, ours.vocabulary_size + 3):
        assert ours.token_bytes(token_id) == expected.get(token_id)


@pytest.mark.parametrize("name", NAMES)
def test_texts_become_the_same_ids(name, built):
    ours = encodings.get(name)
    theirs = built[name]

    for text in TEXTS:
        assert ours.encode(text).tolist() == theirs.encode_ordinary(text)
        special = ours.encode(text, special=True)
        assert special.tolist() == theirs.encode(text, allowed_special="all")


@given(text=st.text(max_size=80), name=st.sampled_from(NAMES))
@example(text="\ud7ff\ue000 \U0001f916", name="gpt2")
def test_any_text_becomes_the_same_ids(text, name, built):
    assert encodings.get(name).encode(text).tolist() == built[name].encode_ordinary(text)


# --- damaged rank files ---------------------------------------------------------------------------

WHOLE = gzip.compress(b"IQ== 0\n" * 500, mtime=0)
DAMAGED = {
    "empty": b"",
    "of nothing": gzip.compress(b"", mtime=0),
    "cut": WHOLE[:-9],
    "cut in the header": WHOLE[:5],
    "another checksum": WHOLE[:-8] + bytes(4) + WHOLE[-4:],
    "garbled": WHOLE[:12] + b"\xff" + WHOLE[13:],
    "not packed": b"IQ== 0\n",
}


@pytest.mark.parametrize("damage", ["missing", *DAMAGED])
def test_a_damaged_rank_file_is_named_with_the_cure(damage, tmp_path, monkeypatch):
    path = tmp_path / "r50k_base.tiktoken.gz"
    if damage != "missing":
        path.write_bytes(DAMAGED[damage])
    monkeypatch.setattr(packaged, "DATA", tmp_path)

    with pytest.raises(InputError, match=f"'{path}': .*; reinstall"):
        packaged.TiktokenEncoding("gpt2").encode("a")


# --- names ----------------------------------------------------------------------------------------

MODELS = [*model.MODEL_TO_ENCODING, *(f"{prefix}x" for prefix in model.MODEL_PREFIX_TO_ENCODING)]


@pytest.mark.parametrize("name", MODELS)
def test_a_model_has_the_encoding_that_tiktoken_names(name):
    assert encodings.get(name).name == model.encoding_name_for_model(name)


def test_capitals_in_the_name_of_an_encoding_do_not_count():
    assert encodings.get("GPT2") is encodings.get("gpt2")


@cases
def test_unknown_names_are_refused_with_the_nearest(wrong, near):
    with pytest.raises(InputError, match=f"named '{wrong}'.*;.*{near}"):
        encodings.get(wrong)


def test_a_folder_can_have_each_kind_of_file_that_is_told_by_its_suffix():
    # The names stand in data/model_files.json.
    assert {Path(name).suffix for name in (*WEIGHTS, *TOKENIZERS)} >= SUFFIXES.keys()
