"""What a kept layer's key says of torch and the machine, and torch loaded so that neither faults nor signals escape."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from embcli.errors import LayerError, Notes
from embcli.seeded_layers import build
from embcli.seeded_layers.build import NO_TORCH, cpu_capability, loading_torch, this_build
from embcli.seeded_layers.seeded import Seeded
from embcli.seeded_layers.source import file_name
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
    """Put a package named torch into a folder, without which files are None."""
    package = folder / "torch"
    package.mkdir(parents=True, exist_ok=True)
    for name, text in (("__init__.py", code), ("version.py", version)):
        (package / name).unlink(missing_ok=True)
        if text is not None:
            (package / name).write_bytes(text.encode("latin-1"))
    return folder


def with_torch(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Let a folder's torch be the one that is found; the real one is loaded already, and stays so."""
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    monkeypatch.setattr(sys, "path", [str(folder)])
    this_build.cache_clear()


# --- the key ------------------------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[pytest.MonkeyPatch, Path], object]] = {
    "torch's version": lambda patch, path: with_torch(
        patch, torch_of(path, VERSION.replace("2.12", "2.13"))
    ),
    "torch's commit": lambda patch, path: with_torch(
        patch, torch_of(path, VERSION.replace("aa", "bb"))
    ),
    "no torch": lambda patch, path: with_torch(patch, path / "nowhere"),
    "no version": lambda patch, path: with_torch(patch, torch_of(path, None)),
    "the machine": lambda patch, _: patch.setattr(platform, "machine", lambda: "pdp11"),
    "the CPU's flags": lambda patch, path: patch.setattr(build, "CPU_FLAGS", str(path / "more")),
    "no CPU flags": lambda patch, path: patch.setattr(build, "CPU_FLAGS", str(path / "none")),
    "what torch is told of the CPU": lambda patch, _: patch.setenv(
        "ATEN_CPU_CAPABILITY", "default"
    ),
    "the C library": lambda patch, _: patch.setattr(os, "confstr", lambda _: "glibc 2.99"),
}


def test_whatever_can_change_a_bit_of_a_layer_changes_its_key_and_its_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    torch_of(tmp_path)
    (tmp_path / "flags").write_text("processor : 0\nflags : fpu sse2\nflags : fpu sse2\n")
    (tmp_path / "more").write_text("processor : 0\nflags : fpu sse2 avx2\nflags : fpu sse2 avx2\n")

    def key(change: Callable[[pytest.MonkeyPatch, Path], object] = lambda *_: None) -> str:
        with monkeypatch.context() as patch:
            patch.setattr(build, "CPU_FLAGS", str(tmp_path / "flags"))
            patch.setattr(os, "confstr", lambda _: "glibc 2.36")
            with_torch(patch, torch_of(tmp_path))
            change(patch, tmp_path)
            this_build.cache_clear()
            return file_name("token", Seeded(6, 3), this_build())

    first = key()
    assert key() == first
    assert "torch-2.12.0+aa" in first
    others = {name: key(change) for name, change in CHANGES.items()}
    assert len({first, *others.values()}) == 1 + len(others), others


@pytest.mark.parametrize(
    ("version", "code", "told"),
    [
        (VERSION, "", "2.12.0+aa"),
        ("__version__ = '2.12.0'", "", "2.12.0+unknown"),
        ("\xff\xfe nonsense", "", "unknown+unknown"),
        (None, "", "unknown"),
        (VERSION, None, NO_TORCH),  # what pip leaves behind of a package that is gone
    ],
)
def test_torch_is_known_by_its_files(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    version: str | None,
    code: str | None,
    told: str,
) -> None:
    with_torch(monkeypatch, torch_of(tmp_path, version, code))
    assert this_build().torch == told


def test_the_build_is_told_without_torch() -> None:
    code = (
        "import sys; from embcli.seeded_layers.build import this_build; print(this_build()); "
        "assert 'torch' not in sys.modules"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT, check=True, text=True
    )
    assert done.stdout.strip() == str(this_build())


# --- the CPU capability -------------------------------------------------------------------------------------------

# torch works it out when it is first asked, not as it is loaded: so each fork of one process is told something else.
ASK = """
import os, torch
for forced in (None, "default", "avx2", "AVX2"):
    if os.fork() == 0:
        os.environ |= {} if forced is None else {"ATEN_CPU_CAPABILITY": forced}
        print(forced, torch.backends.cpu.get_cpu_capability(), flush=True)
        os._exit(0)
    os.wait()
"""


def test_the_cpu_capability_is_the_one_that_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATEN_CPU_CAPABILITY", raising=False)
    asked = [sys.executable, "-W", "ignore", "-c", ASK]
    done = subprocess.run(asked, capture_output=True, timeout=TIMEOUT, check=True, text=True)
    said = done.stdout.replace("NO AVX", "DEFAULT")  # torch 2.4 has another word for it
    told = dict(line.split() for line in said.splitlines())
    assert [*told] == ["None", "default", "avx2", "AVX2"]
    for forced, capability in told.items():
        if forced != "None":
            monkeypatch.setenv("ATEN_CPU_CAPABILITY", forced)
        assert cpu_capability() in (capability, None)
        assert (cpu_capability() is None) == (
            platform.machine() not in ("x86_64", "AMD64") or sys.platform != "linux"
        )


# --- loading torch ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "told"),
    [
        (
            "raise ImportError('libtorch_cpu.so:\\n cannot open shared object file')",
            "libtorch_cpu.so: cannot open",
        ),
        ("raise OSError('cut off')", "cut off"),
        ("raise ValueError", "ValueError"),
        ("import nothing_of_this_name", "No module named 'nothing_of_this_name'"),
        ("f(", "never closed"),
    ],
)
def test_a_torch_that_does_not_load_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, told: str
) -> None:
    with_torch(monkeypatch, torch_of(tmp_path, VERSION, code))
    with (
        pytest.raises(
            LayerError, match=rf"^torch does not load \(.*{told}.*\); .*pip install"
        ) as error,
        loading_torch(),
    ):
        pytest.fail("it is loaded")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("code", "told"),
    [
        ("raise MemoryError", MemoryError),
        ("raise ImportError('c.so: failed to map segment from shared object')", ImportError),
    ],
)
def test_a_torch_that_memory_is_too_small_for_is_not_called_broken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, told: type[Exception]
) -> None:
    with_torch(monkeypatch, torch_of(tmp_path, VERSION, code))
    with pytest.raises(told), loading_torch():
        import torch  # noqa: F401


@pytest.mark.parametrize("version", [None, VERSION])
def test_a_torch_that_is_missing_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str | None
) -> None:
    with_torch(monkeypatch, torch_of(tmp_path, version, None))
    with (
        pytest.raises(LayerError, match=r"^torch is not installed, .*; pip install torch$"),
        loading_torch(),
    ):
        pytest.fail("not to be tried")


@pytest.mark.parametrize(
    ("patience", "told"), [(0.0, ["loading torch"]), (60.0, [])], ids=["short", "long"]
)
def test_loading_that_takes_longer_than_patience_is_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, patience: float, told: list[str]
) -> None:
    with_torch(monkeypatch, torch_of(tmp_path, code="import time; time.sleep(0.2)"))
    monkeypatch.setattr(build, "PATIENCE", patience)
    notes = Notes()
    said: list[str] = []
    monkeypatch.setattr(notes, "slow", said.append)
    with loading_torch(notes):
        assert said == told


ENDED = """
import signal, sys
def end(number, frame):
    raise SystemExit(128 + number)
signal.signal(signal.SIGTERM, end)
from embcli.seeded_layers.build import loading_torch
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[1]))
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGTERM))
sys.path.insert(0, sys.argv[2])
with loading_torch():
    import torch
while True:
    pass
"""


def test_a_process_that_is_ended_while_it_loads_torch_ends_with_143(tmp_path: Path) -> None:
    """A torch that swallows what is raised within it, as its extensions may."""
    torch_of(tmp_path, code="import time\ntry:\n    time.sleep(0.6)\nexcept SystemExit:\n    pass")
    command = [sys.executable, "-c", ENDED, "0.2", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, timeout=20, check=False)
    assert (done.returncode, done.stderr) == (143, b"")
