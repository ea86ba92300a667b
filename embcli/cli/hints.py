"""Hints for wrong command lines: words and options that embcli, or this command, does not have.

`app` asks for them when the list of commands, a command's arguments or Typer refuse a word. The
words of the field, with the options and commands that embcli has for them, and the cures are in
`data/hints.json`; names of encodings, positions and matrices are where embcli itself has them.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence
from itertools import pairwise, takewhile
from typing import Any

from embcli.cli.console import say
from embcli.cli.options import spellings
from embcli.errors import InputError
from embcli.formats import CONTENTS, formats_for
from embcli.names import ENCODINGS, MADE_FROM_TEXT, MATRICES
from embcli.positions import NAMES
from embcli.wording import load_facts, nearest

# Words of the field with the options and commands that do it, and tables of cures: a row has the
# cure of some words, or of `kinds` of words, for some commands or for all.
_FACTS = load_facts("hints.json")


def refuse_unknown(words: Sequence[str], commands: Collection[str]) -> None:
    """Raise InputError, with a hint, for a command line that begins with no command."""
    from embcli.verbs.explain import named

    first = words[0]
    lower = first.casefold()
    known = _FACTS["commands"]
    parts = [lower, *re.split("[-_]", lower)]
    meant = [known[part] for part in parts if part in known]
    near = nearest(first, known)
    second = "".join(words[1:2])
    if os.access(first, os.F_OK) or re.search(r"[./][\w-]+$", first):
        quoted = shlex.quote(first[:60])
        hint = f"embcli info {quoted} shows a model, embcli tokenize --file {quoted} a text"
    elif second in commands:
        hint = f"The command comes first: embcli {second} --help"
    elif meant:
        hint = f"Did you mean embcli {meant[0]}? embcli --help"
    elif lower in named():
        hint = f"embcli explain {first} explains the word; embcli --help"
    elif near:
        hint = f"Did you mean embcli {known[near]}? embcli --help"
    else:
        text = " ".join(takewhile(lambda word: word[:1] != "-", words))
        hint = f"For a text: embcli tokenize {shlex.quote(text)}; embcli --help"
    raise InputError(f"{first!r} is not a command", hint)


def refuse_slips(words: Sequence[str], parameters: Sequence[Any]) -> None:
    """Raise InputError for an option in the place of a value, with one dash only, or given twice.

    Typer would take the option as the value, each letter after one dash as an option, and the last
    of two values. How the options are spelled is kept for errors.
    """
    known = _by_flag(parameters)
    spellings.clear()
    for flag, word in pairwise(takewhile("--".__ne__, ["", *words])):
        name = word.partition("=")[0]
        owner: Any = known.get(flag)
        if name[:1] != "-":
            continue
        if _takes_value(owner):
            if name in known:
                wrong = f"{flag} takes a value, and {name} stands in its place"
                raise InputError(wrong, f"If {name} is its value: {owner.opts[0]}={name}")
            continue
        if f"-{name}" in known:
            raise InputError(f"No such option: {name}", f"Write -{name}, with two dashes.")
        spelling = name if name in known else name[:2]  # -k3 is -k
        option: Any = known.get(spelling)
        if option is None:
            continue
        option_flag = option.opts[0]
        if option_flag in spellings and _takes_value(option) and not option.multiple:
            raise InputError(f"{option_flag} is given twice; give it once")
        spellings[option_flag] = spelling


def _takes_value(parameter: Any) -> bool:
    """Return whether a parameter, if there is one, is an option that is no switch."""
    return not getattr(parameter, "is_flag", True)


def cure_of(error: Any, words: Sequence[str], command: str, group: Any) -> str:
    """Return what would be right instead of what Typer's error is about, or "".

    An error about an unknown option will name others. The command is empty for an option before all
    commands, and `group` is Typer's list of commands.
    """
    own = _by_flag(group.commands.get(command, group).params)
    if hasattr(error, "possibilities"):
        return _cure_of_option(error, command, own, group)
    parameter = getattr(error, "param", own.get(getattr(error, "option_name", "")))
    if parameter is not None:
        return _cure_of_value(error, parameter, words, command)
    if not command:
        return ""
    too_many = ["--"] if "--" in words else error.ctx.args
    return cure_of_words("extra", too_many, command)


def _cure_of_value(error: Any, parameter: Any, words: Sequence[str], command: str) -> str:
    """Return what an option takes in place of a wrong value, or of none.

    If a shell can complete its values, they are the ones to choose from.
    """
    flag = parameter.opts[0]
    choices = [item.value for item in parameter.shell_complete(error.ctx, "")]
    about = str(parameter.help)
    if not hasattr(error, "option_name"):
        about = ""
        values, _, _ = error.ctx.command.make_parser(error.ctx).parse_args([*words[1:]])
        near = nearest(str(values.get(parameter.name)), choices)
        if near:
            return f"Did you mean {near}?"
    elif any(choices):
        return f"Choose from {', '.join(choices)}."
    of_type = _cure("cures", parameter.type.name, command, spellings.get(flag, flag))
    return _cure("cures", flag.lstrip("-"), command) or of_type or about


def cure_of_words(table: str, words: Sequence[str], command: str = "") -> str:
    """Return what would be right instead of words that stand for the same, or ""."""
    own_names = {
        "encodings": "|".join(ENCODINGS),
        "kinds of positions": "|".join(NAMES),
        "matrices": "|".join(MATRICES),
        "vocabularies of a text": f"({'|'.join(MADE_FROM_TEXT)}):.*",
    }
    for kind, pattern in (own_names | _FACTS["kinds"]).items():
        if words and all(re.fullmatch(pattern, word, re.IGNORECASE) for word in words):
            return _cure(table, kind, command, shlex.quote(words[0]))
    return ""


def note_on_word(word: str, kind: str) -> None:
    """Say why a word that is read as a text, or as a file, may not be meant as one."""
    note = cure_of_words(kind, [word])
    if note:
        say(f"{word!r} is read as a {kind}: {note}")


def _cure_of_option(error: Any, command: str, own: dict[str, Any], group: Any) -> str:
    """Return the cure of an unknown option, and let the error name options of the same meaning.

    An option that embcli has nothing like means none, so that none of similar spelling is named.
    """
    option = error.option_name.replace("_", "-")
    name = option.lstrip("-")
    longer = [flag for flag in own if flag.startswith(f"--{name.lower()}")]
    meant = _FACTS["options"].get(name, longer)
    error.possibilities = {*meant}.intersection(own)
    cure = _cure("cures", name, command, name)
    if name in formats_for(CONTENTS.get(command, "text")):
        cure = cure or _cure("cures", "formats", command, name)
    if cure or error.possibilities:
        return cure

    for flag in [option, *meant]:
        others = [each for each, other in group.commands.items() if flag in _by_flag(other.params)]
        if others and not command:
            return 'Options stand after the command: embcli lookup "A text" --dim 3.'
        if others:
            return f"{flag} is an option of {', '.join(others)}."
    near = nearest(option, [*own, "--help"])
    if name not in _FACTS["options"]:
        error.possibilities = near and [near]
    return ""


def _by_flag(parameters: Sequence[Any]) -> dict[str, Any]:
    """Return options as Typer has them, by each of their flags, and arguments by their names."""
    return {flag: parameter for parameter in parameters for flag in parameter.opts}


def _cure(table: str, word: str, command: str = "", typed: str = "") -> str:
    """Return what a table has for a word of a command, or "".

    A row without commands is for all of them, and one without words for all words.
    """
    for row in _FACTS.get(table, ()):
        if word in row.get("words", [word]) and command in row.get("commands", [command]):
            return str(row["cure"].format(word=typed, command=command))
    return ""
