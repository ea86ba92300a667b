"""The full screen from the command line: how it begins, and how it ends.

The command `explore` calls it; it has no result, and returns the exit status itself.
"""

from __future__ import annotations

import os
import sys

from embcli.cli.console import is_terminal
from embcli.cli.groups import ModelOptions, opened
from embcli.errors import InputError, OutputError, missing_extra
from embcli.hub.remote import PREFIX
from embcli.names import TokenLayer
from embcli.text import decoded
from embcli.wording import in_line


def walk(
    path: str | None,
    options: ModelOptions,
    layer: TokenLayer,
    row: str | None,
    text: str | None,
) -> int:
    """Show the full screen, and print the command of the screen that was left.

    Returns the exit status.
    """
    if path is not None and path.startswith(PREFIX):
        raise InputError(
            f"explore reads all rows again and again, so not over the network: {path!r}",
            f"Download it: hf download; then explore it without {PREFIX}",
        )
    is_dumb = os.environ.get("TERM", "").strip().lower() in ("dumb", "unknown")
    streams = (sys.stdin, sys.stdout, sys.stderr)  # textual draws on standard error
    if is_dumb or not all(map(is_terminal, streams)):
        raise OutputError(
            "explore is a full screen and needs a terminal; embcli weights prints rows"
        )
    try:
        from embcli.explore import app
    except ImportError as error:
        raise OutputError(missing_extra("explore", "explore", error)) from None
    from embcli.explore.explored import ExploredMatrix

    row = row and decoded(row, "--row")
    text = text and decoded(text, "--text")
    model_options = vars(options) | {"path": None}
    found = opened(model_options, path)
    if text is not None and found.encoding is None:
        raise InputError("these rows have no tokens: --encoding names an encoding")
    if layer != "token":
        model_options["layer"] = layer
    matrix = ExploredMatrix(found, path, model_options, layer)
    first_row = 0 if row is None else matrix.row_of(row)
    explorer = app.Explorer(matrix, first_row, text)
    status = app.run(explorer)
    if status == 0:
        print(*map(in_line, explorer.return_value or []), sep="\n")
    return status
