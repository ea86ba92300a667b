"""What all tests share: no network, a cache folder of their own, and embcli run as a real process."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import socket
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# Before numpy and torch are imported: the suite runs on all cores, and threads of one test would take those of others.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
os.environ.pop(
    "PYTHONDONTWRITEBYTECODE", None
)  # processes that tests start find embcli compiled, as users do

TIMEOUT = 120  # seconds after which a process that hangs is a failure
_OURS = ("EMBCLI_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES", "COLORTERM", "TERM")

# `--hypothesis-profile long` looks further; whoever asks for a number of examples gets that number.
# No test is timed: a busy machine is no failure.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _untimed, max_examples=30)
settings.register_profile("long", _untimed, max_examples=1000)
settings.load_profile("suite")


def pytest_configure() -> None:
    """Handle the signals that a shell's `&` and nohup ignore: children inherit an ignored signal, not a handled one."""
    for number, handler in (
        (signal.SIGINT, signal.default_int_handler),
        (signal.SIGHUP, lambda *_: None),
    ):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    asyncio.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


def pytest_collection_finish() -> None:
    """Leave what the modules have made, torch's and ours, out of every later garbage collection."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("tests use no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder that tests fill together, so that a layer is drawn once for all of them."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # completion sets it, which shall end with the test
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(shared_cache))
    # Whatever a process tries to reach is refused: nothing listens on the discard port of this machine.
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@dataclass(frozen=True)
class Ran:
    """A process that has ended."""

    status: int
    out: bytes
    err: str

    @property
    def text(self) -> str:
        """Standard output as text."""
        return self.out.decode()


class Embcli:
    """Runs embcli as a process of its own, with pipes."""

    command = (sys.executable, "-m", "embcli")

    def __call__(
        self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str
    ) -> Ran:
        """Run embcli; `stdin` is what is piped in, and environment variables are added to the test's."""
        data, every = (
            stdin.encode() if isinstance(stdin, str) else stdin,
            {**os.environ, **environment},
        )
        command = [*self.command, *arguments]
        done = subprocess.run(
            command, input=data, capture_output=True, env=every, timeout=TIMEOUT, check=False
        )
        return Ran(done.returncode, done.stdout, done.stderr.decode())

    def ok(
        self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str
    ) -> Ran:
        """Run embcli and expect success, with nothing on standard error."""
        ran = self(*arguments, stdin=stdin, **environment)
        assert (ran.status, ran.err) == (0, ""), ran
        return ran

    def refused(
        self, *arguments: str | bytes, stdin: str | bytes | None = b"", **environment: str
    ) -> str:
        """Run embcli and expect an error of one or two lines with status 2; return it."""
        ran = self(*arguments, stdin=stdin, **environment)
        assert ran.status == 2, ran
        assert ran.out == b"", ran
        assert ran.err.startswith("embcli: "), ran
        assert 1 <= ran.err.count("\n") <= 2, ran
        assert "Traceback" not in ran.err
        return ran.err


@pytest.fixture
def embcli() -> Embcli:
    """Return a runner of embcli."""
    return Embcli()


@pytest.fixture
def inside() -> Embcli:
    """Return a runner of embcli within this process, for wherever the process is not the point."""
    from tests.inside import Inside

    return Inside()
