"""Nouns beside numbers are in the right number, on all pages, in errors and in what is explained."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.cases import cases
from tests.snapshots import PAGES

NOUN = "value|row|column|token|byte|number|character|piece|tensor|place|position|sequence|angle"
ONE = rf"(?<![\w.,/-]|\+ )1(?: more| other| added| unused)? (?:{NOUN})s\b"
SEVERAL = rf"(?<![\w.,/-])(?:0|[2-9]|[1-9][\d,]+) (?:{NOUN})\b(?![-/])"


@pytest.mark.parametrize("folder", sorted(PAGES.iterdir()))
def test_pages_have_their_nouns_in_the_right_number(folder):
    for path in [folder, *folder.rglob("*.*")]:
        text = path.read_text() if path.is_file() else ""
        assert re.findall(f"{ONE}|{SEVERAL}", text) == []


@cases
def test_a_matrix_of_one_number_has_one_row_and_one_column(in_process, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    np.save("one.npy", np.full((1, 1), 0.1))
    Path("bad.vec").write_text("2 2\na 1\n")
    ran = in_process(*words.split())
    assert re.findall(ONE, ran.text + ran.err) == []
    assert re.search(rf"\b1 (?:{NOUN})\b", ran.text + ran.err)
