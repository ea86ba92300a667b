"""Hints for likely mistakes in a command line: the command that was probably meant."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

_OF_A_TEXT = ("embcli tokenize", "embcli lookup", "embcli compare")


def hint(message: str, command: str, words: list[str], valued: Collection[str] = ()) -> str:
    """Return the right command for a usage error, or where to find help.

    `words` are those after the verb, and `valued` the options whose value is the next word.

    >>> hint("Got unexpected extra argument(s) (effort)", "embcli lookup", ["--dim", "3", "Every", "effort"], ["--dim"])
    'Put the text in quotes: embcli lookup "Every effort" --dim 3'
    """
    words = [part for word in words for part in (word.split("=", 1) if word.startswith("--ids=") else [word])]
    if command in _OF_A_TEXT and message.startswith("Got unexpected extra argument"):
        if "--ids" in words[:-2]:
            return f"Write the IDs as one word, with commas between: {command} {_joined_ids(words)}"
        return f"Put the text in quotes: {command} {_joined_text(words, valued)}"
    option = re.match(r"No such option: (\S+)", message)
    dashed = next((word for word in words if option and word.startswith(option[1]) and _looks_like_text(word)), None)
    if dashed is not None:
        others = [shlex.quote(word) for word in words if word != dashed]
        meant = " ".join([command, *others, "--", _quoted(dashed)])
        return f"Put -- before a text that begins with a dash: {meant}"
    return f"Try '{command} --help' for help."


def _looks_like_text(word: str) -> bool:
    return bool(re.search(r"\s|^-[^-a-zA-Z]", word))


def _joined_ids(words: list[str]) -> str:
    """Return the words with the IDs after --ids joined to one word."""
    start = words.index("--ids") + 1
    stop = next((place for place in range(start, len(words)) if not re.fullmatch(r"[0-9,]+", words[place])), len(words))
    ids = ",".join(word.strip(",") for word in words[start:stop])
    return " ".join([*map(shlex.quote, words[:start]), ids, *map(shlex.quote, words[stop:])])


def _joined_text(words: list[str], valued: Collection[str]) -> str:
    """Return the words, with all that are neither options nor their values joined to one text."""
    text: list[str] = []
    others: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "--":
            text += rest
        elif word.startswith("-") and word != "-":
            others += [word, *([next(rest, "")] if word in valued else [])]
        else:
            text.append(word)
    return " ".join([_quoted(" ".join(text)), *map(shlex.quote, others)])


def _quoted(text: str) -> str:
    return shlex.quote(text) if re.search(r'["$`\\!]', text) else f'"{text}"'
