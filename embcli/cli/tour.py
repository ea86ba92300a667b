"""The tour: steps on a terminal, led by keys; in a pipe or a file, sheets of all or chosen ones.

The steps are in `data/tour.json`. A step shows a command, its result, and words about it. The
results are those of the commands themselves, which `app` passes in as a function. A handout also
has the questions of `data/exercises.json`, which are a tour of their own, too.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
import unicodedata
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import typer
from rich.console import Group, RenderableType

from embcli.cli.console import is_terminal, say_error
from embcli.cli.output import ResultWriter
from embcli.errors import EmbcliError, InputError
from embcli.model import seeded
from embcli.names import TOUR_TEXT, Status, Strings
from embcli.page import safe_text, title
from embcli.page.parts import CutPage, RuledLine, Sheets, TypedCommand
from embcli.result import Result, short_name
from embcli.text import decoded
from embcli.wording import load_facts

if TYPE_CHECKING:
    from embcli.cli.groups import TourOptions

_KEYS = "Enter {}, b goes back, q quits: "
_FIRST_TRY = "Your answer ({}; ? gives a hint, Enter skips, b goes back, q quits): "
_NEXT_TRY = "Try again (Enter alone shows the answer, b goes back, q quits): "
_FORWARD = ("\r", "\n", " ", "n")
_BACK = "b"
_QUIT = "q"
_LETTERS = 60  # of print, written by hand on a line
_LONGEST_TEXT = 200  # characters of a text in a command: more would leave no room for its result
_Sheet = list[RenderableType]
ResultOf = Callable[[list[str]], object]  # the words after `embcli` -> what the command returns
_Rules = Sequence[tuple[str, str]]  # patterns, and what stands for them


_RULES: dict[str, _Rules] = load_facts("answers.json")
# What a question asks for, with its rules, the pattern of what they make of an answer, and tries.
_KINDS = load_facts("answer_kinds.json")


class TourStep(NamedTuple):
    """A step of the tour; a question is asked before the command is run.

    It has answers, unless it asks for a reason, which is in the words.
    """

    heading: str
    command: str  # {text} stands for the text, {model} for the model; "" for words alone
    words: str
    question: str = ""
    answers: Strings = ()  # the first one is shown
    kind: str = "a number"  # of its answers: a name in data/answer_kinds.json
    rules: _Rules = ()  # of this question, before those of its kind
    hint: str = ""  # after ? or a wrong answer
    about: str = ""  # a command whose output is shown first
    text: str = TOUR_TEXT  # unless the reader has another
    keeps: str = ""  # said if another text has characters besides ASCII, and is not taken
    of_parts: str = ""  # said of a text some of whose tokens are parts of characters

    def is_right(self, answer: str) -> bool:
        """Return whether an answer means the same as one of those of the step."""
        return self._meaning(answer) in map(self._meaning, self.answers)

    def is_an_answer(self, answer: str) -> bool:
        """Return whether an answer is one of the kind that is asked for, right or wrong."""
        return bool(re.search(_KINDS[self.kind]["shape"], self._meaning(answer)))

    def _meaning(self, answer: str) -> str:
        return _rewritten(answer, [*self.rules, *_RULES[_KINDS[self.kind]["rules"]]])


def _rewritten(answer: str, rules: _Rules) -> str:
    """Return what rules make of an answer: the numbers in it, or yes and no."""
    text = unicodedata.normalize("NFKC", answer).casefold()
    for pattern, replacement in rules:
        text = re.sub(pattern, replacement, text)
    return text.strip()


def _wants_hint(answer: str) -> bool:
    return _rewritten(answer, _RULES["hint"]) == "?"


STEPS = [TourStep(**step) for step in load_facts("tour.json")]
EXERCISES = [TourStep(**step) for step in load_facts("exercises.json")]


def with_text(command: str, text: str, model: str = "") -> list[str]:
    """Return the words after `embcli` with a text and a model in their places.

    A text, which comes last, is placed after -- if it begins with a dash.

    >>> with_text("embcli lookup --dim 3 {text}", "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    given = {"{text}": text, "{model}": model}
    words = [given.get(word, word) for word in shlex.split(command)[1:]]
    if text.startswith("-") and command.endswith("{text}"):
        words.insert(-1, "--")
    return words


def as_typed(typed: list[str]) -> str:
    r"""Return a command of embcli as one would type it, in one line.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    >>> print(as_typed(["tokenize", "two\nlines"]))
    embcli tokenize 'two'$'\n''lines'
    """
    line = shlex.join(["embcli", *typed]).replace("\n", r"'$'\n''")
    return line if re.search(r'["$`\\!]', line) else line.replace("'", '"')


def _steps(tour: TourOptions, is_file: bool) -> list[TourStep]:
    """Return the steps that the options choose; a handout also has the further questions."""
    steps = EXERCISES
    if not tour.quiz:
        steps = [step for step in STEPS if tour.path or "{model}" not in step.command]
        if is_file:
            steps += EXERCISES
    given = tour.text and decoded(tour.text, "--text")
    steps = _numbered(steps, given)
    if tour.steps is not None:
        steps = _chosen(steps, tour.steps)
    if given and not any("{text}" in step.command for step in steps):
        raise InputError("no chosen step has a place for --text; leave it, --steps or --quiz out")
    return steps


def _numbered(steps: list[TourStep], given: str | None) -> list[TourStep]:
    """Return steps with a number in their headings, and with the reader's text, if one is given."""
    numbered = []
    for number, step in enumerate(steps, 1):
        text = given or step.text
        words = step.words
        if step.keeps and not text.isascii():
            words += step.keeps
            text = step.text
        elif "".join(seeded().tokenize(text).tokens[:]) != text:
            words += step.of_parts
        heading = f"{number}/{len(steps)}  {step.heading}"
        numbered.append(step._replace(heading=heading, text=text, words=words))
    return numbered


def _chosen(steps: list[TourStep], numbers: str) -> list[TourStep]:
    """Return the steps that are named, as in `1,3,8-10`; `8-` goes up to the last one."""
    chosen = []
    for part in numbers.split(","):
        first, dash, last = part.strip()[:9].partition("-")
        if not last:
            last = str(len(steps)) if dash else first
        found = []
        if first.isdecimal() and last.isdecimal():
            found = steps[int(first) - 1 : int(last)]
        if not found:
            wrong = "{steps} takes numbers from 1 to {count}, as in 1,3,8-10 or 8-, not {part!r}"
            raise InputError(wrong, count=len(steps), part=part)
        chosen += found
    return chosen


def guide(tour: TourOptions, result_of: ResultOf, is_file: bool) -> Handout:
    """Go through the tour on a terminal; otherwise return its sheets.

    `result_of` returns the result of the command with these words after `embcli`. A step that fails
    is reported and the tour continues; then the status is 2.
    """
    if tour.text is not None and tour.text.strip() in ("", "-"):  # they cannot share stdin
        raise InputError(f"--text {tour.text!r} is not a text; give the text itself")
    steps = _steps(tour, is_file)
    model = tour.path or ""
    pages = _Pages(model, model, result_of)
    if is_file:
        if not model.startswith("hf://"):
            pages.shown_model = short_name(model)
        return Handout(_on_paper(pages, steps, tour), pages.status)
    if is_terminal(sys.stdout) and is_terminal(sys.stdin):
        sheets = [_led_by_keys(pages, steps)]
    else:
        sheets = [pages.answered(step, pages.asked(step)) for step in steps]
    return Handout(Sheets(sheets, tour.title), pages.status)


def _on_paper(pages: _Pages, steps: list[TourStep], tour: TourOptions) -> Sheets:
    """Return the sheets of a handout: a title, steps, and the answers on paper of their own.

    In the place of an answer there is room to write it by hand. A step without a command or a
    question is advice for a terminal, and is left out.
    """
    sheets: list[_Sheet] = [[title(tour.title), RuledLine("Name:"), RuledLine("Date:")]]
    answers = []
    for step in steps:
        above = pages.asked(step)
        if step.question:
            letters = len("".join(step.answers[:1]) or step.words)
            further = [RuledLine("")] * (letters // _LETTERS)
            sheets.append([*above, RuledLine("Your answer:"), *further])
            if not tour.no_answers:
                answers.append(pages.answered(step, above))
        elif step.command:
            sheets.append(pages.answered(step, above))
    if answers:
        answers.insert(0, [title(f"{tour.title}: answers")])
    return Sheets([*sheets, *answers], tour.title, len(sheets), tour.paper)


@dataclass(frozen=True, eq=False)
class Handout(Result, verb="tour"):
    """Steps of the tour on one page, each on a sheet of its own."""

    sheets: Sheets
    status: Status = 0  # 2 if the command of a step has failed

    def _view(self) -> RenderableType:
        return self.sheets


@dataclass
class _Pages:
    """What steps show with a model; the status is 2 once a command has failed."""

    model: str
    shown_model: str  # in a command as it is typed
    result_of: ResultOf
    height: int = 56  # lines of a step, for which a sheet of paper has room
    status: Status = 0
    # Whether the last answer to a question was right, by its heading; a skipped one is not in it.
    judged: dict[str, bool] = field(default_factory=dict)

    def asked(self, step: TourStep) -> _Sheet:
        """Return the heading of a step and its question, below the result that it is about."""
        parts: _Sheet = [title(step.heading)]
        if step.about:
            parts += [*self._command_and_result(step.about, step.text), ""]
        if step.question:
            parts.append(safe_text(step.question))
        return parts

    def answered(self, step: TourStep, above: _Sheet, answer: str = "") -> _Sheet:
        """Return the command of a step, its result, and words about it, below other parts.

        The result is cut so that all of it fits.
        """
        explained: _Sheet = [""]
        if step.answers:
            explained.append(self._judged(step, answer))
        elif answer:
            explained.append(safe_text("Compare yours:", "strong"))
        explained.append(safe_text(step.words))
        if not step.command:
            return [*above, *explained]
        command, page = self._command_and_result(step.command, step.text)
        above = [*above, command]
        return [*above, CutPage(page, [*above, *explained], self.height), *explained]

    def _judged(self, step: TourStep, answer: str) -> RenderableType:
        """Return the right answer, and whether it was given; a skipped question has no verdict."""
        right = step.answers[0]
        if step.is_right(answer):
            self.judged[step.heading] = True
            return safe_text(f"Right: {right}", "good")
        if _wants_hint(answer) or not step.is_an_answer(answer):
            return safe_text(f"The answer: {right}", "strong")
        self.judged[step.heading] = False
        return safe_text(f"Not quite. The answer: {right}", "bad")

    def _command_and_result(self, command: str, text: str) -> _Sheet:
        """Return a command as it is typed, and the page of its result.

        The page is empty if the command fails, which is reported.
        """
        words = with_text(command, text, self.model)
        shown_text = text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}..."
        typed = as_typed(with_text(command, shown_text, self.shown_model))
        page: RenderableType = Group()
        try:
            result = self.result_of(words)
        except EmbcliError as error:
            self.status = 2
            say_error(error)
        else:
            if not isinstance(result, Result):  # so Typer reports Ctrl-C
                raise KeyboardInterrupt
            page = result._view()
        return [Group(TypedCommand(f"$ {typed}")), page]


def _led_by_keys(pages: _Pages, steps: list[TourStep]) -> _Sheet:
    """Show steps as keys lead; return the number of right answers.

    There is nothing to return after q, or if no question was answered.
    In the end, as after Ctrl-C, the cursor is on a line of its own.
    """
    place = 0
    try:
        while place < len(steps):
            key = _show(pages, steps[place], "continues" if steps[place + 1 :] else "ends the tour")
            if key == _QUIT:
                return []
            if key == _BACK:
                place = max(place - 1, 0)
            else:
                place += 1
    finally:
        print(flush=True)
    judged = list(pages.judged.values())
    if not judged:
        return []
    skipped = len([step for step in steps if step.answers]) - len(judged)
    return [safe_text(f"Right answers: {judged.count(True)} of {len(judged)}; skipped: {skipped}.")]


def _show(pages: _Pages, step: TourStep, enter: str) -> str:
    """Show a step, with its question on a screen before; return the key that leaves it.

    `enter` is what Enter does below the step.
    """
    above = pages.asked(step)
    answer = ""
    if step.question:
        _show_screen(above)
        answer = _read_answer(step)
        if answer in (_BACK, _QUIT):
            return answer
    pages.height = shutil.get_terminal_size().lines - 1
    _show_screen(pages.answered(step, above, answer))
    return _read_key(_KEYS.format(enter))


def _read_answer(step: TourStep) -> str:
    """Ask for the answer of a step until it is right, or wrong at the last try.

    Return the last one; Enter alone is one only if it is the first. What is not of the kind that is
    asked for, such as ?, is no try.
    """
    tries = _KINDS[step.kind]["tries"]
    answer = _read_line(_FIRST_TRY.format(step.kind))
    further = answer
    while further not in ("", _BACK, _QUIT) and not step.is_right(further):
        reply = f"Please type {step.kind}."
        if _wants_hint(further):
            reply = step.hint
        elif step.is_an_answer(further):
            tries -= 1
            reply = f"Not quite. {step.hint}"
        if not tries:
            break
        ResultWriter().show(safe_text(reply))
        further = _read_line(_NEXT_TRY)
        if further in (_BACK, _QUIT) or step.is_an_answer(further):
            answer = further
    return answer


def _read_line(prompt: str) -> str:
    """Return what is typed on a line, in lower case, or the key that it stands for, as `quit` does.

    That is `q` if the terminal is gone.
    """
    print(prompt, end="", flush=True)
    line = sys.stdin.buffer.readline() or b"q"
    return _rewritten(line.decode(errors="replace"), _RULES["keys"])


def _read_key(prompt: str) -> str:
    """Wait for a key that leaves a step; `q` if the terminal is gone."""
    print(prompt, end="", flush=True)
    while True:
        key = _QUIT
        with suppress(EOFError, OSError):
            key = typer.getchar()[:1].lower() or _QUIT
        if key in (*_FORWARD, _BACK, _QUIT):
            return key
        print(f"\rUnknown key. {prompt}", end="", flush=True)


def _show_screen(parts: _Sheet) -> None:
    print(end="\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J", flush=True)
    ResultWriter().show(Group(*parts))
