"""A tour: steps of a heading, a command of embcli, and words, read from a JSON file and checked before any is run."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from embcli.errors import InputError

OWN = Path(__file__).parents[1] / "data" / "tour.json"
_PLACE = "{text}"  # in a command, where the text stands
_LARGEST = 1_000_000  # bytes
_MUST = ("heading", "command", "words")
_WRITES = re.compile(r"-[^-].*o|-o", re.DOTALL)  # -o, also behind other letters, or with the path attached
_REFUSED_OPTIONS = ("--output", "--install-completion")


@dataclass(frozen=True)
class Step:
    """A step of a tour; a question comes with its answer, and is asked before the command is run."""

    heading: str
    command: tuple[str, ...]  # the words behind `embcli`, the verb first
    words: str
    question: str | None = None
    answer: str | None = None

    def typed(self, text: str) -> list[str]:
        """Return the words behind `embcli` with a text in its place; one that begins with a dash stands behind --.

        >>> Step("", ("lookup", "{text}", "--dim", "3"), "").typed("- a dash")
        ['lookup', '--dim', '3', '--', '- a dash']
        """
        filled = [word.replace(_PLACE, text) for word in self.command]
        dashed = [word for given, word in zip(self.command, filled, strict=True) if _PLACE in given and word[:1] == "-"]
        if not dashed or "--" in filled:
            return filled
        return [*(word for word in filled if word not in dashed), "--", *dashed]

    def is_right(self, answer: str) -> bool:
        """Say whether this is the answer; blanks, commas and capitals do not count."""
        return _plain(answer) == _plain(self.answer or "")


@dataclass(frozen=True)
class Tour:
    """The steps of a tour, and the text that goes into their commands."""

    steps: tuple[Step, ...]
    text: str

    def check(self, number: int | None) -> None:
        """Raise InputError for a step that is not there; they are counted from 1."""
        if number is not None and not 1 <= number <= len(self.steps):
            raise InputError(f"--step {str(number)[:20]} names no step: they go from 1 to {len(self.steps)}")


def as_typed(words: list[str]) -> str:
    """Return a command of embcli as one would type it.

    >>> as_typed(["tokenize", "Every effort", "--lines"])
    'embcli tokenize "Every effort" --lines'
    """
    return " ".join(["embcli", *map(_quoted, words)])


def read(path: Path | None, verbs: tuple[str, ...], text: str) -> Tour:
    """Return the tour in a file, or embcli's own; `verbs` are those that a command may begin with.

    Raises InputError for a file that cannot be read or is no tour, for a command that a tour may not run, and for a
    text that stands for standard input.
    """
    if text == "-":
        raise InputError("--text - would read standard input, which the steps cannot share; give the text itself")
    path = path or OWN
    known = tuple(verb for verb in verbs if verb != "tour")
    steps = [_step(step, f"{str(path)!r}, step {number}", known) for number, step in enumerate(_steps(path), 1)]
    return Tour(tuple(steps), text)


def _steps(path: Path) -> list[Any]:
    import orjson

    name = repr(str(path))
    try:
        with path.open("rb") as file:
            data = file.read(_LARGEST + 1)
    except (OSError, ValueError) as error:
        raise InputError(f"cannot read {name}: {getattr(error, 'strerror', None) or error}") from None
    if len(data) > _LARGEST:
        raise InputError(f"{name} is no tour: it is larger than {_LARGEST:,} bytes")
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError(f"{name} is no tour: {error}") from None
    if not isinstance(found, list) or not found:
        raise InputError(f"{name} is no tour: that is a list of steps, each an object with {', '.join(_MUST)}")
    return found


def _step(found: Any, where: str, verbs: tuple[str, ...]) -> Step:
    known = [each.name for each in fields(Step)]
    if not isinstance(found, dict):
        raise InputError(f"{where} is no object with {', '.join(_MUST)}")
    for key, value in found.items():
        if key not in known:
            raise InputError(f"{where} has {key[:40]!r}, which no step has; there are {', '.join(known)}")
        if not isinstance(value, str) or not value.strip():
            raise InputError(f"{where}: {key!r} is no text")
    must = known if "question" in found or "answer" in found else _MUST
    missing = [key for key in must if key not in found]
    if missing:
        raise InputError(f"{where} has no {missing[0]!r}")
    return Step(**{**found, "command": _command(found["command"], where, verbs)})


def _command(line: str, where: str, verbs: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words of a command behind `embcli`; raises InputError for one that a tour may not run."""
    shown = repr(line[:60])
    try:
        words = shlex.split(line)
    except ValueError as error:
        raise InputError(f"{where}: cannot read the command {shown}: {str(error).lower()}") from None
    if words[:1] != ["embcli"] or len(words) == 1 or words[1] not in verbs:
        raise InputError(f"{where}: {shown} does not begin with embcli and a verb: {', '.join(verbs)}")
    refused = next((word for word in words[1:] if _may_not_be_run(word)), None)
    if refused is None and words[1] == "cache":
        refused = next((word for word in words if len(word) > 1 and "clear".startswith(word)), None)
    if refused is not None:
        raise InputError(f"{where}: {refused[:40]!r} has no place in a tour: it only shows, and writes no file")
    return tuple(words[1:])


def _may_not_be_run(word: str) -> bool:
    """Say whether a word may be read as an option that writes, as it stands or shortened."""
    name = word.partition("=")[0]
    shortened = len(name) > 2 and any(option.startswith(name) for option in _REFUSED_OPTIONS)
    return shortened or _WRITES.match(word) is not None


def _quoted(word: str) -> str:
    if shlex.quote(word) == word or re.search(r'["$`\\!]', word):
        return shlex.quote(word)
    return f'"{word}"'


def _plain(answer: str) -> str:
    return re.sub(r"[\s,]", "", answer).casefold()
