"""The search of `neighbors` against a plain pass over the same bytes: `python -m tests.benchmarks.neighbors [CASE]`.

The search is the time of the process less that of the same command on a file of 20 rows, run in turn; the plain pass is
timed within a process of its own, that has touched the bytes before. Medians of differences. Memory is what a process
has for itself alone (Pss of what it shares with nobody), at most, above the same of the command on 20 rows.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import orjson

PAIRS = 21
XOR = """
import sys, time, numpy as n
for turn in range(2):
    start = time.perf_counter()
    n.bitwise_xor.reduce(n.memmap(sys.argv[1], n.uint8, "r")[8:].view(n.uint64))
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


def measure(name: str, dtype: str, shape: tuple[int, int], plain: str, bound: float, metric: str) -> None:
    """Measure a case and print its row."""
    environment = {"OPENBLAS_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        large = write(Path(folder) / "large.safetensors", dtype, *shape)
        small = write(Path(folder) / "small.safetensors", dtype, 20, shape[1])
        search, passes = [], []
        for turn in range(PAIRS + 1):
            took = timed(ours(large, metric)) - timed(ours(small, metric))
            script = [sys.executable, "-c", plain, str(large)]
            once = float(subprocess.run(script, check=True, capture_output=True, env=environment).stdout)
            if turn:
                search.append(took)
                passes.append(once)
        memory = max(private(ours(large, metric)) for _ in range(3)) - max(
            private(ours(small, metric)) for _ in range(3)
        )
    one, other = statistics.median(search), statistics.median(passes)
    print(
        f"{name:40} {metric:7} {one:.3f} s against {other:.3f} s: {one / other:.2f}, at most {bound}; {memory:.0f} MB",
        flush=True,
    )


def main() -> None:
    """Measure the cases whose names have a word in them, or all."""
    cases = (
        ("150,000 x 4,096 bf16, xor of its bytes", "BF16", (150_000, 4096), XOR, 1.5),
        ("200,000 x 768 f32, numpy's product", "F32", (200_000, 768), PRODUCT, 1.2),
    )
    for case in cases:
        for metric in ("cosine", "dot", "l2"):
            if all(word in f"{case[0]} {metric}" for word in sys.argv[1:]):
                measure(*case, metric)


if __name__ == "__main__":
    main()
