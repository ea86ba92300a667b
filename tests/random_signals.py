"""Signals at any moment of writing a file and of keeping a layer: the old file or the whole new one, and nothing else.

`python -m tests.random_signals [COUNT]` sends so many of each; the suite sends a few.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from embcli.store import Store
from embcli.verbs.cache import contents
from tests.conftest import TIMEOUT, Embcli
from tests.inside import Inside

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL)
OLD = b"as it was\n"
KEPT = ("lookup", "--ids", "5,4999", "--vocab", "20000", "--dim", "256", "--context-length", "64", "-f", "csv")


def ended(number: signal.Signals, after: float, *arguments: str, **environment: str) -> int:
    """Start embcli, send it a signal after so many seconds, and return its status.

    It ended by itself or by the signal, which may come before Python runs any of embcli.
    """
    process = subprocess.Popen(
        [*Embcli.command, *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **environment},
    )
    time.sleep(after)
    process.send_signal(number)
    _, errors = process.communicate(timeout=TIMEOUT)
    starting = b"Fatal Python error: init" in errors
    assert starting or process.returncode in (0, 128 + number, -number), (process.returncode, errors)
    return process.returncode


def took(*arguments: str, **environment: str) -> float:
    """Return how long a run takes, in seconds."""
    start = time.perf_counter()
    subprocess.run(
        [*Embcli.command, *arguments],
        capture_output=True,
        check=True,
        env={**os.environ, **environment},
        timeout=TIMEOUT,
    )
    return time.perf_counter() - start


def writing(number: signal.Signals, count: int, folder: Path, chance: random.Random) -> Counter[int]:
    """Interrupt the writing of a file again and again; return the statuses."""
    text, out, statuses = folder / "text.txt", folder / "out" / "out.ndjson", Counter[int]()
    out.parent.mkdir(exist_ok=True)
    text.write_text("Every effort moves you. " * 1000)
    write = ("lookup", "--file", str(text), "--window", "--columns", "0:64", "-o", str(out))
    Inside().ok(*write)  # which leaves its layers in the cache
    duration, new = took(*write), out.read_bytes()
    for _ in range(count):
        out.write_bytes(OLD)
        status = ended(number, chance.uniform(0, duration), *write)
        statuses[status] += 1
        assert out.read_bytes() in ((new,) if status == 0 else (OLD, new))
        others = [path for path in out.parent.iterdir() if path != out]
        assert not others or status == -signal.SIGKILL, others
        for half in others:
            half.unlink()
    Inside().ok(*write)
    assert out.read_bytes() == new
    return statuses


def keeping(number: signal.Signals, count: int, folder: Path, chance: random.Random) -> Counter[int]:
    """Interrupt the drawing and keeping of a layer again and again; return the statuses."""
    cache, statuses = folder / "kept", Counter[int]()
    wanted = Inside().ok(*KEPT, "--no-cache").out
    duration = took(*KEPT, EMBCLI_CACHE_DIR=str(cache))
    for _ in range(count):
        Store(cache).clear()
        status = ended(number, chance.uniform(0, duration), *KEPT, EMBCLI_CACHE_DIR=str(cache))
        statuses[status] += 1
        halves = [*cache.glob(".*")]
        assert not halves or status == -signal.SIGKILL, halves
        assert all(entry.path.suffix == ".npy" for entry in contents(Store(cache)).entries)
        assert Inside().ok(*KEPT, EMBCLI_CACHE_DIR=str(cache)).out == wanted
    return statuses


if __name__ == "__main__":
    for each in SIGNALS[:-1]:
        signal.signal(each, signal.SIG_DFL)  # what a shell starts in the background would ignore Ctrl-C
    many = int(sys.argv[1]) if sys.argv[1:] else 100
    for case in (writing, keeping):
        for each in SIGNALS:
            with tempfile.TemporaryDirectory() as name:
                os.environ["EMBCLI_CACHE_DIR"] = str(Path(name) / "cache")
                print(case.__name__, each.name, dict(case(each, many, Path(name), random.Random(0))), flush=True)
