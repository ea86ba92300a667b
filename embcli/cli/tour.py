"""The tour: steps on a terminal, led by keys; in a pipe or a file all of them, or one. They are `data/tour.json`."""

from __future__ import annotations

import io
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import orjson
import typer
from rich.console import Group, RenderableType
from rich.text import Text

from embcli.cli.console import is_terminal, say_error
from embcli.cli.input import argument
from embcli.cli.output import SUGGESTING, Output
from embcli.errors import EmbcliError, InputError
from embcli.names import TOUR_TEXT
from embcli.page import Drawing, title, words
from embcli.page.export import NEXT_SHEET
from embcli.words import Sentence

_KEYS = "Enter continues, b goes back, q quits: "
_ANSWERS = f"Your answer ({_KEYS[:-2]}): ", "Not quite. Try again (Enter shows the answer, b goes back, q quits): "
_SHEET = 40  # lines of a step on paper
_ON, _BACK, _END = ("\r", "\n", " ", "n"), ("b",), ("q", "")
_NEXT = ("tokenize", "--merges"), ("lookup", "--heat"), ("lookup", "--from MODEL")
_IN_COLOR = {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": "100"}


@dataclass(frozen=True)
class Step:
    """A step of the tour; a question has an answer and is asked before the command is run."""

    heading: str
    command: str  # as it is typed, with {text} in place of the text, and {reversed} with its words in reverse
    words: str
    question: str = ""
    answers: tuple[str, ...] = ()  # the first one is shown
    about: str = ""  # a command whose output is above the question, as the question is about it
    own: dict[str, str] = field(default_factory=dict)  # what is different with the reader's own text

    def is_right(self, answer: str) -> bool:
        """Return whether this is an answer; blanks, commas and capitals do not count."""
        plain, *right = (re.sub(r"[\s,.]", "", each).casefold() for each in (answer, *self.answers))
        return plain in right


STEPS = [Step(**each) for each in orjson.loads((Path(__file__).parents[1] / "data" / "tour.json").read_bytes())]


def with_text(command: str, text: str) -> list[str]:
    """Return the words after `embcli` with a text in its place; a text that begins with a dash is placed after --.

    >>> with_text("embcli lookup {text} --dim 3", "- a dash")
    ['lookup', '--dim', '3', '--', '- a dash']
    """
    given, turned = shlex.split(command)[1:], " ".join(reversed(text.split()))
    filled = [word.replace("{reversed}", turned).replace("{text}", text) for word in given]
    dashed = [word for word, old in zip(filled, given, strict=True) if "{text}" in old and word.startswith("-")]
    return [*(word for word in filled if word not in dashed), "--", *dashed] if dashed else filled


def as_typed(typed: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    line = shlex.join(["embcli", *typed])
    return line if re.search(r'["$`\\!]', line) else line.replace("'", '"')


def guide(text: str, first: int | None, run: Callable[[list[str]], object], out: Output) -> int:
    """Go through the tour, on a terminal from the step that is named; otherwise write all steps, or only that one.

    `run` runs the words after `embcli`. A step that fails is reported and the tour continues; then the status is 2.
    """
    if text == "-" or not text.strip():
        reason = "- would read standard input, which the steps cannot share" if text == "-" else "is blank"
        raise InputError(f"--text {reason}; give the text itself")
    text = argument(text, "--text")
    steps = STEPS if text == TOUR_TEXT else [replace(step, **step.own) for step in STEPS]  # type: ignore[arg-type]
    if first is not None and not 1 <= first <= len(steps):
        wrong = "{step} must be from 1 to {count}, not {given}"
        raise InputError(Sentence(wrong, count=len(steps), given=str(first)[:20]))
    last: list[RenderableType] = ["Next, with a text of yours, and with a model on your disk:"]
    last += [words(f'$ embcli {verb} "A text of yours" {flag}', "accent") for verb, flag in _NEXT]
    if out.path is None and is_terminal(sys.stdout) and is_terminal(sys.stdin):
        tour = _Tour(steps, text, run, {"COLUMNS": str(shutil.get_terminal_size().columns)}, True)
        out.show(Group("", *(last if tour.walk(first or 1) else ())))
    else:
        is_file = out.path is not None
        tour = _Tour(steps, text, run, _IN_COLOR if is_file else {}, is_file)
        sheets, answers = list[list[RenderableType]](), list[RenderableType]([title("Answers")])
        for number in range(1, len(steps) + 1) if first is None else [first]:
            above = steps[number - 2].command if first is None and number > 1 else ""
            asked, told = tour.parts(number, above=above, height=_SHEET if is_file else None)
            if is_file and steps[number - 1].question:
                sheets.append([*asked, "", "Your answer: ____________________  (The answers are at the end.)"])
                answers += ["", asked[0], *told]
            else:
                sheets.append([*asked, *told])
        sheets += [last] if first is None else []
        sheets += [answers] if len(answers) > 1 else []
        between = NEXT_SHEET if out.format == "html" else ""
        out.show(Group(*[part for sheet in sheets for part in (*sheet, between)][:-1]))
    return 2 if tour.failed else 0


@dataclass
class _Tour:
    """A tour in progress; `environment` is what its commands are told of where they print."""

    steps: list[Step]
    text: str
    run: Callable[[list[str]], object]
    environment: dict[str, str]
    terminal: bool = False
    failed: bool = False

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
                asked, told = self.parts(number, answer, step.about, shutil.get_terminal_size().lines - 1)
                _show_screen([*asked, *told])
            while key not in (*_ON, *_BACK, *_END):
                print(f"\r{_KEYS}", end="", flush=True)
                key = ""  # if the terminal is gone
                with suppress(EOFError, OSError):
                    key = typer.getchar()[:1]
            if key in _END:
                return False
            print(f"\r{' ' * len(_KEYS)}\r", end="", flush=True)  # for what the next step says while it is made
            number = max(number - 1, 1) if key in _BACK else number + 1
        return True

    def parts(
        self, number: int, answer: str = "", above: str = "", height: int | None = None
    ) -> tuple[list[RenderableType], list[RenderableType]]:
        """Return the question of a step, and command, output and words below; the output is cut to fit the height."""
        step = self.steps[number - 1]
        asked, command = self._asked(number, above), self._typed(step.command)
        verdict = [words(f"The answer: {step.answers[0]}")] if step.answers else []
        if answer:
            right = step.is_right(answer)
            said = "Right." if right else f"Not quite. The answer: {step.answers[0]}"
            verdict = [words(said, "good" if right else "bad")]
        explained: list[RenderableType] = ["", *verdict, words(step.words)]
        if height is not None:
            others = _printed(lambda: Output().show(Group(*asked, *command, *explained)), True, self.environment)
            height = max(height - len(others), 3)
        return asked, [*command, self._output(step.command, height), *explained]

    def _asked(self, number: int, above: str = "") -> list[RenderableType]:
        """Return the heading and the question of a step, below the output that it is about, unless that is above."""
        step = self.steps[number - 1]
        parts: list[RenderableType] = [title(f"{number}/{len(self.steps)}  {step.heading}")]
        if step.about and step.about != above:
            parts += [*self._typed(step.about), self._output(step.about), ""]
        return [*parts, words(step.question)] if step.question else parts

    def _typed(self, command: str) -> list[RenderableType]:
        lines = f"$ {as_typed(with_text(command, self.text))}".replace("\n", "\n> ").split("\n")
        return [words(line, "accent") for line in lines]

    def _output(self, command: str, height: int | None = None) -> RenderableType:
        """Return what a command prints, on so many lines at most."""
        environment = self.environment | ({} if height is None else {"LINES": str(height + 2)})

        def print_it() -> None:
            try:
                if self.run(with_text(command, self.text)) == 130:  # so Typer reports Ctrl-C
                    raise KeyboardInterrupt
            except EmbcliError as error:
                self.failed = True
                say_error(error)

        lines = _printed(print_it, self.terminal, environment)
        lines = [line for line in lines if not line.startswith("Not shown (no room)")]  # the step is about what is
        if height is not None and len(lines) > height:
            lines[height - 1 :] = [f"… {len(lines) - height + 1:,} more lines; the command alone prints them"]
        return Drawing([Text.from_ansi(line) for line in lines])


def _show_screen(parts: list[RenderableType]) -> None:
    with suppress(Exception):  # without termios, or without a terminal any more
        import termios

        termios.tcflush(sys.stdin, termios.TCIFLUSH)  # what was typed before there was anything to read
    print(end="\n" if os.environ.get("TERM") == "dumb" else "\x1b[H\x1b[2J", flush=True)
    Output().show(Group(*parts))


class _Kept(io.BytesIO):
    """What a command prints, as on a terminal or in a pipe."""

    terminal = False

    def isatty(self) -> bool:
        return self.terminal


def _printed(write: Callable[[], object], terminal: bool, environment: dict[str, str]) -> list[str]:
    """Return the lines that a function prints; standard input is empty for it, and the default format is not set."""
    streams, before = (sys.stdin, sys.stdout), dict(os.environ)
    suggesting = SUGGESTING.set(False)  # the words of a step say what to look at
    os.environ.pop("EMBCLI_FORMAT", None)
    os.environ.update(environment)
    kept = _Kept()
    kept.terminal = terminal
    try:
        with open(os.devnull) as sys.stdin, io.TextIOWrapper(kept, "utf-8", write_through=True) as sys.stdout:
            write()
            return kept.getvalue().decode().removesuffix("\n").split("\n")
    finally:
        SUGGESTING.reset(suggesting)
        sys.stdin, sys.stdout = streams
        os.environ.clear()
        os.environ.update(before)
