"""Hints for wrong command lines: what a first word is that is no command, and what cures an error.

`app` asks for them when Typer, or the list of commands, has refused a command line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import takewhile

from embcli.errors import InputError

_WITH_TEXT = ("tokenize", "batch", "lookup", "compare", "neighbors")
_DRAWN = ("lookup", "compare", "batch")
_HEATED = ("weights", "positions", "neighbors")
_ARGUMENT = ".*unexpected extra argument"
# What Typer says of a wrong option or argument, the commands that it says it of (none: all), and
# what would be right.
_CURES: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "No such option: -[0-9]",
        (),
        "IDs are not negative; a text that begins with - goes after --. ",
    ),
    (
        "No such option: --(from|model)",
        ("tokenize", "decode"),
        "--encoding takes a model's folder or tokenizer. ",
    ),
    ("No such option: --ids", ("weights",), "--rows takes IDs and tokens: 2,3,5. "),
    ("No such option: --(plot|draw|map)", _HEATED, "--heat shows rows as colours. "),
    ("No such option: --(plot|map)", _DRAWN, "--draw makes a picture, --heat shows colours. "),
    ("No such option: --trace", ("compare",), "--draw shows the product. "),
    ("No such option: --rows", ("lookup",), "--only picks tokens. "),
    ("No such option: --rows", ("batch",), "--index picks a batch, --all shows every one. "),
    (_ARGUMENT, ("tour",), "--text takes a text in quotes, --step a number. "),
    (rf"{_ARGUMENT}\(s\) \([0-9 ]+\)", _WITH_TEXT, "Write IDs as one word: 2,3,5,1. "),
    (_ARGUMENT, _WITH_TEXT, "Put a text of several words in quotes. "),
)


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
    if first.casefold() in named():
        yield "not a command", f"embcli explain {first} explains the word; embcli --help"
    if not get_close_matches(first, commands):
        text = " ".join(takewhile(lambda word: not word.startswith("-"), words))
        for_text = f"For a text: embcli tokenize {shlex.quote(text[:60])}; embcli --help"
        yield "not a command", for_text


def cure(message: str, command: str) -> str:
    """Return what would be right instead of what Typer refuses, or ""."""
    for pattern, commands, right in _CURES:
        if re.match(pattern, message) and (command in commands or not commands):
            return right
    return ""
