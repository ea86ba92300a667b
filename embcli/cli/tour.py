"""The guide through the tour: step by step on a terminal, by keys; all of it, or one step, in a pipe."""

import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

from embcli.cli.console import is_terminal, read_key, read_line, say_error
from embcli.cli.output import Output
from embcli.cli.text import argument
from embcli.errors import EmbcliError, InputError
from embcli.hints import without
from embcli.oldpage import Page
from embcli.verbs.tour import Step, steps, with_text
from embcli.views import tour as view
from embcli.views.parts import put_prose

Typed = TypeVar("Typed")
_LINES = 24  # of the small screen that a step's page and words fit
_KEYS = "Enter continues, b goes back, q quits: "
_ANSWER = "Your answer (Enter continues, b goes back, q quits): "
_ON, _BACK, _END = ("\n", " ", "n"), ("b",), ("q", "")


def guide(text: str, first: int | None, run: Callable[[list[str]], object]) -> int:
    """Go through the tour, on a terminal from the step that is named; in a pipe print all steps, or only that one.

    `run` runs the words after `embcli`. A step that fails is reported and the tour continues; then the status is 2.
    Raises InputError for a step that does not exist, and a text that means standard input.
    """
    if text == "-":
        raise InputError("--text - would read standard input, which the steps cannot share; give the text itself")
    running = _Tour(steps(first), argument(text, "--text"), run)
    if is_terminal(sys.stdout) and is_terminal(sys.stdin):
        reached_end = running.walk(first or 1)
        print()
    else:
        reached_end = first is None
        running.put_all(range(1, len(running.steps) + 1) if first is None else [first])
    if reached_end:
        _put(lambda page: view.put_next(page))
    return 2 if running.failed else 0


@dataclass
class _Tour:
    """A tour in progress."""

    steps: tuple[Step, ...]
    text: str
    run: Callable[[list[str]], object]
    failed: bool = False

    def put_all(self, numbers: Sequence[int]) -> None:
        """Print these steps one under the other, with their questions and the answers."""
        above: tuple[str, ...] = ()  # the command whose output is above
        for number in numbers:
            if number != numbers[0]:
                _put(lambda page: page.line())
            self._ask(number, above)
            self._show(number)
            above = self.steps[number - 1].command

    def walk(self, number: int) -> bool:
        """Show step after step, each on a screen of its own, as the keys say; return whether the last one was left."""
        while number <= len(self.steps):
            key = self._visit(number)
            if key in _END:
                return False
            number = max(number - 1, 1) if key in _BACK else number + 1
        return True

    def _visit(self, number: int) -> str:
        """Show a step, its question first, and return the key that leaves it."""
        answer, step = "", self.steps[number - 1]
        if step.question is not None:
            _clear()
            self._ask(number)
            typed = _prompted(_ANSWER, read_line)
            answer = "" if typed is None else typed.strip()
            if typed is None or (answer in ("b", "q") and not step.is_right(answer)):
                return answer
        _clear()
        self._ask(number, step.about)
        self._show(number, answer)
        while (key := _prompted(_KEYS, read_key)) not in (*_ON, *_BACK, *_END):
            pass
        return key

    def _ask(self, number: int, above: tuple[str, ...] = ()) -> None:
        """Print the heading and the question of a step; `above` is the command whose output is already above.

        The output of the command that the question is about comes first.
        """
        step = self.steps[number - 1]
        _put(lambda page: page.title(f"{number}/{len(self.steps)}  {step.heading}"))
        if step.about and step.about != above:
            self._run(step.about, step)
            _put(lambda page: page.line())
        _put(lambda page: put_prose(step.question or "", page))

    def _show(self, number: int, answer: str = "") -> None:
        """Print the command of a step, its output as it comes, and the explanation."""
        step = self.steps[number - 1]
        self._run(step.command, step)
        _put(lambda page: view.put_words(step, page, answer))

    def _run(self, command: tuple[str, ...], step: Step) -> None:
        words = with_text(command, self.text)
        _put(lambda page: view.put_command(words, page))
        try:
            with _isolated(), without(step.told):
                self.run(words)
        except EmbcliError as error:
            self.failed = True
            say_error(error)
        sys.stdout.flush()


def _put(put: Callable[[Page], None]) -> None:
    Output("table", None).put(put)


def _clear() -> None:
    """Clear the screen, if the terminal can."""
    sys.stdout.write("\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J")
    sys.stdout.flush()


def _prompted(prompt: str, typed: Callable[[], Typed]) -> Typed:
    """Return the input typed after a prompt on the same line."""
    sys.stdout.write(f"\r{prompt}")
    sys.stdout.flush()
    return typed()


@contextmanager
def _isolated() -> Iterator[None]:
    """Give a step an empty standard input and the default format, whatever is typed, piped in or set.

    Its page is no longer than on a small screen, as some pages would take all of a larger one: words are around it.
    """
    lines = shutil.get_terminal_size().lines  # LINES, or those of the terminal
    before, set_before = sys.stdin, {name: os.environ.pop(name, None) for name in ("EMBCLI_FORMAT", "LINES")}
    os.environ["LINES"] = str(min(lines, _LINES))
    with open(os.devnull) as nothing:
        sys.stdin = nothing
        try:
            yield
        finally:
            sys.stdin = before
            del os.environ["LINES"]
            os.environ.update({name: value for name, value in set_before.items() if value is not None})
