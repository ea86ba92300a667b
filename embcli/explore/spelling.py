"""The command lines of screens: each screen names the command that prints what it shows."""

from __future__ import annotations

import shlex
from typing import Any

from embcli.explore.explored import Spell

_MODEL_IS_ARGUMENT = ("weights", "audit")  # other verbs take the model as --from


def speller(path: str | None, options: dict[str, Any]) -> Spell:
    """Return a function that writes command lines for a model, by its file and its options."""

    def spell(verb: str, *words: str, text: str | None = None) -> str:
        line = ["embcli", verb]
        if path is not None:
            if verb not in _MODEL_IS_ARGUMENT:
                line.append("--from")
            line.append(path)
        for name, value in options.items():
            if verb != "lookup" or name != "layer":
                line += _option(name, value)
        line += words
        if text is not None:
            if text.startswith("-"):
                line.append("--")
            line.append(text)
        return shlex.join(line)

    return spell


def _option(name: str, value: Any) -> list[str]:
    """Return the words of an option; none if it has not been given."""
    flag = f"--{name.replace('_', '-')}"
    if value is None or value is False:
        return []
    if value is True:
        return [flag]
    return [flag, str(value)]
