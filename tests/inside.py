"""embcli run within the process of the tests, or as a fork of it: hundreds of runs cost no start."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import pexpect
import pytest
import typer

import embcli.__main__
from embcli.cli import app
from embcli.cli.command import Command
from embcli.cli.output import ResultWriter
from tests.conftest import TIMEOUT, Embcli, Ran

if TYPE_CHECKING:
    from collections.abc import Sequence


_command_line = app.command_line


@cache
def _parser(
    words: tuple[str, ...] | None, finish: app.Finish = Command.write
) -> typer.core.TyperGroup:
    """Return the parser of a command line, which takes longer to build than most runs take."""
    return typer.main.get_command(_command_line(words, finish))


def _built_once(words: Sequence[str] | None = None, finish: app.Finish = Command.write) -> Any:
    """Return the command line as embcli does, but built only once for all runs of a verb."""
    if words and words[0] in _parser(None).commands:
        return _parser((words[0],), finish)
    return _parser(None if words is None or len(words) > 1 else tuple(words), finish)


class Buffer(io.BytesIO):
    """What is written, to a terminal or not."""

    def __init__(self, terminal: bool = False) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


class Inside(Embcli):
    """Runs embcli in the process of the tests; `terminal` and `noisy` make terminals of its output and its errors.

    Pages end without a line of suggestions unless `suggesting`.
    """

    def __init__(
        self, terminal: bool = False, noisy: bool = False, suggesting: bool = False
    ) -> None:
        self.terminal = terminal
        self.noisy = noisy
        self.suggesting = suggesting

    def __call__(
        self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str
    ) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        out, err = Buffer(self.terminal), Buffer(self.noisy)
        buffers = {"stdin": io.BytesIO(data), "stdout": out, "stderr": err}
        streams = {
            name: io.TextIOWrapper(each, "utf-8", write_through=True)
            for name, each in buffers.items()
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            for name, value in {"argv": ["embcli", *arguments], **streams}.items():
                patch.setattr(sys, name, value)
            patch.setattr(app, "command_line", _built_once)
            if not self.suggesting:
                patch.setattr(ResultWriter, "is_suggesting", False)
            status = embcli.__main__.main()
        return Ran(status, out.getvalue(), err.getvalue().decode())


def become(arguments: tuple[str, ...], environment: dict[str, str]) -> NoReturn:
    """Go on as a process of embcli, right after a fork: a `preexec_fn` that never returns.

    Whoever forks waits for the end of a pipe, which is closed here as a new program would close it.
    """
    os.closerange(3, 256)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # as Python begins
    os.environ.update(environment)
    sys.argv = ["embcli", *arguments]
    sys.stdin, sys.stdout, sys.stderr = map(
        partial(open, encoding="utf-8", closefd=False), range(3), "rww"
    )
    embcli.__main__.run()


def forked(
    *arguments: str, environment: dict[str, str] | None = None, **streams: Any
) -> subprocess.Popen[bytes]:
    """Start embcli as a process with real streams and signals, but without the time that imports take."""
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
    with forked(
        *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        found = process.stdout.read(count)
        process.stdout.close()
        errors = process.stderr.read()
    return Ran(process.returncode, found, errors.decode())


def in_terminal(
    *arguments: str, width: int = 80, height: int = 24, **environment: str
) -> pexpect.spawn[str]:
    """Start embcli with all streams on a terminal."""
    begin = partial(become, arguments, environment)
    return pexpect.spawn(
        sys.executable,
        preexec_fn=begin,
        dimensions=(height, width),
        timeout=TIMEOUT,
        encoding="utf-8",
    )


def shown(
    *arguments: str, width: int = 80, height: int = 24, **environment: str
) -> tuple[int, str]:
    """Run embcli on a terminal; return its status and what came out."""
    child = in_terminal(*arguments, width=width, height=height, **environment)
    text = child.read()
    child.close()
    return child.exitstatus, text
