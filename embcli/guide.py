"""The guide of a tour: step by step on a terminal, by keys; all of it, or one step, in a pipe."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from embcli import keys
from embcli.errors import EmbcliError
from embcli.output import Output
from embcli.safe import say
from embcli.verbs.tour import PLACE
from embcli.views import tour as view

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from embcli.page import Page
    from embcli.verbs.tour import Step, Tour

Typed = TypeVar("Typed")
_KEYS = "Enter goes on, b back, q ends: "
_ANSWER = "Your answer (Enter goes on, b back, q ends): "
_ON, _BACK, _END = ("\n", " ", "n"), ("b",), ("q", "")
_WRITES = re.compile(r"-[^-].*o|-o", re.DOTALL)  # -o, also after other letters, or with the path attached
_REFUSED_OPTIONS = ("--output", "--install-completion")


def refused_word(words: list[str]) -> str | None:
    """Return the first word of a command that writes or deletes files, None if there is none; words may be shortened.

    >>> refused_word(["info", "--out", "x"]), refused_word(["cache", "cl"]), refused_word(["info"])
    ('--out', 'cl', None)
    """
    for word in words:
        name = word.partition("=")[0]
        shortened = len(name) > 2 and any(option.startswith(name) for option in _REFUSED_OPTIONS)
        clears = words[0] == "cache" and len(word) > 1 and "clear".startswith(word)
        if shortened or clears or _WRITES.match(word):
            return word
    return None


def typed(step: Step, text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place; a text that begins with a dash is placed after --.

    >>> from embcli.verbs.tour import Step
    >>> typed(Step("", ("lookup", "{text}", "--dim", "3"), ""), "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    filled = [word.replace(PLACE, text) for word in step.command]
    dashed = [word for given, word in zip(step.command, filled, strict=True) if PLACE in given and word[:1] == "-"]
    if not dashed or "--" in filled:
        return filled
    return [*(word for word in filled if word not in dashed), "--", *dashed]


def guide(tour: Tour, first: int | None, run: Callable[[list[str]], object]) -> int:
    """Go through a tour, on a terminal from the step that is named; in a pipe print it, or that step alone.

    `run` runs the words behind `embcli`. A step that fails is told and the tour goes on; the status is 2 in the end.
    Raises InputError for a step that is not there.
    """
    tour.check(first)
    guided = _Guided(tour, run)
    if sys.stdout is not None and sys.stdout.isatty() and keys.there():
        guided.walk(first or 1)
        print()
    else:
        guided.put_all(range(1, len(tour.steps) + 1) if first is None else [first])
    return 2 if guided.failed else 0


@dataclass
class _Guided:
    """A tour under way."""

    tour: Tour
    run: Callable[[list[str]], object]
    failed: bool = False

    def put_all(self, numbers: Sequence[int]) -> None:
        """Put these steps one under the other, with their questions and the answers."""
        for number in numbers:
            if number != numbers[0]:
                _put(lambda page: page.line())
            step = self._begin(number, asks=True)
            self._show(step)

    def walk(self, number: int) -> None:
        """Show step after step, each on a screen of its own, as the keys say."""
        while number <= len(self.tour.steps):
            key = self._visit(number)
            if key in _END:
                break
            number = max(number - 1, 1) if key in _BACK else number + 1

    def _visit(self, number: int) -> str:
        """Show a step, its question first, and return the key that leaves it."""
        given = ""
        if self.tour.steps[number - 1].question is not None:
            _clear()
            step = self._begin(number, asks=True)
            typed = _prompted(_ANSWER, keys.line)
            given = "" if typed is None else typed.strip()
            if typed is None or (given in ("b", "q") and not step.is_right(given)):
                return given
        _clear()
        self._show(self._begin(number), given)
        while (key := _prompted(_KEYS, keys.pressed)) not in (*_ON, *_BACK, *_END):
            pass
        return key

    def _begin(self, number: int, asks: bool = False) -> Step:
        _put(lambda page: view.put_heading(self.tour, number, page))
        step = self.tour.steps[number - 1]
        if asks:
            _put(lambda page: view.put_question(step, page))
        return step

    def _show(self, step: Step, given: str = "") -> None:
        """Put the command of a step, its output as it comes, and the words."""
        words = typed(step, self.tour.text)
        _put(lambda page: view.put_command(words, page))
        try:
            with _on_its_own():
                self.run(words)
        except EmbcliError as error:
            self.failed = True
            say(*filter(None, [str(error), error.hint]))
        sys.stdout.flush()
        _put(lambda page: view.put_words(step, page, given))


def _put(put: Callable[[Page], None]) -> None:
    Output("table", None).put(put)


def _clear() -> None:
    """Clear the screen, where the terminal knows how."""
    sys.stdout.write("\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J")
    sys.stdout.flush()


def _prompted(prompt: str, typed: Callable[[], Typed]) -> Typed:
    """Return what is typed behind a prompt, which stays in its line."""
    sys.stdout.write(f"\r{prompt}")
    sys.stdout.flush()
    return typed()


@contextmanager
def _on_its_own() -> Iterator[None]:
    """Give a step an empty standard input and a page: what is typed, piped in or set is not for it."""
    before, format = sys.stdin, os.environ.pop("EMBCLI_FORMAT", None)
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before
            if format is not None:
                os.environ["EMBCLI_FORMAT"] = format
