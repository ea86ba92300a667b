"""Three ways to run embcli, of which each is a fixture in conftest.py.

`in_process` runs it within the process of the tests and costs a few milliseconds; most tests use
it. `process` starts a real process, with pipes, signals and an exit status. `terminal` runs it on
a pseudo-terminal. All three take the words of a command line, and environment variables by name.
"""

from __future__ import annotations

import io
import os
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NoReturn

import pexpect
import pytest
import typer
from rich.style import Style

import embcli.__main__
from embcli.cli import app
from embcli.cli.command import Command
from embcli.cli.output import ResultWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

TIMEOUT = 120  # A process that takes more seconds hangs, which is a failure.


@dataclass(frozen=True)
class Ran:
    """A run of embcli that has ended."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()


class Runner:
    """Runs a command line; a subclass says how."""

    def __call__(self, *arguments: str | bytes, **options: Any) -> Ran:
        """Run embcli; `stdin` is what is piped in, and names in capitals are environment variables.

        What else can be given is what the subclass takes.
        """
        raise NotImplementedError

    def ok(self, *arguments: str | bytes, **options: Any) -> Ran:
        """Run embcli and expect success, with nothing on standard error."""
        ran = self(*arguments, **options)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran

    def refused(self, *arguments: str | bytes, **options: Any) -> str:
        """Run embcli and expect an error of one or two lines with status 2; return the error."""
        ran = self(*arguments, **options)
        assert ran.status == 2, ran
        assert ran.out == b"", ran
        assert ran.err.startswith("embcli: "), ran
        assert 1 <= ran.err.count("\n") <= 2, ran
        assert "Traceback" not in ran.err
        return ran.err


# --- within the process of the tests --------------------------------------------------------------


class InProcess(Runner):
    """Runs embcli within the process of the tests.

    With `terminal` or `error_terminal`, standard output or standard error takes itself for a
    terminal. Pages end without a line of suggestions unless `suggestions`.
    """

    def __call__(
        self,
        *arguments: str | bytes,
        stdin: str | bytes | None = b"",
        terminal: bool = False,
        error_terminal: bool = False,
        suggestions: bool = False,
        **environment: str,
    ) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        output = _Buffer(terminal)
        errors = _Buffer(error_terminal)
        # A stream that nobody holds any more would close its buffer.
        streams = {
            "stdin": _text_stream(io.BytesIO(data)),
            "stdout": _text_stream(output),
            "stderr": _text_stream(errors),
        }
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["embcli", *map(os.fsdecode, arguments)])
            for name, stream in streams.items():
                patch.setattr(sys, name, stream)
            patch.setattr(app, "command_line", built_once)
            patch.setattr(Style, "render", _rendered_anew)
            if not suggestions:
                patch.setattr(ResultWriter, "_page_of", lambda _, result: result._view())
            status = embcli.__main__.main()
        return Ran(status, output.getvalue(), errors.getvalue().decode())


class _Buffer(io.BytesIO):
    """What is written, to a terminal or not."""

    def __init__(self, terminal: bool) -> None:
        super().__init__()
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal


def _text_stream(buffer: io.BytesIO) -> io.TextIOWrapper:
    return io.TextIOWrapper(buffer, "utf-8", write_through=True)


_render = Style.render


def _rendered_anew(style: Style, text: str = "", **options: Any) -> str:
    """Return a styled text as in a fresh process: rich keeps the codes of the first terminal."""
    style._ansi = None
    return _render(style, text, **options)


_command_line = app.command_line  # `InProcess` puts `built_once` in its place while it runs.


@cache
def _parser(words: tuple[str, ...] | None, finish: app.Finish) -> typer.core.TyperGroup:
    """Return the parser of a command line, which takes longer to build than most runs take."""
    return _command_line(words, finish)


def built_once(words: Sequence[str] | None = None, finish: app.Finish = Command.write) -> Any:
    """Return the command line as embcli does, but built only once for all runs of a verb."""
    if words and words[0] in PARSERS:
        return _parser((words[0],), finish)
    if words is None or len(words) > 1:
        return _parser(None, finish)
    return _parser(tuple(words), finish)


PARSERS = built_once().commands  # of all commands, by their names


@contextmanager
def limited(limit: int, most: int) -> Iterator[None]:
    """Set a limit of the `resource` module for this process and those that it starts."""
    before = resource.getrlimit(limit)
    resource.setrlimit(limit, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(limit, before)


# --- as a process ---------------------------------------------------------------------------------


class Process(Runner):
    """Runs embcli as a process of its own, with pipes."""

    command = (sys.executable, "-m", "embcli")

    def __call__(
        self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str
    ) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin
        done = subprocess.run(
            [*self.command, *arguments],
            input=data,
            capture_output=True,
            env=os.environ | environment,
            timeout=TIMEOUT,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def start(
        self,
        *arguments: str,
        environment: dict[str, str] | None = None,
        closed: tuple[int, ...] = (),
        **streams: Any,
    ) -> subprocess.Popen[bytes]:
        """Start embcli with these streams, as a fork: it has no imports to wait for.

        The descriptors in `closed` are those of streams that it does not have.
        """
        begin = partial(become, arguments, environment or {}, closed)
        return subprocess.Popen([sys.executable], preexec_fn=begin, **streams)  # noqa: PLW1509 (no thread holds a lock here)

    def forked(self, *arguments: str, stdout: Any = subprocess.PIPE, **options: Any) -> Ran:
        """Run embcli to its end as `start` starts it, with nothing to read."""
        process = self.start(
            *arguments, stdin=subprocess.DEVNULL, stdout=stdout, stderr=subprocess.PIPE, **options
        )
        output, errors = process.communicate(timeout=TIMEOUT)
        return Ran(process.returncode, output or b"", errors.decode())

    def into(self, place: str | int, *arguments: str, mode: str = "wb") -> Ran:
        """Run embcli with this file as its standard output; what the file takes is not returned."""
        with open(place, mode) as file:
            return self.forked(*arguments, stdout=file)

    def read_early(self, count: int, *arguments: str) -> Ran:
        """Run embcli into a pipe whose reader leaves when it has some bytes."""
        with self.start(
            *arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            found = process.stdout.read(count)
            process.stdout.close()
            errors = process.stderr.read()
        return Ran(process.returncode, found, errors.decode())


def become(
    arguments: tuple[str, ...], environment: dict[str, str], closed: tuple[int, ...] = ()
) -> NoReturn:
    """Go on as a process of embcli, right after a fork: a `preexec_fn` that never returns.

    Whoever forks waits for the end of a pipe, which is closed here as a new program would close it.
    """
    os.closerange(3, 1 << 16)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # Python begins like this.
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # embcli's first import does this.
    os.environ.update(environment)
    sys.argv = ["embcli", *arguments]
    begin = partial(open, encoding="utf-8", closefd=False)
    sys.stdin = begin(0)
    sys.stdout = begin(1, "w")
    sys.stderr = begin(2, "w")
    for descriptor in closed:
        os.close(descriptor)
        setattr(sys, ("stdin", "stdout", "stderr")[descriptor], None)  # Python does this.
    embcli.__main__.run()


# --- on a pseudo-terminal -------------------------------------------------------------------------


class Child(pexpect.spawn):
    """A program in a pseudo-terminal. It gets keys at once, and its end is waited for.

    pexpect itself pauses before each key, before it looks at the echo again, and while it closes.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.delaybeforesend = None
        self.ptyproc.delayafterclose = 0

    def rest(self) -> Any:
        """Return what else it prints, and give it back to the system when it has ended."""
        printed = self.read()
        self.wait()
        self.close()
        return printed

    def wait_without_echo(self) -> None:
        """Wait until keys are no longer shown."""
        while self.getecho():
            time.sleep(0.002)


class Terminal(Runner):
    """Runs embcli with all streams on a pseudo-terminal of this width and height.

    Whatever it prints is in `out`, with `\\r\\n` at the ends of lines; nothing is in `err`.
    """

    def __call__(
        self, *arguments: str, width: int = 80, height: int = 24, **environment: str
    ) -> Ran:
        child = self.start(*arguments, width=width, height=height, **environment)
        text = child.rest()
        return Ran(child.exitstatus, text.encode(), "")

    def start(
        self, *arguments: str, width: int = 80, height: int = 24, **environment: str
    ) -> Child:
        """Start embcli; what is typed and what is seen goes through what this returns."""
        begin = partial(become, arguments, environment)
        return Child(
            sys.executable,
            preexec_fn=begin,
            dimensions=(height, width),
            timeout=TIMEOUT,
            encoding="utf-8",
        )
