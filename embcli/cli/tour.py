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
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
import typer
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult

from embcli.cli.console import is_terminal, say_error
from embcli.cli.output import ResultWriter
from embcli.errors import EmbcliError, InputError
from embcli.names import TOUR_TEXT
from embcli.page import safe_text, title
from embcli.page.parts import CutPage, Sheets, TypedCommand
from embcli.result import Result
from embcli.text import decoded
from embcli.wording import Sentence

_KEYS = "Enter continues, b goes back, q quits"
_KEYS_PROMPT = f"{_KEYS}: "
_ANSWER_PROMPTS = (
    "Your answer, then Enter (? gives a hint, b goes back, q quits): ",
    "Try again (Enter alone shows the answer, b goes back, q quits): ",
)
_FORWARD = ("\r", "\n", " ", "n")
_BACK = "b"
_QUIT = "q"
_ASKING = ("", "idk", "don'tknow", "idon'tknow", "hint", "help")  # "" is what is left of "?"
_SHEET = 40  # lines of a step on paper
# Commands, and an option of each, that the tour ends with.
_NEXT = (("tokenize", "--merges"), ("lookup", "--heat"), ("lookup", "--from MODEL"))


@dataclass(frozen=True)
class TourStep:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    # {text} stands for the text, {reversed} for its words in reverse.
    command: str
    words: str
    question: str = ""
    answers: tuple[str, ...] = ()  # the first one is shown
    hint: str = ""  # after ? or a wrong answer
    about: str = ""  # a command whose output is shown first
    # The fields that differ if the reader has given another text.
    own: dict[str, str] = field(default_factory=dict)

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
    in_reverse = " ".join(reversed(text.split()))
    words = []
    with_a_dash = []
    for template in shlex.split(command)[1:]:
        word = template.replace("{reversed}", in_reverse).replace("{text}", text)
        if "{text}" in template and word.startswith("-"):
            with_a_dash.append(word)
        else:
            words.append(word)
    if with_a_dash:
        return [*words, "--", *with_a_dash]
    return words


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
    text = decoded(text, "--text")
    steps = STEPS
    if text != TOUR_TEXT:
        steps = [replace(step, **step.own) for step in STEPS]  # type: ignore[arg-type]
    if first is not None and not 1 <= first <= len(steps):
        wrong = "{step} must be from 1 to {count}, not {given}"
        raise InputError(Sentence(wrong, count=len(steps), given=str(first)[:20]))

    if is_file and first is None:
        steps = [*steps, *EXERCISES]
    tour = _Tour(steps, text, result_of, heading)
    if is_file or not (is_terminal(sys.stdout) and is_terminal(sys.stdin)):
        return tour.handout(first, is_file, has_answers)
    is_at_the_end = tour.walk(first or 1)
    last_sheet = _last_words() if is_at_the_end else [""]
    return Handout([last_sheet], heading, tour.has_failed)


def _last_words() -> list[RenderableType]:
    commands = [f'$ embcli {verb} "A text of yours" {flag}' for verb, flag in _NEXT]
    return [
        "",
        safe_text("Next, with a text of yours, and with a model on your disk:"),
        Group(*map(TypedCommand, commands)),
    ]


@dataclass(frozen=True, eq=False)
class Handout(Result, verb="tour"):
    """Steps of the tour on one page, each on a sheet of its own."""

    sheets: Sequence[Sequence[RenderableType]]
    heading: str
    has_failed: bool  # whether the command of a step has
    first_answer: int | None = None  # the place of the sheet that begins the answers

    @property
    def status(self) -> int:
        return 2 if self.has_failed else 0

    def _view(self) -> RenderableType:
        return Sheets(self.sheets, self.heading, self.first_answer)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._view()


@dataclass
class _Tour:
    """A tour in progress; it notes whether the command of a step has failed."""

    steps: list[TourStep]
    text: str
    result_of: Callable[[list[str]], object]
    heading: str  # of a handout
    has_failed: bool = False

    def walk(self, number: int) -> bool:
        """Show step after step, each on a screen of its own, as the keys say.

        Returns whether the last step was passed.
        """
        while number <= len(self.steps):
            key = self._show(number)
            if key == _BACK:
                number = max(number - 1, 1)
            elif key in _FORWARD:
                number += 1
            else:
                return False
        return True

    def _show(self, number: int) -> str:
        """Show a step, and return the key that leaves it: one of _FORWARD, _BACK, _QUIT, or ""."""
        step = self.steps[number - 1]
        answer = ""
        if step.question:
            _show_screen(self._asked(number))
            answer, is_open = _read_answer(step)
            is_key = answer in (_BACK, _QUIT) and not step.is_right(answer)
            if is_key or not is_open:
                return self._left(answer)

        above = step.about if step.question else ""
        asked = self._asked(number, above)
        height = shutil.get_terminal_size().lines - 1
        _show_screen([*asked, *self._told(number, asked, answer, height)])
        return self._left(_read_key())

    def _left(self, key: str) -> str:
        """Clear the prompt, for what the next step says while it is made; return the key."""
        if key not in (_QUIT, ""):
            print(f"\r{' ' * len(_KEYS_PROMPT)}\r", end="", flush=True)
        return key

    def handout(self, only: int | None, is_on_paper: bool, has_answers: bool) -> Handout:
        """Return all steps, or one, each on a sheet; on paper the answers come last, if at all."""
        sheets: list[Sequence[RenderableType]] = []
        if is_on_paper and only is None:
            name = safe_text("Name: ______________________________   Date: ____________________")
            place = "; the right ones are at the end" if has_answers else ""
            remark = safe_text(f"Write your answers on the lines{place}.")
            sheets.append([title(self.heading), name, "", remark])
        answers: list[Sequence[RenderableType]] = []
        height = _SHEET if is_on_paper else None
        numbers = range(1, len(self.steps) + 1) if only is None else [only]
        for number in numbers:
            step = self.steps[number - 1]
            above = ""
            if only is None and number > 1:
                above = self.steps[number - 2].command
            asked = self._asked(number, above)
            told = self._told(number, asked, height=height)
            if is_on_paper and step.question:
                blank = "_" * 64
                sheets.append([*asked, "", safe_text(f"Your answer: {blank}")])
                answers.append([asked[0], *told])
            else:
                sheets.append([*asked, *told])
        if only is None:
            sheets[-1] = [*sheets[-1], *_last_words()]
        if not answers or not has_answers:
            return Handout(sheets, self.heading, self.has_failed)
        answers[0] = [title(f"{self.heading}: answers"), *answers[0]]
        return Handout([*sheets, *answers], self.heading, self.has_failed, len(sheets))

    def _told(
        self,
        number: int,
        asked: Sequence[RenderableType],
        answer: str = "",
        height: int | None = None,
    ) -> list[RenderableType]:
        """Return what is below the question: the command, its result, and words.

        With a height, the result is cut so that all of it fits, with the question.
        """
        step = self.steps[number - 1]
        command = self._typed(step.command)
        explained: list[RenderableType] = [""]
        if answer and step.is_right(answer):
            explained.append(safe_text(f"Right: {step.answers[0]}", "good"))
        elif _plain(answer) not in _ASKING:
            explained.append(safe_text(f"Not quite. The answer: {step.answers[0]}", "bad"))
        elif step.answers:
            explained.append(safe_text(f"The answer: {step.answers[0]}"))
        explained.append(safe_text(step.words))
        page = self._page(step.command)
        if height is not None:
            page = CutPage(page, [*asked, *command, *explained], height)
        return [*command, page, *explained]

    def _asked(self, number: int, above: str = "") -> list[RenderableType]:
        """Return the heading and the question of a step.

        The result that the question is about stands over it, unless `above` is its command.
        """
        step = self.steps[number - 1]
        parts: list[RenderableType] = [title(f"{number}/{len(self.steps)}  {step.heading}")]
        if step.about and step.about != above:
            parts += [*self._typed(step.about), self._page(step.about), ""]
        if step.question:
            parts.append(safe_text(step.question))
        return parts

    def _typed(self, command: str) -> list[RenderableType]:
        return [Group(TypedCommand(f"$ {as_typed(with_text(command, self.text))}"))]

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
        return result._view()


def _read_answer(step: TourStep) -> tuple[str, bool]:
    """Ask for the answer of a step, again if the first one is wrong or asks for the hint.

    Returns what was typed, and whether the terminal is still there.
    """
    answer = ""
    line = b""
    for prompt in _ANSWER_PROMPTS:
        print(f"\r{prompt}", end="", flush=True)
        line = sys.stdin.buffer.readline()
        answer = line.decode(errors="replace").strip().lower()
        if not answer or answer in (_BACK, _QUIT) or step.is_right(answer):
            break
        if prompt == _ANSWER_PROMPTS[0]:
            verdict = "" if _plain(answer) in _ASKING else "Not quite. "
            print(f"{verdict}{step.hint}")
    return answer, bool(line)


def _read_key() -> str:
    """Wait for a key that leaves a step; "" stands for a terminal that is gone."""
    while True:
        print(f"\r{_KEYS_PROMPT}", end="", flush=True)
        key = ""
        with suppress(EOFError, OSError):
            key = typer.getchar()[:1].lower()
        if key in (*_FORWARD, _BACK, _QUIT, ""):
            return key


def _show_screen(parts: list[RenderableType]) -> None:
    with suppress(Exception):  # without termios, or without a terminal any more
        import termios

        # What was typed before there was anything to read is dropped.
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    print(end="\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J", flush=True)
    ResultWriter().show(Group(*parts))
