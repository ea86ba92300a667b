"""The tour: steps of a heading, a command of embcli, and words, which are data."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from embcli.errors import InputError

_STEPS = Path(__file__).parents[1] / "data" / "tour.json"
PLACE = "{text}"  # stands for the text in a command


@dataclass(frozen=True)
class Step:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    command: tuple[str, ...]  # the words after `embcli`, the verb first
    words: str
    question: str | None = None
    answer: str | None = None
    about: tuple[str, ...] = ()  # a command whose output is above the question, as the question is about it
    told: str | None = None  # the hint that its words give, so that the page leaves it out

    def is_right(self, answer: str) -> bool:
        """Return whether this is the answer; blanks, commas and capitals do not count."""
        return _plain(answer) == _plain(self.answer or "")


def steps(first: int | None = None) -> tuple[Step, ...]:
    """Return the steps; raises InputError if the first one does not exist, counted from 1."""
    found = tuple(map(_step, orjson.loads(_STEPS.read_bytes())))
    if first is not None and not 1 <= first <= len(found):
        raise InputError(f"step must be from 1 to {len(found)}, not {str(first)[:20]}", parameters=("step",))
    return found


def as_typed(words: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    return " ".join(["embcli", *map(_quoted, words)])


def with_text(command: tuple[str, ...], text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place; a text that begins with a dash is placed after --.

    >>> with_text(("lookup", "{text}", "--dim", "3"), "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    filled = [word.replace(PLACE, text) for word in command]
    dashed = [word for given, word in zip(command, filled, strict=True) if PLACE in given and word[:1] == "-"]
    if not dashed or "--" in filled:
        return filled
    return [*(word for word in filled if word not in dashed), "--", *dashed]


def _step(stored: dict[str, Any]) -> Step:
    for key in {"command", "about"} & {*stored}:
        stored[key] = tuple(shlex.split(stored[key])[1:])
    return Step(**stored)


def _quoted(word: str) -> str:
    if shlex.quote(word) == word or re.search(r'["$`\\!]', word):
        return shlex.quote(word)
    return f'"{word}"'


def _plain(answer: str) -> str:
    return re.sub(r"[\s,]", "", answer).casefold()
