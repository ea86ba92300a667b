"""A page drawn for a file: its cells as text and rectangles.

Lines and blocks are drawn as rectangles, so that they meet whatever the font is; their characters stay in the text,
invisible.
"""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import ClassVar

from rich.cells import split_graphemes

from embcli.oldpage import Paper, heat
from embcli.oldpage.canvas import CELL, LINE, MARGIN, PALETTES, Canvas, Palette, Span
from embcli.oldpage.lines import Color, Piece, Sheet

Box = tuple[float, float, float, float]  # left, top, right, bottom, in cells

_WHOLE: Box = (0, 0, 1, 1)
_PARTS: dict[str, tuple[Box, Box]] = {  # of a cell: in the colour of the character, and in that of its ground
    "▀": ((0, 0, 1, 0.5), (0, 0.5, 1, 1)),
    "▄": ((0, 0.5, 1, 1), (0, 0, 1, 0.5)),
    "▐": ((0.5, 0, 1, 1), (0, 0, 0.5, 1)),
    **{chr(0x2590 - each): ((0, 0, each / 8, 1), (each / 8, 0, 1, 1)) for each in range(1, 8)},  # ▏ to ▉
}
_ACROSS, _DOWN = (0.5, 0.555), (0.47, 0.585)  # the place of a stroke in a cell
_STROKES: dict[str, list[Box]] = {
    "─": [(0, _ACROSS[0], 1, _ACROSS[1])],
    "│": [(_DOWN[0], 0, _DOWN[1], 1)],
    "╭": [(_DOWN[0], _ACROSS[0], 1, _ACROSS[1]), (_DOWN[0], _ACROSS[1], _DOWN[1], 1)],
    "╰": [(_DOWN[0], 0, _DOWN[1], _ACROSS[0]), (_DOWN[0], _ACROSS[0], 1, _ACROSS[1])],
}
_SHAPES = {" ", "█", *_PARTS, *_STROKES}
_MARK: dict[Color, str] = {"mark": "#ffd700", "black": "#000000"}


@dataclass(frozen=True)
class Run:
    """Characters side by side that look alike: blanks, one shape repeated, ASCII, or others of one width."""

    at: int  # cells from the left
    cells: int
    text: str
    ink: str
    ground: str | None
    bold: bool

    @property
    def is_blank(self) -> bool:
        """Whether it is invisible."""
        return self.ground is None and not self.text.strip(" ")

    @property
    def is_shape(self) -> bool:
        """Whether it is drawn by rectangles only, without a font."""
        return {*self.text} <= _SHAPES and not self.is_blank

    @property
    def is_drawn(self) -> bool:
        """Whether it is drawn by rectangles, perhaps with text on them."""
        return self.is_shape or self.ground is not None

    def boxes(self) -> Iterator[tuple[Box, str]]:
        """Yield its rectangles, in cells from the left of the line, and their colours; they do not overlap."""
        sign = self.text[0] if self.is_shape else " "
        boxes: list[tuple[Box | None, str | None]] = [(box, self.ink) for box in _STROKES.get(sign, [])]
        if not boxes:
            part, rest = (_WHOLE, None) if sign == "█" else _PARTS.get(sign, (None, _WHOLE))
            boxes = [(part, self.ink), (rest, self.ground)]
        for box, color in boxes:
            if box and color:
                left, top, right, bottom = box
                whole = (left, right) == (0, 1)
                for cell in (self.at,) if whole else range(self.at, self.at + self.cells):
                    yield (cell + left, top, cell + (self.cells if whole else right), bottom), color


class ThemedPage(Sheet):
    """A page for a file, in the colours of a theme."""

    def __init__(self, paper: Paper) -> None:
        super().__init__(paper)
        self.palette = PALETTES[paper.theme]
        self.colors = len(heat.TRUECOLOR) if paper.color else 0

    def runs(self, palette: Palette) -> list[list[Run]]:
        """Return the lines of the page in the colours of a palette, without blanks at their ends."""
        return [_runs(row, palette) for row in self.rows()]


def _runs(row: list[Piece], palette: Palette) -> list[Run]:
    """Return a line in runs, without blanks at its end."""
    runs: list[Run] = []
    at = 0
    for look, pieces in groupby(row, key=lambda piece: piece.look):
        text = "".join(piece.text for piece in pieces)
        ground = _shade(look.ground, palette)
        spans = [(_kind(text, start, end, cells), start, end, cells) for start, end, cells in split_graphemes(text)[0]]
        for kind, group in groupby(spans, key=lambda span: span[0]):
            _, starts, ends, widths = zip(*group, strict=True)
            ink = _shade(look.color, palette) or (palette.dim if look.dim or kind in _STROKES else palette.ink)
            if look.reverse:
                ink, ground = palette.ground, palette.ink
            runs.append(Run(at, sum(widths), text[starts[0] : ends[-1]], ink, ground, look.bold))
            at += sum(widths)
    while runs and runs[-1].is_blank:
        runs.pop()
    return runs


def _kind(text: str, start: int, end: int, cells: int) -> str | float:
    """Return what a character has in common with others in its run.

    Words that are one blank apart are one run; columns of a table are further apart.
    """
    if text[start:end] in _SHAPES and not re.fullmatch("[!-~] [!-~]", text[max(start - 1, 0) : end + 1]):
        return text[start:end]
    return "ASCII" if text[start:end].isascii() else cells / (end - start)


def _shade(color: Color | None, palette: Palette) -> str | None:
    if isinstance(color, int):
        return "#" + bytes(heat.TRUECOLOR[color]).hex()
    return None if color is None else _MARK.get(color) or palette.tones[color]


def boxes_of(line: Sequence[Run]) -> list[tuple[Box, str]]:
    """Return the rectangles of a line, those joined that are side by side and of one colour."""
    boxes: list[tuple[Box, str]] = []
    open_at: dict[tuple[float, float, float, str], int] = {}  # right, top, bottom, colour -> place
    for run in line:
        for (left, top, right, bottom), color in run.boxes():
            place = open_at.pop((left, top, bottom, color), None)
            if place is None:
                place = len(boxes)
                boxes.append(((left, top, right, bottom), color))
            else:
                boxes[place] = ((boxes[place][0][0], top, right, bottom), color)
            open_at[right, top, bottom, color] = place
    return boxes


class CanvasPage(ThemedPage):
    """A page drawn on a canvas that is as large as its content."""

    kind: ClassVar[type[Canvas]]

    def safe(self, text: str) -> str:
        """Return a text as its canvas can show it within a line."""
        return self.kind.safe(text)

    def content(self) -> bytes:
        """Return the page as a picture."""
        lines = self.runs(self.palette)
        cells = max((run.at + run.cells for line in lines for run in line), default=0)
        canvas = self.kind(2 * MARGIN + math.ceil(cells * CELL), 2 * MARGIN + len(lines) * LINE, self.palette)
        for number, line in enumerate(lines):
            y = MARGIN + number * LINE
            for (left, top, right, bottom), color in boxes_of(line):
                size = (right - left) * CELL, (bottom - top) * LINE
                canvas.rectangle(MARGIN + left * CELL, y + top * LINE, *size, color)
            canvas.line(y, [*_spans(line)])
        return canvas.content()


def _spans(line: list[Run]) -> Iterator[Span]:
    """Yield the text of a line; shapes side by side are one span, which is invisible."""
    for is_shape, group in groupby(line, key=lambda run: run.is_shape):
        runs = [*group]
        if is_shape:
            text, cells = "".join(run.text for run in runs), sum(run.cells for run in runs)
            yield Span(MARGIN + runs[0].at * CELL, cells * CELL, text, None, runs[0].bold)
        else:
            yield from (Span(MARGIN + run.at * CELL, run.cells * CELL, run.text, run.ink, run.bold) for run in runs)
