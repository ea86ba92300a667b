"""Random walks through the full screen, no test of the suite: run it as `python -m tests.explore_walk --help`.

`inside` drives textual's Pilot and holds the numbers of each screen against what the commands in its status line print;
`terminal` drives processes on a pseudo-terminal, at keys' own speed and faster, and ends each in another way.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import fcntl
import json
import os
import pty
import random
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import threading
import time
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyte
import pytest
from wcwidth import wcswidth

from tests.inside import Buffer, Inside, Stream, in_terminal, run
from tests.screen import bare

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from embcli.explore.desk import Desk

SIZES = ((80, 24), (120, 40), (60, 16), (100, 30), (250, 70), (40, 12), (200, 60), (61, 17))
TYPED = "Paris etx,09 éÜ中\\"

# What is pressed: textual's names, and the bytes that a terminal sends.
ARROWS = {"up": "A", "down": "B", "right": "C", "left": "D", "end": "F", "home": "H"}
ARROWS |= {"shift+right": "1;2C", "shift+left": "1;2D", "pageup": "5~", "pagedown": "6~"}
MOVES = {name: f"\x1b[{end}".encode() for name, end in ARROWS.items()} | {each: each.encode() for each in "jkG0"}
MOVES |= {"ctrl+d": b"\x04", "ctrl+u": b"\x15", "dollar_sign": b"$"}
ACTIONS = {each: each.encode() for each in "ghscnwpmlbye"}
ACTIONS |= {"enter": b"\r", "escape": b"\x1b", "backspace": b"\x7f", "tab": b"\t", "space": b" ", "slash": b"/"}
ACTIONS |= {"question_mark": b"?", "colon": b":", "plus": b"+", "minus": b"-"}
ACTIONS |= {"left_square_bracket": b"[", "right_square_bracket": b"]"}
KEYS = MOVES | ACTIONS
OFTEN = [*MOVES, *MOVES, *ACTIONS, "enter", "enter", "escape", "escape", "escape", "s", "h"]


def keys(chance: random.Random, without: str = "") -> Iterator[str]:
    """Yield keys as a person presses them: places are typed where a place is asked for, and texts are left again."""
    often = [key for key in OFTEN if key not in without]
    while True:
        key = chance.choice(often)
        yield key
        if key in ("colon", "g"):
            yield from str(chance.choice([0, 5, 7, 300, 6109, 10**9, "2,3", "the", "x"]))
            yield "enter"
        elif key == "slash":
            yield from ("space" if each == " " else each for each in chance.choices(TYPED, k=chance.randint(0, 5)))
            yield from chance.choice([["enter"], ["escape"], ["down", "down", "enter"], ["tab", "down", "enter"]])
        elif key in ("l", "b", "e"):
            yield from chance.choice([["a", "space", "b", "enter"], ["escape"], ["enter"], ["x", "escape"]])


def in_bytes(key: str) -> bytes:
    return KEYS.get(key) or key.encode()


# --- what is walked through -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Source:
    """A matrix: the words after `embcli explore`, and the file that is cut while one looks, if any."""

    words: tuple[str, ...]
    cut: Path | None = None


def bfloat16(path: Path, rows: int, columns: int, names: tuple[str, ...]) -> None:
    """Write matrices of random numbers, a megabyte at a time."""
    size = 2 * rows * columns
    place = {name: [number * size, (number + 1) * size] for number, name in enumerate(names)}
    entries = {name: {"dtype": "BF16", "shape": [rows, columns], "data_offsets": place[name]} for name in names}
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    chance = np.random.default_rng(5)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(header)) + header)
        for _ in names:
            for start in range(0, rows, step := max(2**19 // columns, 1)):
                values = chance.standard_normal((min(step, rows - start), columns), np.float32) * 0.1
                file.write((values.view(np.uint32) >> 16).astype(np.uint16).tobytes())


def broken_matrix(folder: Path) -> Path:
    """Write a matrix with rows of NaN and of zeros, and an infinity."""
    matrix = np.random.default_rng(1).standard_normal((500, 9), np.float32)
    matrix[[3, 5, 499]], matrix[[7, 100]], matrix[9, 2] = np.nan, 0, np.inf
    np.save(folder / "broken.npy", matrix)
    return folder / "broken.npy"


def hostile_words(folder: Path) -> Path:
    """Write word vectors whose words, and whose file's name, a terminal or a shell could take for something else."""
    words = ["\x1b[2J", "\x9b31m", "[bold]x[/]", "\u202eabc", "a\u0301" * 20, "中文" * 30, "\u200d\u200d", "'", '"']
    words += ["$(ls)", "`id`", "-n", "--rows", "\\", "\x07", "x" * 3000, "0", "1,2", "\U0001f468\u200d\U0001f469", "é"]
    vectors = np.random.default_rng(2).standard_normal((len(words), 5))
    lines = [
        f"{word} {' '.join(f'{value:.4f}' for value in vector)}" for word, vector in zip(words, vectors, strict=True)
    ]
    path = folder / "hostile [red]\x1b[31m 'é.vec"
    path.write_text("\n".join(lines) + "\n", "utf-8", newline="\n")
    return path


def sources(folder: Path) -> dict[str, Source]:
    """Make the files, and return what is walked through by name."""
    bfloat16(folder / "model.safetensors", 50257, 48, ("wte.weight", "wpe.weight"))
    bfloat16(folder / "cut.safetensors", 50257, 16, ("wte.weight",))
    np.save(folder / "one.npy", np.array([[0.5]], np.float32))
    np.save(folder / "narrow.npy", np.random.default_rng(1).standard_normal((30_000, 1), np.float32) * 1e12)
    return {
        "seeded": Source(("--dim", "24")),
        "bfloat16": Source((str(folder / "model.safetensors"),)),
        "broken": Source((str(broken_matrix(folder)),)),
        "one": Source((str(folder / "one.npy"),)),
        "narrow": Source((str(folder / "narrow.npy"),)),
        "hostile": Source((str(hostile_words(folder)),)),
        "cut": Source((str(folder / "cut.safetensors"),), folder / "cut.safetensors"),
    }


@contextlib.contextmanager
def shorter(path: Path | None) -> Iterator[None]:
    """Cut a file in half for a while."""
    if path is None:
        yield
        return
    content = path.read_bytes()
    os.truncate(path, len(content) // 2)
    try:
        yield
    finally:
        path.write_bytes(content)


# --- inside: numbers against those of the commands -------------------------------------------------------------------


def desk_of(words: tuple[str, ...]) -> Desk:
    """Return what `embcli explore` with these words would show on a terminal."""
    from embcli.explore import app

    found: list[Desk] = []
    err = Buffer()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "run", lambda desk: found.append(desk) or 130)
        run(("explore", *words), {}, *map(Stream, (Buffer(True), Buffer(True), err)))
    assert found, err.getvalue().decode()
    return found[0]


@lru_cache(1 << 10)
def split(command: str) -> tuple[tuple[str, ...], bytes | None]:
    """Return the words of a command after `embcli`, as a shell reads them, and what is piped into it, if anything."""
    first, piped, rest = command.rpartition(" | embcli ")
    given = subprocess.run(["bash", "-c", first], capture_output=True, check=True).stdout if piped else None
    line = f"embcli {rest}" if piped else command
    words = subprocess.run(["bash", "-c", f'printf "%s\\0" {line}'], capture_output=True, check=True).stdout
    return tuple(word.decode("utf-8", "surrogateescape") for word in words.split(b"\0")[1:-1]), given


@lru_cache(1 << 6)
def lines_of(command: str) -> list[dict[str, Any]]:
    """Return what a command prints as ndjson."""
    words, given = split(command)
    line = re.sub(r"\0--(heat|difference|scale\0[^\0]*)(?=\0|$)", "", "\0".join(words))  # of pages only
    ran = Inside()(*line.split("\0"), "-f", "ndjson", stdin=given)
    if ran.status == 2:
        raise Refused(command, ran.err)
    return [json.loads(line) for line in ran.out.splitlines()]


@lru_cache(1 << 5)
def page_of(command: str, width: int, height: int) -> tuple[int, list[str]]:
    """Return the status of a command, and the page that it prints on a terminal."""
    words, given = split(command)
    if given is not None:
        ran = Inside(terminal=True)(*words, stdin=given, COLUMNS=str(width), LINES=str(height))
        status, printed = ran.status, ran.text + ran.err
    else:
        status, printed = in_terminal(width, height, *words)
    printed = re.sub(r"[^\n]*\x1b\[2K", "", printed)  # a progress bar, which is erased
    return status, [line.rstrip() for line in bare(printed).replace("\r", "").split("\n")]


def same(text: str, value: float | int | None, single: bool = True) -> bool:
    """Return whether a number on the screen is a value, which JSON has as null if it is not finite."""
    if value is None:
        return text in ("nan", "inf", "-inf")
    if isinstance(value, int):
        return text.replace(",", "") == str(value)
    decimals = len(text.partition("e")[0].partition(".")[2])
    return text == format(float(np.float32(value)) if single else value, f".{decimals}{'e' if 'e' in text else 'f'}")


class Wrong(AssertionError):
    """A screen that does not show what its commands print."""


class Refused(Exception):
    """A command that prints an error, which the screen then shows, too."""


def hold(condition: bool, *what: object) -> None:
    if not condition:
        raise Wrong(*what)


def table(lines: list[str], first: str) -> tuple[list[str], list[list[str]]]:
    """Return the halves of a table's header and of its rows, which a bar divides; `first` is a word of its header."""
    at = next(place for place, line in enumerate(lines) if first in line.split() and "│" in line)
    rows = []
    for line in lines[at + 2 :]:
        if "│" not in line:
            break
        rows.append(line.split("│"))
    return lines[at].split("│"), rows


def check_matrix(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    (left, *right), rows = table(lines, "ID")
    data = lines_of(commands[0])
    scores = {row["id"]: row["score"] for row in lines_of(commands[1])} if len(commands) > 1 else {}
    columns = [int(each) for each in right[0].split()] if "--heat" not in commands[0] else []
    rows = [row for row in rows if row[0].replace("•", "").split()[:1]]
    hold(len(rows) == len(data), "rows", len(rows), len(data))
    ordered = [int(row[0].replace("•", "").split()[0]) for row in rows]
    by_id = {each["id"]: each for each in data}
    hold(sorted(ordered) == sorted(by_id), "IDs", ordered, [*by_id])
    count = 0
    for number, row in zip(ordered, rows, strict=True):
        labels, values = row[0].split(), by_id[number]["vectors"]["token"]
        numbers = [name for name in ("norm", "rank", "cosine") if name in left.split()]
        for name, text in zip(numbers, labels[-len(numbers) :], strict=True):
            value = scores.get(number) if name == "cosine" else by_id[number][name]
            hold(same(text, value, single=False), name, number, text, value)
        shown = row[1].split() if columns else []
        hold(len(shown) == len(columns), "columns", shown, columns)
        for text, value in zip(shown, values if columns else [], strict=True):
            hold(same(text, value), "value", number, text, value)
        count += len(shown) + len(numbers) + 1
    return count


def check_row(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    (data,) = lines_of(commands[0])
    norm, rank = re.search(r"norm (\S+) +rank (\S+) of", "\n".join(lines)).groups()
    hold(same(norm, data["norm"], single=False), "norm", norm, data["norm"])
    hold(rank == "…" or same(rank, data["rank"]), "rank", rank)
    count = 2
    first = int(split(commands[0])[0][split(commands[0])[0].index("--columns") + 1].partition(":")[0])
    found = [lines_of(each) for each in commands[1:] if split(each)[0][0] == "neighbors"]
    summed = [lines_of(each)[0]["vectors"] for each in commands[1:] if split(each)[0][0] == "lookup"]
    values = data["vectors"]["token"]
    for line in lines:
        for place, part in enumerate(line.split("│")):
            words = part.split()
            before = line.split("│")[place - 1].split() if place else []
            if before and before[-1].isdigit() and len(before) == 1 and words and "." in words[0]:
                at = int(before[-1]) - first
                named = (
                    [values[at : at + len(words)]]
                    if not summed
                    else [[summed[0][name][at] for name in ("token", "position", "input") if name in summed[0]]]
                )
                for text, value in zip(words, named[0], strict=True):
                    hold(same(text, value), "value", at, text, value)
                count += len(words)
            if len(words) in (3, 4) and words[0].isdigit() and words[-2].isdigit() and "." in words[-1]:
                entries = [each[int(words[0]) - 1] for each in found if len(each) >= int(words[0])]
                pairs = [(str(each["id"]), each["score"]) for each in entries]
                near = any(words[-2] == number and same(words[-1], score, single=False) for number, score in pairs)
                hold(near, "neighbour", words, pairs)
                count += 2
    return count


def check_pair(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    data = [np.array(each["vectors"]["token"], float).astype(np.float32) for each in lines_of(commands[0])]
    one, other = data if len(data) == 2 else (data[0], data[0])
    with np.errstate(invalid="ignore"):
        expected = [one, other, one - other]
    words = split(commands[0])[0]
    first, count = int(words[words.index("--columns") + 1].partition(":")[0]), 0
    text = "\n".join(lines)
    for name, command in zip(("cosine", "L2 distance"), commands[1:], strict=True):
        shown, scores = re.search(rf"{name} (\S+)", text)[1], lines_of(command)
        hold(same(shown, scores[0]["score"], single=False) if scores else shown == "none", name, shown, scores)
        count += 1
    has_room = any("col" in line.split() for line in lines)  # not on a terminal of 12 lines
    rows = table(lines, "col")[1] if has_room else []
    pairs = [row[place : place + 2] for row in rows for place in range(0, len(row) - 1, 2) if row[place].split()]
    for label, values in pairs:
        for shown, value in zip(values.split(), expected, strict=True):
            number = float(value[int(label) - first])
            hold(same(shown, number if np.isfinite(number) else None), "value", label, shown, number)
            count += 1
    return count


def check_find(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    words = [row for each in commands if split(each)[0][0] == "weights" for row in lines_of(each)]
    tokens = [row for each in commands if split(each)[0][0] != "weights" for row in lines_of(each)]
    count = 0
    for line in lines[2:]:
        left, _, right = line.partition("│")
        if len(cells := left.split()) in (2, 3) and cells[0].isdigit() and cells[-1].isdigit():
            hold(tokens[int(cells[0])]["id"] == int(cells[-1]), "token", cells)
            count += 2
        if (cells := right.split()) and cells[-1].isdigit():
            hold(int(cells[-1]) in [each["id"] for each in words], "word", cells)
            count += 1
    return count


def within(line: str, width: int) -> str:
    """Return as much of a line as fits."""
    while wcswidth(line) > width:
        line = line[:-1]
    return line.rstrip()


def check_page(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    shown = [line for line in lines if line]
    status, printed = page_of(commands[0], *size)
    if status == 2:
        hold(" ".join(" ".join(shown).split()[:4]) in " ".join(printed), "error", shown, printed)
    if status == 2 or not shown:
        return 0
    cut = [within(line, size[0]) for line in printed]  # as a narrow screen cuts them
    places = [place for place, line in enumerate(cut) if line == lines[0]]
    fits = [place for place in places if [each for each in cut[place : place + len(lines)] if each] == shown]
    hold(bool(fits), "page", next((each for each in shown if each not in cut), "another order"), *cut)
    return sum(len(re.findall(r"\d+", line)) for line in shown)


def check_whole(lines: list[str], commands: list[str], size: tuple[int, int]) -> int:
    if not lines or (not lines[0].startswith("finding ") and lines[0] != " The audit finds nothing."):
        return check_page(lines, commands, size)
    rows = lines_of(commands[0])
    firsts = {row["equal_to"] for row in rows}
    for line in lines[2:]:
        what, number = re.match(r"(\D+?) +(\d+) ", line).groups()
        row = rows[int(number)]
        true = {"equal": row["equal_to"] is not None or row["id"] in firsts, "non-finite": row["fault"] == "non-finite"}
        true |= {"all zero": row["fault"] == "zero", f"unused: {row['unused']}": True}
        true |= {name: row[name] for name in ("candidate", "outlier")}
        hold(true.get(what, False), "finding", what, row)
        if "norm" in lines[0]:
            hold(same(line.split()[-1], row["norm"], single=False), "norm", line, row)
    return 3 * len(lines[2:])


CHECKS: dict[str, Callable[[list[str], list[str], tuple[int, int]], int]] = {
    "MatrixView": check_matrix,
    "RowView": check_row,
    "PairView": check_pair,
    "FindView": check_find,
    "WholeView": check_whole,
    **dict.fromkeys(("PageView", "LookupView", "BatchView"), check_page),
}


@dataclass
class Walked:
    """What a walk found."""

    keys: int = 0
    screens: int = 0
    numbers: int = 0
    skipped: int = 0
    seconds: list[float] = field(default_factory=list)  # from a key to the last byte of its screen
    escapes: list[float] = field(default_factory=list)  # from Escape, for which textual waits whether more follows
    computed: list[float] = field(default_factory=list)  # the processor's time for it, in the thread that draws
    views: dict[str, int] = field(default_factory=dict)
    memory: dict[str, float] = field(default_factory=dict)  # MB
    wrong: list[str] = field(default_factory=list)

    def told(self) -> str:
        times = {
            "from a key to its screen": self.seconds,
            "computing": self.computed,
            "from Escape, of which textual waits 100 for what may follow": self.escapes,
        }
        took = "; ".join(
            f"{what} {'/'.join(f'{1000 * np.percentile(seconds, each):.1f}' for each in (50, 95, 99, 100))}"
            for what, seconds in times.items()
            if seconds
        )
        views = ", ".join(f"{name} {count}" for name, count in sorted(self.views.items()))
        return (
            f"{self.keys:,} keys (ms at the percentiles 50/95/99/100: {took or 'not measured'}), "
            f"{self.screens} screens with {self.numbers:,} numbers, {self.skipped} not ready or with an error; "
            f"{views}; {self.memory or ''}; {len(self.wrong)} wrong"
        )


async def walk_inside(
    source: Source, chance: random.Random, pressed: Iterator[str], presses: int, every: int
) -> Walked:
    """Press random keys in textual's Pilot; check the screen after each `every` keys, if not 0."""
    from embcli.explore import app

    walked, desk = Walked(), desk_of(source.words)
    explorer = app.Explorer(desk)
    display, begun, shown = explorer._display, [0.0, 0.0], asyncio.Event()
    shown.set()

    def displayed(*arguments: Any) -> None:
        display(*arguments)
        if not shown.is_set():
            walked.seconds.append(time.perf_counter() - begun[0])
            walked.computed.append(time.thread_time() - begun[1])
            shown.set()

    explorer._display = displayed  # type: ignore[method-assign]
    async with explorer.run_test(size=SIZES[1]) as pilot:
        while walked.keys < presses:
            key = next(pressed)
            begun[:] = time.perf_counter(), time.thread_time()
            shown.clear()
            explorer.simulate_key(key)
            with contextlib.suppress(asyncio.TimeoutError):  # not every key changes the screen
                await asyncio.wait_for(shown.wait(), 0.2)
            shown.set()
            walked.keys += 1
            if chance.random() < 0.02:
                await pilot.resize_terminal(*chance.choice(SIZES))
            if source.cut and chance.random() < 0.01:
                with shorter(source.cut):
                    for key in (next(pressed) for _ in range(20)):
                        explorer.simulate_key(key)
                        await asyncio.sleep(0.002)
                walked.keys += 20
            if every and walked.keys % every == 0:
                await check_screen(explorer, walked)
            assert explorer.is_running, "it has left"
    return walked


async def check_screen(explorer: Any, walked: Walked) -> None:
    """Hold the screen against its commands, once it is all there."""
    from embcli.explore.jobs import NAME

    desk, idle = explorer.desk, 0
    while idle < 3:  # what has ended may start the next one
        explorer.draw()
        await asyncio.sleep(0.02)
        idle = 0 if any(thread.name == NAME for thread in threading.enumerate()) else idle + 1
    lines = [strip.text.rstrip() for strip in explorer.screen._compositor.render_strips()]
    name, commands = type(desk.view).__name__, desk.view.commands()
    walked.views[name] = walked.views.get(name, 0) + 1
    below = next(place for place, line in enumerate(lines) if line.startswith(" $ "))
    body = lines[1 : below - (desk.field is not None)]
    while body and not body[-1]:
        body.pop()
    if name not in CHECKS or not commands or any("it was cut" in line for line in body):
        walked.skipped += 1
        return
    shown = lines[below].removeprefix(" $ ")
    try:
        if "…" not in shown:
            from embcli.safe import in_line

            hold(shown == in_line("; ".join(commands)).rstrip(), "status line", shown, commands)
        size = explorer.size.width, explorer.size.height
        walked.numbers += CHECKS[name](body, commands, size)
        walked.screens += 1
    except Refused as error:
        words, columns = error.args[1].split()[1:4], zip_longest(*(line.split("│") for line in body), fillvalue="")
        walked.skipped += 1
        if not any("".join(words) in "".join("".join(column).split()) for column in columns):
            walked.wrong.append(f"refused: {error.args}\n{name} {commands}\n" + "\n".join(lines))
    except Exception as error:
        walked.wrong.append(f"{type(error).__name__} {error}\n{name} {commands}\n" + "\n".join(lines))


# --- on a terminal ----------------------------------------------------------------------------------------------------

MODES = {"1049": "the alternate screen", "1000": "the mouse", "1003": "the mouse", "1006": "the mouse", "2004": "paste"}
ODD = re.compile(rb"\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[\?[0-9;]*\$p|\x1b\[\?2026[hl]|\x1b\]52;[^\x07\x1b]*(\x07|\x1b\\)")


class Terminal:
    """A process on a pseudo-terminal, and what the terminal shows."""

    def __init__(self, words: tuple[str, ...], size: tuple[int, int], **environment: str) -> None:
        self.ours, self.theirs = pty.openpty()
        self.raw = bytearray()
        self.screen = pyte.Screen(*size)
        self.stream = pyte.ByteStream(self.screen)
        self._resized(size)
        self.before = termios.tcgetattr(self.theirs)
        self.start = time.perf_counter()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "embcli", *words],
            **dict.fromkeys(("stdin", "stdout", "stderr"), self.theirs),
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509  # without threads
            env=os.environ | {"PYTHONFAULTHANDLER": "1"} | environment,
        )

    def _resized(self, size: tuple[int, int]) -> None:
        fcntl.ioctl(self.theirs, termios.TIOCSWINSZ, struct.pack("HHHH", size[1], size[0], 0, 0))
        self.screen.resize(size[1], size[0])

    def resize(self, size: tuple[int, int]) -> None:
        self._resized(size)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGWINCH)

    def read(self, first: float, quiet: float = 0.004) -> float | None:
        """Read until nothing comes any more; return when the last piece came, or None if none came in time."""
        last, wait, before = None, first, len(self.raw)
        while select.select([self.ours], [], [], wait)[0]:
            self.raw += os.read(self.ours, 1 << 16)
            last, wait = time.perf_counter(), quiet
        self.stream.feed(ODD.sub(b"", self.raw[before:]))  # not before, because the process would wait for it
        return last

    def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            os.write(self.ours, data)

    def until(self, pattern: str, seconds: float = 20) -> float:
        """Wait for a text on the screen; return how long after the start it was there."""
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            came = self.read(0.05, 0.001)
            if came and re.search(pattern, "\n".join(self.screen.display)):
                return came - self.start
        raise Wrong(f"no {pattern!r} in {seconds} s:\n" + "\n".join(self.screen.display))

    def memory(self) -> dict[str, float]:
        """Return what the process takes, in MB: all, that of its own, of files, and the most of all."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        names = ("VmRSS", "RssAnon", "RssFile", "VmHWM")
        return {name: int(re.search(rf"{name}:\s+(\d+)", text)[1]) / 1000 for name in names}

    def end(self, how: str) -> int:
        """Leave in some way, and hold that the terminal is as it was."""
        if how == "q":
            for _ in range(2):  # out of a text that is typed; an escape and what soon follows are one key
                self.send(b"\x1b")
                self.read(1, 0.5)
            self.send(b"q")
        elif how == "ctrl+c":
            self.send(b"\x03")
        else:
            self.process.send_signal(getattr(signal, how))
        deadline = time.perf_counter() + 20
        while self.process.poll() is None and time.perf_counter() < deadline:
            self.read(0.02)
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGABRT)
            time.sleep(1)
        self.read(0.1)
        status = self.process.wait()
        after = termios.tcgetattr(self.theirs)
        os.close(self.theirs)
        os.close(self.ours)
        hold(status != -signal.SIGABRT, "a hang after", how, self.raw[-4000:].decode(errors="replace"))
        hold(b"Traceback" not in self.raw and "╭─" not in self.raw.decode(errors="replace"), "a traceback", self.tail())
        hold(after == self.before, "termios differs after", how, self.before, after)
        states = {
            mode: state
            for modes, state in re.findall(rb"\x1b\[\?([0-9;]+)([hl])", self.raw)
            for mode in modes.split(b";")
        }
        for mode, what in MODES.items():
            hold(states.get(mode.encode(), b"l") == b"l", what, "is still on after", how)
        hold(states.get(b"25", b"h") == b"h", "the cursor is hidden after", how)
        return status

    def tail(self) -> str:
        return bare(self.raw[-6000:].decode(errors="replace"))


ENDS = {"q": (0,), "ctrl+c": (130,), "SIGTERM": (143, -15), "SIGHUP": (129, -1), "SIGINT": (130,)}


def walk_terminal(
    source: Source, chance: random.Random, pressed: Iterator[str], presses: int, fast: bool, how: str
) -> Walked:
    """Press random keys in a process: each once the screen is there, or fast without waiting."""
    walked = Walked()
    terminal = Terminal(("explore", *source.words), chance.choice(SIZES[:4]))
    try:
        terminal.until(r"\$ embcli")
        with contextlib.ExitStack() as stack:
            while walked.keys < presses:
                if chance.random() < 0.02:
                    terminal.resize(chance.choice(SIZES))
                if source.cut and chance.random() < 0.01:
                    stack.close()
                    if chance.random() < 0.5:
                        stack.enter_context(shorter(source.cut))
                start = time.perf_counter()
                terminal.send(in_bytes(key := next(pressed)))
                walked.keys += 1
                while not fast and key == "escape" and time.perf_counter() < start + 0.095:
                    terminal.read(0.005)  # what comes sooner is not its screen
                came = terminal.read(0 if fast else 1, 0.004 if fast else 0.03)
                if came is not None and not fast:
                    (walked.escapes if key == "escape" else walked.seconds).append(came - start)
                if walked.keys % 200 == 0:
                    terminal.read(0.5, 0.1)
                    hold(terminal.process.poll() is None, "it has left", terminal.tail())
        terminal.read(0.5, 0.1)
        walked.memory = terminal.memory()
        status = terminal.end(how)
        hold(status in ENDS[how], "status", status, "after", how)
        walked.screens += 1
    except Wrong as error:
        walked.wrong.append(" ".join(map(str, error.args)))
    finally:
        if terminal.process.poll() is None:
            terminal.process.kill()
            terminal.process.wait()
    return walked


# --- how it runs ------------------------------------------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=("inside", "terminal"))
    parser.add_argument("--keys", type=int, default=500, help="keys for each source")
    parser.add_argument("--every", type=int, default=10, help="check the screen after so many keys; 0 for never")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--without", default="", help="letters that are not pressed: m takes long on a large matrix")
    parser.add_argument("--source", action="append", help="only this one, by name")
    parser.add_argument("--path", help="a file of your own in place of the sources")
    parser.add_argument("--fast", action="store_true", help="do not wait for the screen")
    given = parser.parse_args()
    os.environ |= {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
    failed = 0
    if given.kind == "inside":
        from embcli.explore.app import stay

        stay()
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):
        made = {"path": Source((given.path,))} if given.path else sources(Path(name))
        for number, (source, each) in enumerate(made.items()):
            if given.source and source not in given.source:
                continue
            chance = random.Random(given.seed * 1000 + number)
            pressed = keys(chance, given.without)
            if given.kind == "inside":
                walked = asyncio.run(walk_inside(each, chance, pressed, given.keys, given.every))
            else:
                walked = walk_terminal(each, chance, pressed, given.keys, given.fast, chance.choice([*ENDS]))
            print(f"{source}: {walked.told()}", flush=True)
            for wrong in walked.wrong[:5]:
                print(wrong, end="\n\n", flush=True)
            failed += len(walked.wrong)
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
