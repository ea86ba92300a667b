"""embcli against the plain scripts beside this file, as whole processes that take turns: medians and their ratios.

    python -m tests.benchmarks [--runs N] [CASE ...]

A plain script is what a user would write instead with torch, tiktoken and numpy. Each case runs both once to warm up,
then in turn, so that a machine that slows down slows both. Long cases run when they are named.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Process
from pathlib import Path

import numpy as np

from embcli import encodings
from embcli.encodings.tiktoken import rank_file
from tests.benchmarks import checkpoints
from tests.files import made

TEXT = "Every effort moves you"
EMBCLI = [sys.executable, "-m", "embcli"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]


@dataclass(frozen=True)
class Case:
    """A command of embcli and what a user would run instead, or what else its time is held against."""

    name: str
    ours: list[str]
    plain: list[str]
    bound: float  # the ratio of medians that is promised
    runs: int = 5
    files: dict[Path, Callable[[Path], object]] = field(
        default_factory=dict
    )  # what both read, and what writes each
    less: list[str] | None = None  # a command whose time is taken from ours
    environment: dict[str, str] = field(default_factory=dict)
    forget: bool = False  # empty the cache before each run
    status: int = 0  # that ours ends with
    long: bool = False  # run only when it is named


def plain(name: str, *arguments: str) -> list[str]:
    return [sys.executable, str(Path(__file__).with_name("plain.py")), name, *arguments]


def embcli(command: str, *more: str) -> list[str]:
    return [*EMBCLI, *command.split(), *more]


def cases(folder: Path) -> list[Case]:
    """Return all cases; they read and write in this folder."""
    words = {"COMP_WORDS": "embcli lookup --for", "COMP_CWORD": "2"}
    completing = words | {"_EMBCLI_COMPLETE": "complete_bash", "_PLAIN_COMPLETE": "complete_bash"}
    large, kept = "--encoding o200k_base --dim 4096 --no-cache", embcli("lookup", TEXT)
    gradient = embcli("compare --gradient --vocab 200019 --dim 256 -f npy")
    trace, tokenized = (
        embcli("lookup a --trace 9 --encoding o200k_base --dim 768"),
        embcli("tokenize a --encoding o200k_base"),
    )
    return [
        Case("--help", embcli("--help"), plain("help", "--help"), 1.3, 15),
        Case("completion", EMBCLI, plain("help"), 0.9, 15, environment=completing),
        Case("lookup, kept", kept, IMPORT_TORCH, 0.25, 7),
        Case(
            "lookup, nothing kept",
            kept,
            plain("lookup", "r50k_base", "256", TEXT),
            1.15,
            forget=True,
        ),
        Case(
            "weights 6 x 3, kept",
            embcli("weights --vocab 6 --dim 3"),
            plain("weights", "6", "3"),
            0.2,
        ),
        Case("compare", embcli("compare"), plain("compare"), 1.15),
        Case("refusal: compare", gradient, embcli("--help"), 6, 7, status=2),
        Case(
            "refusal: lookup a -f ids",
            embcli(f"lookup a -f ids {large}"),
            embcli("--help"),
            6,
            7,
            status=2,
        ),
        Case("refusal: lookup a --trace 9", trace, tokenized, 1.3, 9, status=2),
        Case(
            "lookup 200,019 x 4,096",
            embcli(f"lookup {large}", TEXT),
            plain("lookup", "o200k_base", "4096", TEXT),
            0.25,
            2,
        ),
        Case(
            "weights 200,019 x 4,096",
            embcli(f"weights {large}"),
            plain("weights", "200019", "4096"),
            0.5,
            2,
        ),
        *of_checkpoints(folder),
        *of_matrices(folder),
        *(of_text(folder, *case) for case in (("npy", 3), ("batches", 2), ("ndjson", 0.3))),
        *(
            of_text(folder, *case, long=True)
            for case in (("npy", 20), ("batches", 20), ("ndjson", 2))
        ),
    ]


def of_checkpoints(folder: Path) -> list[Case]:
    """Return the cases of real checkpoints, against kept layers and against a small file."""
    large, small = folder / "large.safetensors", folder / "small.safetensors"
    both: dict[Path, Callable[[Path], object]] = {large: made.large, small: checkpoints.small}
    kept, ids = embcli("lookup", TEXT), "lookup --ids 5,9,2,5 --from"
    written: dict[str, Callable[[Path], object]] = {
        "model": checkpoints.saved,
        "model-30000": partial(checkpoints.saved, tokens=30_000),
        "wte.npy": checkpoints.numpy_file,
        "f16.gguf": checkpoints.gguf,
    }
    return [
        Case(
            "100 GB against 2 MB", embcli(f"{ids} {large}"), embcli(f"{ids} {small}"), 1.2, 9, both
        ),
        Case("info of 100 GB", embcli(f"info --from {large}"), kept, 1, 9, both),
        *(
            Case(
                f"lookup from {name}",
                embcli(f"lookup --from {folder / name}", TEXT),
                kept,
                1.2,
                9,
                {folder / name: write},
            )
            for name, write in written.items()
        ),
    ]


def of_matrices(folder: Path) -> list[Case]:
    """Return the cases of 1.2 GB, less the time for 20 rows, against reading the bytes from the page cache."""
    base, tuned, small, other = (
        folder / f"{name}.safetensors" for name in ("base", "tuned", "20", "200")
    )
    files = {path: partial(checkpoints.normal, rows=150_000) for path in (base, tuned)}
    files |= {path: partial(checkpoints.normal, rows=20) for path in (small, other)}
    search = "neighbors --ids 5 --metric {} --from {}"
    return [
        *(
            Case(
                f"neighbors by {metric}",
                embcli(search.format(metric, base)),
                plain("read", str(base)),
                *(12, 7, files, embcli(search.format(metric, small))),
                long=True,
            )
            for metric in ("cosine", "dot", "l2")
        ),
        Case(
            "diff",
            embcli(f"diff {base} {tuned}"),
            plain("read", str(base), str(tuned)),
            *(2, 9, files, embcli(f"diff {small} {other}")),
            status=1,
            long=True,
        ),
    ]


def of_text(folder: Path, form: str, size: float, long: bool = False) -> Case:
    """Return the case of so many MB of text to a file of vectors, or to objects with vectors."""
    text, target = folder / f"{size}.txt", folder / "out"
    ours, theirs, bound = {
        "npy": (
            f"lookup --window -f npy -o {target}-ours.npy",
            ("corpus", f"{target}-plain.npy"),
            0.5,
        ),
        "batches": (f"batch --all -o {target}-ours.npy", ("batch", f"{target}-plain.npy"), 0.5),
        "ndjson": ("lookup --window --show input -f ndjson", ("ndjson",), 1 / 6),
    }[form]
    name, *rest = theirs
    command = embcli(ours, "--file", str(text))
    files = {text: partial(write_text, size=int(size * 1e6))}
    return Case(
        f"{size:g} MB of text to {form}",
        command,
        plain(name, str(text), *rest),
        bound,
        3,
        files,
        long=long,
    )


def measure(
    command: list[str], environment: dict[str, str], expected: int = 0
) -> tuple[float, float]:
    """Run a command; return its wall time in seconds and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    return elapsed, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def run(case: Case, runs: int, environment: dict[str, str]) -> str:
    """Run a case and return its row."""
    ours, theirs = [], []
    for path, write in case.files.items():
        if not path.exists():  # in a process of its own, as its memory would count
            writing = Process(target=write, args=(path,))
            writing.start()
            writing.join()
    for counted in range(runs + 1):
        if case.forget:
            subprocess.run(
                [*EMBCLI, "cache", "clear"], env=environment, stdout=subprocess.DEVNULL, check=True
            )
        (elapsed, memory), other = (
            measure(case.ours, environment, case.status),
            measure(case.plain, environment),
        )
        if case.less:
            elapsed -= measure(case.less, environment, case.status)[0]
        if counted:
            ours.append((elapsed, memory))
            theirs.append(other)
    (time_ours, memory_ours), (time_theirs, memory_theirs) = (
        map(statistics.median, zip(*each, strict=True)) for each in (ours, theirs)
    )
    times = f"{time_ours:9.3f} {time_theirs:9.3f} {time_ours / time_theirs:7.2f} {case.bound:7.2f}"
    return f"{case.name:27} {times} {memory_ours:10,.0f} {memory_theirs:9,.0f}"


def write_text(path: Path, size: int) -> None:
    """Write English-like text: gpt2's own words, drawn with the frequencies of a Zipf law."""
    encoding = encodings.get("gpt2")
    tokens = (encoding.token_bytes(token_id) for token_id in range(30_000))
    words = [token for token in tokens if token and token[:1] == b" " and token[1:].isalpha()]
    drawn = np.random.default_rng(0).zipf(1.2, size // 3).tolist()
    text = b"".join(words[rank % len(words)] + (b"." if rank % 17 == 0 else b"") for rank in drawn)
    path.write_bytes(text[:size])


def carry_ranks(folder: Path) -> None:
    """Put rank files where tiktoken looks for what it has downloaded, so that the plain scripts use no network."""
    from tiktoken_ext import openai_public

    def store(path: str, expected_hash: str | None = None) -> dict[bytes, int]:
        ranks = rank_file(Path(path).stem)
        (folder / hashlib.sha1(path.encode()).hexdigest()).write_bytes(
            gzip.decompress(ranks.read_bytes())
        )
        return {}

    load, openai_public.load_tiktoken_bpe = openai_public.load_tiktoken_bpe, store
    openai_public.r50k_base()
    openai_public.o200k_base()
    openai_public.load_tiktoken_bpe = load


def main() -> None:
    """Run the cases that are named, or all that are not long, and print a row for each as it is measured."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name")
    parser.add_argument("--runs", type=int, help="counted runs of each command")
    chosen = parser.parse_args()
    print(
        f"{'medians, in turn':28} embcli s   plain s   ratio at most  embcli MB  plain MB",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ranks").mkdir()
        carry_ranks(folder / "ranks")
        own = {
            "TIKTOKEN_CACHE_DIR": str(folder / "ranks"),
            "EMBCLI_CACHE_DIR": str(folder / "cache"),
        }
        for case in cases(folder):
            if any(part in case.name for part in chosen.cases) if chosen.cases else not case.long:
                print(
                    run(case, chosen.runs or case.runs, os.environ | own | case.environment),
                    flush=True,
                )


if __name__ == "__main__":
    main()
