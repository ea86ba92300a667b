"""embcli run within the process of the tests, where hundreds of runs cost no start."""

from __future__ import annotations

import io
import sys

import pytest

from embcli import cli, safe
from embcli.__main__ import main
from tests.conftest import Embcli, Ran

assert cli._CALLED is None  # so that all verbs have their commands here


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
    """Runs embcli in the process of the tests; `terminal` and `noisy` make terminals of its output and its errors."""

    def __init__(self, terminal: bool = False, noisy: bool = False) -> None:
        self.terminal = terminal
        self.noisy = noisy

    def __call__(self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str) -> Ran:
        data = stdin.encode() if isinstance(stdin, str) else stdin or b""
        out, err = Buffer(self.terminal), Buffer(self.noisy)
        safe.note.cache_clear()  # a process says each of its notes once
        with pytest.MonkeyPatch.context() as patch:
            for name, value in environment.items():
                patch.setenv(name, value)
            patch.setattr(sys, "argv", ["embcli", *arguments])
            patch.setattr(sys, "stdin", Stream(io.BytesIO(data)))
            patch.setattr(sys, "stdout", Stream(out))
            patch.setattr(sys, "stderr", Stream(err))
            status = main()
            sys.stdout.flush()
            return Ran(status, out.getvalue(), err.getvalue().decode())
