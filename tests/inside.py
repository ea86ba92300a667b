"""embcli run within the process of the tests, where hundreds of runs cost no start."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import warnings
from contextlib import suppress
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import typer

import embcli.__main__
from embcli.cli import app, output
from tests.conftest import TIMEOUT, Embcli, Ran

if TYPE_CHECKING:
    from collections.abc import Sequence


_command_line = app.command_line


@cache
def _parser(words: tuple[str, ...] | None) -> typer.core.TyperGroup:
    """Return the parser of a command line, which takes longer to build than most runs take."""
    return typer.main.get_command(_command_line(words))


def _built_once(words: Sequence[str] | None = None) -> Any:
    """Return the command line as embcli does, but built only once for all runs of a verb."""
    if words and words[0] in _parser(None).commands:
        return _parser((words[0],))
    return _parser(None if words is None or len(words) > 1 else tuple(words))


class Buffer(io.BytesIO):
    """What is written, to a terminal or not."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Stream(io.TextIOWrapper):
    """A standard stream, which may pass for a terminal."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, encoding="utf-8", write_through=True)


class Inside(Embcli):
    """Runs embcli in the process of the tests; `terminal` and `noisy` make terminals of its output and its errors.

    Pages end without a line of suggestions unless `suggesting`.
    """

    def __init__(self, terminal: bool = False, noisy: bool = False, suggesting: bool = False) -> None:
        self.terminal = terminal
        self.noisy = noisy
        self.suggesting = suggesting

    def __call__(self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        out, err = Buffer(self.terminal), Buffer(self.noisy)
        streams = Stream(io.BytesIO(data)), Stream(out), Stream(err)  # which close their buffers as they go
        token = output.SUGGESTING.set(self.suggesting)
        try:
            status = run(arguments, environment, *streams)
        finally:
            output.SUGGESTING.reset(token)
        return Ran(status, out.getvalue(), err.getvalue().decode())


def run(
    arguments: tuple[str | bytes, ...],
    environment: dict[str, str],
    stdin: io.TextIOWrapper,
    stdout: io.TextIOWrapper,
    stderr: io.TextIOWrapper,
) -> int:
    """Run embcli with these streams and return its status, as a process would. Only this knows embcli's own state."""

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        patch.setattr(sys, "argv", ["embcli", *arguments])
        patch.setattr(sys, "stdin", stdin)
        patch.setattr(sys, "stdout", stdout)
        patch.setattr(sys, "stderr", stderr)
        patch.setattr(app, "command_line", _built_once)
        status = embcli.__main__.main()
        with suppress(OSError):
            stdout.flush()
        return status


def become(arguments: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """Go on as a process of embcli, right after a fork: a `preexec_fn` that never returns.

    Whoever forks waits for the end of a pipe, which is closed here as a new program would close it.
    """
    os.closerange(3, 256)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python begins
    os.environ.update(environment)
    sys.argv = ["embcli", *arguments]
    sys.stdin, sys.stdout, sys.stderr = map(partial(open, encoding="utf-8", closefd=False), range(3), "rww")
    embcli.__main__.run()


def forked(*arguments: str, environment: dict[str, str] | None = None, **streams: Any) -> subprocess.Popen[bytes]:
    """Start embcli as a process with real streams and signals, but without the time that imports take."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns where a process with threads forks
        begin = partial(become, arguments, environment or {})
        return subprocess.Popen([sys.executable], preexec_fn=begin, **streams)  # noqa: PLW1509 (no thread holds a lock here)


def into(place: str | int, *arguments: str) -> Ran:
    """Run embcli with a file as its standard output, which may take no more at any time; nothing is returned of it."""
    with open(place, "wb") as file:
        process = forked(*arguments, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.PIPE)
    _, errors = process.communicate(timeout=TIMEOUT)
    return Ran(process.returncode, b"", errors.decode())


def read_early(count: int, *arguments: str) -> Ran:
    """Run embcli into a pipe whose reader leaves when it has some bytes."""
    with forked(*arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        found = process.stdout.read(count)
        process.stdout.close()
        errors = process.stderr.read()
    return Ran(process.returncode, found, errors.decode())


def in_terminal(width: int, height: int, *arguments: str, **environment: str) -> tuple[int, str]:
    """Run embcli with all streams on a pseudo-terminal of this size; return its status and what came out."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))
    pieces: list[bytes] = []

    def read() -> None:
        try:
            while piece := os.read(ours, 65536):
                pieces.append(piece)
        except OSError:  # nobody holds the other end any more
            pass

    reader = threading.Thread(target=read)
    reader.start()
    with (
        open(os.dup(theirs), encoding="utf-8") as stdin,
        open(os.dup(theirs), "w", encoding="utf-8") as stdout,
        open(theirs, "w", encoding="utf-8") as stderr,
    ):
        status = run(arguments, environment, stdin, stdout, stderr)
    reader.join()
    os.close(ours)
    return status, b"".join(pieces).decode()
