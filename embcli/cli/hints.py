"""Hints for wrong command lines: words and options that embcli, or this command, does not have.

`app` asks for them when the list of commands, a command's arguments or Typer refuse a word. The
words of the field, with the options and commands that embcli has for them, and the cures are in
`data/hints.json`; formats and encodings are where embcli itself has them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from functools import cache
from typing import Any

from embcli.cli.console import say
from embcli.errors import InputError
from embcli.formats import CONTENTS, formats_for
from embcli.names import ENCODINGS
from embcli.wording import load_facts


@cache
def _facts() -> Any:
    """Return words of the field with the options and commands that do it, and cures of errors.

    In `lines`, in `texts` for one without a command, and in `unknown words` for a word that names
    no model, a regular expression finds a slip in the line after `embcli`, quoted as for a shell.
    """
    return load_facts("hints.json")


def refuse_unknown(words: Sequence[str], commands: Sequence[str]) -> None:
    """Raise InputError for a command line that begins with no command, if there is a hint for it.

    Without one, Typer refuses the word and names similar commands.
    """
    from difflib import get_close_matches

    from embcli.verbs.explain import named

    first = words[0]
    quoted = shlex.quote(first[:60])
    known = _facts()["commands"]
    parts = [first.casefold(), *re.split("[-_]", first.casefold())]
    meant = next((known[part] for part in parts if part in known), None)
    if first == "help" and words[-1] in commands:
        meant = f"{words[-1]} --help"

    if os.access(first, os.F_OK) or re.search(r"[./][\w-]+$", first):
        hint = f"embcli info {quoted} shows a model, embcli tokenize --file {quoted} a text"
    elif meant:
        hint = f"Did you mean embcli {meant}? embcli --help"
    elif first.casefold() in named():
        hint = f"embcli explain {first} explains the word; embcli --help"
    elif get_close_matches(first, commands):
        return
    else:
        hint = cure_of_line(words, "texts")
    raise InputError(f"{first!r} is not a command", hint)


def cure_of(error: Any, command: str, group: Any) -> str:
    """Return what would be right instead of what Typer's error is about, or "".

    An error about an unknown option will name others. The command is empty for an option before all
    commands, and `group` is Typer's list of commands.
    """
    if hasattr(error, "option_name"):
        return _cure_of_option(error, command, group)
    words = error.ctx.args  # that no argument takes
    return _cure("extra", _kind_of(words), command) if words else ""


def cure_of_line(words: Sequence[str], table: str) -> str:
    """Return what would be right instead of a command line that is a slip of a table, or ""."""
    line = shlex.join(words)
    for row in _facts()[table]:
        match = re.search(row["line"], line)
        if match is not None:
            return match.expand(row["cure"])
    return ""


def note_on_word(word: str, kind: str) -> None:
    """Say why a word that is read as a text, or as a file, may not be meant as one."""
    note = _cure("typed", _kind_of([word]), "") or cure_of_line([word], f"typed {kind}")
    if note:
        say(f"{word!r} is read as a {kind}: {note}")


def _kind_of(words: Sequence[str]) -> str:
    """Return what words are: numbers, values of switches, encodings, or words."""
    if re.fullmatch(r"[][0-9,]+", "".join(words)):
        return "numbers"
    kinds = {"values of switches": _facts()["switches"], "encodings": ENCODINGS}
    for kind, known in kinds.items():
        if all(word.lower() in known for word in words):
            return kind
    return "words"


def _cure_of_option(error: Any, command: str, group: Any) -> str:
    """Return the cure of an unknown option, and let the error name options of the same meaning.

    An option that embcli has nothing like means none, so that none of similar spelling is named.
    """
    option = error.option_name.replace("_", "-")
    name = option.lstrip("-")
    meant = _facts()["options"].get(name)
    own = _flags(group.commands.get(command, group))
    if hasattr(error, "possibilities"):
        longer = [flag for flag in own if flag.startswith(f"--{name}")]
        similar = longer or error.possibilities or ()
        error.possibilities = own.intersection(similar if meant is None else meant)

    cure = _cure("cures", name, command)
    if not cure and name in formats_for(CONTENTS.get(command, "text")):
        return f"-o FILE.{name} writes the result as {name}."
    candidates = [option, *(meant or ())]
    if cure or not own.isdisjoint(candidates):
        return cure
    place = _place_of(candidates, group)
    if place:
        error.possibilities = ()  # similar in spelling only
    return place


def _place_of(flags: Sequence[str], group: Any) -> str:
    """Return which commands have the first of some options that any has, or ""."""
    for flag in flags:
        others = [each for each in group.commands if flag in _flags(group.commands[each])]
        if others:
            where = ", ".join(others) if len(others) < 6 else "other commands"
            return f"{flag} is an option of {where}."
    return ""


def _flags(command: Any) -> set[str]:
    return {flag for parameter in command.params for flag in parameter.opts}


def _cure(table: str, word: str, command: str) -> str:
    """Return what a table has for a word of a command, or ""; without commands a row is for all."""
    for row in _facts()[table]:
        if word in row["words"] and command in row.get("commands", [command]):
            return str(row["cure"].format(word=word, command=command))
    return ""
