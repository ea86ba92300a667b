"""A page as lines of cells: pieces of text with their looks, which a terminal, an SVG, an HTML page and a PNG draw.

A look names its colours; each kind of page chooses the shades.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from typing import Literal

from embcli.oldpage import Line, Page, Table
from embcli.oldpage.heat import INFINITE, INFINITE_MARK, NAN, NAN_MARK, Strip
from embcli.oldpage.layout import GAP, Bar, Cell, Column, Tone, Word, cell_len, width

Tint = Literal["cold", "warm", "good", "bad", "token 2", "token 3"]
Color = Tint | Literal["mark", "black"] | int  # a number is a place on the scale of strips


@dataclass(frozen=True)
class Look:
    """How characters look; None stands for the usual colour."""

    color: Color | None = None
    ground: Color | None = None
    bold: bool = False
    dim: bool = False
    reverse: bool = False  # of the line under a cursor, on the full screen only

    def on(self, base: Look) -> Look:
        """Return this look in a row or column that has another one."""
        color = base.color if self.color is None else self.color
        return Look(color, self.ground, self.bold or base.bold, self.dim or base.dim)


@dataclass(frozen=True)
class Piece:
    """A piece of a line."""

    text: str
    look: Look = Look()


_PLAIN, _STRONG, _DIM = Look(), Look(bold=True), Look(dim=True)
_MARKED = Look("mark", "black", bold=True)
_LOOKS: dict[Tone, Look] = {
    "plain": _PLAIN,
    "strong": _STRONG,
    "dim": _DIM,
    "good": Look("good", bold=True),
    "bad": Look("bad", bold=True),
    "embedding": Look("cold"),
    "linear": Look("warm"),
    "token 0": Look("cold"),
    "token 1": Look("warm"),
    "token 2": Look("token 2"),
    "token 3": Look("token 3"),
}


def _look(word: Word) -> Look:
    """Return how a word looks: by its tone; a number is blue below zero and orange above, as in strips."""
    look = _LOOKS[word.tone]
    return replace(look, color="warm" if word.sign > 0 else "cold") if word.sign else look


class Sheet(Page):
    """A page of lines of cells; lines of text that are too long are wrapped."""

    wraps = True

    def rows(self) -> list[list[Piece]]:
        """Return the lines of the page; without colour they have no looks."""
        rows: list[list[Piece]] = []
        for item in self.items:
            rows += self._wrapped(item) if isinstance(item, Line) else self._table(item)
        return rows if self.colors else [[Piece("".join(piece.text for piece in row))] for row in rows]

    @property
    def lines(self) -> int:
        """How many lines of a screen the page takes."""
        return len(self.rows())

    def _wrapped(self, line: Line) -> Iterable[list[Piece]]:
        pieces = [piece for cell in line.cells for piece in self._pieces(cell)]
        fits = sum(cell.width for cell in line.cells) <= self.width
        return [pieces] if fits or not self.wraps else _wrapped(pieces, self.width)

    def _table(self, table: Table) -> Iterator[list[Piece]]:
        """Yield the titles of bars, the header, the rule and the rows of a table."""
        if any(isinstance(column, Bar) and column.title for column in table.columns):
            yield _titles(table)
        count = next(len(column.cells) for column in table.columns if isinstance(column, Column))
        bar = Column("│", ["│"] * count, tone="dim")
        columns = [bar if isinstance(column, Bar) else column for column in table.columns]
        widths = [column.width for column in columns]
        looks = [_LOOKS[column.tone] for column in columns]
        gap = [Piece(" ", _DIM)] if table.ruled else []

        def row(contents: Iterable[Cell], looks: Iterable[Look]) -> list[Piece]:
            pieces: list[Piece] = []
            for column, cells, cell, look in zip(columns, widths, contents, looks, strict=True):
                pieces += [*self._pieces(cell, look, cells, column.align == "right"), Piece(" ", look), *gap]
            return pieces[: -1 - len(gap)]

        yield row([Word(column.header) for column in columns], [_STRONG] * len(columns))
        if table.ruled:
            yield [Piece("─" * width(table.columns), _DIM)]
        for place in range(count):
            if place in table.gaps:
                dots = [Word("│" if column is bar else "⋮") for column in columns]
                yield row(dots, [_DIM.on(look) for look in looks])
            yield row([column.cells[place] for column in columns], looks)

    def _pieces(self, cell: Cell, base: Look = _PLAIN, width: int = 0, right: bool = False) -> list[Piece]:
        """Return a cell in pieces, with blanks up to a width."""
        if not isinstance(cell, Strip):
            blanks = " " * (width - cell.width)
            return [Piece(blanks + cell.text if right else cell.text + blanks, _look(cell).on(base))]
        if not self.colors:
            return [Piece(cell.characters().ljust(width))]
        cells = groupby(cell.colors(self.colors))
        pieces = [_colored(*colors, cell.shared == "column", len([*group])) for colors, group in cells]
        return [*pieces, Piece(" " * (width - cell.width))]


@cache
def _colored(first: int, second: int | None, upright: bool, count: int) -> Piece:
    """Return equal cells of a strip; a mark stands for both halves of its cell."""
    for step, mark in ((NAN, NAN_MARK), (INFINITE, INFINITE_MARK)):
        if step in (first, second):
            return Piece(mark * count, _MARKED)
    if first == second:
        return Piece(" " * count, Look(ground=first))
    return Piece(("▀" if upright else "▌") * count, Look(first, second))


def _titles(table: Table) -> list[Piece]:
    """Return the line above a table with the titles of its bars."""
    pieces, cells = [], 0
    for place, column in enumerate(table.columns):
        if isinstance(column, Bar):
            start = max(width(table.columns[:place]) + GAP, cells)
            pieces += [Piece(" " * (start - cells)), Piece("│  ", _DIM), Piece(column.title, _STRONG)]
            cells = start + len("│  ") + cell_len(column.title)
    return pieces


def _wrapped(pieces: Sequence[Piece], width: int) -> Iterator[list[Piece]]:
    """Yield a line broken before words that do not fit, and within words that are wider than the page."""
    text = "".join(piece.text for piece in pieces)
    owners = [piece for piece in pieces for _ in piece.text]
    starts = [0, *_breaks(text, width)]
    for start, end in zip(starts, [*starts[1:], len(text)], strict=True):
        while cell_len(text[start:end]) > width:
            end -= 1  # a blank, which is not needed at the end of a line
        groups = groupby(range(start, end), key=lambda place: id(owners[place]))
        parts = [[*places] for _, places in groups]
        yield [Piece(text[part[0] : part[-1] + 1], owners[part[0]].look) for part in parts]


def _breaks(text: str, width: int) -> Iterator[int]:
    """Yield the places where lines of at most `width` cells begin, without blanks at their ends, after the first."""
    taken = 0
    for match in re.finditer(r"\s*\S+\s*", text):
        start, word = match.start(), match[0]
        cells = cell_len(word.rstrip())
        if cells <= width - taken:
            taken += cell_len(word)
        elif cells <= width:
            yield start
            taken = cell_len(word)
        else:
            from rich.cells import chop_cells

            for part in chop_cells(word, width):
                if start:
                    yield start
                start += len(part)
                taken = cell_len(part)
