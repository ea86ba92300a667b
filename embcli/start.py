"""The installed command: an interrupt while Python loads embcli ends it, without a traceback."""

import _signal as signal  # type: ignore[import-not-found]  # its wrapper imports enum first, for 5 ms


def run() -> None:
    """Load embcli and run the command line, which handles interrupts before it writes files."""
    if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from embcli.__main__ import run

    run()
