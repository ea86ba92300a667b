"""The search of `neighbors` against reading the file: `python -m tests.benchmarks.neighbors`.

The search is the time of the process less that of the same command on a file of 20 rows. A plain pass reads the file
into one buffer, from the page cache. Both run in turn; medians.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import get_args

import numpy as np
import orjson

from embcli.names import Metric

ROWS, DIM, RUNS, BOUND = 150_000, 4096, 7, 12


def write(path: Path, rows: int) -> Path:
    """Write a matrix of normal numbers in bfloat16."""
    head = orjson.dumps({"wte": {"dtype": "BF16", "shape": [rows, DIM], "data_offsets": [0, rows * DIM * 2]}})
    random = np.random.default_rng(0)
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for start in range(0, rows, 1000):
            bits = random.standard_normal((min(1000, rows - start), DIM), np.float32).view(np.uint32)
            file.write((bits >> 16).astype(np.uint16).tobytes())
    return path


def search(path: Path, metric: str) -> float:
    """Return how long the command takes, in seconds."""
    command = [sys.executable, "-m", "embcli", "neighbors", "--ids", "5", "--from", str(path), "--metric", metric]
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def read(path: Path) -> float:
    """Return how long a plain pass takes, in seconds."""
    buffer = bytearray(1 << 20)
    start = time.perf_counter()
    with path.open("rb", buffering=0) as file:
        while file.readinto(buffer):
            pass
    return time.perf_counter() - start


def main() -> None:
    """Measure each metric, and print its row."""
    with tempfile.TemporaryDirectory() as folder:
        large, small = write(Path(folder) / "large.safetensors", ROWS), write(Path(folder) / "small.safetensors", 20)
        for metric in get_args(Metric):
            pairs = [(search(large, metric) - search(small, metric), read(large)) for _ in range(RUNS + 1)][1:]
            ours, plain = map(statistics.median, zip(*pairs, strict=True))
            print(
                f"{metric:7} {ours:.3f} s; a pass {plain:.3f} s; {ours / plain:.1f} passes, at most {BOUND}", flush=True
            )


if __name__ == "__main__":
    main()
