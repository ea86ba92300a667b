"""The first lines of the process: an interrupt while Python loads embcli ends it, without a traceback."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # its wrapper imports enum first, for 5 ms


def prepare() -> None:
    """Let an interrupt end the process at once, unless it is ignored; `main` handles it before it writes files."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


def run() -> None:
    """Load embcli and run the command line: the installed command."""
    prepare()
    from embcli.__main__ import run

    run()
