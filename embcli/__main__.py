"""embcli as a process: signals, the exit status, and the only place that catches and prints its errors."""

if __name__ == "__main__":  # `python -m embcli`; start.py does the same for the installed command
    import _signal  # type: ignore[import-not-found]

    if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, _signal.SIG_DFL)

import gc
import os
import signal
import sys
import warnings
from contextlib import suppress
from typing import Any, NoReturn

from embcli.errors import EmbcliError, OutputError
from embcli.memory import ran_out
from embcli.words import spelled


def run() -> NoReturn:
    """Run the command line and end with its exit status.

    The process skips Python's own shutdown, which frees every object and takes a fifth of the time of a lookup. The
    garbage collector is off, as a short process collects few cycles.
    """
    gc.disable()
    # numpy warns of NaN and infinity, on some processors more than on others; pages show them as they are.
    warnings.simplefilter("ignore", RuntimeWarning)
    # numpy's BLAS would start threads when it is loaded, and no command needs them.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        _handle(signal.SIG_DFL, _end_at_once)
        status = main()
    except KeyboardInterrupt:
        status = 130
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else 2
    except BaseException as error:
        status = _unexpected(error)
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            with suppress(OSError):
                stream.flush()
    os._exit(status)


def _unexpected(error: BaseException) -> int:
    """Return the exit status of an unexpected error, and print it, unless an interrupt caused it."""
    if isinstance(error.__cause__, KeyboardInterrupt):  # Python 3.11 wraps it while a class is created
        return 130
    with suppress(OSError):
        if isinstance(error, MemoryError):  # there was too little even for the usual sentence
            os.write(2, b"embcli: memory ran out\n")
            return 2
        import traceback

        traceback.print_exception(error)
    return 2


def main() -> int:
    """Run the command line and return its exit status: 0 for done or yes, 1 for no, 2 for errors, 130 on Ctrl-C."""
    import typer

    try:
        status = _command()
    except typer.Exit as stop:
        return stop.exit_code
    except (KeyboardInterrupt, typer.Abort):
        return 130
    except BrokenPipeError:
        _silence()
        return 0
    except Exception as error:
        lines = _lines_of(error)
        if lines is None:
            raise
        from embcli.cli.console import say

        say(*filter(None, lines))
        return 2
    return status if isinstance(status, int) else 0


def _lines_of(error: Exception) -> tuple[str, str] | None:
    """Return an error as a sentence and a hint; None for an unexpected one, or if a traceback is wanted."""
    from embcli.cli.options import flag_of

    if isinstance(error, EmbcliError):
        lines = spelled(str(error), error.parameters, flag_of), error.hint
        return None if os.environ.get("EMBCLI_DEBUG") == "1" else lines
    return ("memory ran out; choose fewer rows, or smaller layers", "") if ran_out(error) else None


def _command() -> object:
    """Run the command line, or answer a completion script, and return what the command returns."""
    from embcli.cli import app, completion

    words = None if completion.prepare() else sys.argv[1:]
    _handle(_end_at_once, _end)
    if signal.getsignal(signal.SIGINT) == signal.SIG_DFL:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        try:
            status = app.run(words)
        except SystemExit as stop:  # Typer ends like this after a completion, and after printing a script
            if isinstance(stop.__context__, BrokenPipeError):  # Typer takes that for a failure, with status 1
                raise stop.__context__ from None
            status = stop.code
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        if ran_out(error) or error.errno is None:
            raise
        _silence()
        raise OutputError(f"cannot write to standard output: {error.strerror}") from None
    return status


def _silence() -> None:
    """Discard the rest of standard output, so that Python does not try to write it at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _handle(before: Any, handler: Any) -> None:
    """Replace the handler of the signals that end a process, if it is still the expected one."""
    for name in ("SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)
        if number is not None and signal.getsignal(number) == before:
            signal.signal(number, handler)


def _end_at_once(number: int, _: object) -> NoReturn:
    """End before there is anything to clean up: an exception could get lost in an import."""
    os._exit(128 + number)


def _end(number: int, _: object) -> NoReturn:
    """End as on Ctrl-C, so that no half-written file is left behind."""
    raise SystemExit(128 + number)


if __name__ == "__main__":
    run()
