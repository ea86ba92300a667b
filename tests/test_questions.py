"""Questions of readers, in words of theirs, find the entry of `explain` that answers them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import embcli
from embcli.verbs import explain as glossary
from tests.runners import InProcess
from tests.snapshots import Snapshot

# What a student, a lecturer and an engineer ask, and the word whose entry answers. Those named
# "later" were written when the search had been made, "fresh" ones before their answers were seen.
ASKED = json.loads(Path(__file__).with_name("questions.json").read_text("utf-8"))
QUESTIONS: dict[str, str] = {
    question: word for questions in ASKED.values() for question, word in questions.items()
}
FOUND = {
    question: [entry.word for entry in glossary.explain(question).entries] for question in QUESTIONS
}


def test_at_least_95_of_100_questions_find_their_entry() -> None:
    missed = {
        question: FOUND[question]
        for question, word in QUESTIONS.items()
        if word not in FOUND[question]
    }
    assert len(missed) <= 0.05 * len(QUESTIONS), missed


def test_at_least_95_of_100_entries_that_stand_alone_are_right() -> None:
    alone = {question: found[0] for question, found in FOUND.items() if len(found) == 1}
    assert len(alone) >= 0.5 * len(QUESTIONS)
    wrong = {question: word for question, word in alone.items() if word != QUESTIONS[question]}
    assert len(wrong) <= 0.05 * len(alone), wrong


def test_candidates_are_two_or_three_in_a_line_or_two_each(
    in_process: InProcess, snapshot: Snapshot
) -> None:
    assert max(map(len, FOUND.values())) == 3
    page = in_process.ok("explain", "why is the one-hot product the same", "--width", "80").text
    snapshot("explain/candidates.txt", page)


def test_both_sides_of_a_comparison_are_shown(in_process: InProcess) -> None:
    page = in_process.ok("explain", "euclidean", "vs", "cosine").text
    for word in ("L2 distance", "cosine"):
        assert in_process.ok("explain", word).text in page


def test_an_entry_that_names_both_sides_stands_alone() -> None:
    assert FOUND["relative vs rotary"] == ["kinds of positions"]


def test_words_that_all_questions_have_find_nothing() -> None:
    with pytest.raises(embcli.InputError, match="not explained"):
        embcli.explain("what is the one")
