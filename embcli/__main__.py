"""embcli as a process: signals, the exit status, and the only place that catches and prints its errors."""

import signal

if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(
        signal.SIGINT, signal.SIG_DFL
    )  # an interrupt of the imports below would leave a traceback

import errno
import gc
import os
import sys
import warnings
from contextlib import suppress
from typing import NoReturn

from embcli.errors import EmbcliError, ran_out


def run() -> NoReturn:
    """Run the command line and end with its exit status, without Python's own shutdown.

    That takes a fifth of the time of a lookup. The garbage collector is off, as a short process collects few cycles.
    """
    gc.disable()
    os.environ.setdefault(
        "OPENBLAS_NUM_THREADS", "1"
    )  # numpy's BLAS would start threads that no command needs
    # numpy warns of NaN and infinity, on some processors more than on others; pages show them as they are.
    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        from embcli.cli import app  # noqa: F401 - the longest import

        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)
        if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        status = main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 2
    except BaseException as error:
        status = 130
        if not any(
            isinstance(each, KeyboardInterrupt) for each in (error, error.__cause__)
        ):  # Python 3.11 wraps some
            status = 2
            sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # one that was closed is None
            stream.flush()
    os._exit(status)


def main() -> int:
    """Run the command line and return its exit status: 0 for done or yes, 1 for no, 2 for errors, 130 on Ctrl-C."""
    import typer

    from embcli.cli import app

    status: object = 0
    try:
        request = os.environ.get("_EMBCLI_COMPLETE")
        if request:  # PowerShell's script leaves it behind, empty
            from embcli.cli.completion import prepare

            typed = prepare(request)  # after `embcli`
            status = app.command_line([*typed, ""])(prog_name="embcli")
        else:
            status = app.run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except (
        SystemExit
    ) as stop:  # Typer ends like this after a completion, and with 1 for a reader that has left
        status = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:  # after the command, whose status it keeps
        pass
    except Exception as error:
        from embcli.cli.console import say, say_error

        if isinstance(error, EmbcliError) and os.environ.get("EMBCLI_DEBUG") != "1":
            say_error(error)
        elif ran_out(error):
            say("memory ran out; choose fewer rows, or smaller layers")
        elif isinstance(error, OSError) and error.errno is not None:
            nameless = "write to standard output" if error.errno == errno.ENOSPC else "go on"
            say(
                f"cannot {nameless if error.filename is None else f'open {error.filename!r}'}: {error.strerror}"
            )
        else:
            raise
        status = 2
    return status if isinstance(status, int) else 0


def _end(number: int, _: object) -> NoReturn:
    raise SystemExit(128 + number)  # as on Ctrl-C, so that no half-written file is left behind


if __name__ == "__main__":
    run()
