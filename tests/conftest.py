"""What all tests share: no network, a cache folder of their own, ways to run embcli, snapshots."""

from __future__ import annotations

import asyncio
import gc
import inspect
import os
import signal
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
from hypothesis import HealthCheck, settings

# The suite runs on all cores, and threads of one test would take those of others. numpy and torch
# read this when they are imported.
for _threads in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_threads, "1")
# Processes that tests start find embcli compiled, as users do. Workers find the tests compiled:
# pytest takes seconds in each of them to rewrite all assertions.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

pytest.register_assert_rewrite("tests.snapshots", "tests.transcripts")

from tests.runners import InProcess, Process, Terminal  # noqa: E402 - It imports numpy.
from tests.snapshots import Snapshot  # noqa: E402

_OURS = ("EMBCLI_", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "COLORFGBG", "LINES", "COLORTERM", "TERM")

# `--hypothesis-profile long` looks further; whoever asks for a number of examples gets that number.
# No test is timed: a busy machine is no failure.
_untimed = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("suite", _untimed, max_examples=30)
settings.register_profile("long", _untimed, max_examples=1000)
settings.load_profile("suite")


def pytest_configure() -> None:
    """Handle the signals that a shell's `&` and nohup ignore.

    Children inherit an ignored signal, and not a handled one.
    """
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
    """Collect garbage more rarely, and never what the modules have made, torch's and ours."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let no command line that a test runs within this process reach for the network."""
    tried = []

    def refuse(*args: object, **kwargs: object) -> None:
        tried.append(args)
        raise OSError("tests use no network")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    yield
    assert not tried, "something that ran reached for the network"


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a cache folder that tests fill together, so that a layer is drawn only once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, shared_cache: Path) -> None:
    monkeypatch.setenv("COLUMNS", "80")  # completion sets it, which shall end with the test
    for name in list(os.environ):
        if name.startswith(_OURS):
            monkeypatch.delenv(name)
    monkeypatch.setenv("EMBCLI_CACHE_DIR", str(shared_cache))
    monkeypatch.setenv("EMBCLI_ASK", "0")  # tests of what transformers says have recorded answers
    # Whatever a process tries to reach is refused: nothing listens on the discard port.
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")


@pytest.fixture(scope="session")
def made_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the texts and models that examples of help and of `explain` name."""
    from tests.files.made import matrix

    folder = tmp_path_factory.mktemp("made")
    for name in ("book.txt", "the-verdict.txt"):
        (folder / name).write_text("Every effort moves you, and so on. " * 400)

    token = matrix(50257, 8, 3)  # as many rows as GPT-2
    token += np.float32(0.5)  # Columns of trained matrices have means.
    tuned = token[:9000].copy()
    tuned[262] += np.float32(0.1)
    np.save(folder / "base.npy", token[:9000])
    np.save(folder / "tuned.npy", tuned)
    (folder / "gpt2").mkdir()
    position = token[:64]
    for name, rows in (("model", token[:200]), ("tuned", token[:200]), ("gpt2/model", token)):
        tensors = {"wte.weight": rows, "wpe.weight": position}
        safetensors.numpy.save_file(tensors, folder / f"{name}.safetensors")
    return folder


@pytest.fixture
def named_files(made_files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go to a folder with the files that examples name."""
    monkeypatch.chdir(tmp_path)
    for path in made_files.iterdir():
        (tmp_path / path.name).symlink_to(path)


@pytest.fixture(scope="session")
def in_process() -> InProcess:
    """Return a runner of embcli within this process, for wherever the process is not the point."""
    return InProcess()


@pytest.fixture(scope="session")
def process() -> Process:
    """Return a runner of embcli as a real process, with pipes, signals and an exit status."""
    return Process()


@pytest.fixture(scope="session")
def terminal() -> Terminal:
    """Return a runner of embcli on a pseudo-terminal."""
    return Terminal()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--accept",
        action="append",
        default=[],
        metavar="PATH",
        help="write what is printed now into the snapshots below PATH, from the top folder",
    )


@pytest.fixture(scope="session")
def snapshot(pytestconfig: pytest.Config) -> Snapshot:
    """Return what holds a text against a kept one, or writes it below a path of --accept."""
    accepted = [pytestconfig.rootpath / path for path in pytestconfig.getoption("accept")]
    for path in accepted:
        assert path.exists(), f"--accept={path} is no file and no folder"
    return Snapshot(accepted)
