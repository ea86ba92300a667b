"""The command lines of screens: each screen names the command that prints what it shows."""

from __future__ import annotations

import shlex
from typing import Any

from embcli.explore.explored import Spell

_POSITIONAL = ("weights", "audit")  # verbs that take the model as an argument


def speller(path: str | None, given: dict[str, Any]) -> Spell:
    """Return a function that writes the command lines of a verb for this model."""

    def spelled(verb: str, *words: str, text: str | None = None) -> str:
        line = ["embcli", verb]
        if path is not None:
            line += [path] if verb in _POSITIONAL else ["--from", path]
        for name, value in given.items():
            is_given = value is not None and value is not False
            if is_given and (verb != "tokenize" or name == "encoding"):
                flag = f"--{name.replace('_', '-')}"
                line += [flag] if value is True else [flag, str(value)]
        line += words
        if text is not None:
            line += ["--", text] if text.startswith("-") else [text]
        return shlex.join(line)

    return spelled
