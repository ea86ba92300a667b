"""Hints for wrong command lines: what a first word is that is no command, and what cures an error.

`app` asks for them when Typer, or the list of commands, has refused a command line. The words of
the field, with the options and commands that embcli has for them, are in `data/hints.json`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from embcli.errors import InputError

_FILE = Path(__file__).parents[1] / "data" / "hints.json"


@cache
def _facts() -> Any:
    """Return words of the field with the options and commands that do it, and cures of errors."""
    return json.loads(_FILE.read_text("utf-8"))


def refuse_unknown(words: Sequence[str], commands: Sequence[str]) -> None:
    """Raise InputError for a command line that begins with no command, if there is a hint for it.

    Without one, Typer refuses the word and names similar commands.
    """
    for reason, hint in _hints(words, commands):
        raise InputError(f"{words[0][:60]!r} is {reason}", hint)


def _hints(words: Sequence[str], commands: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield what the first word is, and which command may be meant, the likeliest first."""
    from difflib import get_close_matches

    from embcli.verbs.explain import named

    first = words[0]
    quoted = shlex.quote(first[:60])
    for_model = f"embcli info {quoted} shows a model"
    for_file = f"{for_model}, embcli tokenize --file {quoted} a text"

    if os.access(f"{first}/.", os.F_OK):
        yield "a folder, not a command", for_model
    if os.access(first, os.F_OK):
        yield "a file, not a command", for_file
    if re.search(r"[./][\w-]+$", first):
        yield "not a command", for_file
    meant = _facts()["commands"].get(first.casefold())
    if meant:
        yield "not a command", f"Did you mean embcli {meant}? embcli --help"
    if first.casefold() in named():
        yield "not a command", f"embcli explain {first} explains the word; embcli --help"
    if not get_close_matches(first, commands):
        text = " ".join(takewhile(lambda word: not word.startswith("-"), words))
        for_text = f"For a text: embcli tokenize {shlex.quote(text[:60])}; embcli --help"
        yield "not a command", for_text


def name_options(error: Any) -> None:
    """Let Typer's error about an unknown option name those of the same meaning.

    If its meaning is unknown, these are the options that begin like it, or else those of a similar
    spelling, except --help.
    """
    if not hasattr(error, "possibilities"):
        return
    name = error.option_name.lstrip("-").replace("_", "-")
    known = {flag for parameter in error.ctx.command.params for flag in parameter.opts}
    longer = [flag for flag in known if flag.startswith(f"--{name}")]
    similar = longer or error.possibilities or ()
    meant = _facts()["options"].get(name, similar)
    error.possibilities = known.intersection(meant) - {"--help"}


def cure(message: str, command: str) -> str:
    r"""Return what would be right instead of what an error of a command is about, or "".

    A cure can have the groups of its pattern: `\1`.
    """
    for pattern, right in _facts()["cures"].items():
        found = re.match(pattern, f"{command}: {message}")
        if found:
            return found.expand(right)
    return ""
