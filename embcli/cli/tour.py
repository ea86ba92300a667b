"""The tour: steps on a terminal, led by keys; in a pipe or a file all of them, or one. They are `data/tour.json`.

A step shows a command, its result, and words about it. The results are those of the commands themselves.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from embcli.cli.console import is_terminal, say_error
from embcli.cli.output import ResultWriter
from embcli.errors import EmbcliError, InputError, OutputError
from embcli.names import TOUR_TEXT
from embcli.page import safe_text, title
from embcli.page.parts import CutPage, Sheets
from embcli.result import Result
from embcli.text import decoded
from embcli.wording import Sentence

if TYPE_CHECKING:
    from embcli.records import Records

_KEYS = "Enter continues, b goes back, q quits: "
_ANSWERS = (
    f"Your answer ({_KEYS[:-2]}): ",
    "Not quite. Try again (Enter shows the answer, b goes back, q quits): ",
)
_SHEET = 40  # lines of a step on paper
_ON, _BACK, _END = ("\r", "\n", " ", "n"), ("b",), ("q", "")
_NEXT = ("tokenize", "--merges"), ("lookup", "--heat"), ("lookup", "--from MODEL")


@dataclass(frozen=True)
class TourStep:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    command: str  # as it is typed, with {text} in place of the text, and {reversed} with its words in reverse
    words: str
    question: str = ""
    answers: tuple[str, ...] = ()  # the first one is shown
    about: str = ""  # a command whose output is above the question, as the question is about it
    own: dict[str, str] = field(
        default_factory=dict
    )  # what is different with the reader's own text

    def is_right(self, answer: str) -> bool:
        """Return whether this is an answer; blanks, commas and capitals do not count."""
        plain, *right = (re.sub(r"[\s,.]", "", each).casefold() for each in (answer, *self.answers))
        return plain in right


STEPS = [
    TourStep(**each)
    for each in orjson.loads((Path(__file__).parents[1] / "data" / "tour.json").read_bytes())
]


def with_text(command: str, text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place; a text that begins with a dash is placed after --.

    >>> with_text("embcli lookup {text} --dim 3", "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    given, turned = shlex.split(command)[1:], " ".join(reversed(text.split()))
    filled = [word.replace("{reversed}", turned).replace("{text}", text) for word in given]
    dashed = [
        word
        for word, old in zip(filled, given, strict=True)
        if "{text}" in old and word.startswith("-")
    ]
    return [*(word for word in filled if word not in dashed), "--", *dashed] if dashed else filled


def as_typed(typed: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    line = shlex.join(["embcli", *typed])
    return line if re.search(r'["$`\\!]', line) else line.replace("'", '"')


def guide(
    text: str, first: int | None, result_of: Callable[[list[str]], object], is_file: bool
) -> Handout:
    """Go through the tour on a terminal, from the step that is named; otherwise return all steps, or only that one.

    `result_of` returns the result of the command with these words after `embcli`. A step that fails is reported and the
    tour continues; then the status is 2.
    """
    if text.strip() in ("", "-"):  # the steps cannot share standard input
        raise InputError(f"--text {text!r} is not a text; give the text itself")
    text = decoded(text, "--text")
    steps = STEPS if text == TOUR_TEXT else [replace(step, **step.own) for step in STEPS]  # type: ignore[arg-type]
    if first is not None and not 1 <= first <= len(steps):
        wrong = "{step} must be from 1 to {count}, not {given}"
        raise InputError(Sentence(wrong, count=len(steps), given=str(first)[:20]))
    tour = _Tour(steps, text, result_of)
    if not is_file and is_terminal(sys.stdout) and is_terminal(sys.stdin):
        is_done = tour.walk(first or 1)
        return Handout([["", *_last_words()] if is_done else [""]], tour.has_failed)
    return tour.handout(first, is_file)


def _last_words() -> list[RenderableType]:
    lines: list[RenderableType] = ["Next, with a text of yours, and with a model on your disk:"]
    return lines + [
        safe_text(f'$ embcli {verb} "A text of yours" {flag}', "accent") for verb, flag in _NEXT
    ]


@dataclass(frozen=True, eq=False)
class Handout(Result, verb="tour", content="page"):
    """Steps of the tour on one page, each on a sheet of its own."""

    sheets: Sequence[Sequence[RenderableType]]
    has_failed: bool  # whether the command of a step has

    @property
    def status(self) -> int:
        return 2 if self.has_failed else 0

    def records(self) -> Records:
        raise OutputError("the tour is a page, without data behind it")

    def view(self) -> RenderableType:
        return Sheets([Group(*sheet) for sheet in self.sheets])

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.view()


@dataclass
class _Tour:
    """A tour in progress."""

    steps: list[TourStep]
    text: str
    result_of: Callable[[list[str]], object]
    has_failed: bool = False

    def walk(self, number: int) -> bool:
        """Show step after step, each on a screen of its own, as the keys say; return whether the last one was left."""
        while number <= len(self.steps):
            step, answer, key = self.steps[number - 1], "", "?"
            if step.question:
                _show_screen(self._asked(number))
                for prompt in _ANSWERS:
                    print(f"\r{prompt}", end="", flush=True)
                    typed = sys.stdin.buffer.readline().decode(errors="replace")
                    answer = typed.strip()
                    if not answer or step.is_right(answer) or answer in (*_BACK, *_END):
                        break
                if not typed or (answer in ("b", "q") and not step.is_right(answer)):
                    key = answer
            if key == "?":
                asked = self._asked(number, above=step.about)
                _show_screen(
                    [
                        *asked,
                        *self._told(number, asked, answer, shutil.get_terminal_size().lines - 1),
                    ]
                )
            while key not in (*_ON, *_BACK, *_END):
                print(f"\r{_KEYS}", end="", flush=True)
                key = ""  # if the terminal is gone
                with suppress(EOFError, OSError):
                    key = typer.getchar()[:1]
            if key in _END:
                return False
            print(
                f"\r{' ' * len(_KEYS)}\r", end="", flush=True
            )  # for what the next step says while it is made
            number = max(number - 1, 1) if key in _BACK else number + 1
        return True

    def handout(self, only: int | None, is_on_paper: bool) -> Handout:
        """Return all steps, or one, each on a sheet; on paper the answers are on the last one."""
        sheets: list[Sequence[RenderableType]] = []
        answers: list[RenderableType] = [title("Answers")]
        for number in range(1, len(self.steps) + 1) if only is None else [only]:
            above = self.steps[number - 2].command if only is None and number > 1 else ""
            asked = self._asked(number, above)
            told = self._told(number, asked, height=_SHEET if is_on_paper else None)
            if is_on_paper and self.steps[number - 1].question:
                sheets.append(
                    [*asked, "", "Your answer: ____________________  (The answers are at the end.)"]
                )
                answers += ["", asked[0], *told]
            else:
                sheets.append([*asked, *told])
        if only is None:
            sheets.append(_last_words())
        if len(answers) > 1:
            sheets.append(answers)
        return Handout(sheets, self.has_failed)

    def _told(
        self,
        number: int,
        asked: Sequence[RenderableType],
        answer: str = "",
        height: int | None = None,
    ) -> list[RenderableType]:
        """Return what is below the question: the command, its result, which is cut to fit the height, and words."""
        step = self.steps[number - 1]
        command = self._typed(step.command)
        explained: list[RenderableType] = [""]
        if answer and step.is_right(answer):
            explained.append(safe_text("Right.", "good"))
        elif answer:
            explained.append(safe_text(f"Not quite. The answer: {step.answers[0]}", "bad"))
        elif step.answers:
            explained.append(safe_text(f"The answer: {step.answers[0]}"))
        explained.append(safe_text(step.words))
        page = self._page(step.command)
        if height is not None:
            page = CutPage(page, [*asked, *command, *explained], height)
        return [*command, page, *explained]

    def _asked(self, number: int, above: str = "") -> list[RenderableType]:
        """Return the heading and the question of a step, below the result that it is about, unless that is above."""
        step = self.steps[number - 1]
        parts: list[RenderableType] = [title(f"{number}/{len(self.steps)}  {step.heading}")]
        if step.about and step.about != above:
            parts += [*self._typed(step.about), self._page(step.about), ""]
        return [*parts, safe_text(step.question)] if step.question else parts

    def _typed(self, command: str) -> list[RenderableType]:
        lines = f"$ {as_typed(with_text(command, self.text))}".replace("\n", "\n> ").split("\n")
        return [safe_text(line, "accent") for line in lines]

    def _page(self, command: str) -> RenderableType:
        """Return the page of the result of a command; empty if it fails, which is reported."""
        try:
            result = self.result_of(with_text(command, self.text))
        except EmbcliError as error:
            self.has_failed = True
            say_error(error)
            return Group()
        if not isinstance(result, Result):  # so Typer reports Ctrl-C
            raise KeyboardInterrupt
        return result


def _show_screen(parts: list[RenderableType]) -> None:
    with suppress(Exception):  # without termios, or without a terminal any more
        import termios

        termios.tcflush(
            sys.stdin, termios.TCIFLUSH
        )  # what was typed before there was anything to read
    print(end="\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J", flush=True)
    ResultWriter().show(Group(*parts))
