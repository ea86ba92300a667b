"""embcli as a process: signals, the exit status, and the only place that catches its errors.

`run` is the command's entry point. It ends the process; `main` returns the status, for tests.
"""

import signal

# Ctrl-C during the imports below would leave a traceback.
if signal.getsignal(signal.SIGINT) == signal.default_int_handler:
    signal.signal(signal.SIGINT, signal.SIG_DFL)

import errno
import gc
import math
import os
import sys
import time
import warnings
from contextlib import suppress
from typing import NoReturn

from embcli.errors import EmbcliError, does_not_load, ran_out, variable
from embcli.wording import number_in


def run() -> NoReturn:
    """Run the command line and end with its exit status, without Python's own shutdown.

    The shutdown takes a fifth of the time of a lookup. The garbage collector is off, as a short
    process collects few cycles.
    """
    gc.disable()
    _occupy_closed_streams()
    # numpy's BLAS would start threads that no command needs.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # numpy warns of NaN and infinity, on some processors more often; pages show them as they are.
    warnings.simplefilter("ignore", RuntimeWarning)
    try:
        from embcli.cli import app  # noqa: F401 - This import takes longest; main uses the module.

        _handle_signals()
        status = main()
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 2
    except BaseException as error:
        # Python 3.11 wraps some interrupts in another error.
        if isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt):
            status = 130
        else:
            status = 2
            if not _is_explained(error):
                sys.excepthook(type(error), error, error.__traceback__)
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, AttributeError):  # A stream that was closed is None.
            stream.flush()
    os._exit(status)


def _occupy_closed_streams() -> None:
    """Open the null device on each of the descriptors 0 to 2 that is closed.

    A file that is opened later would take it, and what is done to standard error, to the file.
    """
    descriptor = 0
    while descriptor <= 2:
        descriptor = os.open(os.devnull, os.O_RDONLY)
    os.close(descriptor)


def _handle_signals() -> None:
    """Let signals end the process by an exception, unless its parent has chosen to ignore them."""
    hang_up = getattr(signal, "SIGHUP", signal.SIGTERM)  # Windows has no SIGHUP.
    for number in (signal.SIGTERM, hang_up):
        if signal.getsignal(number) == signal.SIG_DFL:
            signal.signal(number, _end)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, _end)


_MOST_CLEANING = 1.0  # seconds that the removal of half-written files takes at most
_last_end = -math.inf  # the time of the last signal


def _end(number: int, _: object) -> None:
    """Exit, so that no half-written file is left behind.

    What follows at once is ignored, or it would interrupt the removal of these files: `timeout`
    sends its signal twice.
    """
    global _last_end  # noqa: PLW0603 - A handler has no other state.
    now = time.monotonic()
    if now - _last_end < _MOST_CLEANING:
        return
    _last_end = now
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


_LARGEST = 1000  # columns and lines of a terminal: more are a mistake, and would be filled


def main() -> int:
    """Run the command line and return its exit status.

    It is 0 for done or yes, 1 for no, 2 for errors, and 130 on Ctrl-C.
    """
    import typer

    from embcli.cli import app

    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
        size = min(number_in(name), _LARGEST)
        if size:
            os.environ[name] = str(size)
        else:
            os.environ.pop(name, None)  # rich and Typer fail for "²" and "wide"
    status: object = 0
    try:
        # PowerShell's script leaves the variable behind, empty.
        request = os.environ.get("_EMBCLI_COMPLETE")
        if request:
            from embcli.cli.completion import prepare

            words = prepare(request)
            status = app.command_line([*words, ""])(prog_name="embcli")
        else:
            status = app.run(sys.argv[1:])
        if sys.stdout is not None:
            sys.stdout.flush()
    except SystemExit as stop:
        # Typer ends like this after a completion, and with 1 for a reader that has left.
        status = 0 if isinstance(stop.__context__, BrokenPipeError) else stop.code
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
        pass  # The reader left after the command was done, which keeps its status.
    except Exception as error:
        if not _is_explained(error):
            raise
        status = 2
    return status if isinstance(status, int) else 0


def _is_explained(error: BaseException) -> bool:
    """Print the sentence for an error, and return whether there is one."""
    is_debugged = variable("EMBCLI_DEBUG", None) == "1"
    package = str(getattr(error, "name", ""))
    if isinstance(error, ImportError) and not package.startswith("embcli") and not ran_out(error):
        # What prints other sentences may need this package.
        reason = does_not_load(package, error)
        if isinstance(error, ModuleNotFoundError):
            reason = f"{package} is missing: pip install {package}"
        if not is_debugged:
            print(f"embcli: {reason}", file=sys.stderr)
        return not is_debugged
    from embcli.cli.console import say, say_error

    if isinstance(error, EmbcliError) and not is_debugged:
        say_error(error)
        return True
    if ran_out(error):
        say("memory ran out; choose fewer rows, or smaller layers")
        return True
    if not isinstance(error, OSError) or error.errno is None:
        return False
    if error.filename is not None:
        action = f"open {error.filename!r}"
    elif error.errno == errno.ENOSPC:
        action = "write to standard output"
    else:
        action = "go on"
    say(f"cannot {action}: {error.strerror}")
    return True


if __name__ == "__main__":
    run()
