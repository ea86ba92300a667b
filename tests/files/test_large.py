"""A checkpoint of 100 GB in 800 tensors: what is read of it, and the memory that it takes, are those of a small one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.benchmarks import checkpoints
from tests.conftest import TIMEOUT

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="takes sparse files")
LOOKUP = ("lookup", "--ids", "9,2", "--from")
ADDRESSES = 4 * 10**9  # bytes
PEAK = """
import sys
from embcli.__main__ import main
status = main()
assert "torch" not in sys.modules
print(*(line for line in open("/proc/self/status") if line.startswith("VmHWM")), file=sys.stderr)
sys.exit(status)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a file that is zero except in the second row of its token matrix."""
    path = tmp_path_factory.mktemp("large") / "model.safetensors"
    checkpoints.large(path)
    with path.open("r+b") as file:
        start = 8 + int.from_bytes(file.read(8), "little")
        file.seek(start + 2 * checkpoints.LARGE_DIM * 2)
        file.write(np.full(checkpoints.LARGE_DIM, 0x3FC0, np.uint16).tobytes())  # 1.5 in bfloat16
    return path


def test_its_rows_are_looked_up_within_a_limit_far_below_its_size(large: Path) -> None:
    assert large.stat().st_size > 99 * 10**9
    limit = f'ulimit -v {ADDRESSES // 1024}; exec "$@"'
    command = ["sh", "-c", limit, "sh", sys.executable, "-m", "embcli", *LOOKUP, str(large), "-f", "json"]
    done = subprocess.run(command, capture_output=True, timeout=TIMEOUT, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["matrices"]["token"]
    assert found == [[0.0] * checkpoints.LARGE_DIM, [1.5] * checkpoints.LARGE_DIM]


def peak(*arguments: str) -> int:
    """Return the most memory that a run of embcli has, in MB; it imports no torch."""
    done = subprocess.run([sys.executable, "-c", PEAK, *arguments], capture_output=True, timeout=TIMEOUT, check=True)
    return int(done.stderr.split()[-2]) // 1024


def test_it_takes_no_more_memory_than_a_small_one_and_no_torch(large: Path, tmp_path: Path) -> None:
    small = tmp_path / "small.safetensors"
    checkpoints.small(small)
    for words in (LOOKUP, ("info", "--from")):
        assert 20 < peak(*words, str(large)) < peak(*words, str(small)) + 30
