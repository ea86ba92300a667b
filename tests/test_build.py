"""The key of a kept layer names torch and the machine; loading torch lets no fault escape."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch  # noqa: F401 - A fake one that is loaded first would stay.

from embcli.errors import LayerError, Notes
from embcli.seeded_layers import build
from embcli.seeded_layers.build import load_torch, this_build
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import file_name
from tests.cases import cases
from tests.runners import TIMEOUT

VERSION = "__version__ = '2.12.0'\ngit_version: Optional[str] = 'aa'\n"


@pytest.fixture(autouse=True)
def _asked_anew(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    this_build.cache_clear()
    yield
    monkeypatch.undo()
    this_build.cache_clear()


def torch_of(
    folder: Path, version: str | None = VERSION, code: str | None = "raise OSError('cut off')"
) -> Path:
    """Put a package named torch into a folder, without the files that are None."""
    package = folder / "torch"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in {"__init__.py": code, "version.py": version}.items():
        file = package / name
        file.unlink(missing_ok=True)
        if text is not None:
            file.write_bytes(text.encode("latin-1"))
    return folder


def with_torch(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder's torch be the one that is found; the real one is loaded, and stays so."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder)])
    this_build.cache_clear()


# --- the key --------------------------------------------------------------------------------------

ONE_CPU = "processor : 0\nflags : fpu sse2\nflags : fpu sse2\n"
BETTER_CPU = "processor : 0\nflags : fpu sse2 avx2\nflags : fpu sse2 avx2\n"


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Make a machine with a CPU, a C library and a torch; return the folder with its files."""
    (tmp_path / "flags").write_text(ONE_CPU)
    monkeypatch.setattr(build, "CPU_FLAGS", str(tmp_path / "flags"))
    monkeypatch.setattr(os, "confstr", lambda _: "glibc 2.36")
    with_torch(monkeypatch, torch_of(tmp_path))
    return tmp_path


def key() -> str:
    """Return the name of a kept layer's file, which has the key in it."""
    this_build.cache_clear()
    return file_name("token", Seeded(6, 3), this_build())


Change = Callable[[Path, pytest.MonkeyPatch], object]
CHANGES: dict[str, Change] = {
    "another torch": lambda folder, _: torch_of(folder, VERSION.replace("2.12", "2.13")),
    "another commit": lambda folder, _: torch_of(folder, VERSION.replace("aa", "bb")),
    "a torch without a version": lambda folder, _: torch_of(folder, None),
    "no torch": lambda folder, patch: with_torch(patch, folder / "nowhere"),
    "more flags": lambda folder, _: (folder / "flags").write_text(BETTER_CPU),
    "no flags": lambda folder, _: (folder / "flags").unlink(),
    "a word to torch": lambda _, patch: patch.setenv("ATEN_CPU_CAPABILITY", "default"),
    "another machine": lambda _, patch: patch.setattr(platform, "machine", lambda: "pdp11"),
    "another C library": lambda _, patch: patch.setattr(os, "confstr", lambda _: "glibc 2.99"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_what_changes_the_draws_changes_the_key(monkeypatch, machine, change):
    first = key()

    change(machine, monkeypatch)

    assert key() != first


@cases
def test_torch_is_known_by_its_files(
    monkeypatch,
    tmp_path,
    version,
    code,
    name,
):
    with_torch(monkeypatch, torch_of(tmp_path, version, code))

    assert this_build().torch == name


BUILD_WITHOUT_TORCH = """
import sys
from embcli.seeded_layers.build import this_build
print(this_build())
assert "torch" not in sys.modules
"""


def printed_by(code: str) -> str:
    """Return what a process of Python prints."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=True, text=True)
    return done.stdout


def test_the_build_is_known_without_torch():
    assert printed_by(BUILD_WITHOUT_TORCH).strip() == str(this_build())


# --- the CPU capability ---------------------------------------------------------------------------

# torch finds it when it is first asked, not as it is loaded, so each fork of one process can be
# given another value.
ASK = """
import os, torch
for forced in (None, "default", "avx2", "AVX2"):
    if os.fork() == 0:
        os.environ |= {} if forced is None else {"ATEN_CPU_CAPABILITY": forced}
        print(forced, torch.backends.cpu.get_cpu_capability(), flush=True)
        os._exit(0)
    os.wait()
"""


CAN_TELL = sys.platform == "linux" and platform.machine() in ("x86_64", "AMD64")


def test_the_cpu_capability_is_the_one_that_torch_says(monkeypatch):
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    said = printed_by(ASK).replace("NO AVX", "DEFAULT")  # torch 2.4 has another word for it

    capabilities = dict(line.split() for line in said.splitlines())

    assert [*capabilities] == ["None", "default", "avx2", "AVX2"]
    for forced, capability in capabilities.items():
        if forced != "None":
            monkeypatch.setenv("ATEN_CPU_CAPABILITY", forced)
        this_build.cache_clear()
        expected = capability if CAN_TELL else platform.machine()
        assert this_build().capability == expected


# --- loading torch --------------------------------------------------------------------------------


@cases
def test_a_torch_that_does_not_load_is_an_error_of_one_line(
    monkeypatch,
    tmp_path,
    version,
    code,
    words,
):
    with_torch(monkeypatch, torch_of(tmp_path, version, code))

    with pytest.raises(LayerError, match=words) as error:
        load_torch()

    assert "pip install" in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        ("raise MemoryError", MemoryError),
        ("raise ImportError('c.so: failed to map segment from shared object')", ImportError),
    ],
)
def test_a_torch_that_memory_is_too_small_for_is_not_called_broken(
    monkeypatch, tmp_path, code, kind
):
    with_torch(monkeypatch, torch_of(tmp_path, VERSION, code))

    with pytest.raises(kind):
        load_torch()


@cases
def test_loading_that_takes_longer_than_patience_is_noted(monkeypatch, tmp_path, patience, notes):
    with_torch(monkeypatch, torch_of(tmp_path, code="import time; time.sleep(0.2)"))
    monkeypatch.setattr(build, "PATIENCE", patience)
    found: list[str] = []

    @contextmanager
    def slow(what: str) -> Iterator[None]:
        found.append(what)
        yield
        found.append("done")

    listener = Notes()
    monkeypatch.setattr(listener, "slow", slow)

    load_torch(listener)
    assert found == notes


ENDED = """
import signal, sys
def end(number, frame):
    raise SystemExit(128 + number)
signal.signal(signal.SIGTERM, end)
from embcli.seeded_layers.build import load_torch
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
sys.path.insert(0, sys.argv[2])
load_torch()
while True:
    pass
"""


SWALLOWS_EXITS = """
import time
try:
    time.sleep(0.6)
except SystemExit:
    pass
"""


def test_a_process_that_is_ended_while_it_loads_torch_ends_with_143(tmp_path):
    """A torch may swallow what is raised within it, as its extensions do."""
    torch_of(tmp_path, code=SWALLOWS_EXITS)
    command = [sys.executable, "-c", ENDED, "0.2", str(tmp_path)]

    done = subprocess.run(command, capture_output=True, timeout=20, check=False)

    assert done.returncode == 143
    assert done.stderr == b""
