"""Reading what embcli prints as a person would: tables of numbers, colours, and the screen of a terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import takewhile
from typing import TYPE_CHECKING

import pyte
from wcwidth import wcswidth

from tests.inside import in_terminal

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import numpy as np

COLORS = {"TERM": "xterm-256color", "COLORTERM": "truecolor"}
OWN_ESCAPES = re.compile(r"\x1b\[[0-9;]*m")  # colours: all that embcli ever sends


def bare(printed: str) -> str:
    """Return what was printed without colours."""
    return OWN_ESCAPES.sub("", printed)


@dataclass(frozen=True)
class Grid:
    """A table of numbers, read from what was printed."""

    headers: list[str]  # of the columns of numbers, with … where some are left out
    labels: list[list[str]]  # each cell of what stands before the bar, empty ones too
    values: list[list[str]]
    differences: list[str]  # what stands under `diff`, where it is there, and "" in lines without one

    @property
    def columns(self) -> list[int]:
        return [int(header) for header in self.headers if header != "…"]

    def check(self, expected: np.ndarray, precision: int = 4) -> None:
        """Hold the numbers against (rows, D) float32 values, each row by its columns' headers."""
        assert len(self.values) == len(expected)
        for row, values in zip(self.values, expected, strict=True):
            assert [cell == "…" for cell in row] == [header == "…" for header in self.headers]
            numbers = [cell for cell in row if cell != "…"]
            assert numbers == [f"{values[column]:.{precision}f}" for column in self.columns]


def grids(printed: str, width: int) -> list[Grid]:
    """Read all tables of numbers, and hold that they are straight, and no wider than they may be."""
    lines, found = printed.split("\n"), []
    for place, line in enumerate(lines):
        if not line or {*line} != {"─"} or "│" not in lines[place - 1]:
            continue
        body = []
        for row in lines[place + 1 :]:
            if "│" not in row:
                break
            body.append(row)
        table = [lines[place - 1], *body]
        assert len({wcswidth(row.rpartition("│")[0]) for row in table}) == 1, table  # the bar stands straight
        halves = [(left, right) for left, _, right in (row.rpartition("│") for row in table)]
        end = len(halves[0][1].removesuffix("diff").rstrip())  # behind the bar each character takes one cell
        assert {len(right[:end].rstrip()) for _, right in halves} == {end}, table  # and so does the last digit
        assert max(map(wcswidth, [line, *table])) <= width, table
        rows = [(left, right) for left, right in halves[1:] if {*right.split()} != {"⋮"}]
        found.append(
            Grid(
                halves[0][1][:end].split(),
                [re.split(r" {2,}", left.strip()) for left, _ in rows],
                [right[:end].split() for _, right in rows],
                [right[end:].strip() for _, right in rows],
            )
        )
    return found


def said_to_be_left_out(printed: str, what: str, total: int) -> list[int]:
    """Return which rows or columns a page says that it leaves out of so many."""
    said = re.search(rf"{what}s? (\d+)(?: to (\d+))? \(([\d,]+) of ([\d,]+)\)", " ".join(printed.split()))
    if said is None:
        return []
    hidden = [*range(int(said[1]), int(said[2] or said[1]) + 1)]
    assert said.group(3, 4) == (f"{len(hidden):,}", f"{total:,}")
    return hidden


def check_left_out(printed: str, what: str, seen: Sequence[int], total: int) -> None:
    """Hold that what is seen and what is said to be left out make up all of it."""
    assert sorted([*seen, *said_to_be_left_out(printed, what, total)]) == [*range(total)]


@dataclass(frozen=True)
class Terminal:
    """What a terminal shows after a command; `history` is how many lines have scrolled away."""

    raw: str
    screen: pyte.Screen
    history: int = 0

    @property
    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip() + "\n"


def drawn(raw: str, width: int, height: int = 300) -> Terminal:
    """Return what a terminal of this size shows of some output, whose lines end as a terminal ends them."""
    screen = pyte.HistoryScreen(width, height, history=1000)
    pyte.Stream(screen).feed(raw)
    return Terminal(raw.replace("\r\n", "\n"), screen, len(screen.history.top))


def on_terminal(width: int, *arguments: str, height: int = 300, **environment: str) -> Terminal:
    """Run embcli in a pseudo-terminal; a line that is wider than it would be seen to go on in the next one."""
    status, raw = in_terminal(width, height, *arguments, **COLORS, **environment)
    assert status == 0, raw
    return drawn(raw, width, height)


def help_on_terminal(width: int, *arguments: str, height: int = 300) -> Terminal:
    """Run embcli in a pseudo-terminal, for help, which asks Python for the size of the process's own terminal."""
    return on_terminal(width, *arguments, height=height, COLUMNS=str(width), LINES=str(height))


# --- colours ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Styled:
    """A piece of a line, and the parameters of the escape sequences that are in force there."""

    text: str
    codes: tuple[int, ...] = ()

    @property
    def color(self) -> tuple[int, ...]:
        """The parameters of its colour: none, one of the 16, 38;5;n, or 38;2;r;g;b."""
        return self.codes[len(self._attributes) :]

    @property
    def bold(self) -> bool:
        return 1 in self._attributes

    @property
    def dim(self) -> bool:
        return 2 in self._attributes

    @property
    def _attributes(self) -> tuple[int, ...]:
        return tuple(takewhile(lambda code: code < 30, self.codes))


def styled(line: str) -> Iterator[Styled]:
    """Yield the pieces of a line with their styles, each of which rich ends before the next begins."""
    codes: tuple[int, ...] = ()
    for place, part in enumerate(re.split(r"\x1b\[([0-9;]*)m", line)):
        if place % 2:
            codes = () if part in ("", "0") else tuple(map(int, part.split(";")))
        elif part:
            yield Styled(part, codes)


def words(printed: str, pattern: str) -> list[Styled]:
    """Return all pieces with a style of their own that match this pattern, blanks aside."""
    pieces = [Styled(piece.text.strip(), piece.codes) for line in printed.split("\n") for piece in styled(line)]
    return [piece for piece in pieces if piece.text and re.fullmatch(pattern, piece.text)]


def rgb(color: tuple[int, ...]) -> tuple[int, int, int]:
    """Return the colour that truecolor or 256-colour parameters name; the 16 others are the terminal's own."""
    if color[:2] == (38, 2):
        return color[2:5]
    assert color[:2] == (38, 5), color
    number = color[2]
    assert number >= 16, "whose shade the terminal chooses"
    if number >= 232:
        return (8 + 10 * (number - 232),) * 3
    levels = (0, 95, 135, 175, 215, 255)
    return levels[(number - 16) // 36], levels[(number - 16) // 6 % 6], levels[(number - 16) % 6]


def contrast(one: tuple[int, int, int], other: tuple[int, int, int]) -> float:
    """Return the contrast of two colours, as WCAG 2 defines it."""

    def luminance(color: tuple[int, int, int]) -> float:
        shares = [part / 255 for part in color]
        red, green, blue = [share / 12.92 if share <= 0.04045 else ((share + 0.055) / 1.055) ** 2.4 for share in shares]
        return 0.2126 * red + 0.7152 * green + 0.0722 * blue

    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)
