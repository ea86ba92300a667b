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
from tests.benchmarks import checkpoints, help_plain

HERE = Path(__file__).parent
TEXT = "Every effort moves you"
EMBCLI = [sys.executable, "-m", "embcli"]
IMPORT_TORCH = [sys.executable, "-c", "import torch"]
ROW = "{:27} {:>9} {:>9} {:>7} {:>7} {:>10} {:>9}"


@dataclass(frozen=True)
class Case:
    """A command of embcli and what a user would run instead, or what else its time is held against."""

    name: str
    ours: list[str]
    plain: list[str]
    bound: float  # the ratio of medians that is promised
    environment: dict[str, str] = field(default_factory=dict)
    forget: bool = False  # empty the cache before each run
    runs: int = 5
    status: int = 0  # that ours ends with
    long: bool = False  # run only when it is named
    text: int = 0  # bytes of the text that it reads
    files: dict[Path, Callable[[Path], object]] = field(default_factory=dict)  # what it reads, and what writes each

    def prepare(self, folder: Path) -> None:
        """Write what both read, unless another case has; in a process of its own, as its memory would count."""
        for path, write in self.files.items():
            if not path.exists():
                writing = Process(target=write, args=(path,))
                writing.start()
                writing.join()
        if self.text and not text_file(folder, self.text).exists():
            write_text(text_file(folder, self.text), self.text)


def text_file(folder: Path, size: int) -> Path:
    """Return where the text of so many bytes is."""
    return folder / f"{size}.txt"


def script(name: str, *arguments: str) -> list[str]:
    """Return the command that runs a plain script."""
    return [sys.executable, str(HERE / f"{name}_plain.py"), *arguments]


def embcli(command: str, *more: str) -> list[str]:
    """Return a command of embcli."""
    return [*EMBCLI, *command.split(), *more]


def cases(folder: Path) -> list[Case]:
    """Return all cases; they read and write in this folder."""
    words = {"COMP_WORDS": "embcli lookup --for", "COMP_CWORD": "2"}
    completing = words | {"_EMBCLI_COMPLETE": "complete_bash", "_HELP_PLAIN_COMPLETE": "complete_bash"}
    app = [sys.executable, help_plain.__file__]
    large = "--encoding o200k_base --dim 4096 --no-cache"
    return [
        Case("--help", embcli("--help"), [*app, "--help"], 1.3, runs=15),
        Case("completion", EMBCLI, app, 0.9, completing, runs=15),
        Case("lookup, kept", embcli("lookup", TEXT), IMPORT_TORCH, 0.25, runs=7),
        Case(
            "lookup, nothing kept",
            embcli("lookup", TEXT),
            script("lookup", "r50k_base", "256", TEXT),
            1.15,
            forget=True,
        ),
        Case("weights 6 x 3, kept", embcli("weights --vocab 6 --dim 3"), script("weights", "6", "3"), 0.2),
        Case("compare", embcli("compare"), script("compare"), 1.15),
        *(
            Case(f"refusal: {name}", embcli(f"{name} {rest}"), embcli("--help"), 6, status=2, runs=7)
            for name, rest in (
                ("compare --gradient", "--vocab 200019 --dim 256 -f npy"),
                ("lookup a -f ids", "--encoding o200k_base --dim 4096 --no-cache"),
            )
        ),
        Case(
            "refusal: lookup a --trace 9",
            embcli("lookup a --trace 9 --encoding o200k_base --dim 768"),
            embcli("tokenize a --encoding o200k_base"),
            1.3,
            status=2,
            runs=9,
        ),
        Case(
            "lookup 200,019 x 4,096",
            embcli(f"lookup {large}", TEXT),
            script("lookup", "o200k_base", "4096", TEXT),
            0.25,
            runs=2,
        ),
        Case("weights 200,019 x 4,096", embcli(f"weights {large}"), script("weights", "200019", "4096"), 0.5, runs=2),
        *from_files(folder),
        npy(folder, 3, runs=2),
        batches(folder, 2, runs=2),
        ndjson(folder, 0.3, runs=2),
        npy(folder, 20, runs=3, long=True),
        batches(folder, 20, runs=2, long=True),
        ndjson(folder, 2, runs=3, long=True),
    ]


def from_files(folder: Path) -> list[Case]:
    """Return the cases of real checkpoints, against kept layers and against a small file."""
    large, small = folder / "large.safetensors", folder / "small.safetensors"
    both: dict[Path, Callable[[Path], object]] = {large: checkpoints.large, small: checkpoints.small}
    kept = embcli("lookup", TEXT)
    written: dict[str, Callable[[Path], object]] = {
        "model": checkpoints.saved,
        "model-30000": partial(checkpoints.saved, tokens=30_000),
        "wte.npy": checkpoints.numpy_file,
        "f16.gguf": checkpoints.gguf,
    }
    ids = "--ids 5,9,2,5 --from"
    return [
        Case(
            "100 GB against 2 MB",
            embcli(f"lookup {ids} {large}"),
            embcli(f"lookup {ids} {small}"),
            1.2,
            runs=9,
            files=both,
        ),
        Case("info of 100 GB", embcli(f"info --from {large}"), kept, 1, runs=9, files=both),
        *(
            Case(
                f"lookup from {name}",
                embcli(f"lookup --from {folder / name}", TEXT),
                kept,
                1.2,
                runs=9,
                files={folder / name: write},
            )
            for name, write in written.items()
        ),
    ]


def npy(folder: Path, size: float, runs: int, long: bool = False) -> Case:
    """Return the case of so many MB of text to a file of vectors."""
    text, target = text_file(folder, int(size * 1e6)), folder / "out"
    ours = embcli(f"lookup --file {text} --window --dim 256 -f npy -o {target}-ours.npy")
    plain = script("corpus", str(text), f"{target}-plain.npy")
    return Case(f"{size:g} MB of text to npy", ours, plain, 0.5, runs=runs, long=long, text=int(size * 1e6))


def batches(folder: Path, size: float, runs: int, long: bool = False) -> Case:
    """Return the case of so many MB of text in batches, as the chapter has them, to a file of vectors."""
    text, target = text_file(folder, int(size * 1e6)), folder / "out"
    ours = embcli(f"batch --file {text} --all -o {target}-ours.npy")
    plain = script("batch", str(text), f"{target}-plain.npy")
    return Case(f"{size:g} MB in batches to npy", ours, plain, 0.5, runs=runs, long=long, text=int(size * 1e6))


def ndjson(folder: Path, size: float, runs: int, long: bool = False) -> Case:
    """Return the case of so many MB of text to objects with vectors."""
    text = text_file(folder, int(size * 1e6))
    ours = embcli(f"lookup --file {text} --window --dim 256 --show input -f ndjson")
    plain = script("ndjson", str(text))
    return Case(f"{size:g} MB of text to ndjson", ours, plain, 1 / 6, runs=runs, long=long, text=int(size * 1e6))


def measure(command: list[str], environment: dict[str, str], expected: int = 0) -> tuple[float, float]:
    """Run a command; return its wall time in seconds and its peak memory in MB."""
    start = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, env=environment
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
    for counted in range(runs + 1):
        if case.forget:
            subprocess.run([*EMBCLI, "cache", "clear"], env=environment, stdout=subprocess.DEVNULL, check=True)
        pair = measure(case.ours, environment, case.status), measure(case.plain, environment)
        if counted:
            ours.append(pair[0])
            theirs.append(pair[1])
    (time_ours, memory_ours), (time_theirs, memory_theirs) = (
        map(statistics.median, zip(*each, strict=True)) for each in (ours, theirs)
    )
    return ROW.format(
        case.name,
        f"{time_ours:.3f}",
        f"{time_theirs:.3f}",
        f"{time_ours / time_theirs:.2f}",
        f"{case.bound:.2f}",
        f"{memory_ours:,.0f}",
        f"{memory_theirs:,.0f}",
    )


def write_text(path: Path, size: int) -> None:
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
    """Run the cases that are named, or all that are not long, and print a row for each as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help="part of a case's name")
    parser.add_argument("--runs", type=int, help="counted runs of each command")
    chosen = parser.parse_args()
    print(
        ROW.format("medians, in turn", "embcli s", "plain s", "ratio", "at most", "embcli MB", "plain MB"), flush=True
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ranks").mkdir()
        carry_ranks(folder / "ranks")
        own = {"TIKTOKEN_CACHE_DIR": str(folder / "ranks"), "EMBCLI_CACHE_DIR": str(folder / "cache")}
        for case in cases(folder):
            if any(part in case.name for part in chosen.cases) if chosen.cases else not case.long:
                case.prepare(folder)
                print(run(case, chosen.runs or case.runs, os.environ | own | case.environment), flush=True)


if __name__ == "__main__":
    main()
