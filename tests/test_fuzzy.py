"""Fuzzy search among the words of a vocabulary, against one that looks at each word."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from embcli import encodings
from embcli.explore.fuzzy import Words
from embcli.tokens import shown

LETTERS = st.text("aAbB␣é中ßİiΣς\\x", max_size=8)
TYPED = st.text("aAbB é中ßİiσ\\x\n\ud800", max_size=5)


def slow(words: list[str], typed: str, top: int) -> list[int]:
    """Return what Words.find returns, from a look at each word."""
    query = typed.replace("\n", " ").replace("\ud800", "?").replace(" ", "␣").strip("␣")
    keep = str if any(letter.isupper() for letter in query) else str.casefold
    query, found = keep(query), []
    for number, word in enumerate(words):
        bare = word.lstrip("␣") or word
        text, letters = keep(bare), iter(keep(bare))
        groups = [text.startswith(query), query in text, all(each in letters for each in query)]
        if query and True in groups:
            found.append((groups.index(True), len(bare), number))
    return [number for _, _, number in sorted(found)[:top]]


@given(st.lists(LETTERS, max_size=30), TYPED, st.integers(1, 9))
@example([], "a", 1)
@example(["", "␣␣", "ba", "ab"], "ba", 9)
@example(["\\n", "a"], "a\n", 9)
def test_words_are_those_that_a_slow_search_finds(words: list[str], typed: str, top: int) -> None:
    assert Words(words).find(typed, top).tolist() == slow(words, typed, top)


def test_a_vocabulary_is_searched_as_pages_spell_it() -> None:
    gpt2 = encodings.get("gpt2")
    words, spelled = Words.of(gpt2, 50_300), [shown(gpt2.entry(each)) for each in range(50_300)]
    for typed in (" Paris", "nghbr", "e", "THE", "\\x", "|endof", "eeee", "zzq"):
        assert words.find(typed).tolist() == slow(spelled, typed, 50)


@pytest.mark.parametrize("typed", ["", " ", "\n", "␣"])
def test_nothing_typed_matches_nothing(typed: str) -> None:
    assert Words(["a", "␣"]).find(typed).tolist() == []
