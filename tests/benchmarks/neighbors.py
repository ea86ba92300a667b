"""The search of `neighbors` against a plain pass over the same bytes: `python -m tests.benchmarks.neighbors [CASE]`.

The search is the time of the process less that of the same command on a file of 20 rows, run in turn; so is the pass
that xors all bytes, of a process that maps the file. A second pass in that process, over pages that it has touched, is
told beside it. The product is taken in a process that holds the matrix, and has taken it before. Medians of
differences. Memory is what a process has for itself alone (Pss of what it shares with nobody), at most, above the same
of the command on 20 rows.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import orjson

from embcli.names import Metric

PAIRS = 21
XOR = """
import sys, numpy as n
n.bitwise_xor.reduce(n.memmap(sys.argv[1], n.uint8, "r")[8:].view(n.uint64))
"""
AGAIN = """
import sys, time, numpy as n
words = n.memmap(sys.argv[1], n.uint8, "r")[8:].view(n.uint64)
for turn in range(2):
    start = time.perf_counter()
    n.bitwise_xor.reduce(words)
print(time.perf_counter() - start)
"""
PRODUCT = """
import sys, time, numpy as n
matrix = n.fromfile(sys.argv[1], n.float32)[-200_000 * 768:].reshape(-1, 768)
query = matrix[5].copy()
for turn in range(2):
    start = time.perf_counter()
    n.argpartition(matrix @ query, -10)[-10:]
print(time.perf_counter() - start)
"""


def write(path: Path, dtype: str, rows: int, dim: int) -> Path:
    """Write a matrix of normal numbers as safetensors, its numbers at a multiple of 8 bytes."""
    width = {"BF16": 2, "F32": 4}[dtype]
    head = orjson.dumps({"wte": {"dtype": dtype, "shape": [rows, dim], "data_offsets": [0, rows * dim * width]}})
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(head.ljust(120)).to_bytes(8, "little") + head.ljust(120))
        for start in range(0, rows, 1000):
            bits = random.standard_normal((min(1000, rows - start), dim), np.float32).view(np.uint32)
            file.write((bits >> 16).astype(np.uint16).tobytes() if dtype == "BF16" else bits.tobytes())
    return path


def ours(path: Path, metric: str) -> list[str]:
    """Return the command that looks for the neighbours of a row in a file."""
    return [sys.executable, "-m", "embcli", "neighbors", "--ids", "5", "--from", str(path), "--metric", metric]


def timed(command: list[str]) -> float:
    """Return how long a process takes, in seconds."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def private(command: list[str]) -> float:
    """Return the most memory that a process has for itself alone, in MB, looked at every few milliseconds."""
    process, most = subprocess.Popen(command, stdout=subprocess.DEVNULL), 0
    while process.poll() is None:
        try:
            text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        except OSError:
            break
        found = dict(line.split(":") for line in text.splitlines()[1:])
        most = max(most, sum(int(found[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")))
    process.wait()
    return most / 1e3


def told(script: str, path: Path) -> float:
    """Return how long a script says that something takes, in seconds."""
    command = [sys.executable, "-c", script, str(path)]
    return float(subprocess.run(command, check=True, capture_output=True, env={"OPENBLAS_NUM_THREADS": "1"}).stdout)


def beyond(command: Callable[[Path], list[str]], large: Path, small: Path) -> float:
    """Return how much longer a command takes on a large file than on a small one, in seconds."""
    return timed(command(large)) - timed(command(small))


def xor(path: Path) -> list[str]:
    """Return the command of the plain pass."""
    return [sys.executable, "-c", XOR, str(path)]


def measure(name: str, large: Path, small: Path, bound: float, metric: str) -> None:
    """Measure a search in a file, and print its row."""
    search = partial(ours, metric=metric)
    plain: dict[str, Callable[[], float]] = {"numpy's product": lambda: told(PRODUCT, large)}
    if "bf16" in name:
        plain = {"xor": lambda: beyond(xor, large, small), "xor again": lambda: told(AGAIN, large)}
    took: list[float] = []
    against: dict[str, list[float]] = {each: [] for each in plain}
    for turn in range(PAIRS + 1):
        times = beyond(search, large, small), {each: one() for each, one in plain.items()}
        if turn:
            took.append(times[0])
            for each, time_of in times[1].items():
                against[each].append(time_of)
    memory = max(private(search(large)) for _ in range(3)) - max(private(search(small)) for _ in range(3))
    one = statistics.median(took)
    others = ((each, statistics.median(times)) for each, times in against.items())
    ratios = "; ".join(f"{each} {other:.3f} s, {one / other:.2f}" for each, other in others)
    print(f"{name:20} {metric:7} {one:.3f} s; {ratios}; at most {bound}; {memory:.0f} MB", flush=True)


def main() -> None:
    """Measure the cases whose names have a word in them, or all."""
    cases = (("150,000 x 4,096 bf16", "BF16", 150_000, 4096, 3), ("200,000 x 768 f32", "F32", 200_000, 768, 1.2))
    for name, dtype, rows, dim, bound in cases:
        metrics = [each for each in get_args(Metric) if all(word in f"{name} {each}" for word in sys.argv[1:])]
        if not metrics:
            continue
        with tempfile.TemporaryDirectory() as folder:
            large = write(Path(folder) / "large.safetensors", dtype, rows, dim)
            small = write(Path(folder) / "small.safetensors", dtype, 20, dim)
            os.sync()  # so that no disk is written to while it is measured
            for metric in metrics:
                measure(name, large, small, bound, metric)


if __name__ == "__main__":
    main()
