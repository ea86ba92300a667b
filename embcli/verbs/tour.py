"""A tour: steps of a heading, a command of embcli, and words, read from a JSON file and checked before any is run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import orjson

from embcli.errors import InputError

OWN = Path(__file__).parents[1] / "data" / "tour.json"
PLACE = "{text}"  # stands for the text in a command
_LARGEST = 1_000_000  # bytes
_REQUIRED = ("heading", "command", "words")


@dataclass(frozen=True)
class Step:
    """A step of a tour; a question has an answer and is asked before the command is run."""

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


@dataclass(frozen=True)
class Tour:
    """The steps of a tour, and the text for their commands."""

    steps: tuple[Step, ...]
    text: str

    def check(self, step: int | None) -> None:
        """Raise InputError for a step that does not exist; steps are counted from 1."""
        if step is not None and not 1 <= step <= len(self.steps):
            raise InputError(f"step must be from 1 to {len(self.steps)}, not {str(step)[:20]}", parameters=("step",))


def as_typed(words: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    return " ".join(["embcli", *map(_quoted, words)])


def read(path: Path | None, verbs: tuple[str, ...], text: str, refused: Callable[[list[str]], str | None]) -> Tour:
    """Return the tour in a file, or embcli's own; a command begins with one of the verbs.

    `refused` returns the first word of a command that a tour must not run, as it writes or deletes files. Raises
    InputError for a file that cannot be read or is not a tour, and for such a command.
    """
    path = path or OWN
    steps = []
    for number, step in enumerate(_steps(path), 1):
        where = f"{str(path)!r}, step {number}"
        _check_keys(step, where)
        commands = {key: _command(step[key], where, verbs, refused) for key in ("command", "about") if key in step}
        steps.append(Step(**{**step, **commands}))
    return Tour(tuple(steps), text)


def _steps(path: Path) -> list[Any]:
    name = repr(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST:
        raise InputError(f"{name} is not a tour: it is larger than {_LARGEST:,} bytes")
    try:
        steps = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{name} is not a tour: {error}") from None
    if not isinstance(steps, list) or not steps:
        raise InputError(f"{name} is not a tour, a list of steps, each an object with {', '.join(_REQUIRED)}")
    return steps


def _check_keys(step: Any, where: str) -> None:
    """Raise InputError if a step is not an object with the keys of one, and a text for each."""
    known = [each.name for each in fields(Step)]
    if not isinstance(step, dict):
        raise InputError(f"{where} is not an object with {', '.join(_REQUIRED)}")
    for key, value in step.items():
        if key not in known:
            raise InputError(f"{where} has an unknown key {key[:40]!r}; the keys are {', '.join(known)}")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key!r} is not a text")
    required = (*_REQUIRED, "question", "answer") if "question" in step or "answer" in step else _REQUIRED
    missing = [key for key in required if key not in step]
    if missing:
        raise InputError(f"{where} has no {missing[0]!r}")


def _command(
    line: str, where: str, verbs: tuple[str, ...], refused: Callable[[list[str]], str | None]
) -> tuple[str, ...]:
    """Return the words of a command after `embcli`; raises InputError for a command that a tour must not run."""
    shown = repr(line[:60])
    try:
        embcli, *words = shlex.split(line) or [""]
    except ValueError as error:
        raise InputError(f"{where}: cannot read the command {shown}: {str(error).lower()}") from None
    if embcli != "embcli" or not words or words[0] not in verbs:
        raise InputError(f"{where}: {shown} does not begin with embcli and a verb: {', '.join(verbs)}")
    word = refused(words)
    if word is not None:
        raise InputError(f"{where}: a tour must not write files, so {word[:40]!r} is not allowed")
    return tuple(words)


def _quoted(word: str) -> str:
    if shlex.quote(word) == word or re.search(r'["$`\\!]', word):
        return shlex.quote(word)
    return f'"{word}"'


def _plain(answer: str) -> str:
    return re.sub(r"[\s,]", "", answer).casefold()
