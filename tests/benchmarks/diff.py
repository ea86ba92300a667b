"""`diff` of two matrices of 1.2 GB against reading both files: `python -m tests.benchmarks.diff`.

The diff is the time of the process less that of the same command on files of 20 rows, run in turn; both files are read
in pieces of 4 MB, by this process. Medians of differences. Some rows are edited, and the command has to find them all.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from tests.benchmarks.neighbors import write

PAIRS = 9
ROWS, DIM = 150_000, 4096
EDITED = 3000


def edit(path: Path) -> None:
    """Change one bit of some rows."""
    matrix = np.memmap(path, np.uint16, "r+", path.stat().st_size - ROWS * DIM * 2, (ROWS, DIM))
    matrix[np.random.default_rng(1).choice(ROWS, EDITED, replace=False), 7] ^= 0x40
    matrix.flush()


def ours(pair: tuple[Path, Path], *options: str) -> bytes:
    """Run the command, and return what it says."""
    command = [sys.executable, "-m", "embcli", "diff", *map(str, pair), *options]
    return subprocess.run(command, capture_output=True, check=False).stdout


def timed(pair: tuple[Path, Path]) -> float:
    """Return how long the command takes, in seconds."""
    start = time.perf_counter()
    ours(pair)
    return time.perf_counter() - start


def read(pair: tuple[Path, Path]) -> float:
    """Return how long it takes to read both files, in seconds."""
    room = bytearray(1 << 22)
    start = time.perf_counter()
    for path in pair:
        with path.open("rb", buffering=0) as file:
            while file.readinto(room):
                pass
    return time.perf_counter() - start


def main() -> None:
    """Measure, and print one row."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        large, small = (
            (folder / f"{size}.safetensors", folder / f"{size}2.safetensors") for size in ("large", "small")
        )
        for (base, tuned), rows in ((large, ROWS), (small, 20)):
            shutil.copy(write(base, "BF16", rows, DIM), tuned)
        edit(large[1])
        os.sync()  # so that no disk is written to while it is measured
        counts = json.loads(ours(large, "-f", "json"))["diff"]["counts"]
        times = [(timed(large) - timed(small), read(large)) for _ in range(PAIRS + 1)][1:]
    one, other = (statistics.median(each) for each in zip(*times, strict=True))
    found = f"{counts['moved']:,} of {EDITED:,} found"
    print(f"{found}; {one:.3f} s, reading both {other:.3f} s, {one / other:.2f}; at most 2")


if __name__ == "__main__":
    main()
