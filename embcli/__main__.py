"""embcli as a process of its own: `embcli`, or `python -m embcli`."""

from __future__ import annotations

import gc
import os
import signal
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def run() -> NoReturn:
    """Run the command line and end with its exit status.

    The process ends without Python's own tear-down, which frees every object one by one and takes as long as a fifth
    of a lookup; and no cycles of garbage are looked for, as none that matter come about in so short a life.
    """
    gc.disable()
    try:
        for name in ("SIGTERM", "SIGHUP"):
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _end)
        from embcli.cli import main

        status = main()
    except KeyboardInterrupt:
        status = 130
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 2
    except BaseException:
        import traceback

        with suppress(OSError):
            traceback.print_exc()
        status = 2
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(status)


def _end(number: int, _: FrameType | None) -> NoReturn:
    """End as on Ctrl-C, so that no half-written file is left behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    run()
