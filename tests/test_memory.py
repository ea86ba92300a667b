"""What memory there is, as the system tells it in every place, and running out of it told in a sentence."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

from embcli import memory
from embcli.errors import LayerError
from embcli.weights.seeded import refuse_too_large
from tests.conftest import TIMEOUT

GB = 10**9


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Return the root of a system of our own, with 64 GB built in and 32 GB free."""
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_text("MemTotal: 64000000 kB\nMemFree: 1 kB\nMemAvailable: 31250000 kB\n")
    (tmp_path / "proc/self/statm").write_text("1000 900 800 1 0 7 0\n")
    monkeypatch.setattr(memory, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(memory, "_GROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 1000, "SC_PHYS_PAGES": 64 * 10**6}.__getitem__)
    return tmp_path


def group(folder: Path, limit: object, taken: int, cached: int, version: int = 2) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    names = ("memory.max", "memory.current") if version == 2 else ("memory.limit_in_bytes", "memory.usage_in_bytes")
    for name, value in zip(names, (limit, taken), strict=True):
        (folder / name).write_text(f"{value}\n")
    total = "total_" if version == 1 else ""
    (folder / "memory.stat").write_text(f"active_file 5\n{total}inactive_file {cached}\n")


def test_what_is_free_is_what_the_system_says_is_available(system: Path) -> None:
    assert memory.free() == 32 * GB


def test_without_a_word_of_the_system_all_that_is_built_in_is_free(system: Path) -> None:
    (system / "proc/meminfo").unlink()
    assert memory.free() == 64 * GB


@pytest.mark.parametrize("version", [1, 2])
def test_what_is_left_of_a_control_group_counts_its_cache_as_free(system: Path, version: int) -> None:
    line, root = ("0::/a/b", "cgroup") if version == 2 else ("4:cpu,memory:/a/b\n0::/", "cgroup/memory")
    (system / "proc/self/cgroup").write_text(f"3:cpuset:/x\n{line}\n")
    group(system / root / "a/b", 8 * GB, 7 * GB, 2 * GB, version)
    assert memory.free() == 3 * GB


def test_a_group_that_lies_in_a_smaller_one_has_no_more_than_that(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/a/b\n")
    group(system / "cgroup/a/b", "max", 7 * GB, 0)
    assert memory.free() == 32 * GB
    group(system / "cgroup/a", 5 * GB, 1 * GB, 0)
    assert memory.free() == 4 * GB
    group(system / "cgroup", 2 * GB, 1 * GB, 0)  # as a container sees its own
    assert memory.free() == 1 * GB


def test_a_group_that_is_full_leaves_nothing(system: Path) -> None:
    (system / "proc/self/cgroup").write_text("0::/\n")
    group(system / "cgroup", GB, 2 * GB, 0)
    assert memory.free() == 0


def test_what_is_left_of_the_address_space_counts(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    monkeypatch.setattr(resource, "getrlimit", lambda _: (10 * GB, resource.RLIM_INFINITY))
    assert memory.free() == 10 * GB - 1000 * resource.getpagesize()


def test_matrices_that_do_not_fit_into_what_is_free_are_refused(system: Path) -> None:
    refuse_too_large("a pair of layers", (4 * 10**8, 10), copies=2)
    with pytest.raises(LayerError) as error:
        refuse_too_large("a pair of layers", (4 * 10**8 + 1, 10), copies=2)
    assert str(error.value) == (
        "a pair of layers of 400,000,001 x 10 takes 32.0 GB, and this machine has 32.0 GB of memory free"
    )


@pytest.mark.parametrize(
    "taking",
    [
        lambda: np.empty(2**60, np.uint8),
        lambda: torch.empty(2**60),
        lambda: bytearray(2**62),
    ],
    ids=["numpy", "torch", "Python"],
)
def test_memory_that_runs_out_is_told_in_a_sentence(taking: Callable[[], object]) -> None:
    with pytest.raises(LayerError) as error, memory.explaining_shortage("a token layer of 6 x 3"):
        taking()
    assert str(error.value) == "memory ran out over a token layer of 6 x 3; choose fewer rows, or smaller layers"


@pytest.mark.parametrize(
    "fault",
    [RuntimeError("can't start new thread"), OSError(12, ""), ImportError("libtorch.so: failed to map segment")],
)
def test_other_words_for_it_are_known(fault: Exception) -> None:
    with pytest.raises(LayerError), memory.explaining_shortage("a token layer"):
        raise fault


@pytest.mark.parametrize("fault", [RuntimeError("size mismatch"), OSError(28, "No space left"), KeyError("a")])
def test_other_faults_pass(fault: Exception) -> None:
    with pytest.raises(type(fault)), memory.explaining_shortage("a token layer"):
        raise fault


LIMITED = """
import resource, sys
from embcli import memory
resource.setrlimit(resource.RLIMIT_AS, (2 * 10**9, 2 * 10**9))
print(memory.free())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux")
def test_a_real_limit_is_seen() -> None:
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, timeout=TIMEOUT, check=True)
    assert 10**9 < int(done.stdout) < 2 * 10**9


@pytest.mark.skipif(sys.platform != "linux", reason="a setting of glibc")
def test_threads_share_heaps() -> None:
    code = """
import re, sys, threading
from embcli.memory import share_heaps
share_heaps()
barrier, kept = threading.Barrier(6), []
def run():
    barrier.wait()
    kept.append([bytearray(50_000 + each) for each in range(20)])
    barrier.wait()
threads = [threading.Thread(target=run) for _ in range(6)]
[each.start() for each in threads]
[each.join() for each in threads]
spans = [[int(each, 16) for each in line.split()[0].split("-")] for line in open("/proc/self/maps") if "---p" in line]
print(sum(end % 2**26 == 0 and end - start > 2**25 for start, end in spans))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=TIMEOUT, check=True)
    assert int(ran.stdout) <= 1  # heaps of 64 MB each beside the first one
