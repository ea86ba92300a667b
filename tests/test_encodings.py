"""Encodings: built from the packaged files, they are the installed tiktoken's, in what they say and what they do."""

from __future__ import annotations

import base64
import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest
import tiktoken
from hypothesis import example, given
from hypothesis import strategies as st
from tiktoken import model
from tiktoken_ext import openai_public

import embcli
from embcli import encodings, names
from embcli.encodings import tiktoken as packaged
from embcli.errors import InputError

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


def unpacked(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
    """Stand in for tiktoken's loader: read the packaged file of that name and hold it against the hash."""
    data = gzip.decompress((DATA / f"{url.rsplit('/', 1)[1]}.gz").read_bytes())
    assert hashlib.sha256(data).hexdigest() == expected_hash
    return {
        base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines())
    }


@pytest.fixture(scope="module")
def theirs() -> dict[str, dict[str, Any]]:
    """Return tiktoken's own definitions; only gpt2's ranks come from other files there, and are r50k_base's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(openai_public, "load_tiktoken_bpe", unpacked)
        patch.setattr(
            openai_public,
            "data_gym_to_mergeable_bpe_ranks",
            lambda **_: openai_public.r50k_base()["mergeable_ranks"],
        )
        return {
            name: construct() for name, construct in openai_public.ENCODING_CONSTRUCTORS.items()
        }


@pytest.fixture(scope="module")
def built(theirs: dict[str, dict[str, Any]]) -> dict[str, tiktoken.Encoding]:
    return {name: tiktoken.Encoding(**definition) for name, definition in theirs.items()}


def test_every_encoding_of_tiktoken_is_there() -> None:
    assert [*packaged.DEFINITIONS] == [*names.ENCODINGS] == NAMES
    assert names.DEFAULT_ENCODING in NAMES


@pytest.mark.parametrize("name", NAMES)
def test_definition(
    name: str, theirs: dict[str, dict[str, Any]], built: dict[str, tiktoken.Encoding]
) -> None:
    ours = encodings.get(name)
    assert ours.definition.pattern == theirs[name]["pat_str"]
    assert ours.definition.special_tokens == theirs[name]["special_tokens"]
    assert ours.vocabulary_size == built[name].n_vocab == built[name].max_token_value + 1
    assert theirs[name].get("explicit_n_vocab", ours.vocabulary_size) == ours.vocabulary_size


@pytest.mark.parametrize("name", NAMES)
def test_bytes_of_every_id(name: str, theirs: dict[str, dict[str, Any]]) -> None:
    ours = encodings.get(name)
    # Of two names for one ID, the one that tells more is shown: the first.
    special = {
        rank: token.encode() for token, rank in reversed(theirs[name]["special_tokens"].items())
    }
    expected = {rank: token for token, rank in theirs[name]["mergeable_ranks"].items()} | special
    beyond = range(-2, ours.vocabulary_size + 3)
    assert [ours.token_bytes(token_id) for token_id in beyond] == [
        expected.get(token_id) for token_id in beyond
    ]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("special", [False, True])
def test_texts_become_the_same_ids(
    name: str, special: bool, built: dict[str, tiktoken.Encoding]
) -> None:
    for text in TEXTS:
        allowed: Any = "all" if special else set()
        expected = built[name].encode(text, allowed_special=allowed, disallowed_special=())
        assert encodings.get(name).encode(text, special).tolist() == expected


@given(text=st.text(max_size=80), name=st.sampled_from(NAMES))
@example(text="\ud7ff\ue000 \U0001f916", name="gpt2")
def test_any_text_becomes_the_same_ids(
    text: str, name: str, built: dict[str, tiktoken.Encoding]
) -> None:
    assert encodings.get(name).encode(text).tolist() == built[name].encode_ordinary(text)


@pytest.mark.parametrize(("size", "text"), [(50257, False), (50257, True), (50304, True)])
def test_rows_stand_for_tokens_of_a_text_and_where_there_are_as_many(size: int, text: bool) -> None:
    gpt2 = encodings.get("gpt2")
    assert encodings.encoding_for_rows(gpt2, size, text) is gpt2
    assert encodings.encoding_for_rows(gpt2, size - 1) is None


def test_a_token_with_two_names_spans_the_one_in_the_text() -> None:
    spans = encodings.get("o200k_harmony").spans("é<|reserved_200018|><|endofprompt|>", True)
    assert spans.tolist() == [[0, 1], [1, 20], [20, 35]]


WHOLE = gzip.compress(b"IQ== 0\n" * 500, mtime=0)
DAMAGED = {
    "missing": None,
    "empty": b"",
    "of nothing": gzip.compress(b"", mtime=0),
    "cut": WHOLE[:-9],
    "cut in the header": WHOLE[:5],
    "another checksum": WHOLE[:-8] + bytes(4) + WHOLE[-4:],
    "garbled": WHOLE[:12] + b"\xff" + WHOLE[13:],
    "not packed": b"IQ== 0\n",
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_rank_file_is_named_with_the_cure(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ranks.gz"
    if (data := DAMAGED[damage]) is not None:
        path.write_bytes(data)
    monkeypatch.setattr(packaged, "rank_file", lambda ranks: path)
    damaged = packaged.TiktokenEncoding("gpt2")
    for use in (lambda: damaged.encode("a"), lambda: damaged.token_bytes(1)):
        with pytest.raises(InputError) as error:
            use()
        assert f"the rank file {str(path)!r}" in str(error.value)
        assert str(error.value).endswith("; reinstall embcli")


@pytest.mark.parametrize(
    "name", [*model.MODEL_TO_ENCODING, *(f"{prefix}x" for prefix in model.MODEL_PREFIX_TO_ENCODING)]
)
def test_model_names(name: str) -> None:
    assert encodings.get(name).name == model.encoding_name_for_model(name)


NEAR = {
    "gpt3": "gpt2",
    "cl100k": "cl100k_base",
    "gpt4o": "gpt-4o",
    "GPT-4O": "gpt-4o",
    "o200": "o200k_base",
    "": "gpt2",
}


@pytest.mark.parametrize(("wrong", "near"), NEAR.items())
def test_unknown_names_are_refused_with_the_nearest(wrong: str, near: str) -> None:
    with pytest.raises(InputError, match="no encoding or model is named") as error:
        encodings.get(wrong)
    assert repr(wrong) in str(error.value)
    assert near in str(error.value).partition(";")[2]
