"""A page for a terminal, or for a pipe, where it is the same but plain and with one line a row."""

from __future__ import annotations

import io
import os
import sys
from itertools import groupby
from typing import TYPE_CHECKING, Literal

from rich.box import SIMPLE_HEAD
from rich.color import Color
from rich.console import Console
from rich.segment import Segment, Segments
from rich.style import Style
from rich.table import Table
from rich.text import Text

from embcli.page import Page, heat
from embcli.page.heat import Strip, colored, drawn
from embcli.page.layout import GAP, Bar, Column, Word, width

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from rich.console import RenderableType

    from embcli.page import Paper
    from embcli.page.layout import Cell, Columns

# Each colour of these can be read on black, on white, and on both grounds of Solarized: 3:1 at least, and no colour
# reaches 4.5:1 on all four. All are among the 256 colours; of the 16, whose shades the terminal chooses, these are
# nearest in meaning.
_COLORS = {
    "cold": ("rgb(0,135,215)", "bright_blue"),
    "warm": ("rgb(215,95,0)", "red"),
    "good": ("rgb(0,135,0)", "green"),
    "bad": ("rgb(255,0,0)", "red"),
    "token 2": ("rgb(95,135,0)", "green"),
    "token 3": ("rgb(175,95,215)", "magenta"),
}
_STYLES = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "bold {good}",
    "bad": "bold {bad}",
    "embedding": "{cold}",
    "linear": "{warm}",
    "token 0": "{cold}",
    "token 1": "{warm}",
    "token 2": "{token 2}",
    "token 3": "{token 3}",
}
_SCALES = {  # the colours of strips
    "truecolor": [Color.from_rgb(*each) for each in heat.TRUECOLOR],
    "256": [Color.from_ansi(each) for each in heat.COLORS_256],
    "standard": [Color.from_ansi(each) for each in heat.COLORS_16],
}
_ON_BLACK = {  # how marks in them look
    "truecolor": Style(color=Color.from_rgb(255, 215, 0), bgcolor=Color.from_rgb(0, 0, 0), bold=True),
    "256": Style(color=Color.from_ansi(220), bgcolor=Color.from_ansi(16), bold=True),
    "standard": Style(color=Color.from_ansi(11), bgcolor=Color.from_ansi(0), bold=True),
}
_MARKS = {heat.NAN: heat.NAN_MARK, heat.INFINITE: heat.INFINITE_MARK}
_NEAR_ZERO, _LARGE = 1 / 8, 7 / 8  # shares of the largest number


class Terminal(Page):
    """A page that rich draws: as wide as the terminal, or as COLUMNS says, or 120 for a pipe."""

    def __init__(self, paper: Paper, colors: Mapping[str, str] | None = None) -> None:
        """Make an empty page; `colors` are those of the tones where it is drawn for a file, in truecolour."""
        super().__init__(paper)
        system: Literal["truecolor", "standard", "auto"]
        system = "truecolor" if colors else "standard" if os.environ.get("TERM") == "dumb" else "auto"
        self._console = Console(
            file=io.StringIO(),
            force_terminal=paper.color,
            color_system=system if paper.color else None,
            no_color=not paper.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            height=25,  # of no use, but without it rich takes a dumb terminal to be 80 cells wide
        )
        self._colors = _SCALES.get(self._console.color_system or "", [])  # of strips; none where they are characters
        self._seen: dict[tuple[int, int, bool], tuple[str, Style]] = {}  # what cells of strips look like
        few = self._console.color_system == "standard"
        colors = colors or {name: pair[few] for name, pair in _COLORS.items()}
        self._styles = {tone: style.format_map(colors) for tone, style in _STYLES.items()}

    def content(self) -> bytes:
        """Return the page in the encoding of the terminal, or else in UTF-8."""
        encoding = (sys.stdout.encoding if self.paper.screen else None) or "utf-8"
        return "".join(self._parts).encode(encoding, "backslashreplace")

    def _title(self, text: str) -> str:
        return self._line([Word(text, "strong")])

    def _line(self, words: list[Word]) -> str:
        text = self._text(*words)
        if self.paper.screen:
            return self._drawn(text, self.width)
        text.no_wrap = True  # one line a row: programs read it
        return self._drawn(text, text.cell_len)

    def _table(self, columns: Columns, gaps: Sequence[int], ruled: bool) -> str:
        box = SIMPLE_HEAD if ruled else None
        table = Table(box=box, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), border_style="dim")
        for column in columns:
            if isinstance(column, Bar):
                table.add_column("│", width=1, style="dim")
            else:
                table.add_column(
                    Text(column.header),
                    justify=column.align,
                    width=column.width,
                    no_wrap=True,
                    overflow="crop",
                    style=self._styles[column.tone],
                )
        rows = len(next(column.cells for column in columns if isinstance(column, Column)))
        for row in range(rows):
            if row in gaps:
                table.add_row(*("│" if isinstance(each, Bar) else "⋮" for each in columns), style="dim")
            table.add_row(*("│" if isinstance(each, Bar) else self._cell(each.cells[row]) for each in columns))
        drawn = self._drawn(table, max(width(columns, GAP if ruled else 1), self.width))
        return self._titles(columns) + drawn

    def _titles(self, columns: Columns) -> str:
        """Return the line over a table that tells what stands behind its bars, if they have titles."""
        if not any(isinstance(column, Bar) and column.title for column in columns):
            return ""
        line = Text()
        for place, column in enumerate(columns):
            if isinstance(column, Bar):
                line.pad_right(width(columns[:place]) + GAP - line.cell_len)
                line.append("│  ", "dim").append(column.title, "bold")
        return self._drawn(line, max(line.cell_len, self.width))

    def _cell(self, cell: Cell) -> RenderableType:
        if isinstance(cell, Strip):
            return Segments(self._segments(cell))
        return Text(cell) if isinstance(cell, str) else Text(cell.text, self._style(cell))

    @property
    def _halves(self) -> bool:
        return bool(self._colors)

    def _scale(self, low: str, bar: Strip, high: str) -> str:
        line = Segments([Segment(f"{low} "), *self._segments(bar), Segment(f" {high}"), Segment.line()])
        return self._drawn(line, len(f"{low}  {high}") + bar.width)

    def _segments(self, strip: Strip) -> list[Segment]:
        """Return the cells of a strip, with equal ones that follow each other in one piece."""
        if not self._colors:
            return [Segment(drawn(strip))]
        halves = (half.tolist() for half in colored(strip, len(self._colors)))
        upright = strip.shared == "column"
        pieces = []
        for (first, second), cells in groupby(zip(*halves, strict=True)):
            text, style = self._look(first, second, upright)
            pieces.append(Segment(text * len([*cells]), style))
        return pieces

    def _look(self, first: int, second: int, upright: bool) -> tuple[str, Style]:
        """Return what a cell of a strip looks like whose halves have these steps; a mark stands for both."""
        key = first, second, upright
        if key not in self._seen:
            mark = next((_MARKS[half] for half in (heat.NAN, heat.INFINITE) if half in (first, second)), None)
            if mark:
                self._seen[key] = mark, _ON_BLACK[self._console.color_system or ""]
            elif first == second:
                self._seen[key] = " ", Style(bgcolor=self._colors[first])
            else:
                ground = self._colors[second] if second < len(self._colors) else None
                self._seen[key] = "▀" if upright else "▌", Style(color=self._colors[first], bgcolor=ground)
        return self._seen[key]

    def _text(self, *words: Word) -> Text:
        text = Text()
        for word in words:
            text.append(word.text, self._style(word))
        return text

    def _style(self, word: Word) -> str:
        """Return how a word looks: by its tone, or a number by its sign and size, plain near zero, bold if large."""
        if word.share is None:
            return self._styles[word.tone]
        if abs(word.share) < _NEAR_ZERO:
            return ""
        color = self._styles["linear" if word.share > 0 else "embedding"]
        return f"bold {color}" if abs(word.share) >= _LARGE else color

    def _drawn(self, renderable: RenderableType, cells: int) -> str:
        self._console.width = max(cells, 1)
        with self._console.capture() as capture:
            self._console.print(renderable)
        return "".join(f"{line.rstrip(' ')}\n" for line in capture.get().split("\n")[:-1])
