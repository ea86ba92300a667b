"""The tour: steps on a terminal, led by keys; all of it, or one step, in a pipe. The steps are `data/tour.json`."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import orjson
from rich.console import Group, RenderableType

from embcli.cli.console import is_terminal, read_key, read_line, say_error
from embcli.cli.output import SUGGESTING, Output
from embcli.cli.text import argument
from embcli.errors import EmbcliError, InputError
from embcli.page import title, words

_LINES = 24  # of a small screen, which the page and the words of a step fit
_KEYS = "Enter continues, b goes back, q quits: "
_ANSWER = "Your answer (Enter continues, b goes back, q quits): "
_ON, _BACK, _END = ("\n", " ", "n"), ("b",), ("q", "")
_NEXT = (
    'embcli tokenize "A text of yours" --merges',
    'embcli lookup "A text of yours" --heat',
    'embcli lookup "A text of yours" --from MODEL',
)


@dataclass(frozen=True)
class Step:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    command: str  # as it is typed, with {text} in place of the text
    words: str
    question: str = ""
    answer: str = ""
    about: str = ""  # a command whose output is above the question, as the question is about it

    def is_right(self, answer: str) -> bool:
        """Return whether this is the answer; blanks, commas and capitals do not count."""
        plain, right = (re.sub(r"[\s,]", "", each).casefold() for each in (answer, self.answer))
        return plain == right


STEPS = [Step(**each) for each in orjson.loads((Path(__file__).parents[1] / "data" / "tour.json").read_bytes())]


def with_text(command: str, text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place; a text that begins with a dash is placed after --.

    >>> with_text("embcli lookup {text} --dim 3", "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    given = shlex.split(command)[1:]
    filled = [word.replace("{text}", text) for word in given]
    dashed = [word for word, old in zip(filled, given, strict=True) if "{text}" in old and word.startswith("-")]
    return [*(word for word in filled if word not in dashed), "--", *dashed] if dashed else filled


def as_typed(typed: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    line = shlex.join(["embcli", *typed])
    return line if re.search(r'["$`\\!]', line) else line.replace("'", '"')


def guide(text: str, first: int | None, run: Callable[[list[str]], object]) -> int:
    """Go through the tour, on a terminal from the step that is named; in a pipe print all steps, or only that one.

    `run` runs the words after `embcli`. A step that fails is reported and the tour continues; then the status is 2.
    Raises InputError for a step that does not exist, and for a text that means standard input.
    """
    if text == "-":
        raise InputError("--text - would read standard input, which the steps cannot share; give the text itself")
    tour = _Tour(argument(text, "--text"), run)
    if first is not None and not 1 <= first <= len(STEPS):
        raise InputError(f"step must be from 1 to {len(STEPS)}, not {str(first)[:20]}", parameters=("step",))
    if is_terminal(sys.stdout) and is_terminal(sys.stdin):
        reached_end = tour.walk(first or 1)
        print()
    else:
        reached_end = first is None
        tour.print(range(1, len(STEPS) + 1) if first is None else [first])
    if reached_end:
        commands = [words(f"$ {line}", "embedding") for line in _NEXT]
        _show("", "Next, with a text of yours, and with a model on your disk:", *commands)
    return 2 if tour.failed else 0


@dataclass
class _Tour:
    """A tour in progress."""

    text: str
    run: Callable[[list[str]], object]
    failed: bool = False

    def print(self, numbers: Sequence[int]) -> None:
        """Print these steps one under the other, with their questions and the answers."""
        above = ""  # the command whose output is above
        for number in numbers:
            if number != numbers[0]:
                _show("")
            self._ask(number, above)
            self._explain(number)
            above = STEPS[number - 1].command

    def walk(self, number: int) -> bool:
        """Show step after step, each on a screen of its own, as the keys say; return whether the last one was left."""
        while number <= len(STEPS):
            key = self._visit(number)
            if key in _END:
                return False
            number = max(number - 1, 1) if key in _BACK else number + 1
        return True

    def _visit(self, number: int) -> str:
        """Show a step, its question first, and return the key that leaves it."""
        answer, step = "", STEPS[number - 1]
        clear = "\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J"
        if step.question:
            _write(clear)
            self._ask(number)
            _write(f"\r{_ANSWER}")
            typed = read_line()
            answer = "" if typed is None else typed.strip()
            if typed is None or (answer in ("b", "q") and not step.is_right(answer)):
                return answer
        _write(clear)
        self._ask(number, step.about)
        self._explain(number, answer)
        while True:
            _write(f"\r{_KEYS}")
            if (key := read_key()) in (*_ON, *_BACK, *_END):
                return key

    def _ask(self, number: int, above: str = "") -> None:
        """Print the heading and the question of a step, after the output of its command, unless that is above."""
        step = STEPS[number - 1]
        _show(title(f"{number}/{len(STEPS)}  {step.heading}"))
        if step.about and step.about != above:
            self._run(step.about)
            _show("")
        if step.question:
            _show(words(step.question))

    def _explain(self, number: int, answer: str = "") -> None:
        """Print the command of a step, its output as it comes, and the explanation."""
        step = STEPS[number - 1]
        self._run(step.command)
        _show("")
        if answer:
            _show(words("Right.", "good") if step.is_right(answer) else words(f"Not quite: {step.answer}", "bad"))
        elif step.answer:
            _show(words(f"The answer: {step.answer}"))
        _show(words(step.words))

    def _run(self, command: str) -> None:
        typed = with_text(command, self.text)
        _show(*(words(line, "embedding") for line in f"$ {as_typed(typed)}".replace("\n", "\n> ").split("\n")))
        try:
            with _isolated():
                self.run(typed)
        except EmbcliError as error:
            self.failed = True
            say_error(error)
        sys.stdout.flush()


def _show(*parts: RenderableType) -> None:
    Output("table", None).show(Group(*parts))


def _write(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


@contextmanager
def _isolated() -> Iterator[None]:
    """Give a step an empty standard input and the default format, whatever is typed, piped in or set.

    Its page is no longer than on a small screen, as some pages would take all of a larger one: words are around it.
    """
    stdin, environment = sys.stdin, dict(os.environ)
    suggesting = SUGGESTING.set(False)  # the words of a step say what to look at
    os.environ["LINES"] = str(min(shutil.get_terminal_size().lines, _LINES))  # by LINES, or those of the terminal
    os.environ.pop("EMBCLI_FORMAT", None)
    try:
        with open(os.devnull) as sys.stdin:
            yield
    finally:
        SUGGESTING.reset(suggesting)
        sys.stdin = stdin
        os.environ.clear()
        os.environ.update(environment)
