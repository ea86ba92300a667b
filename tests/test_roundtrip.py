"""A text against what its tokens decode to: the first difference is where a plain comparison finds it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import embcli
from embcli.errors import InputError
from embcli.verbs.roundtrip import _difference
from tests.inside import Inside
from tests.test_huggingface import saved

__all__ = ["saved"]  # a fixture

run = Inside()
CHARACTERS = st.text(st.sampled_from("abé日👋 "), max_size=8)


@settings(deadline=None)
@given(CHARACTERS, CHARACTERS)
def test_the_first_difference_is_that_of_the_characters(text: str, other: str) -> None:
    pairs = zip(text, other, strict=False)
    wanted = next((place for place, (one, two) in enumerate(pairs) if one != two), min(len(text), len(other)))
    assert _difference(text, other.encode()) == (None if text == other else wanted)


@settings(deadline=None, max_examples=40)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=60))
def test_every_text_comes_back_from_bytes(text: str) -> None:
    assert embcli.seeded().roundtrip(text).places == [None]


def test_a_text_that_comes_back() -> None:
    ran = run.ok("tokenize", "Every effort 👋", "--roundtrip")
    assert ran.text == "14 characters, 4 tokens (gpt2), decoded again:\nEqual\n"


def test_texts_that_do_not(saved: Callable[[str], Path], tmp_path: Path) -> None:
    words = str(saved("word_pieces"))
    ran = run("tokenize", "effort, É", "--roundtrip", "--encoding", words)
    assert ran.status == 1
    assert ran.text.splitlines()[1:] == ["Different from character 8 on", "text     É", "decoded  e"]
    ran = run("tokenize", "--lines", "--roundtrip", "--encoding", words, "-f", "ndjson", stdin="effort\n\neffort  of\n")
    rows = [json.loads(line) for line in ran.text.splitlines()]
    assert [(row["equal"], row["place"]) for row in rows] == [(True, None), (True, None), (False, 7)]
    out = tmp_path / "rows.csv"
    ran = run("tokenize", "É", "--roundtrip", "--encoding", words, "-o", str(out))
    assert (ran.status, ran.err) == (1, "embcli: status 1: 1 text decoded otherwise\n")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--ids", "1", "--roundtrip"], "--roundtrip shows how a text becomes tokens; --ids gives none"),
        (["x", "--merges", "--roundtrip"], "--merges and --roundtrip are two pages; give one of them"),
    ],
)
def test_what_has_no_round_trip_is_refused(words: list[str], reason: str) -> None:
    assert reason in run.refused("tokenize", *words)
    with pytest.raises(InputError, match="only a text comes back"):
        embcli.seeded().roundtrip([1, 2])
