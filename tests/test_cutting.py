"""A long text is encoded in parts: the tokens and spans are those of the whole text."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from tokenizers import AddedToken, Regex, Tokenizer, normalizers, pre_tokenizers

from embcli import seeded
from embcli.encodings import cutting, huggingface
from embcli.encodings.huggingface import HuggingFaceEncoding, read_tokenizer
from tests.test_huggingface import MADE, byte_level, loaded, opened, saved

__all__ = ["saved"]  # a fixture


def long_text(seed: int) -> str:
    """Return a text of 1,000 words, with numbers, blanks, line breaks and other scripts."""
    chance = random.Random(seed)
    words = ["every", "Effort", "moves", "éa", "12,345", "日本", "don't", "(you)", "<s>", "🤖"]
    blanks = [" ", " ", " ", "\n", "  ", ".\n\n", "\t", ", "]
    return "".join(chance.choice(words) + chance.choice(blanks) for _ in range(1000))


def checked(path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Hold a text in parts against the whole text; return how many parts there were."""
    ours = HuggingFaceEncoding(path, "cut", partial(read_tokenizer, path))
    counts = []
    for special in (False, True):
        text = long_text(seed=len(counts))
        HuggingFaceEncoding._parts.cache_clear()
        monkeypatch.setattr(cutting, "PART_SIZE", len(text))
        ids = ours.encode(text, special).tolist()
        spans = ours.spans(text, special).tolist()
        assert ids == ours.tokenizer.encode(text, add_special_tokens=False).ids

        HuggingFaceEncoding._parts.cache_clear()
        monkeypatch.setattr(cutting, "PART_SIZE", 150)
        assert ours.encode(text, special).tolist() == ids
        assert ours.spans(text, special).tolist() == spans
        parts = ours._parts(text, special)
        assert "".join(parts) == text
        counts.append(len(parts))
    return counts


@pytest.mark.parametrize("name", MADE)
def test_parts_have_the_tokens_of_the_whole(
    name: str, saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = checked(saved(name), monkeypatch)
    is_cut = name not in ("pieces", "byte_fallback")  # These have no pre-tokenizer.
    assert (min(counts) > 20) == is_cut
    assert (max(counts) == 1) == (not is_cut)


def with_blank_tokens(made: Tokenizer) -> None:
    made.add_tokens([AddedToken("  ", normalized=False), AddedToken("\n", normalized=False)])


def with_crossing_token(made: Tokenizer) -> None:
    made.add_tokens([AddedToken("every Effort", normalized=False)])


def with_stripping_token(made: Tokenizer) -> None:
    made.add_tokens([AddedToken("moves", rstrip=True, normalized=False)])


def with_prefix(made: Tokenizer) -> None:
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)


def with_prepended(made: Tokenizer) -> None:
    made.normalizer = normalizers.Prepend("x")


def with_pairs_of_words(made: Tokenizer) -> None:
    pairs = pre_tokenizers.Split(Regex(r"\w+ \w+"), "isolated")
    made.pre_tokenizer = pre_tokenizers.Sequence([pairs, made.pre_tokenizer])


@pytest.mark.parametrize(
    ("change", "is_cut"),
    [
        (with_blank_tokens, True),
        (with_prefix, True),
        (with_crossing_token, False),
        (with_stripping_token, False),
        (with_prepended, False),
        (with_pairs_of_words, False),
    ],
)
def test_a_tokenizer_that_may_look_further_keeps_the_whole(
    change: Callable[[Tokenizer], None],
    is_cut: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = byte_level()
    change(made)
    made.save(str(tmp_path / "tokenizer.json"))
    counts = checked(tmp_path / "tokenizer.json", monkeypatch)
    assert (min(counts) > 1) == is_cut
    assert cutting.is_local(loaded(tmp_path / "tokenizer.json")) == is_cut


def test_a_long_text_that_is_encoded_as_a_whole_is_noted(
    saved: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface, "MAX_WHOLE", 5000)
    monkeypatch.setattr(cutting, "PART_SIZE", 1000)
    for name, is_noted in (("byte_fallback", True), ("gpt2", False)):
        model = seeded(encoding=str(saved(name)), dim=2)
        notes = [str(note) for note in model.tokenize("moves you " * 5000).notes]
        assert any("into parts" in note for note in notes) == is_noted
    assert opened(saved("gpt2")).why_in_memory("moves" * 20_000) != ""
