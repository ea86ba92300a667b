"""A page drawn for a file in place of a terminal: what a truecolour terminal would show, cell by cell.

The page is that of a terminal, read back from its escape sequences (no text on a page holds one): runs of characters
that look alike. Lines and blocks are drawn as rectangles, so that they meet whatever the font is; their characters stay
in the text, unseen.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from rich.ansi import AnsiDecoder
from rich.cells import split_graphemes

from embcli.page.canvas import CELL, LINE, MARGIN, PALETTES, Canvas, Span
from embcli.page.terminal import Terminal

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.style import Style

    from embcli.page import Paper
    from embcli.page.layout import Word

    Box = tuple[float, float, float, float]  # left, top, right, bottom, in cells

_WHOLE: Box = (0, 0, 1, 1)
_PARTS: dict[str, tuple[Box, Box]] = {  # of a cell: what has the colour of the character, and what that of its ground
    "▀": ((0, 0, 1, 0.5), (0, 0.5, 1, 1)),
    "▄": ((0, 0.5, 1, 1), (0, 0, 1, 0.5)),
    "▐": ((0.5, 0, 1, 1), (0, 0, 0.5, 1)),
    **{chr(0x2590 - each): ((0, 0, each / 8, 1), (each / 8, 0, 1, 1)) for each in range(1, 8)},  # ▏ to ▉
}
_ACROSS, _DOWN = (0.5, 0.555), (0.47, 0.585)  # where in a cell a stroke stands: one unit of it
_STROKES: dict[str, list[Box]] = {
    "─": [(0, _ACROSS[0], 1, _ACROSS[1])],
    "│": [(_DOWN[0], 0, _DOWN[1], 1)],
    "╭": [(_DOWN[0], _ACROSS[0], 1, _ACROSS[1]), (_DOWN[0], _ACROSS[1], _DOWN[1], 1)],
    "╰": [(_DOWN[0], 0, _DOWN[1], _ACROSS[0]), (_DOWN[0], _ACROSS[0], 1, _ACROSS[1])],
}
_SHAPES = {" ", "█", *_PARTS, *_STROKES}


@dataclass(frozen=True)
class Run:
    """Characters side by side that look alike: blanks, or one that is drawn by rectangles, or ASCII, or others."""

    at: int  # cells from the left
    cells: int
    text: str
    ink: str
    ground: str | None = None
    bold: bool = False

    @property
    def is_blank(self) -> bool:
        """Whether nothing is to be seen."""
        return self.ground is None and not self.text.strip(" ")

    @property
    def is_shape(self) -> bool:
        """Whether it is drawn by rectangles, and not by a font."""
        return self.text[0] in _SHAPES and not self.is_blank

    def boxes(self) -> Iterator[tuple[Box, str]]:
        """Yield the rectangles that it is made of, from its own left, and their colours; they do not overlap."""
        for (left, top, right, bottom), color in self._cell():
            if (left, right) == (0, 1):
                yield (0, top, self.cells, bottom), color
            else:
                for cell in range(self.cells):
                    yield (cell + left, top, cell + right, bottom), color

    def _cell(self) -> list[tuple[Box, str]]:
        """Return the rectangles of each of its cells."""
        sign = self.text[0]
        if sign in _STROKES:
            return [(box, self.ink) for box in _STROKES[sign]]
        if sign == "█":
            return [(_WHOLE, self.ink)]
        part, rest = _PARTS.get(sign, (None, _WHOLE))
        ground = [(rest, self.ground)] if self.ground else []
        return [(part, self.ink), *ground] if part else ground

    def follows(self, other: Run) -> bool:
        """Return whether it goes on as the other one does."""
        kinds = [
            (run.is_blank, run.is_shape and run.text[0], run.text.isascii(), run.cells / len(run.text))
            for run in (self, other)
        ]
        return kinds[0] == kinds[1] and (self.is_blank or self.looks == other.looks)

    @property
    def is_drawn(self) -> bool:
        """Whether any of it is drawn by rectangles."""
        return self.is_shape or self.ground is not None

    @property
    def looks(self) -> tuple[str, str | None, bool]:
        """How its characters look."""
        return self.ink, self.ground, self.bold

    def __add__(self, other: Run) -> Run:
        return replace(self, text=self.text + other.text, cells=self.cells + other.cells)


class Drawn(Terminal):
    """A page with colours for a file; its lines are wrapped where it ends."""

    def __init__(self, paper: Paper) -> None:
        self._palette = PALETTES[paper.theme]
        super().__init__(paper, self._palette.tones)

    def _line(self, words: list[Word]) -> str:
        return self._drawn(self._text(*words), self.width)

    def runs(self) -> list[list[Run]]:
        """Return the lines of the page as runs, blank ones too, without those at the end of a line."""
        return [self._runs(line) for line in "".join(self._parts).split("\n")[:-1]]

    def _runs(self, line: str) -> list[Run]:
        runs: list[Run] = []
        text = AnsiDecoder().decode_line(line)
        text.end, at = "", 0
        for piece, style, _ in text.render(self._console):
            for start, end, cells in split_graphemes(piece)[0]:
                one = self._styled(piece[start:end], cells, at, style)
                if runs and (not cells or one.follows(runs[-1])):
                    runs[-1] += one
                else:
                    runs.append(one)
                at += cells
        return _sentences(runs[:-1] if runs and runs[-1].is_blank else runs)

    def _styled(self, text: str, cells: int, at: int, style: Style | None) -> Run:
        ink = self._palette.dim if text in _STROKES else self._palette.ink
        if style is None:
            return Run(at, cells, text, ink)
        color, ground = (each.get_truecolor().hex if each else None for each in (style.color, style.bgcolor))
        return Run(at, cells, text, color or (self._palette.dim if style.dim else ink), ground, bool(style.bold))


class OnCanvas(Drawn):
    """A page that is drawn on a canvas, as large as what is on it."""

    def content(self) -> bytes:
        """Return the page as a picture."""
        lines = self.runs()
        cells = max((run.at + run.cells for line in lines for run in line), default=0)
        canvas = self._canvas(2 * MARGIN + math.ceil(cells * CELL), 2 * MARGIN + len(lines) * LINE)
        for number, line in enumerate(lines):
            y = MARGIN + number * LINE
            for (left, top, right, bottom), color in boxes_of(line):
                size = (right - left) * CELL, (bottom - top) * LINE
                canvas.rectangle(MARGIN + left * CELL, y + top * LINE, *size, color)
            canvas.line(y, [*_spans(line)])
        return canvas.content()

    @abstractmethod
    def _canvas(self, width: int, height: int) -> Canvas: ...


def _sentences(runs: list[Run]) -> list[Run]:
    """Return the runs of a line with words that are one blank apart made one; columns of a table are further."""
    joined: list[Run] = []
    for run in runs:
        if len(joined) > 1 and joined[-1].text == " " and joined[-1].is_blank:
            first = joined[-2]
            if all(each.text.isascii() and not each.is_shape for each in (first, run)) and first.looks == run.looks:
                blank = joined.pop()
                joined[-1] = first + blank + run
                continue
        joined.append(run)
    return joined


def _spans(line: list[Run]) -> Iterator[Span]:
    """Yield the text of a line; what is drawn side by side is one span of it."""
    for drawn, group in groupby(line, key=lambda run: run.is_shape):
        runs = [*group]
        for some in [runs] if drawn else [[run] for run in runs]:
            text, cells = "".join(run.text for run in some), sum(run.cells for run in some)
            first = some[0]
            yield Span(MARGIN + first.at * CELL, cells * CELL, text, None if drawn else first.ink, first.bold)


def boxes_of(line: list[Run]) -> list[tuple[Box, str]]:
    """Return the rectangles of a line, with those made one that are side by side and of one colour."""
    boxes: list[tuple[Box, str]] = []
    open_at: dict[tuple[float, float, float, str], int] = {}  # right, top, bottom, colour -> place
    for run in line:
        for (left, top, right, bottom), color in run.boxes():
            left, right = left + run.at, right + run.at
            place = open_at.pop((left, top, bottom, color), None)
            if place is None:
                place = len(boxes)
                boxes.append(((left, top, right, bottom), color))
            else:
                boxes[place] = ((boxes[place][0][0], top, right, bottom), color)
            open_at[right, top, bottom, color] = place
    return boxes
