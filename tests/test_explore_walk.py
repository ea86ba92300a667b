"""A short walk through the full screen at random; `python -m tests.explore_walk` takes long ones."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from embcli.explore import jobs
from tests.explore_walk import Source, broken_matrix, hostile_words, keys, walk_inside, walk_terminal

# Python 3.12 warns where a process with threads forks to start a terminal.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")


@pytest.mark.parametrize("made", [broken_matrix, hostile_words])
def test_numbers_of_screens_are_those_of_their_commands(
    made: Callable[[Path], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "_REST", 0.0)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLORTERM", "truecolor")
    source, chance = Source((str(made(tmp_path)),)), random.Random(3)
    walked = asyncio.run(walk_inside(source, chance, keys(chance), 60, 10))
    assert not walked.wrong
    assert walked.screens >= 3
    assert walked.numbers > 50


def test_a_terminal_is_left_as_it_was_by_keys_that_do_not_wait(tmp_path: Path) -> None:
    chance = random.Random(4)
    source = Source((str(broken_matrix(tmp_path)),))
    assert not walk_terminal(source, chance, keys(chance), 60, fast=True, how="SIGHUP").wrong
