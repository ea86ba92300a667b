"""The full screen from the command line: how it begins, and how it ends."""

from __future__ import annotations

import os
import sys

from embcli.cli.console import is_terminal
from embcli.cli.groups import ModelOptions, opened
from embcli.errors import InputError, OutputError, missing_extra
from embcli.text import decoded
from embcli.wording import in_line


def walk(
    path: str | None, options: ModelOptions, row: str | None, text: str | None, sort: str
) -> int:
    """Show the full screen, and print the command of the screen that was left; return the exit status."""
    is_dumb = os.environ.get("TERM", "").strip().lower() in ("dumb", "unknown")
    if is_dumb or not all(
        map(is_terminal, (sys.stdin, sys.stdout, sys.stderr))
    ):  # textual draws on standard error
        raise OutputError(
            "explore is a full screen and needs a terminal; embcli weights prints rows"
        )
    try:
        from embcli.explore import app
    except ImportError as error:
        raise OutputError(missing_extra("explore", "explore", error)) from None
    from embcli.explore.explored import ExploredMatrix
    from embcli.explore.spelling import speller

    row = row and decoded(row, "--row")
    text = text and decoded(text, "--text")
    given = {name: value for name, value in vars(options).items() if name != "path"}
    model = opened(given, path)
    if text is not None and model.encoding is None:
        raise InputError("these rows have no tokens: --encoding names an encoding")
    source = ExploredMatrix(model, speller(path, given))
    explorer = app.Explorer(source, 0 if row is None else source.row_of(row), text, sort)
    status = app.run(explorer)
    if status == 0:
        print(*map(in_line, explorer.return_value or []), sep="\n")
    return status
