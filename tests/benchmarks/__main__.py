"""embcli against the plain scripts beside this file, as whole processes that take turns: medians and their ratios.

    python -m tests.benchmarks [--runs N] [CASE ...]

A plain script is what a user would write instead with torch, tiktoken and numpy. Each case runs both once to warm up,
then in turn, so that a machine that slows down slows both.
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
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from embcli import encodings
from embcli.encodings.tiktoken import rank_file

HERE = Path(__file__).parent
TEXT = "Every effort moves you"
EMBCLI = [sys.executable, "-m", "embcli"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]


def plain(script: str, *arguments: str) -> list[str]:
    """Return the command that runs a plain script."""
    return [sys.executable, str(HERE / f"{script}_plain.py"), *arguments]


@dataclass(frozen=True)
class Case:
    """A command of embcli and what a user would run instead."""

    name: str
    ours: list[str]
    plain: list[str]
    bound: float  # the ratio of medians that is promised
    environment: dict[str, str] = field(default_factory=dict)
    forget: bool = False  # empty the cache before each run
    runs: int = 9


def cases(corpus: Path, part: Path, scratch: Path) -> list[Case]:
    """Return all cases; `corpus` is 20 MB of text, `part` a tenth of it."""
    large = ["--encoding", "o200k_base", "--dim", "4096", "--no-cache"]
    words = {"COMP_WORDS": "embcli lookup --for", "COMP_CWORD": "2"}
    completing = words | {"_EMBCLI_COMPLETE": "complete_bash", "_HELP_PLAIN_COMPLETE": "complete_bash"}
    window = ["--window", "--dim", "256"]
    lookup = [*EMBCLI, "lookup", TEXT]
    return [
        Case("--help", [*EMBCLI, "--help"], plain("help", "--help"), 1.3, runs=25),
        Case("completion", EMBCLI, plain("help"), 1.3, completing, runs=25),
        Case("lookup, kept", lookup, IMPORT_TORCH, 0.25),
        Case(
            "lookup, nothing kept",
            [*EMBCLI, "lookup", TEXT],
            plain("lookup", "r50k_base", "256", TEXT),
            1.15,
            forget=True,
        ),
        Case(
            "weights 6 x 3, kept", [*EMBCLI, "weights", "--vocab", "6", "--dim", "3"], plain("weights", "6", "3"), 0.2
        ),
        Case("compare", [*EMBCLI, "compare"], plain("compare"), 1.15),
        Case(
            "lookup 200,019 x 4,096",
            [*EMBCLI, "lookup", *large, TEXT],
            plain("lookup", "o200k_base", "4096", TEXT),
            0.25,
            runs=5,
        ),
        Case("weights 200,019 x 4,096", [*EMBCLI, "weights", *large], plain("weights", "200019", "4096"), 0.5, runs=5),
        Case(
            "20 MB of text to npy",
            [*EMBCLI, "lookup", "--file", str(corpus), *window, "-f", "npy", "-o", str(scratch / "ours.npy")],
            plain("corpus", str(corpus), str(scratch / "plain.npy")),
            0.5,
            runs=3,
        ),
        Case(
            "20 MB of text in batches to npy",
            [*EMBCLI, "batch", str(corpus), "--layers-first", "--all", "-o", str(scratch / "ours.npy")],
            plain("batch", str(corpus), str(scratch / "plain.npy")),
            0.5,
            runs=2,
        ),
        Case(
            "2 MB of text to ndjson",
            [*EMBCLI, "lookup", "--file", str(part), *window, "--show", "input", "-f", "ndjson"],
            plain("ndjson", str(part)),
            1 / 6,
            runs=3,
        ),
    ]


def measure(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Run a command; return its wall time in seconds and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    elapsed = time.perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(f"{' '.join(command)} ended with status {process.returncode}")
    return elapsed, usage.ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


def write_corpus(path: Path, size: int) -> None:
    """Write English-like text: gpt2's own words, drawn with the frequencies of a Zipf law."""
    encoding = encodings.get("gpt2")
    tokens = (encoding.token_bytes(token_id) for token_id in range(30_000))
    words = [token for token in tokens if token and token[:1] == b" " and token[1:].isalpha()]
    random = np.random.default_rng(0)
    with path.open("wb") as file:  # in pieces: a large process would count as memory of those that it starts
        while file.tell() < size:
            drawn = random.zipf(1.2, 10_000).tolist()
            text = b"".join(words[rank % len(words)] + (b"." if rank % 17 == 0 else b"") for rank in drawn)
            file.write(text[: size - file.tell()] + b"\n" * (file.tell() + len(text) < size))


def carry_ranks(folder: Path) -> None:
    """Put rank files where tiktoken looks for what it has downloaded, so that the plain scripts use no network."""
    from tiktoken_ext import openai_public

    def store(path: str, expected_hash: str | None = None) -> dict[bytes, int]:
        ranks = rank_file(Path(path).stem)
        (folder / hashlib.sha1(path.encode()).hexdigest()).write_bytes(gzip.decompress(ranks.read_bytes()))
        return {}

    load, openai_public.load_tiktoken_bpe = openai_public.load_tiktoken_bpe, store
    openai_public.r50k_base()
    openai_public.o200k_base()
    openai_public.load_tiktoken_bpe = load


def main() -> None:
    """Run the cases that are named, or all of them, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name")
    parser.add_argument("--runs", type=int, help="counted runs of each command")
    chosen = parser.parse_args()
    errors = Console(stderr=True)
    table = Table("case", "embcli s", "plain s", "ratio", "at most", "embcli MB", "plain MB", title="Medians, in turn")
    with tempfile.TemporaryDirectory() as scratch_name:
        scratch = Path(scratch_name)
        corpus, part = scratch / "corpus.txt", scratch / "part.txt"
        write_corpus(corpus, 20_000_000)
        write_corpus(part, 2_000_000)
        (scratch / "ranks").mkdir()
        carry_ranks(scratch / "ranks")
        base = os.environ | {"TIKTOKEN_CACHE_DIR": str(scratch / "ranks"), "EMBCLI_CACHE_DIR": str(scratch / "cache")}
        for case in cases(corpus, part, scratch):
            if chosen.cases and not any(name in case.name for name in chosen.cases):
                continue
            environment = base | case.environment
            ours, theirs = [], []
            for run in track(range((chosen.runs or case.runs) + 1), case.name, console=errors, transient=True):
                if case.forget:
                    subprocess.run([*EMBCLI, "cache", "clear"], env=environment, stdout=subprocess.DEVNULL, check=True)
                pair = measure(case.ours, environment), measure(case.plain, environment)
                if run:
                    ours.append(pair[0])
                    theirs.append(pair[1])
            time_ours, memory_ours = map(statistics.median, zip(*ours, strict=True))
            time_theirs, memory_theirs = map(statistics.median, zip(*theirs, strict=True))
            numbers = time_ours, time_theirs, time_ours / time_theirs, case.bound, memory_ours, memory_theirs
            table.add_row(
                case.name,
                *(f"{number:,.{digits}f}" for number, digits in zip(numbers, (3, 3, 2, 2, 0, 0), strict=True)),
            )
    Console(width=110).print(table)


if __name__ == "__main__":
    main()
