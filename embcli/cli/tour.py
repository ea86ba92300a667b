"""The tour: steps on a terminal, led by keys; in a pipe or a file all of them, or one.

The steps are in `data/tour.json`. A step shows a command, its result, and words about it. The
results are those of the commands themselves, which `app` passes in as a function. A handout also
has the questions of `data/exercises.json`, whose answers are results of commands, too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import orjson
import typer
from rich.console import Group, RenderableType

from embcli.cli.console import is_terminal, say_error
from embcli.cli.output import ResultWriter
from embcli.errors import EmbcliError, InputError
from embcli.page import safe_text, title
from embcli.page.parts import CutPage, Sheets, TypedCommand
from embcli.result import Result
from embcli.text import decoded
from embcli.wording import Sentence

_KEYS = "Enter continues, b goes back, q quits: "
_FORWARD = ("\r", "\n", " ", "n")
_BACK = "b"
_QUIT = "q"
_ASKING = ("", "idk", "don'tknow", "idon'tknow", "hint", "help")  # "" is what is left of "?"
_LINES_ON_PAPER = 40  # of a step
_Sheet = list[RenderableType]
_NEXT = (
    '$ embcli tokenize "A text of yours" --merges',
    '$ embcli lookup "A text of yours" --heat',
    '$ embcli lookup "A text of yours" --from MODEL',
)


@dataclass(frozen=True)
class TourStep:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    command: str  # {text} stands for the text
    words: str
    question: str = ""
    answers: tuple[str, ...] = ()  # the first one is shown
    hint: str = ""  # after ? or a wrong answer
    about: str = ""  # a command whose output is shown first

    def is_right(self, answer: str) -> bool:
        """Return whether this is an answer; blanks, capitals and a full stop do not count."""
        return _plain(answer) in [_plain(right) for right in self.answers]


def _plain(answer: str) -> str:
    return re.sub(r"\s|\W+$", "", answer).casefold()


def _steps(name: str) -> list[TourStep]:
    file = Path(__file__).parents[1] / "data" / name
    return [TourStep(**step) for step in orjson.loads(file.read_bytes())]


STEPS = _steps("tour.json")
EXERCISES = _steps("exercises.json")


def with_text(command: str, text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place.

    A text that begins with a dash is placed after --.

    >>> with_text("embcli lookup {text} --dim 3", "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    templates = shlex.split(command)[1:]
    if text.startswith("-") and "{text}" in command:
        templates.sort(key=lambda template: "{text}" in template)  # moves the text to the end
        templates.insert(-1, "--")
    return [template.replace("{text}", text) for template in templates]


def as_typed(typed: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    line = " ".join(map(_quoted, ["embcli", *typed]))
    return line if re.search(r'["$`\\!]', line) else line.replace("'", '"')


def _quoted(word: str) -> str:
    r"""Return a word as a shell reads it, in one line.

    >>> print(_quoted("two\nlines"))
    $'two\nlines'
    """
    if "\n" not in word:
        return shlex.quote(word)
    escaped = word.replace("\\", r"\\").replace("'", r"\'").replace("\n", r"\n")
    return f"$'{escaped}'"


def guide(
    text: str,
    first: int | None,
    heading: str,
    result_of: Callable[[list[str]], object],
    is_file: bool,
    has_answers: bool,
) -> Handout:
    """Go through the tour on a terminal, from the step that is named; otherwise return its sheets.

    These are all steps, or only the named one. `heading` is the title of all of them in a file,
    which has more questions, and answers unless there are to be none. `result_of` returns the
    result of the command with these words after `embcli`. A step that fails is reported and the
    tour continues; then the status is 2.
    """
    if text.strip() in ("", "-"):  # the steps cannot share standard input
        raise InputError(f"--text {text!r} is not a text; give the text itself")
    if first is not None and not 1 <= first <= len(STEPS):
        wrong = "{step} must be from 1 to {count}, not {given}"
        raise InputError(Sentence(wrong, count=len(STEPS), given=str(first)[:20]))

    pages = _Pages(decoded(text, "--text"), result_of)
    steps = _numbered(STEPS)
    if not is_file and is_terminal(sys.stdout) and is_terminal(sys.stdin):
        number = first or 1
        while number <= len(steps):
            key = _show(pages, steps[number - 1])
            if key == _QUIT:
                return Handout(Sheets([], heading), pages.status)
            if key == _BACK:
                number = max(number - 1, 1)
            else:
                number += 1
        return Handout(Sheets([_last_words()], heading), pages.status)

    if first is not None:
        steps = [steps[first - 1]]
    elif is_file:
        steps = _numbered([*STEPS, *EXERCISES])
    sheets, answers = _sheets(pages, steps, is_file)
    if first is None:
        sheets[-1] += _last_words()
        if is_file:
            name = "Name: ______________________________   Date: ____________________"
            place = "; the right ones are at the end" if has_answers else ""
            asked = f"Write your answers on the lines{place}."
            sheets.insert(0, [title(heading), safe_text(name), "", safe_text(asked)])
    if not answers or not has_answers:
        return Handout(Sheets(sheets, heading), pages.status)
    answers[0].insert(0, title(f"{heading}: answers"))
    return Handout(Sheets([*sheets, *answers], heading, len(sheets)), pages.status)


def _numbered(steps: list[TourStep]) -> list[TourStep]:
    """Return steps with their numbers in their headings."""
    numbered = []
    for number, step in enumerate(steps, 1):
        heading = f"{number}/{len(steps)}  {step.heading}"
        numbered.append(replace(step, heading=heading))
    return numbered


def _last_words() -> _Sheet:
    words = safe_text("Next, with a text of yours, and with a model on your disk:")
    return ["", words, Group(*map(TypedCommand, _NEXT))]


def _sheets(
    pages: _Pages, steps: list[TourStep], is_on_paper: bool
) -> tuple[list[_Sheet], list[_Sheet]]:
    """Return the sheets of steps, and on paper, with lines to write on, those of the answers."""
    height = _LINES_ON_PAPER if is_on_paper else None
    sheets = []
    answers = []
    for step in steps:
        asked = pages.asked(step)
        if is_on_paper and step.question:
            blank = "_" * 64
            sheets.append([*asked, "", safe_text(f"Your answer: {blank}")])
            answers.append(pages.answered(step, asked[:1], height=height))
        else:
            sheets.append(pages.answered(step, asked, height=height))
    return sheets, answers


@dataclass(frozen=True, eq=False)
class Handout(Result, verb="tour"):
    """Steps of the tour on one page, each on a sheet of its own."""

    sheets: Sheets
    status: int = 0  # 2 if the command of a step has failed

    def _view(self) -> RenderableType:
        return self.sheets


@dataclass
class _Pages:
    """What steps show with a text; the status is 2 once the command of one has failed."""

    text: str
    result_of: Callable[[list[str]], object]
    status: int = 0

    def asked(self, step: TourStep) -> _Sheet:
        """Return the heading of a step and its question, below the result that it is about."""
        parts: _Sheet = [title(step.heading)]
        if step.about:
            parts += [self._typed(step.about), self._result(step.about), ""]
        if step.question:
            parts.append(safe_text(step.question))
        return parts

    def answered(
        self, step: TourStep, above: _Sheet, answer: str = "", height: int | None = None
    ) -> _Sheet:
        """Return the command of a step, its result, and words about it, below other parts.

        With a height, the result is cut so that all of it fits.
        """
        explained: _Sheet = [""]
        if step.is_right(answer):
            explained.append(safe_text(f"Right: {step.answers[0]}", "good"))
        elif _plain(answer) not in _ASKING:
            explained.append(safe_text(f"Not quite. The answer: {step.answers[0]}", "bad"))
        elif step.answers:
            explained.append(safe_text(f"The answer: {step.answers[0]}"))
        explained.append(safe_text(step.words))
        above = [*above, self._typed(step.command)]
        page = self._result(step.command)
        if height is not None:
            page = CutPage(page, [*above, *explained], height)
        return [*above, page, *explained]

    def _typed(self, command: str) -> RenderableType:
        return Group(TypedCommand(f"$ {as_typed(with_text(command, self.text))}"))

    def _result(self, command: str) -> RenderableType:
        """Return the page of the result of a command; empty if it fails, which is reported."""
        try:
            result = self.result_of(with_text(command, self.text))
        except EmbcliError as error:
            self.status = 2
            say_error(error)
            return Group()
        if not isinstance(result, Result):  # so Typer reports Ctrl-C
            raise KeyboardInterrupt
        return result._view()


def _show(pages: _Pages, step: TourStep) -> str:
    """Show a step, with its question on a screen before; return the key that leaves it."""
    above = pages.asked(step)
    answer = ""
    if step.question:
        _show_screen(above)
        answer = _read_answer(step)
        if answer in (_BACK, _QUIT):
            return answer
        above = [above[0], above[-1]]
    height = shutil.get_terminal_size().lines - 1
    _show_screen(pages.answered(step, above, answer, height))
    return _read_key()


def _read_answer(step: TourStep) -> str:
    """Ask for the answer of a step, after a hint once more; return what was typed."""
    answer = _read_line("Your answer, then Enter (? gives a hint, b goes back, q quits): ")
    if answer in ("", _BACK, _QUIT) or step.is_right(answer):
        return answer
    verdict = "" if _plain(answer) in _ASKING else "Not quite. "
    print(f"{verdict}{step.hint}")
    return _read_line("Try again (Enter alone shows the answer, b goes back, q quits): ")


def _read_line(prompt: str) -> str:
    """Return what is typed on a line, in lower case; `q` if the terminal is gone."""
    print(prompt, end="", flush=True)
    line = sys.stdin.buffer.readline() or b"q"
    return line.decode(errors="replace").strip().lower()


def _read_key() -> str:
    """Wait for a key that leaves a step, and clear the prompt; `q` if the terminal is gone."""
    key = ""
    while key not in (*_FORWARD, _BACK, _QUIT):
        print(f"\r{_KEYS}", end="", flush=True)
        key = _QUIT
        with suppress(EOFError, OSError):
            key = typer.getchar()[:1].lower() or _QUIT
    print(f"\r{' ' * len(_KEYS)}\r", end="", flush=True)
    return key


def _show_screen(parts: _Sheet) -> None:
    with suppress(Exception):  # without termios, or without a terminal any more
        import termios

        # What was typed before there was anything to read is dropped.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print(end="\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J", flush=True)
    ResultWriter().show(Group(*parts))
