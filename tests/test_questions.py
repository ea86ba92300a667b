"""Questions of readers, in words of theirs, find the entry of `explain` that answers them."""

from __future__ import annotations

import contextlib
import json
from functools import cache
from pathlib import Path

import pytest

import embcli
from embcli.verbs import explain as glossary
from tests.cases import cases

# What a student, a lecturer and an engineer ask, and the word whose entry answers. Those named
# "later" were written when the search had been made, "fresh" ones before their answers were seen;
# "held out" and "unseen" ones were measured before an entry was written for any of them. "heard"
# ones were asked by readers who did not find an answer, or found it in a list; "whole sentences"
# were invented before their answers were seen, and then found by words that entries got, as were
# those "of a student of chapter 2", "in sentences", "in sentences of readers", "why, how back, and
# what not", the two hundred, the sixty and the forty of chapter 2, the "everyday words", the
# hundred and fifty, the six times sixty, the hundred and fifty in whole sentences, and those that
# were mended. Those "elsewhere" are about something else: no word answers.
ASKED = json.loads(Path(__file__).with_name("questions.json").read_text("utf-8"))
ELSEWHERE = [*ASKED.pop("elsewhere")]
QUESTIONS: dict[str, str] = {
    question: word for questions in ASKED.values() for question, word in questions.items()
}


@cache
def answers() -> dict[str, glossary.Explanations]:
    return {question: glossary.explain(question) for question in QUESTIONS}


def found(answer: glossary.Explanations) -> list[str]:
    return [entry.word for entry in answer.entries]


def test_at_least_95_of_100_questions_find_their_entry():
    missed = {
        question: found(answer)
        for question, answer in answers().items()
        if QUESTIONS[question] not in found(answer)
    }
    assert len(missed) <= 0.05 * len(QUESTIONS), missed


def test_at_least_98_of_100_entries_that_stand_alone_are_right():
    alone = [question for question, answer in answers().items() if not answer.sentences]
    assert len(alone) >= 0.8 * len(QUESTIONS)
    wrong = {
        question: found(answers()[question])
        for question in alone
        if QUESTIONS[question] not in found(answers()[question])
    }
    assert len(wrong) <= 0.02 * len(alone), wrong


def test_no_entry_is_near_8_of_10_questions_about_something_else_and_few_seem_answered():
    near = {}
    for question in ELSEWHERE:
        with contextlib.suppress(embcli.InputError):
            near[question] = glossary.explain(question)
    assert len(near) <= 0.2 * len(ELSEWHERE), [*near]
    alone = [question for question, answer in near.items() if not answer.sentences]
    assert len(alone) <= 0.03 * len(ELSEWHERE), alone
    assert "what is a neural network" not in near


def test_one_word_that_is_no_name_does_not_tell_what_is_asked_about_it():
    assert glossary.explain("how does a GPU work").sentences


@cases
def test_a_clear_name_or_a_question_of_the_same_words_answers(question, words):
    """Two entries that are level are both shown, and a name that is the rarest word goes first.

    Words for no thing tell nothing, and a typo is the known word.
    """
    answer = glossary.explain(question)
    assert not answer.sentences
    assert [entry.word for entry in answer.entries] == words


def test_candidates_are_five_in_a_line_or_two_each_and_the_first_is_whole(in_process, snapshot):
    assert max(len(answer.entries) for answer in answers().values()) == 5
    page = in_process.ok("explain", "are neighbours computed exactly", "--width", "80").text
    snapshot("explain/candidates.txt", page)


def test_an_entry_that_is_ahead_is_shown_whole_and_the_next_ones_are_named(in_process, snapshot):
    question = "is the embedding of a padding token zero"
    snapshot("explain/see-also.txt", in_process.ok("explain", question, "--width", "80").text)


def test_words_that_no_entry_has_make_all_entries_less_near():
    question = "what rows does a cosine have"
    assert not glossary.explain(question + " with violets").sentences
    with pytest.raises(embcli.InputError, match="no entry is near it"):
        glossary.explain(question + " with violets and tulips")


def test_an_entry_with_several_questions_like_it_is_nearer():
    text = [glossary.Block("prose", "slow lookup of rows")]
    one = glossary.Entry("x", "", text, asked=["slow rows"])
    two = glossary.Entry("x", "", text, asked=["slow rows", "slow lookup"])
    asked = frozenset({"slow", "row", "lookup"})
    assert glossary._likeness(asked, two) > 1.05 * glossary._likeness(asked, one)


def test_a_number_that_a_text_writes_with_commas_is_found_without_them():
    assert glossary.explain("38597376").entries[0].word == "parameter"


def test_a_negative_zero_is_a_word():
    assert glossary.explain("why is there a -0.0").entries[0].word == "float32"


def test_both_sides_of_a_comparison_are_shown(in_process):
    page = in_process.ok("explain", "euclidean", "vs", "cosine").text
    for word in ("L2 distance", "cosine"):
        assert in_process.ok("explain", word).text.partition("See also: ")[0] in page


def test_an_entry_that_names_both_sides_stands_alone():
    assert found(glossary.explain("relative vs rotary")) == ["kinds of positions"]


def test_a_word_that_is_only_in_texts_offers_their_entries():
    found = glossary.explain("pandoc")
    assert found.sentences
    assert {entry.word for entry in found.entries} == {"formats", "pictures"}


@cases
def test_a_comparison_may_lack_a_side(question):
    with contextlib.suppress(embcli.InputError):
        assert {"cosine", "B"} & {entry.word for entry in glossary.explain(question).entries}


@pytest.mark.parametrize("question", ["kernel size", "what is the size of a kernel"])
def test_a_word_that_many_entries_have_does_not_find_a_question_of_others(question):
    with pytest.raises(embcli.InputError, match="no entry is near it"):
        embcli.explain(question)


def test_words_that_all_questions_have_find_nothing():
    with pytest.raises(embcli.InputError, match="not explained"):
        embcli.explain("what is the one")
