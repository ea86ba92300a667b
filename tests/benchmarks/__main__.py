"""embcli against the plain scripts beside this file, as whole processes: medians and their ratios.

    python -m tests.benchmarks [--runs N] [CASE ...]

A plain script is what a user would write instead with torch, tiktoken and numpy. Each case runs
both once to warm up, then in turn, so that a machine that slows down slows both. Long cases run
when they are named.
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
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from multiprocessing import Process
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import numpy as np

from embcli import encodings
from embcli.wording import DATA
from tests.benchmarks import checkpoints
from tests.files import made

TEXT = "Every effort moves you"
EMBCLI = [sys.executable, "-m", "embcli"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]


@dataclass(frozen=True)
class Case:
    """A command of embcli and what a user would run instead, or what its time is held against."""

    name: str
    ours: list[str]
    plain: list[str]
    bound: float  # the ratio of medians that is promised
    runs: int = 5
    files: Mapping[Path, Callable[[Path], object]] = field(default_factory=dict)  # what both read
    environment: dict[str, str] = field(default_factory=dict)
    forget: bool = False  # empty the cache before each run
    status: int = 0  # that ours ends with
    long: bool = False  # run only when it is named


def plain(name: str, *arguments: str | Path) -> list[str]:
    script = Path(__file__).with_name("plain.py")
    return [sys.executable, str(script), name, *map(str, arguments)]


def embcli(command: str, *more: str) -> list[str]:
    return [*EMBCLI, *command.split(), *more]


KEPT = embcli("lookup", TEXT)
HELP = embcli("--help")
LARGE = "--encoding o200k_base --dim 4096 --no-cache"


def cases(folder: Path) -> Iterator[Case]:
    """Yield all cases; they read and write in this folder."""
    yield from of_starts()
    yield from of_large_layers()
    yield from of_checkpoints(folder)
    yield from of_matrices(folder)
    yield from of_texts(folder)
    yield from of_lines(folder)


def of_starts() -> Iterator[Case]:
    """Yield the cases of small commands."""
    completing = {
        "COMP_WORDS": "embcli lookup --for",
        "COMP_CWORD": "2",
        "_EMBCLI_COMPLETE": "complete_bash",
        "_PLAIN_COMPLETE": "complete_bash",
    }
    yield Case("--help", HELP, plain("help", "--help"), 1.3, runs=15)
    yield Case("completion", EMBCLI, plain("help"), 1.0, runs=15, environment=completing)
    yield Case("lookup, kept", KEPT, IMPORT_TORCH, 0.18, runs=7)
    drawn = plain("lookup", "r50k_base", "256", TEXT)
    yield Case("lookup, nothing kept", KEPT, drawn, 1.15, forget=True)
    small = embcli("weights --vocab 6 --dim 3")
    yield Case("weights 6 x 3, kept", small, plain("weights", "6", "3"), 0.2)
    yield Case("compare", embcli("compare"), plain("compare"), 1.15)


def of_large_layers() -> Iterator[Case]:
    lookup = embcli(f"lookup {LARGE}", TEXT)
    of_torch = plain("lookup", "o200k_base", "4096", TEXT)
    # Nearly all of this is the import of torch: 0.9 of 1.3 s, where the script takes 5.6 s.
    yield Case("lookup 200,019 x 4,096", lookup, of_torch, 0.3, runs=2)
    weights = embcli(f"weights {LARGE}")
    # torch's own drawing takes 3.1 of 5.6 s, its import 0.9, and statistics in float64 1.0.
    yield Case("weights 200,019 x 4,096", weights, plain("weights", "200019", "4096"), 0.8, runs=2)


def of_checkpoints(folder: Path) -> Iterator[Case]:
    """Yield the cases of real checkpoints, against kept layers and against a small file."""
    large = folder / "large.safetensors"
    small = folder / "small.safetensors"
    files = {large: made.large, small: checkpoints.small}
    ids = "lookup --ids 5,9,2,5 --from"
    of_large = embcli(f"{ids} {large}")
    yield Case("100 GB against 2 MB", of_large, embcli(f"{ids} {small}"), 1.2, 9, files)
    yield Case("info of 100 GB", embcli(f"info --from {large}"), KEPT, 1, 9, files)

    writers = {
        "model": checkpoints.saved,
        "model-30000": partial(checkpoints.saved, tokens=30_000),
        "wte.npy": checkpoints.numpy_file,
        "f16.gguf": checkpoints.gguf,
    }
    for name, write in writers.items():
        path = folder / name
        lookup = embcli(f"lookup --from {path}", TEXT)
        yield Case(f"lookup from {name}", lookup, KEPT, 1.2, 9, {path: write})


def of_matrices(folder: Path) -> Iterator[Case]:
    """Yield the cases of matrices of 1.2 GB."""
    base = folder / "base.safetensors"
    tuned = folder / "tuned.safetensors"
    large_matrix = partial(checkpoints.normal, rows=150_000)
    files = {base: large_matrix, tuned: large_matrix}

    for metric in ("cosine", "dot", "l2"):
        ours = embcli(f"neighbors --ids 5 --metric {metric} --from {base}")
        of_torch = plain("neighbors", base, metric)
        yield Case(f"neighbors by {metric}", ours, of_torch, 0.8, 5, files, long=True)

    ours = embcli(f"diff {base} {tuned}")
    yield Case("diff", ours, plain("diff", base, tuned), 1.5, 5, files, status=1, long=True)


class TextCase(NamedTuple):
    """A text as data: how embcli writes it, and what a plain script of the same name does."""

    name: str
    ours: str
    bound: float
    sizes: tuple[float, float]  # of the text in MB, in a short case and in a long one


TEXTS = [
    TextCase("npy", "lookup --window -f npy -o {folder}/ours.npy", 0.5, (3, 20)),
    TextCase("batches", "batch --all -o {folder}/ours.npy", 0.5, (2, 20)),
    TextCase("ndjson", "lookup --window --show input -f ndjson", 1 / 6, (0.3, 2)),
]


def of_texts(folder: Path) -> Iterator[Case]:
    """Yield the cases of some MB of text to files, or to standard output, which nobody reads."""
    for name, ours, bound, sizes in TEXTS:
        for size in sizes:
            text = folder / f"{size}.txt"
            command = embcli(f"{ours.format(folder=folder)} --file {text}")
            script = plain(name, text, folder / "plain.npy")
            files = {text: partial(write_text, size=int(size * 1e6))}
            is_long = size == max(sizes)
            what = f"{size:g} MB of text to {name}"
            yield Case(what, command, script, bound, 3, files, long=is_long)


def of_lines(folder: Path) -> Iterator[Case]:
    """Yield the cases of 300,000 lines as data, against their page."""
    text = folder / "lines.txt"
    files = {text: write_lines}
    page = embcli(f"count --lines {text}")
    for form in ("csv", "ndjson", "json"):
        yield Case(f"count --lines -f {form}", [*page, "-f", form], page, 2, 3, files)
    page = embcli(f"tokenize --lines --file {text}")
    for form in ("csv", "ndjson", "json", "parquet"):
        yield Case(f"tokenize --lines -f {form}", [*page, "-f", form], page, 3, 3, files)


class Measured(NamedTuple):
    """A run of a process."""

    seconds: float
    megabytes: float


def measure(command: list[str], environment: dict[str, str], expected: int = 0) -> Measured:
    """Run a command; return its wall time and its peak memory."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        stdin=subprocess.DEVNULL,
        env=environment,
    )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != expected:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    unit = 1e6 if sys.platform == "darwin" else 1e3
    return Measured(seconds, usage.ru_maxrss / unit)


def medians(runs: list[Measured]) -> Measured:
    seconds = statistics.median(run.seconds for run in runs)
    megabytes = statistics.median(run.megabytes for run in runs)
    return Measured(seconds, megabytes)


def run(case: Case, runs: int, environment: dict[str, str]) -> str:
    """Run a case and return its row."""
    for path, write in case.files.items():
        if not path.exists():  # A process of its own writes it, as its memory would count.
            writing = Process(target=write, args=(path,))
            writing.start()
            writing.join()

    all_ours = []
    all_theirs = []
    for _ in range(runs + 1):
        if case.forget:
            clear = [*EMBCLI, "cache", "clear"]
            subprocess.run(clear, env=environment, stdout=subprocess.DEVNULL, check=True)
        all_ours.append(measure(case.ours, environment, case.status))
        all_theirs.append(measure(case.plain, environment))

    ours = medians(all_ours[1:])  # The first run warms up.
    theirs = medians(all_theirs[1:])
    ratio = ours.seconds / theirs.seconds
    times = f"{ours.seconds:9.3f} {theirs.seconds:9.3f} {ratio:7.2f} {case.bound:7.2f}"
    return f"{case.name:27} {times} {ours.megabytes:10,.0f} {theirs.megabytes:9,.0f}"


def write_text(path: Path, size: int) -> None:
    """Write English-like text: gpt2's own words, drawn with the frequencies of a Zipf law."""
    encoding = encodings.get("gpt2")
    tokens = [encoding.token_bytes(token_id) or b"" for token_id in range(30_000)]
    words = [token for token in tokens if token[:1] == b" " and token[1:].isalpha()]
    ranks = np.random.default_rng(0).zipf(1.2, size // 3).tolist()
    drawn = []
    for rank in ranks:
        drawn.append(words[rank % len(words)])
        if rank % 17 == 0:
            drawn.append(b".")
    path.write_bytes(b"".join(drawn)[:size])


def write_lines(path: Path) -> None:
    """Write 300,000 lines of 1 to 14 words."""
    text = "every effort moves you and the cat sat on a warm mat, na\u00efve, 2024"
    words = text.split()
    lines = []
    for number in range(300_000):
        lines.append(" ".join(words[number % 11 : number % 11 + 1 + number % 14]) + "\n")
    path.write_text("".join(lines), "utf-8")


def carry_ranks(folder: Path) -> None:
    """Put rank files where tiktoken looks for what it has downloaded.

    So the plain scripts use no network.
    """
    from tiktoken_ext import openai_public

    def store(path: str, expected_hash: str | None = None) -> dict[bytes, int]:
        ranks = gzip.decompress((DATA / f"{Path(path).stem}.tiktoken.gz").read_bytes())
        name = hashlib.sha1(path.encode()).hexdigest()
        (folder / name).write_bytes(ranks)
        return {}

    with mock.patch.object(openai_public, "load_tiktoken_bpe", store):
        openai_public.r50k_base()
        openai_public.o200k_base()


def is_chosen(case: Case, parts: list[str]) -> bool:
    """Whether a case is named, or is not long if none is named."""
    if not parts:
        return not case.long
    return any(part in case.name for part in parts)


def main() -> None:
    """Run the cases that are named, or all that are not long, and print a row for each."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name")
    parser.add_argument("--runs", type=int, help="counted runs of each command")
    chosen = parser.parse_args()

    heading = "embcli s   plain s   ratio at most  embcli MB  plain MB"
    print(f"{'medians, in turn':28} {heading}", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        ranks = folder / "ranks"
        ranks.mkdir()
        carry_ranks(ranks)
        own = {"TIKTOKEN_CACHE_DIR": str(ranks), "EMBCLI_CACHE_DIR": str(folder / "cache")}
        for case in cases(folder):
            if is_chosen(case, chosen.cases):
                environment = {**os.environ, **own, **case.environment}
                print(run(case, chosen.runs or case.runs, environment), flush=True)


if __name__ == "__main__":
    main()
