"""Nouns beside numbers are in the right number: on all pages, and where a matrix has one value."""

import re

import numpy as np

from tests.cases import cases
from tests.snapshots import PAGES

NOUN = "(?:value|row|column|token|byte|number|character|piece|tensor|place|position|angle)"
ONE = rf"(?<![\w.,/-])(?<!\+ )1(?: more| other| added| unused)? {NOUN}"
SEVERAL = rf"(?<![\w.,/-])(?:0|[2-9]|[1-9][\d,]+) {NOUN}\b(?![-/])"


def test_pages_have_their_nouns_in_the_right_number():
    for path in PAGES.rglob("*.*"):
        assert re.findall(rf"{ONE}s\b|{SEVERAL}", path.read_text()) == [], path


@cases
def test_of_one_thing_nothing_is_said_as_of_several(in_process, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.full((1, 1), 0.1))
    ran = in_process(*words.split())
    assert re.findall(rf"{ONE}\w*", ran.text + ran.err)
    assert not re.findall(rf"{ONE}s", ran.text + ran.err)
