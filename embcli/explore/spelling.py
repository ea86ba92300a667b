"""The command lines of screens: each screen names the command that prints what it shows."""

from __future__ import annotations

import shlex
from typing import Any

from embcli.explore.explored import Spell


def speller(path: str | None, options: dict[str, Any]) -> Spell:
    """Return a function that writes command lines for a model, by its file and its options."""

    def spell(verb: str, *words: str) -> str:
        line = ["embcli", verb]
        if path is not None:
            line += [path] if verb == "weights" else ["--from", path]
        for name, value in options.items():
            flag = f"--{name.replace('_', '-')}"
            if value is True:
                line.append(flag)
            elif value is not None and value is not False:
                line += [flag, str(value)]
        return shlex.join([*line, *words])

    return spell
