"""A page for a terminal, or for a pipe, where it is the same but plain and with one line a row."""

from __future__ import annotations

import io
import os
import sys
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from embcli.page import Page
from embcli.page.layout import GAP, Bar, Column, Word, width

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from embcli.page import Paper
    from embcli.page.layout import Columns

_STYLES = {
    "plain": "",
    "strong": "bold",
    "dim": "dim",
    "good": "bold green",
    "bad": "bold red",
    "embedding": "rgb(60,130,246)",
    "linear": "rgb(234,88,12)",
    "even token": "white on rgb(30,64,120)",
    "odd token": "white on rgb(120,60,16)",
}
_COLD, _NEUTRAL, _WARM = (60, 130, 246), (140, 140, 140), (234, 88, 12)
_SHADES = 8


class Terminal(Page):
    """A page that rich draws: as wide as the terminal, or as COLUMNS says, or 120 for a pipe."""

    def __init__(self, paper: Paper) -> None:
        super().__init__(paper)
        self._console = Console(
            file=io.StringIO(),
            force_terminal=paper.color,
            color_system=("standard" if os.environ.get("TERM") == "dumb" else "auto") if paper.color else None,
            no_color=not paper.color,
            highlight=False,
            markup=False,
            emoji=False,
            legacy_windows=False,
            height=25,  # of no use, but without it rich takes a dumb terminal to be 80 cells wide
        )

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
                    min_width=column.width,
                    no_wrap=True,
                    overflow="crop",
                    style=_STYLES[column.tone],
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

    def _cell(self, cell: str | Word) -> Text:
        return Text(cell) if isinstance(cell, str) else Text(cell.text, _style(cell))

    def _text(self, *words: Word) -> Text:
        text = Text()
        for word in words:
            text.append(word.text, _style(word))
        return text

    def _drawn(self, renderable: RenderableType, cells: int) -> str:
        self._console.width = max(cells, 1)
        with self._console.capture() as capture:
            self._console.print(renderable)
        return "".join(f"{line.rstrip(' ')}\n" for line in capture.get().split("\n")[:-1])


def _style(word: Word) -> str:
    """Return how a word looks: by its tone, or cold below zero, warm above, grey near it."""
    if word.share is None:
        return _STYLES[word.tone]
    share = round(min(abs(word.share), 1.0) * _SHADES) / _SHADES
    end = _WARM if word.share > 0 else _COLD
    red, green, blue = (round(n + (e - n) * share) for n, e in zip(_NEUTRAL, end, strict=True))
    return f"rgb({red},{green},{blue})"
